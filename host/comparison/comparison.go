// Package comparison compares a model with itself under two sets of operators: first the
// answers, output by output, then the time, in interleaved runs.
package comparison

import (
	"context"
	"errors"
	"fmt"

	"github.com/opgraft/graft/host/diagnostic"
	"github.com/opgraft/graft/host/inputs"
	"github.com/opgraft/graft/host/loaded"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/statistics"
)

// Options say what is compared and how long.
type Options struct {
	A, B   string // "none", "auto", a plugin's name, or the path of a plan file
	ModelB string // another model with the same inputs for side B; "" is the same
	Inputs inputs.Options
	// Force uses operators whatever they are expected to gain.
	Force bool
	// QuantizationNoise uses them before what rounds to integers, too.
	QuantizationNoise bool
	Padding           plan.Padding // of hidden tokens, where a side has operators
	Threads           int          // intra-op threads; 0 is one a core
	Warmup            int          // runs of each side before timing
	Rounds            int          // ABBA rounds: each times both sides twice
	// Unoptimized also compares B with the model as ONNX Runtime runs it without its graph optimisations: A and B can be
	// wrong in the same way.
	Unoptimized bool
	// Tolerance of answers; zero fields take the data type's default.
	Absolute, Relative float64
	// Step is told what begins; nil for silence.
	Step func(what string) `json:"-"`
	// Progress is told the rounds done and their number; nil for silence.
	Progress func(done, total int64) `json:"-"`
}

// Side is one of the two.
type Side struct {
	Name     string    `json:"name"`
	Plugins  []string  `json:"plugins"`
	Replaced int       `json:"replaced"`
	Blocks   int       `json:"blocks"`
	Zeros    []string  `json:"hidden_rows_zero,omitempty"` // outputs that are zeros in rows of hidden tokens, which are not compared
	LoadMS   float64   `json:"load_ms"`
	MedianMS float64   `json:"median_ms"`
	TimesMS  []float64 `json:"times_ms"` // every timed run, in order; none is left out
}

// Result is the whole comparison. Speed-ups are time of A over time of B.
type Result struct {
	SchemaVersion int                `json:"schema_version"`
	Model         string             `json:"model"`
	ModelB        string             `json:"model_b,omitempty"` // when B is another model
	Seed          uint64             `json:"seed"`
	Warmup        int                `json:"warmup"` // runs of each side before timing
	Rounds        int                `json:"rounds"` // of A B B A
	A             Side               `json:"a"`
	B             Side               `json:"b"`
	Inputs        []inputs.Info      `json:"inputs"`
	Workload      inputs.Workload    `json:"workload"`
	Parity        Parity             `json:"parity"`
	Speedup       statistics.Speedup `json:"speedup"`
	Environment   Environment        `json:"environment"`
}

// pair is both sides, open, with the inputs they are fed and their first answers.
type pair struct {
	a, b   *side
	fed    *inputs.Batch
	result *Result
}

// ErrSame is the kind of the error that two sides run the same operators: what their times said would be noise.
var ErrSame = errors.New("both sides run the same operators")

// differ refuses sides of two names of which neither replaces anything.
func (p *pair) differ() error {
	r := p.result
	if r.ModelB != "" || p.a.Name == p.b.Name || p.a.changed || p.b.changed {
		return nil
	}
	return &diagnostic.Error{Kind: ErrSame, Path: r.Model, Needed: "a side that replaces something",
		Found: fmt.Sprintf("nothing is replaced on either side (a is %s, b is %s; %d blocks): both run the same operators", p.a.Name, p.b.Name, max(p.a.Blocks, p.b.Blocks)),
		Fix:   "graft inspect shows why; --force uses operators whatever they are expected to gain"}
}

// Run compares answers and times. The plugins of set are those that "auto" and
// names refer to. Sides of two names that replace nothing are an error of kind ErrSame.
func Run(ctx context.Context, l *ort.Library, set *loaded.Set, path string, o Options) (*Result, error) {
	h := &here{library: l, set: set, path: path, options: o}
	defer h.close()
	return run(ctx, h, o)
}

// Answers compares answers only.
func Answers(ctx context.Context, l *ort.Library, set *loaded.Set, path string, o Options) (*Result, error) {
	p, err := answers(ctx, l, set, path, o)
	if err != nil {
		return nil, err
	}
	defer p.close()
	p.result.A, p.result.B = p.a.Side, p.b.Side
	return p.result, nil
}

// answers opens both sides, feeds them the same and compares what they say.
func answers(ctx context.Context, l *ort.Library, set *loaded.Set, path string, o Options) (_ *pair, err error) {
	p := &pair{result: &Result{SchemaVersion: 2, Model: path, ModelB: o.ModelB, Seed: o.Inputs.Seed}}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	// A name that is wrong should be said before a large model is loaded.
	for _, name := range []string{o.A, o.B} {
		if _, err := planOptions(set, name, o); err != nil {
			return nil, err
		}
	}
	o.step("making inputs")
	if p.fed, err = inputs.Make(l, path, o.Inputs); err != nil {
		return nil, err
	}
	p.result.Inputs, p.result.Workload = p.fed.Infos, p.fed.Workload
	o.step("loading a: " + o.A)
	if p.a, err = first(ctx, l, set, path, o.A, o, p.fed.Values); err != nil {
		return nil, fmt.Errorf("a (%s): %w", o.A, err)
	}
	if o.ModelB != "" {
		path = o.ModelB
	}
	o.step("loading b: " + o.B)
	if p.b, err = first(ctx, l, set, path, o.B, o, p.fed.Values); err != nil {
		return nil, fmt.Errorf("b (%s): %w", o.B, err)
	}
	o.step("comparing answers")
	if err = p.clear(p.a.session.Outputs(), p.a.results); err != nil {
		return nil, err
	}
	p.result.Parity = compare(p.a, p.b, o)
	if err = p.arbitrate(ctx, l, p.result.Model, o); err == nil && !p.result.Parity.OK {
		p.result.Parity.Random, err = draws(p.result.Model)
	}
	return p, err
}

// clear makes the model's own outputs what B has, where those are zeros in rows of hidden tokens.
func (p *pair) clear(outputs []ort.ValueInfo, results []*ort.Value) error {
	if p.b == nil || p.b.hidden == nil {
		return nil
	}
	for i, o := range outputs {
		if err := p.b.hidden.Clear(o.Name, results[i], p.fed.Values[p.b.hidden.MaskName()]); err != nil {
			return err
		}
	}
	return nil
}

func (o *Options) step(what string) {
	if o.Step != nil {
		o.Step(what)
	}
}

func (p *pair) close() {
	p.a.close()
	p.b.close()
	p.fed.Close()
}
