package main

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/opgraft/graft/models"
)

// Of the figure of the largest batch.
const (
	batchSubject = "bart-large" + models.Conditioned // values can be had from keys
	batchLimit   = 8 << 30
	batchPrompt  = 1024
	batchTokens  = 64
	batchSpare   = 2 // percent of the limit, by which what is predicted may be too low
	batchAgrees  = 0.05
)

// batchWay is one strategy, with the batches whose peaks are extrapolated and how
// many times the batch of the first way it has to allow.
type batchWay struct {
	name, strategy string
	small          [2]int
	least          float64
}

var batchWays = []batchWay{
	{"shared", strategyShared, [2]int{8, 24}, 1},
	{"output", strategyOutput, [2]int{8, 48}, 3.8},
	{"least", strategyLeast, [2]int{8, 48}, 5},
}

// batchDetail is what one way came to.
type batchDetail struct {
	Strategy string         `json:"strategy"`
	Small    []generateTook `json:"small"`
	// Whole is a generation from its beginning to its end, of as many requests as the first
	// of Small, which all run the last steps alone.
	Whole    *generateTook `json:"whole"`
	WholeOff float64       `json:"whole_off"` // of its peak from that of the last steps
	// FixedBytes and RequestBytes are the line through the peaks of the small batches.
	FixedBytes     int64 `json:"fixed_bytes"`
	RequestBytes   int64 `json:"request_bytes"`
	Batch          int   `json:"batch"`
	PredictedBytes int64 `json:"predicted_bytes"`
	// Confirmed is the largest batch in its last steps.
	Confirmed *generateTook `json:"confirmed"`
	Off       float64       `json:"off"` // of the confirmed peak from the predicted one
}

// attentionBatch is the largest batch whose process stays under a limit: extrapolated
// from two small ones, and then run.
func attentionBatch() figure {
	const what = "largest batch under 8 GiB of process memory, BART-large shape, 1,024 in, beam 4, 64 new tokens"
	need := fmt.Sprintf("cross=prompt_hidden_states at least %.1fx keys_values, self=keys as well %.0fx; run at most 8 "+
		"GiB and %.0f %% off", batchWays[1].least, batchWays[2].least, 100*batchAgrees)
	return figure{"attention-batch", what, need, func(ctx context.Context, b *bench) (*outcome, error) {
		folder, err := models.Cached(batchSubject, say)
		if err != nil {
			return nil, err
		}
		out := &outcome{Met: true, Answers: "not compared: attention-speed and the tests do"}
		details := map[string]*batchDetail{}
		out.Detail = details
		var got []string
		for _, w := range batchWays {
			d, err := w.measure(ctx, folder)
			if err != nil {
				return nil, err
			}
			details[w.name] = d
			ratio := float64(d.Batch) / float64(details[batchWays[0].name].Batch)
			out.Met = out.Met && ratio >= w.least && d.Confirmed.PeakRSSBytes <= batchLimit && math.Abs(d.Off) <= batchAgrees &&
				math.Abs(d.WholeOff) <= batchAgrees
			got = append(got, fmt.Sprintf(
				"%s %d (%.2fx), %.2f MB a request, %.2f GiB at the peak, %+.1f %% of what was predicted; a whole generation of "+
					"%d %+.1f %%",
				w.strategy, d.Batch, ratio, float64(d.RequestBytes)/1e6, float64(d.Confirmed.PeakRSSBytes)/(1<<30), 100*d.Off,
				d.Whole.Batch, 100*d.WholeOff))
		}
		out.Got = strings.Join(got, "; ")
		return out, nil
	}}
}

func (w batchWay) measure(ctx context.Context, folder string) (*batchDetail, error) {
	// What beams share and drop varies with what they say: no end, few repetitions.
	search, err := varied{3, 1.2}.search(batchTokens)
	if err != nil {
		return nil, err
	}
	j := generateJob{Folder: folder, Strategy: w.strategy, Prompt: batchPrompt, Tokens: batchTokens, Search: search,
		Seed: 3, Progress: true, Last: true}
	d := &batchDetail{Strategy: w.strategy}
	for _, j.Batch = range w.small {
		took, err := generateWhole(ctx, j)
		if err != nil {
			return nil, err
		}
		d.Small = append(d.Small, *took)
	}
	few, many := d.Small[0], d.Small[1]
	whole := j
	whole.Batch, whole.Last = few.Batch, false
	if d.Whole, err = generateWhole(ctx, whole); err != nil {
		return nil, err
	}
	d.WholeOff = float64(d.Whole.PeakRSSBytes)/float64(few.PeakRSSBytes) - 1
	d.RequestBytes = (many.PeakRSSBytes - few.PeakRSSBytes) / int64(many.Batch-few.Batch)
	d.FixedBytes = few.PeakRSSBytes - int64(few.Batch)*d.RequestBytes
	if d.RequestBytes <= 0 {
		return nil, fmt.Errorf("%s: %d requests take %d bytes and %d take %d: nothing can be extrapolated", w.strategy,
			few.Batch, few.PeakRSSBytes, many.Batch, many.PeakRSSBytes)
	}
	d.Batch = int((batchLimit - batchLimit*batchSpare/100 - d.FixedBytes) / d.RequestBytes)
	d.PredictedBytes = d.FixedBytes + int64(d.Batch)*d.RequestBytes
	j.Batch = d.Batch
	j.say("%d requests are predicted to take %.2f GiB; trying", d.Batch, float64(d.PredictedBytes)/(1<<30))
	if d.Confirmed, err = generateWhole(ctx, j); err != nil {
		return nil, err
	}
	if got, want := d.Confirmed.CrossBytes, few.CrossBytes/int64(few.Batch)*int64(d.Batch); got != want {
		return nil, fmt.Errorf("%s: %d bytes of inputs at once, needed are %d of all %d requests", w.strategy, got, want,
			d.Batch)
	}
	d.Off = float64(d.Confirmed.PeakRSSBytes)/float64(d.PredictedBytes) - 1
	return d, nil
}

// generateWhole does a job to the end.
func generateWhole(ctx context.Context, j generateJob) (*generateTook, error) {
	took, err := generateIn(ctx, j)
	if err != nil {
		return nil, err
	}
	j.say("%d requests: %.2f GiB at the peak, %.0f s", j.Batch, float64(took.PeakRSSBytes)/(1<<30), took.Seconds)
	need := j.Batch * j.Tokens
	if j.Last {
		need = j.Batch * 2
	}
	if took.Tokens != need {
		return nil, fmt.Errorf("%s: %d tokens of %d requests, needed are %d", j.Strategy, took.Tokens, j.Batch, need)
	}
	return &took, nil
}
