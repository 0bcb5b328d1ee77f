package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	batching "github.com/opgraft/graft/host/encode/batch"
	embedding "github.com/opgraft/graft/host/encode/encoder"
	"github.com/opgraft/graft/host/measure/statistics"
)

// callers is the number of goroutines that submit single texts.
const callers = 64

// textsARun is the number of texts of one timed run.
const textsARun = 512

// batched is the raw figures of the batcher against goroutines that share a session.
type batched struct {
	Model   string             `json:"model"`
	Lengths string             `json:"lengths"`
	Texts   int                `json:"texts"`
	Callers int                `json:"callers"`
	Tokens  [3]int             `json:"tokens"` // of a text: the 5th, 50th and 95th percentile
	Plain   batcherSide        `json:"plain"`
	Alone   batcherSide        `json:"alone"`
	Batched batcherSide        `json:"batched"`
	Speedup statistics.Speedup `json:"speedup"` // of the batcher over the plain session
	Own     statistics.Speedup `json:"speedup_over_alone"`
	// processor time against the plain session's, which other processes disturb less
	CPU     statistics.Speedup `json:"cpu"`
	Metrics batching.Metrics   `json:"metrics"`
	Padding float64            `json:"padding"`
	Cosine  float64            `json:"least_cosine"`
}

// batcherSide is one way to embed single texts.
type batcherSide struct {
	Seconds []float64 `json:"seconds"`
	CPU     []float64 `json:"cpu_seconds"` // of the process, all threads
	Delay   delays    `json:"delay"`

	embedder *embedding.Embedder
	together bool
	waits    []time.Duration
	vectors  [][]float32
}

// delays are the times of texts from the call to the vector, in milliseconds.
type delays struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func delaysOf(list []time.Duration) delays {
	slices.Sort(list)
	at := func(q float64) float64 { return float64(list[int(q*float64(len(list)-1))]) / 1e6 }
	return delays{at(0.5), at(0.99), at(1)}
}

// batcher compares goroutines that embed single texts in three ways: each by a run of its own in a plain session that
// they share, by a run of its own in a patched one, and through the batcher.
func batcher(options *batcherFlags, name, kind string) figure {
	return figure{name, fmt.Sprintf(
		"%d goroutines embed single texts, %s: through the batcher against runs of one text in the plain session that "+
			"they share", callers, kind),
		"at least 3.00x the throughput, equal vectors", func(ctx context.Context, b *bench) (*outcome, error) {
			return options.measure(ctx, b, kind)
		}}
}

func (f *batcherFlags) measure(ctx context.Context, b *bench, kind string) (*outcome, error) {
	folder, err := f.folder()
	if err != nil {
		return nil, err
	}
	texts, err := f.sentences()
	if err != nil {
		return nil, err
	}
	if kind == queries {
		texts = shortened(texts)
	}
	open := embedding.Options{Library: b.library, Pooling: f.pooling(folder), Normalize: true,
		Batch: batching.Options[embedding.Row]{MaxTokens: f.tokens, Runs: f.runs}, Threads: f.threads}
	plain, err := embedding.OpenEmbedder(ctx, folder, open)
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	open.Plugins = b.set
	patched, err := embedding.OpenEmbedder(ctx, folder, open)
	if err != nil {
		return nil, err
	}
	defer patched.Close()
	d := &batched{Model: filepath.Base(folder), Lengths: kind, Texts: textsARun, Callers: callers, Cosine: 1}
	if d.Tokens, err = tokensOf(ctx, patched, texts); err != nil {
		return nil, err
	}
	d.Plain.embedder, d.Alone.embedder, d.Batched.embedder, d.Batched.together = plain, patched, patched, true
	for round := range b.rounds/5 + 1 {
		for _, side := range []*batcherSide{&d.Plain, &d.Alone, &d.Batched, &d.Batched, &d.Alone, &d.Plain} {
			start, used := time.Now(), processor()
			list, got, err := run64(ctx, side.embedder, texts, round, side.together)
			if err != nil {
				return nil, err
			}
			seconds, cpu := time.Since(start).Seconds(), processor()-used
			if side.vectors == nil {
				side.vectors = got
			}
			if round > 0 {
				side.waits, side.Seconds, side.CPU = append(side.waits, list...), append(side.Seconds, seconds),
					append(side.CPU, cpu)
			}
		}
	}
	for i := range d.Plain.vectors {
		d.Cosine = min(d.Cosine, cosine(d.Plain.vectors[i], d.Batched.vectors[i]),
			cosine(d.Plain.vectors[i], d.Alone.vectors[i]))
	}
	for _, side := range []*batcherSide{&d.Plain, &d.Alone, &d.Batched} {
		side.Delay = delaysOf(side.waits)
	}
	d.Speedup = statistics.SpeedupOf(d.Plain.Seconds, d.Batched.Seconds)
	d.Own = statistics.SpeedupOf(d.Alone.Seconds, d.Batched.Seconds)
	d.CPU = statistics.SpeedupOf(d.Plain.CPU, d.Batched.CPU)
	d.Metrics = patched.Metrics()
	d.Padding = d.Metrics.Padding()
	return d.outcome(), nil
}

func (d *batched) outcome() *outcome {
	out := &outcome{Detail: d, Answers: fmt.Sprintf("vectors equal (least cosine %.7f)", d.Cosine)}
	equal := d.Cosine > 0.99999
	if !equal {
		out.Answers = fmt.Sprintf("vectors DIFFER (least cosine %.7f)", d.Cosine)
	}
	rate := func(s *batcherSide) float64 { return textsARun / statistics.Median(s.Seconds) }
	out.Met = equal && d.Speedup.Median >= 3
	out.Got = fmt.Sprintf("%.2fx (95%% %.2f to %.2f): %.0f -> %.0f texts/s; p50 %.0f -> %.0f ms, p99 %.0f -> %.0f ms; "+
		"processor time %.2fx; %.2fx of single runs of a patched session (%.0f texts/s); %d tokens a text, %.0f texts a "+
		"batch, %.0f%% padding",
		d.Speedup.Median, d.Speedup.CI95[0], d.Speedup.CI95[1], rate(&d.Plain), rate(&d.Batched),
		d.Plain.Delay.P50, d.Batched.Delay.P50, d.Plain.Delay.P99, d.Batched.Delay.P99, d.CPU.Median,
		d.Own.Median, rate(&d.Alone), d.Tokens[1], float64(d.Metrics.Rows)/float64(d.Metrics.Batches), 100*d.Padding)
	return out
}

// shortened gives the first words of each text, as many as queries of MS MARCO have: see wordsOf.
func shortened(texts []string) []string {
	random := rand.New(rand.NewPCG(1, 64))
	list := make([]string, len(texts))
	for i, text := range texts {
		words := strings.Fields(text)
		list[i] = strings.Join(words[:min(len(words), max(1, int(math.Round(wordsOf(random, queryWords, querySpread)))))],
			" ")
	}
	return list
}

// run64 embeds the texts of a round from many goroutines and returns how long each took.
func run64(ctx context.Context, e *embedding.Embedder, texts []string, round int, together bool) ([]time.Duration,
	[][]float32, error) {
	took, vectors := make([]time.Duration, textsARun), make([][]float32, textsARun)
	var next atomic.Int64
	errs := make([]error, callers)
	var group sync.WaitGroup
	for g := range callers {
		group.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= textsARun || errs[g] != nil {
					return
				}
				start := time.Now()
				row, err := e.Row(ctx, texts[(round*textsARun+i)%len(texts)], embedding.As{})
				var made embedding.Embedding
				if err == nil && together {
					var call *batching.Call[embedding.Row, embedding.Embedding]
					if call, err = e.Start(ctx, row, false); err == nil {
						made, err = call.Wait(ctx)
					}
				} else if err == nil {
					made, err = e.Alone(ctx, row)
				}
				vectors[i] = made.Dense
				took[i], errs[g] = time.Since(start), err
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, nil, err
		}
	}
	return took, vectors, nil
}

// processor is the processor time of this process so far, in seconds.
func processor() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return math.NaN()
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

func tokensOf(ctx context.Context, e *embedding.Embedder, texts []string) (p [3]int, err error) {
	list := make([]int, len(texts))
	for i, text := range texts {
		row, err := e.Row(ctx, text, embedding.As{})
		if err != nil {
			return p, err
		}
		list[i] = row.Length()
	}
	slices.Sort(list)
	for i, q := range []float64{0.05, 0.5, 0.95} {
		p[i] = list[int(q*float64(len(list)-1))]
	}
	return p, nil
}

func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range a {
		ab, aa, bb = ab+float64(a[i])*float64(b[i]), aa+float64(a[i])*float64(a[i]), bb+float64(b[i])*float64(b[i])
	}
	return ab / math.Sqrt(aa*bb)
}

// batcherFlags are the flags of the figure.
type batcherFlags struct {
	model, texts          string
	tokens, runs, threads int
}

// folder is that of the encoder, which make encoders brings.
func (f *batcherFlags) folder() (string, error) {
	if f.model != "" {
		return f.model, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	folder := filepath.Join(cache, "graft", "encoders", "all-minilm-l6-v2")
	if _, err := os.Stat(folder); err != nil {
		return "", fmt.Errorf("%s: %w; run make encoders, or name another with -encoder", folder, err)
	}
	return folder, nil
}

// pooling is what a folder without modules.json is pooled by.
func (f *batcherFlags) pooling(folder string) []string {
	if _, err := os.Stat(filepath.Join(folder, "modules.json")); err == nil {
		return nil
	}
	return []string{"mean"}
}

// sentences cuts a file of text into them; without one, the manual.
func (f *batcherFlags) sentences() ([]string, error) {
	files := []string{f.texts}
	if f.texts == "" {
		var err error
		if files, err = filepath.Glob(filepath.Join("docs", "*.md")); err != nil {
			return nil, err
		}
		files = append(files, "README.md", "RATIONALE.md", "CONTRIBUTING.md")
	}
	var list []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, paragraph := range strings.FieldsFunc(string(data),
			func(r rune) bool { return r == '\n' && f.texts != "" || r == '|' }) {
			for _, s := range strings.SplitAfter(strings.ReplaceAll(paragraph, "\n", " "), ". ") {
				if s = strings.TrimSpace(s); len(s) > 10 {
					list = append(list, s)
				}
			}
		}
	}
	if len(list) < textsARun {
		return nil, fmt.Errorf("%d sentences, needed are %d", len(list), textsARun)
	}
	return list, nil
}
