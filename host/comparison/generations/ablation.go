package generations

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/opgraft/graft/host/comparison"
	"github.com/opgraft/graft/host/decode"
	"github.com/opgraft/graft/host/decode/exported"
	"github.com/opgraft/graft/host/decode/search"
	"github.com/opgraft/graft/host/decode/topk"
	"github.com/opgraft/graft/host/generate"
	"github.com/opgraft/graft/host/loaded"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/pipeline"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/statistics"
)

// AblationOptions say what techniques are turned on over.
type AblationOptions struct {
	Search   []byte   // in the words of Hugging Face's generation configuration
	Inputs   []string // texts
	MaxInput int      // maximum of tokens in an input; 0 is what the model's positions allow
	Batch    int      // inputs of a batch, from the second row on
	Workers  int      // goroutines that encode, and as many that decode, from the third row on

	Threads    int
	CacheBytes int64
	Rounds     int
	Step       func(what string)
	Progress   func(done, total int64)
}

// Ablation is a generation with one technique more turned on in each row, from text
// to text, as in table 2 of FastSeq (Yan et al. 2021).
type Ablation struct {
	SchemaVersion int           `json:"schema_version"`
	Model         string        `json:"model"`
	Inputs        int           `json:"inputs"`
	InputTokens   int           `json:"input_tokens"`
	NewTokens     int           `json:"new_tokens"` // of the sequences that are returned
	Rows          []AblationRow `json:"rows"`
	Skipped       []Skipped     `json:"skipped"`
	// Equal says that every row gave the tokens and texts of the first.
	Equal       bool                   `json:"equal"`
	Environment comparison.Environment `json:"environment"`
}

// Skipped is a technique without a row.
type Skipped struct {
	Technique string `json:"technique"`
	Reason    string `json:"reason"`
}

// AblationRow is all the techniques up to one.
type AblationRow struct {
	Technique string   `json:"technique"` // the one that this row turns on
	BatchSize int      `json:"batch_size"`
	Plugins   []string `json:"plugins"` // those whose operators run in the decoder

	Seconds         []float64 `json:"seconds"` // of whole runs
	InputsPerSecond float64   `json:"inputs_per_second"`
	TokensPerSecond float64   `json:"tokens_per_second"`
	// Gain is over the row before, Speedup over the first; 1 for the first.
	Gain    statistics.Speedup `json:"gain"`
	Speedup statistics.Speedup `json:"speedup"`
	// CacheBytes is the maximum of the KV cache, all copies counted.
	CacheBytes int64 `json:"cache_bytes"`
	Equal      int   `json:"equal"` // inputs with the tokens and the text of the first row
}

// Techniques, in the order in which they are turned on. Of the plugins each that the
// engine uses has a row under its own name.
const (
	techniqueBaseline = "baseline" // the model as exported, one input after the other, all processing in Go
	techniqueBatch    = "batch"
	techniquePipeline = "pipeline"
	techniqueIndex    = "n-gram index"
	techniqueCache    = "cache" // the engine, with the cache's own plugin alone
)

// cachePlugin is the plugin that an engine cannot do without.
func (a *ablation) cachePlugin() string {
	implementations := plan.Implementations{}.Among(a.set.Manifests())
	return implementations.Of(plan.KeysValues).Plugin
}

// technique is a row with what runs it.
type technique struct {
	AblationRow
	generator *generate.Generator
	search    search.Options
	pipeline  pipeline.Options
	results   []generate.Result
}

// Ablate turns techniques on one at a time and times each, from text to text.
func Ablate(ctx context.Context, l *ort.Library, set *loaded.Set, folder string, o AblationOptions) (*Ablation, error) {
	o = o.withDefaults()
	if len(o.Inputs) == 0 {
		return nil, errors.New("there is nothing to generate from: an ablation needs texts")
	}
	a := &ablation{library: l, set: set, folder: folder, options: o}
	defer a.close()
	if err := a.open(); err != nil {
		return nil, err
	}
	r := &Ablation{SchemaVersion: 2, Model: folder, Inputs: len(o.Inputs), Skipped: a.skipped, Equal: true}
	for _, t := range a.rows {
		o.Step("generating with " + t.Technique)
		summary, err := t.run(ctx, o.Inputs, true)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.Technique, err)
		}
		self, cross := t.generator.Peak()
		t.CacheBytes = self + cross
		r.InputTokens, r.NewTokens = summary.InputTokens, summary.NewTokens
		for i := range t.results {
			if same(t.results[i], a.rows[0].results[i]) {
				t.Equal++
			}
		}
		r.Equal = r.Equal && t.Equal == len(o.Inputs)
	}
	o.Step("timing")
	for round := range o.Rounds {
		for i := range a.rows {
			if round%2 == 1 { // there and back, so that no row is always after the same
				i = len(a.rows) - 1 - i
			}
			t := a.rows[i]
			start := time.Now()
			if _, err := t.run(ctx, o.Inputs, false); err != nil {
				return nil, fmt.Errorf("%s: %w", t.Technique, err)
			}
			t.Seconds = append(t.Seconds, time.Since(start).Seconds())
		}
		o.Progress(int64(round+1), int64(o.Rounds))
	}
	for i, t := range a.rows {
		t.InputsPerSecond = float64(r.Inputs) / statistics.Median(t.Seconds)
		t.TokensPerSecond = float64(r.NewTokens) / statistics.Median(t.Seconds)
		t.Gain, t.Speedup = statistics.SpeedupOf(a.rows[max(0, i-1)].Seconds, t.Seconds), statistics.SpeedupOf(a.rows[0].Seconds, t.Seconds)
		r.Rows = append(r.Rows, t.AblationRow)
	}
	o.Step("measuring the machine")
	r.Environment = comparison.Measure(l)
	return r, nil
}

func (o AblationOptions) withDefaults() AblationOptions {
	if o.Batch <= 0 {
		o.Batch = 8
	}
	if o.Workers <= 0 {
		o.Workers = 2
	}
	if o.Rounds <= 0 {
		o.Rounds = 3
	}
	if o.Step == nil {
		o.Step = func(string) {}
	}
	if o.Progress == nil {
		o.Progress = func(int64, int64) {}
	}
	return o
}

// ablation is an ablation with its models open.
type ablation struct {
	library *ort.Library
	set     *loaded.Set
	folder  string
	options AblationOptions

	opened  []*generate.Generator
	rows    []*technique
	skipped []Skipped
}

func (a *ablation) close() {
	for _, g := range a.opened {
		g.Close()
	}
}

// open opens what the rows need: the model as exported, and an engine for each set
// of plugins.
func (a *ablation) open() error {
	o := a.options
	single, err := a.generator(generate.OpenExported, 1, true)
	if err != nil {
		return err
	}
	so, err := decode.SearchOf(a.folder, single.Config(), o.Search)
	if err != nil {
		return err
	}
	so.ScanNgrams = true
	slow, fast := pipeline.Options{Sync: true, Workers: 1}, pipeline.Options{Workers: o.Workers}
	a.row(techniqueBaseline, single, so, slow)
	many := single
	if o.Batch == 1 {
		a.skip(techniqueBatch, "batches of one input were asked for")
	} else {
		copied := *single
		copied.Device = single.Device.(*exported.Generator).InBatches(o.Batch)
		many = &copied
		a.row(techniqueBatch, many, so, slow)
	}
	a.row(techniquePipeline, many, so, fast)
	so.ScanNgrams = false
	if so.NoRepeatNgramSize > 0 || so.EncoderNoRepeatNgramSize > 0 {
		a.row(techniqueIndex, many, so, fast)
	} else {
		a.skip(techniqueIndex, "n-grams may be repeated: no_repeat_ngram_size is 0")
	}
	return a.engines(so, fast)
}

// engines are the rows of the engine: with the cache's own plugin, top-k selection of a
// step, and each other plugin that has an operator for the model.
func (a *ablation) engines(so search.Options, p pipeline.Options) error {
	g, err := a.generator(generate.Open, a.options.Batch, true, a.cachePlugin())
	if err != nil {
		return err
	}
	a.row(techniqueCache, g, so, p)
	referenceSelector := true
	if _, missing := loaded.Named(a.set.Plugins, topk.Name); missing != nil {
		a.skip(topk.Name, "the plugin is not loaded")
	} else {
		referenceSelector = false
		if g, err = a.generator(generate.Open, a.options.Batch, false, a.cachePlugin()); err != nil {
			return err
		}
		a.row(topk.Name, g, so, p)
	}
	full, err := a.generator(generate.Open, a.options.Batch, referenceSelector)
	if err != nil {
		return err
	}
	used := []string{a.cachePlugin()}
	var others []string
	for _, name := range full.Plugins() {
		if name != used[0] {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	for i, name := range others {
		used = append(used, name)
		if i == len(others)-1 {
			g = full
		} else if g, err = a.generator(generate.Open, a.options.Batch, referenceSelector, used...); err != nil {
			return err
		}
		a.row(name, g, so, p)
	}
	return nil
}

// generator opens the model with some plugins alone, or with all.
func (a *ablation) generator(open func(string, decode.Options) (*generate.Generator, error), batch int, referenceSelector bool, plugins ...string) (*generate.Generator, error) {
	a.options.Step("opening the model")
	g, err := open(a.folder, decode.Options{
		Library: a.library, Plugins: a.set, Plan: plan.Options{Plugins: plugins}, Threads: a.options.Threads,
		CacheBytes: a.options.CacheBytes, Batch: batch, ReferenceSelector: referenceSelector,
	})
	if err != nil {
		return nil, err
	}
	g.MaxInput = a.options.MaxInput
	a.opened = append(a.opened, g)
	return g, nil
}

func (a *ablation) row(name string, g *generate.Generator, so search.Options, p pipeline.Options) {
	a.rows = append(a.rows, &technique{
		AblationRow: AblationRow{Technique: name, BatchSize: g.Batch(), Plugins: slices.Clone(g.Plugins())},
		generator:   g, search: so, pipeline: p,
	})
}

func (a *ablation) skip(name, reason string) {
	a.skipped = append(a.skipped, Skipped{name, reason})
}

// run generates for all inputs.
func (t *technique) run(ctx context.Context, inputs []string, store bool) (*generate.Summary, error) {
	i := -1
	return t.generator.Run(ctx, t.search, func() (string, error) {
		if i++; i >= len(inputs) {
			return "", io.EOF
		}
		return inputs[i], nil
	}, func(r generate.Result) error {
		if r.Error != "" {
			return fmt.Errorf("input %d: %s", r.Index, r.Error)
		}
		if store {
			t.results = append(t.results, r)
		}
		return nil
	}, t.pipeline)
}

// same says whether two results have the same tokens and texts.
func same(a, b generate.Result) bool {
	return slices.EqualFunc(a.Sequences, b.Sequences, func(x, y generate.Sequence) bool {
		return x.Text == y.Text && slices.Equal(x.Tokens, y.Tokens)
	})
}
