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
	Force     bool // use operators whatever they are expected to gain
	Threads   int  // intra-op threads; 0 is one a core
	Warmup    int  // runs of each side before timing
	Rounds    int  // ABBA rounds: each times both sides twice
	// Tolerance of answers; zero fields take the data type's default.
	Absolute, Relative float64
	// Progress is told the rounds done and their number.
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
	TimesMS  []float64 `json:"times_ms"`
}

// Result is the whole comparison. Speed-ups are time of A over time of B.
type Result struct {
	SchemaVersion int         `json:"schema_version"`
	Model         string      `json:"model"`
	ModelB        string      `json:"model_b,omitempty"` // when B is another model
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
	if err := interleave(ctx, p.a, p.b, p.inputs, o); err != nil {
		return nil, err
	}
	r := p.result
	p.a.MedianMS, p.b.MedianMS = median(p.a.TimesMS), median(p.b.TimesMS)
	r.A, r.B = p.a.Side, p.b.Side
	r.Speedup = speedup(p.a.TimesMS, p.b.TimesMS)
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
	p := &pair{result: &Result{SchemaVersion: 1, Model: path, ModelB: o.ModelB}}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if p.inputs, p.result.Inputs, err = Inputs(l, path, o); err != nil {
		return nil, err
	}
	if p.a, err = first(ctx, l, set, path, o.A, o, p.inputs); err != nil {
		return nil, fmt.Errorf("a (%s): %w", o.A, err)
	}
	if o.ModelB != "" {
		path = o.ModelB
	}
	if p.b, err = first(ctx, l, set, path, o.B, o, p.inputs); err != nil {
		return nil, fmt.Errorf("b (%s): %w", o.B, err)
	}
	p.result.Parity = compare(p.a, p.b, o)
	return p, nil
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

// open makes the session of one side.
func open(l *ort.Library, set *patch.Set, path, name string, o Options) (*side, error) {
	s := &side{Side: Side{Name: name, Plugins: []string{}}}
	so := ort.SessionOptions{IntraOpThreads: o.Threads, Plain: true}
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
	case name == "auto":
	case strings.HasSuffix(name, ".json") || strings.ContainsRune(name, os.PathSeparator):
		fixed, err := plan.ReadFile(name)
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

// interleave times both sides in the order A B B A, so that drifts of the
// machine fall on both alike. Results go into the memory of the first run.
func interleave(ctx context.Context, a, b *side, inputs map[string]*ort.Value, o Options) error {
	run := func(s *side, record bool) error {
		start := time.Now()
		err := s.session.RunInto(ctx, inputs, s.names(), s.results)
		if record {
			s.TimesMS = append(s.TimesMS, float64(time.Since(start).Nanoseconds())/1e6)
		}
		return err
	}
	for range o.Warmup {
		for _, s := range []*side{a, b} {
			if err := run(s, false); err != nil {
				return err
			}
		}
	}
	for i := range o.Rounds {
		for _, s := range []*side{a, b, b, a} {
			if err := run(s, true); err != nil {
				return err
			}
		}
		if o.Progress != nil {
			o.Progress(int64(i+1), int64(o.Rounds))
		}
	}
	return nil
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
