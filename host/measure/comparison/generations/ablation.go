package generations

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/generate"
	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/exported"
	"github.com/opgraft/graft/host/generate/pipeline"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/generate/topk"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/statistics"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
)

// AblationOptions say what techniques are turned on over.
type AblationOptions struct {
	Search   []byte   // in the words of Hugging Face's generation configuration
	Inputs   [][]byte // texts, as they were read, whatever their encoding
	MaxInput int      // maximum of tokens in an input; 0 is what the model's positions allow
	Batch    int      // inputs of a batch, from the second row on
	Workers  int      // goroutines that encode, and as many that decode, from the third row on

	Threads    int
	CacheBytes int64
	Rounds     int
	Step       func(what string)       `json:"-"`
	Progress   func(done, total int64) `json:"-"`
	// Deadline is how long opening the model may take, for all rows together, and how long a generation; 0 is
	// comparison.DefaultDeadline.
	Deadline time.Duration `json:"-"`
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

// Ablate turns techniques on one at a time and times each, from text to text, in a child process: this executable,
// whose main calls worker.Main with Tasks. Its errors are those of Apart.
func Ablate(ctx context.Context, j Job[AblationOptions]) (*Ablation, error) {
	j.Options = j.Options.withDefaults()
	o := j.Options
	if len(o.Inputs) == 0 {
		return nil, errors.New("there is nothing to generate from: an ablation needs texts")
	}
	child, err := start(ctx, j.Folder, o.Deadline, j.Output)
	if err != nil {
		return nil, err
	}
	defer child.Close()
	o.Step("opening the model")
	opened, err := comparison.Ask[openedAblation](ctx, child, taskAblation, j)
	j.refused(opened.Refused)
	if err != nil {
		return nil, err
	}
	r := &Ablation{SchemaVersion: 2, Model: j.Folder, Inputs: len(o.Inputs), Rows: opened.Rows, Skipped: opened.Skipped,
		Equal: true}
	for i := range r.Rows {
		row := &r.Rows[i]
		o.Step("generating with " + row.Technique)
		first, err := comparison.Ask[firstOfRow](ctx, child, taskRowFirst, i)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", row.Technique, err)
		}
		r.InputTokens, r.NewTokens = first.InputTokens, first.NewTokens
		row.CacheBytes, row.Equal = first.CacheBytes, first.Equal
		r.Equal = r.Equal && first.Equal == len(o.Inputs)
	}
	o.Step("timing")
	for round := range o.Rounds {
		for i := range r.Rows {
			if round%2 == 1 { // there and back, so that no row is always after the same
				i = len(r.Rows) - 1 - i
			}
			row := &r.Rows[i]
			seconds, err := comparison.Ask[float64](ctx, child, taskRowTimed, i)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", row.Technique, err)
			}
			row.Seconds = append(row.Seconds, seconds)
		}
		o.Progress(int64(round+1), int64(o.Rounds))
	}
	for i := range r.Rows {
		row := &r.Rows[i]
		row.InputsPerSecond = float64(r.Inputs) / statistics.Median(row.Seconds)
		row.TokensPerSecond = float64(r.NewTokens) / statistics.Median(row.Seconds)
		row.Gain, row.Speedup = statistics.SpeedupOf(r.Rows[max(0, i-1)].Seconds, row.Seconds),
			statistics.SpeedupOf(r.Rows[0].Seconds, row.Seconds)
	}
	o.Step("measuring the machine")
	if r.Environment, err = comparison.Ask[comparison.Environment](ctx, child, taskAblationEnd, nil); err != nil {
		return nil, err
	}
	return r, nil
}

// The child's tasks of an ablation.
const (
	taskAblation    = "ablation"
	taskRowFirst    = "ablation first"
	taskRowTimed    = "ablation timed"
	taskAblationEnd = "ablation end"
)

type openedAblation struct {
	Rows    []AblationRow
	Skipped []Skipped
	Refused []string
}

// firstOfRow is what a row generates before it is timed.
type firstOfRow struct {
	InputTokens, NewTokens, Equal int
	CacheBytes                    int64
}

// ablationTasks are what a child does for Ablate, one ablation.
func ablationTasks() map[string]worker.Handler {
	var a *ablation
	row := func(i int) (*technique, error) {
		if a == nil || i < 0 || i >= len(a.rows) {
			return nil, errors.New("no ablation with such a row was begun")
		}
		return a.rows[i], nil
	}
	return map[string]worker.Handler{
		taskAblation: comparison.Task(func(_ context.Context, j Job[AblationOptions]) (o openedAblation, err error) {
			begun := &ablation{folder: j.Folder, options: j.Options}
			if begun.library, err = ort.FindAndOpen(j.Runtime); err != nil {
				return o, err
			}
			if begun.set, o.Refused, err = comparison.Plugins(j.Folders, true); err != nil {
				return o, err
			}
			if err := begun.open(); err != nil {
				return o, err
			}
			a = begun
			for _, t := range a.rows {
				o.Rows = append(o.Rows, t.AblationRow)
			}
			o.Skipped = a.skipped
			return o, nil
		}),
		taskRowFirst: comparison.Task(func(ctx context.Context, i int) (first firstOfRow, err error) {
			t, err := row(i)
			if err != nil {
				return first, err
			}
			summary, err := t.run(ctx, a.options.Inputs, true)
			if err != nil {
				return first, err
			}
			self, cross := t.generator.Peak()
			first = firstOfRow{InputTokens: summary.InputTokens, NewTokens: summary.NewTokens, CacheBytes: self + cross}
			for i := range t.results {
				if same(t.results[i], a.rows[0].results[i]) {
					first.Equal++
				}
			}
			return first, nil
		}),
		taskRowTimed: comparison.Task(func(ctx context.Context, i int) (float64, error) {
			t, err := row(i)
			if err != nil {
				return 0, err
			}
			start := time.Now()
			_, err = t.run(ctx, a.options.Inputs, false)
			return time.Since(start).Seconds(), err
		}),
		taskAblationEnd: comparison.Task(func(context.Context, any) (e comparison.Environment, err error) {
			if a == nil {
				return e, errors.New("no ablation was begun")
			}
			return comparison.Measure(a.library), nil
		}),
	}
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

// ablation is an ablation with its models open, for as long as the child lives.
type ablation struct {
	library *ort.Library
	set     *loaded.Set
	folder  string
	options AblationOptions

	rows    []*technique
	skipped []Skipped
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
func (a *ablation) generator(open func(string, decode.Options) (*generate.Generator, error), batch int,
	referenceSelector bool, plugins ...string) (*generate.Generator, error) {
	g, err := open(a.folder, decode.Options{
		Library: a.library, Plugins: a.set, Plan: plan.Options{Plugins: plugins}, Threads: a.options.Threads,
		CacheBytes: a.options.CacheBytes, Batch: batch, ReferenceSelector: referenceSelector,
	})
	if err != nil {
		return nil, err
	}
	g.MaxInput = a.options.MaxInput
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
func (t *technique) run(ctx context.Context, inputs [][]byte, store bool) (*generate.Summary, error) {
	i := -1
	return t.generator.Run(ctx, t.search, func() (string, error) {
		if i++; i >= len(inputs) {
			return "", io.EOF
		}
		return string(inputs[i]), nil
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
