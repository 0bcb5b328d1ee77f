// Package ab compares a model with itself under two sets of operators: first the
// answers, output by output, then the time, in interleaved runs.
package ab

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/patch"
	"github.com/opgraft/graft/host/plan"
)

// Options say what is compared and how long.
type Options struct {
	A, B   string // "none", "auto", a plugin's name, or the path of a plan file
	ModelB string // another model with the same inputs for side B; "" is the same
	Inputs string // .npz file or ONNX test-data folder; "" makes inputs from Seed
	Dims   map[string]int64
	// LooseDims passes over lengths in Dims that the model does not have.
	LooseDims bool
	Seed      uint64
	NoCache   bool // merged decoders take the branch without a past
	Force     bool // use operators whatever they are expected to gain
	Threads   int  // intra-op threads; 0 is one a core
	Warmup    int  // runs of each side before timing
	Rounds    int  // ABBA rounds: each times both sides twice
	// Tolerance of answers; zero fields take the data type's default.
	Absolute, Relative float64
	// Step is told what begins; nil for silence.
	Step func(what string)
	// Progress is told the rounds done and their number; nil for silence.
	Progress func(done, total int64)
}

// Side is one of the two.
type Side struct {
	Name     string    `json:"name"`
	Plugins  []string  `json:"plugins"`
	Replaced int       `json:"replaced"`
	Blocks   int       `json:"blocks"`
	LoadMS   float64   `json:"load_ms"`
	MedianMS float64   `json:"median_ms"`
	TimesMS  []float64 `json:"times_ms"` // every timed run, in order; none is left out
}

// Result is the whole comparison. Speed-ups are time of A over time of B.
type Result struct {
	SchemaVersion int         `json:"schema_version"`
	Model         string      `json:"model"`
	ModelB        string      `json:"model_b,omitempty"` // when B is another model
	Seed          uint64      `json:"seed"`
	Warmup        int         `json:"warmup"` // runs of each side before timing
	Rounds        int         `json:"rounds"` // of A B B A
	A             Side        `json:"a"`
	B             Side        `json:"b"`
	Inputs        []InputInfo `json:"inputs"`
	Parity        Parity      `json:"parity"`
	Speedup       Speedup     `json:"speedup"`
	Environment   Environment `json:"environment"`
}

// InputInfo names what a model was fed.
type InputInfo struct {
	Name  string  `json:"name"`
	Type  string  `json:"type"`
	Shape []int64 `json:"shape"`
	From  string  `json:"from"` // what the values mean: "mask", "positions", "tokens" ...
}

// side is an open session of one of the two.
type side struct {
	Side
	session *ort.Session
	results []*ort.Value
}

// pair is both sides, open, with the inputs they are fed and their first answers.
type pair struct {
	a, b   *side
	inputs map[string]*ort.Value
	result *Result
}

// Run compares answers and times. The plugins of set are those that "auto" and
// names refer to.
func Run(ctx context.Context, l *ort.Library, set *patch.Set, path string, o Options) (*Result, error) {
	if o.Rounds <= 0 {
		o.Rounds = 15
	}
	if o.Warmup <= 0 {
		o.Warmup = 3
	}
	p, err := answers(ctx, l, set, path, o)
	if err != nil {
		return nil, err
	}
	defer p.close()
	o.step("timing")
	p.a.TimesMS, p.b.TimesMS, err = interleave(p.a.timed(ctx, p.inputs), p.b.timed(ctx, p.inputs), o)
	if err != nil {
		return nil, err
	}
	r := p.result
	r.Warmup, r.Rounds = o.Warmup, o.Rounds
	p.a.MedianMS, p.b.MedianMS = median(p.a.TimesMS), median(p.b.TimesMS)
	r.A, r.B = p.a.Side, p.b.Side
	r.Speedup = speedup(p.a.TimesMS, p.b.TimesMS)
	o.step("measuring the machine")
	r.Environment = Measure(l)
	return r, nil
}

// Answers compares answers only.
func Answers(ctx context.Context, l *ort.Library, set *patch.Set, path string, o Options) (*Result, error) {
	p, err := answers(ctx, l, set, path, o)
	if err != nil {
		return nil, err
	}
	defer p.close()
	p.result.A, p.result.B = p.a.Side, p.b.Side
	return p.result, nil
}

// answers opens both sides, feeds them the same and compares what they say.
func answers(ctx context.Context, l *ort.Library, set *patch.Set, path string, o Options) (_ *pair, err error) {
	p := &pair{result: &Result{SchemaVersion: 1, Model: path, ModelB: o.ModelB, Seed: o.Seed}}
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
	if p.inputs, p.result.Inputs, err = Inputs(l, path, o); err != nil {
		return nil, err
	}
	o.step("loading a: " + o.A)
	if p.a, err = first(ctx, l, set, path, o.A, o, p.inputs); err != nil {
		return nil, fmt.Errorf("a (%s): %w", o.A, err)
	}
	if o.ModelB != "" {
		path = o.ModelB
	}
	o.step("loading b: " + o.B)
	if p.b, err = first(ctx, l, set, path, o.B, o, p.inputs); err != nil {
		return nil, fmt.Errorf("b (%s): %w", o.B, err)
	}
	o.step("comparing answers")
	p.result.Parity = compare(p.a, p.b, o)
	return p, p.arbitrate(ctx, l, p.result.Model, o)
}

func (o *Options) step(what string) {
	if o.Step != nil {
		o.Step(what)
	}
}

func (p *pair) close() {
	p.a.close()
	p.b.close()
	for _, v := range p.inputs {
		v.Close()
	}
}

// first opens a side and runs it once.
func first(ctx context.Context, l *ort.Library, set *patch.Set, path, name string, o Options, inputs map[string]*ort.Value) (*side, error) {
	s, err := open(l, set, path, name, o)
	if err != nil {
		return nil, err
	}
	if s.results, err = s.session.Run(ctx, inputs); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// stopSpinning lets a session's threads rest when a run has ended. Otherwise they
// wait for the next run on the cores that the other side is timed on.
const stopSpinning = "session.force_spinning_stop"

// open makes the session of one side.
func open(l *ort.Library, set *patch.Set, path, name string, o Options) (*side, error) {
	s := &side{Side: Side{Name: name, Plugins: []string{}}}
	so := ort.SessionOptions{IntraOpThreads: o.Threads, Plain: true, Config: map[string]string{stopSpinning: "1"}}
	if name != "none" {
		po, err := planOptions(set, name, o)
		if err != nil {
			return nil, err
		}
		so.Plain = false
		so.Patcher = (&patch.Sessions{Plugins: set.Plugins, Options: set.Plan(po), Done: func(a *patch.Analysis) {
			s.Blocks, s.Replaced, s.Plugins = len(a.Plan.Choices), a.Plan.Replaced(), a.Plugins()
			if s.Plugins == nil {
				s.Plugins = []string{}
			}
		}}).Patch
	}
	start := time.Now()
	var err error
	s.session, err = l.NewSession(path, so)
	s.LoadMS = float64(time.Since(start).Microseconds()) / 1e3
	return s, err
}

// planOptions reads the name of a side.
func planOptions(set *patch.Set, name string, o Options) (plan.Options, error) {
	po := plan.Options{Force: o.Force}
	switch {
	case name == "":
		return po, fmt.Errorf("a side has no name, needs none, auto, a plugin's name or a plan file")
	case name == "none", name == "auto":
	case strings.HasSuffix(name, ".json") || strings.ContainsRune(name, os.PathSeparator):
		fixed, err := plan.ReadFile(name, set.Manifests())
		if err != nil {
			return po, err
		}
		po.Fixed = fixed
	default:
		if _, err := patch.Named(set.Plugins, name); err != nil {
			return po, err
		}
		po.Plugins = []string{name}
	}
	return po, nil
}

func (s *side) close() {
	if s == nil {
		return
	}
	for _, v := range s.results {
		v.Close()
	}
	if s.session != nil {
		s.session.Close()
	}
}

// timed is a run of a side, with its time in milliseconds. Results go into the
// memory of the first run, so that no run pays for fresh memory.
func (s *side) timed(ctx context.Context, inputs map[string]*ort.Value) func() (float64, error) {
	names := s.names()
	return func() (float64, error) {
		start := time.Now()
		err := s.session.RunInto(ctx, inputs, names, s.results)
		return float64(time.Since(start).Nanoseconds()) / 1e6, err
	}
}

// interleave warms both sides up, then times them in the order A B B A, so that
// drifts of the machine fall on both alike. Every timed run counts, however long
// it took.
func interleave(a, b func() (float64, error), o Options) (timesA, timesB []float64, err error) {
	for range o.Warmup {
		for _, run := range []func() (float64, error){a, b} {
			if _, err := run(); err != nil {
				return nil, nil, err
			}
		}
	}
	for i := range o.Rounds {
		for _, isA := range []bool{true, false, false, true} {
			run, times := b, &timesB
			if isA {
				run, times = a, &timesA
			}
			t, err := run()
			if err != nil {
				return nil, nil, err
			}
			*times = append(*times, t)
		}
		if o.Progress != nil {
			o.Progress(int64(i+1), int64(o.Rounds))
		}
	}
	return timesA, timesB, nil
}

func (s *side) names() []string {
	var list []string
	for _, out := range s.session.Outputs() {
		list = append(list, out.Name)
	}
	return list
}

// lengthsOf reads a model's declared input shapes as polynomials, and what its
// integer inputs may hold.
func lengthsOf(path string) (*graph.Graph, *graph.Shapes, func(), error) {
	m, err := model.Open(path)
	if err != nil {
		return nil, nil, nil, err
	}
	g, err := graph.New(m.Proto(), m)
	if err != nil {
		m.Close()
		return nil, nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return g, graph.Infer(g), func() { m.Close() }, nil
}
