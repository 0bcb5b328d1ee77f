// Package generations compares whole generations of a model folder: two sides, token by
// token and in interleaved runs, or techniques that are turned on one after the other.
package generations

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"time"

	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/comparison/divergence"
	"github.com/opgraft/graft/host/measure/statistics"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
)

// Options say what two ways of generating are compared on.
type Options struct {
	// A and B: "none" is the model as exported, with past and present as tensors,
	// written as well as that goes (package exported); "auto" is the engine; what
	// prepare.ParseAttention reads is the engine with that attention; another plugin's
	// name is the engine with the cache's own plugin and that one alone. weights=W is auto with
	// weights that are stored as prepare.ParseWeights reads W, and NAME+weights=W another engine with those; cache=C and
	// NAME+cache=C likewise with caches of a type that plan.ParseStorage reads. draft=D is auto with drafts that are
	// looked up ("lookup"), or those of a model as decode.ParseDraftModel reads D, and NAME+draft=D any engine with
	// those. All may stand in one name, in this order.
	A, B string
	// Others are sides beside B, each of which is compared with A; they are for CompareAll and Apart.
	Others []string
	// Search are options in the words of Hugging Face's generation configuration.
	Search []byte
	// Inputs are tokens of one length; without them Batch inputs of PromptLength
	// tokens are synthetic, from Seed. A speech model takes Features, of one shape, instead;
	// without them Batch synthetic inputs of the shape that it takes.
	Inputs              [][]int32
	Features            []*engine.Features
	Batch, PromptLength int
	Seed                uint64
	// Texts are what the sides' distributions of the next token are compared over, after all times; nil for no such
	// comparison.
	Texts      *Texts
	Threads    int
	CacheBytes int64
	Rounds     int                     // of A B B A
	Step       func(what string)       `json:"-"`
	Progress   func(done, total int64) `json:"-"`
	// Child starts this program anew in a way that calls RunChild. Each side
	// generates once in such a process, for its peak memory; nil measures none.
	Child func(ctx context.Context) *exec.Cmd `json:"-"`
	// Deadline is how long such a process may take; 0 is comparison.DefaultDeadline.
	Deadline time.Duration `json:"-"`
}

// Side is one way of generating.
type Side struct {
	Name string `json:"name"`
	// Seconds of whole runs and, of those, until every request had its first token.
	Seconds     []float64 `json:"seconds"`
	TTFTSeconds []float64 `json:"ttft_seconds"`
	// TokensPerSecond is new tokens over whole runs, DecodeTokensPerSecond over what
	// follows the prompt; both medians.
	TokensPerSecond       float64 `json:"tokens_per_second"`
	DecodeTokensPerSecond float64 `json:"decode_tokens_per_second"`
	// TTFTMedianSeconds is the median of TTFTSeconds.
	TTFTMedianSeconds float64 `json:"ttft_median_seconds"`
	// CacheBytes is the maximum of the KV cache, all copies counted; RequestBytes is that
	// of one request.
	CacheBytes   int64 `json:"cache_bytes"`
	RequestBytes int64 `json:"cache_bytes_per_request"`
	// Attention says which operator runs each layer; nil for the model as exported.
	Attention []plan.LayerStrategy `json:"attention,omitempty"`
	// Cache is what caches store, where that is not float32.
	Cache plan.Storage `json:"cache,omitempty"`
	// Weights says what weights are stored as, where some are quantised.
	Weights *engine.WeightReport `json:"weights,omitempty"`
	// Drafts say what drafts came to; nil where the side's name asks for none.
	Drafts *Drafts `json:"drafts,omitempty"`
	Footprint
	Plugins  []string `json:"plugins"`
	Versions []string `json:"plugin_versions"` // in the order of Plugins
	// Likelihood is that of the tokens of Texts; nil where there are none.
	Likelihood *divergence.Likelihood `json:"likelihood,omitempty"`
}

// Result compares two ways end to end.
type Result struct {
	SchemaVersion int `json:"schema_version"`
	Subject
	Outcome                            // of B
	A           Side                   `json:"a"`
	B           Side                   `json:"b"`
	Environment comparison.Environment `json:"environment"`
}

// StepFloor is the least time that a step could take: that of reading the weights
// of all linear layers, and the keys and values of distinct positions of prompts and
// encoders' inputs, once.
type StepFloor struct {
	Bytes             int64   `json:"bytes"`
	MemoryBandwidthGB float64 `json:"memory_bandwidth_gb_s"` // median over the rounds, measured between runs
	FloorMS           float64 `json:"floor_ms"`
	StepMS            float64 `json:"step_ms"` // median
	Ratio             float64 `json:"ratio"`
}

// Compare compares whole generations of a model folder.
func Compare(ctx context.Context, l *ort.Library, set *loaded.Set, folder string, o Options) (*Result, error) {
	o.Others = nil
	r, err := CompareAll(ctx, l, set, folder, o)
	if err != nil {
		return nil, err
	}
	return r.Result(), nil
}

// CompareAll is Compare with several sides.
func CompareAll(ctx context.Context, l *ort.Library, set *loaded.Set, folder string, o Options) (*Compared, error) {
	h := &here{library: l, set: set, folder: folder, options: o}
	defer h.close()
	return run(ctx, h, folder, o)
}

// names are those of the sides, A first.
func (o *Options) names() []string { return append([]string{o.A, o.B}, o.Others...) }

// run leads a comparison through its stages.
func run(ctx context.Context, s stages, folder string, o Options) (*Compared, error) {
	if o.Rounds <= 0 {
		o.Rounds = 3
	}
	if o.Deadline <= 0 {
		o.Deadline = comparison.DefaultDeadline
	}
	if o.Step == nil {
		o.Step = func(string) {}
	}
	config, err := modeldir.ReadConfig(folder)
	if err != nil {
		return nil, err
	}
	names := o.names()
	for _, name := range names {
		base, folder := folderOf(name)
		rest, _, err := draftsOf(base)
		if err == nil {
			_, _, err = sideOf(rest)
		}
		if err == nil && folder != "" {
			err = takes(folder, config)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	given := o
	given.Texts = nil // which no single generation reads
	inputs, err := o.inputs(config)
	if err != nil {
		return nil, err
	}
	memory := make([]Footprint, len(names))
	for i, name := range names {
		if o.Child == nil {
			break
		}
		o.Step("measuring the memory of " + name)
		given.Deadline = o.Deadline
		if memory[i], err = (generation{folder, name, given}).footprint(ctx, o.Child); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	for i, name := range names {
		o.Step("opening " + name)
		if err := s.open(ctx, i); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	r := &Compared{SchemaVersion: comparedVersion, Subject: subject(folder, inputs, o.Search), Rounds: o.Rounds}
	first := make([][][][]int32, len(names))
	for i, name := range names {
		o.Step("generating with " + name)
		if first[i], err = s.first(ctx, i); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	r.Sides = make([]Against, len(names)-1)
	for i := range r.Sides {
		r.Sides[i].compare(first[0], first[i+1])
	}
	o.Step("timing")
	seconds, prompts, after := make([][]float64, len(names)), make([][]float64, len(names)), make([][]float64, len(names))
	var reads []float64
	for done := range o.Rounds {
		times, err := s.round(ctx)
		if err != nil {
			return nil, err
		}
		for i := range names {
			seconds[i], prompts[i] = append(seconds[i], times.Seconds[i]...), append(prompts[i], times.TTFTSeconds[i]...)
		}
		if times.Bandwidth > 0 {
			reads = append(reads, times.Bandwidth/1e9)
		}
		if o.Progress != nil {
			o.Progress(int64(done+1), int64(o.Rounds))
		}
	}
	forced, err := forceAll(ctx, s, folder, o)
	if err != nil {
		return nil, err
	}
	o.Step("measuring the machine")
	end, err := s.end(ctx)
	if err != nil {
		return nil, err
	}
	r.A, r.Environment = end.Sides[0].Side, end.Environment
	for i := range names {
		w, tokens := &r.A, r.Sides[max(i-1, 0)].NewTokens
		if i > 0 {
			r.Sides[i-1].Side = end.Sides[i].Side
			w = &r.Sides[i-1].Side
		}
		w.Footprint, w.Seconds, w.TTFTSeconds = memory[i], seconds[i], prompts[i]
		for j, all := range w.Seconds {
			after[i] = append(after[i], all-w.TTFTSeconds[j])
		}
		w.TTFTMedianSeconds = statistics.Median(w.TTFTSeconds)
		w.TokensPerSecond = float64(tokens) / statistics.Median(w.Seconds)
		w.DecodeTokensPerSecond = float64(tokens-r.Batch) / statistics.Median(after[i])
	}
	r.force(forced)
	for i := range r.Sides {
		b := &r.Sides[i]
		b.ReorderShare = end.Sides[i+1].ReorderShare
		b.Speedup, b.DecodeSpeedup = statistics.SpeedupOf(r.A.Seconds, b.Seconds), statistics.SpeedupOf(after[0], after[i+1])
		// with drafts there are fewer steps than tokens
		if steps, bytes := float64(b.NewTokens)/float64(r.Batch)-1,
			end.Sides[i+1].StepBytes; bytes > 0 && steps > 0 && b.Drafts == nil {
			f := &StepFloor{Bytes: bytes, MemoryBandwidthGB: statistics.Median(reads),
				StepMS: 1e3 * statistics.Median(after[i+1]) / steps}
			f.FloorMS = float64(f.Bytes) / f.MemoryBandwidthGB / 1e6
			f.Ratio = f.StepMS / f.FloorMS
			b.StepFloor = f
		}
	}
	return r, nil
}

// compare counts equal sequences and how varied the best ones are.
func (r *Against) compare(a, b [][][]int32) {
	r.MinDistinct = -1
	for i := range a {
		for j := range a[i] {
			r.Sequences++
			if j < len(b[i]) && slices.Equal(a[i][j], b[i][j]) {
				r.Equal++
			}
		}
		if len(b[i]) == 0 {
			continue
		}
		distinct := map[int32]bool{}
		for _, t := range b[i][0] {
			distinct[t] = true
		}
		r.NewTokens += len(b[i][0])
		if r.MinDistinct < 0 || len(distinct) < r.MinDistinct {
			r.MinDistinct = len(distinct)
		}
	}
}
