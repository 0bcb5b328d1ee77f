package comparison

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/sessions"
)

// side is an open session of one of the two.
type side struct {
	Opened
	session *session.Session
	results []*ort.Value
	hidden  *session.Hidden
}

// first runs a side once, and holds its results.
func (s *side) first(ctx context.Context, fed map[string]*ort.Value) (err error) {
	s.forget()
	s.results, err = s.session.Run(ctx, fed)
	return err
}

// forget frees results.
func (s *side) forget() {
	for _, v := range s.results {
		v.Close()
	}
	s.results = nil
}

// stopSpinning lets a session's threads rest when a run has ended. Otherwise they
// wait for the next run on the cores that the other side is timed on.
const stopSpinning = "session.force_spinning_stop"

// open makes the session of one side.
func open(ctx context.Context, l *ort.Library, set *loaded.Set, path, name string, o Options) (*side, error) {
	s := &side{Opened: Opened{Name: name, Plugins: []string{}, Versions: []string{}}}
	so := session.Options{IntraOpThreads: o.Threads, Unpatched: true, Config: map[string]string{stopSpinning: "1"}}
	plugins, err := isolated(set.Plugins, name)
	if err != nil {
		return nil, err
	}
	if name != "none" {
		po, err := PlanOptions(set, name, o)
		if err != nil {
			return nil, err
		}
		so.Unpatched = false
		po = set.Plan(po)
		po.Kernel = loaded.Kernels(plugins)
		patcher := &sessions.Patcher{Plugins: plugins, Options: po}
		so.Patcher = func(r session.Request) (*session.Patch, error) {
			p, err := patcher.Plan(ctx, r)
			if p == nil || err != nil {
				return nil, err
			}
			a := p.Analysis
			s.Blocks, s.Replaced, s.Plugins, s.Plan = len(a.Plan.Choices), a.Plan.Replaced(), a.Plugins(), choices(a.Plan)
			s.Changed = a.Plan.Changes()
			if s.hidden = a.Hidden(); s.hidden != nil {
				s.Zeros = s.hidden.Outputs
			}
			if s.Plugins == nil {
				s.Plugins = []string{}
			}
			s.Versions = set.Versions(s.Plugins)
			return p.Patch()
		}
	}
	start := time.Now()
	s.session, err = session.OpenContext(ctx, l, path, so)
	s.LoadMS = float64(time.Since(start).Microseconds()) / 1e3
	return s, err
}

// choices are those of a plan.
func choices(p *plan.Plan) []Choice {
	var list []Choice
	for _, c := range p.Choices {
		one := Choice{Node: c.Node, Kind: c.Kind, Plugin: c.Plugin, Reason: c.Reason}
		if c.Operator != nil {
			one.Operator = c.Operator.Name
		}
		list = append(list, one)
	}
	return list
}

// PlanOptions reads the name of a side.
func PlanOptions(set *loaded.Set, name string, o Options) (plan.Options, error) {
	name = strings.TrimPrefix(name, isolatedPrefix)
	po := plan.Options{Force: o.Force, QuantizationNoise: o.QuantizationNoise, Padding: o.Padding}
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
		if _, err := loaded.Named(set.Plugins, name); err != nil {
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
	s.forget()
	if s.session != nil {
		s.session.Close()
	}
}

// timed is a run of a side, with its time in milliseconds. Results go into the
// memory of the first run, so that no run pays for fresh memory. ONNX Runtime takes no memory of another shape than the
// model declares, and only warns of a result that has another: such a one gets fresh memory.
func (s *side) timed(ctx context.Context, fed map[string]*ort.Value) func() (float64, error) {
	names, places := s.names(), slices.Clone(s.results)
	for i, out := range s.session.Outputs() {
		if !declares(out, places[i]) {
			places[i] = nil
		}
	}
	return func() (float64, error) {
		results := slices.Clone(places)
		start := time.Now()
		err := s.session.RunInto(ctx, fed, names, results)
		took := float64(time.Since(start).Nanoseconds()) / 1e6
		for i, v := range results {
			if v != places[i] {
				v.Close()
			}
		}
		return took, err
	}
}

// declares says whether a value has the shape that is declared for it.
func declares(out ort.ValueInfo, v *ort.Value) bool {
	if v == nil || out.Kind != ort.KindTensor || v.Kind() != ort.KindTensor {
		return false
	}
	return slices.EqualFunc(out.Shape, v.Shape(), func(declared, n int64) bool { return declared < 0 || declared == n })
}

// interleave warms all sides up, then times them in the order A B C C B A, so that
// drifts of the machine fall on all alike. Every timed run counts, however long
// it took. Times are by side.
func interleave(runs []func() (float64, error), warmup, rounds int) ([][]float64, error) {
	for range warmup {
		for _, run := range runs {
			if _, err := run(); err != nil {
				return nil, err
			}
		}
	}
	times := make([][]float64, len(runs))
	for range rounds {
		for at := range 2 * len(runs) {
			i := min(at, 2*len(runs)-1-at)
			t, err := runs[i]()
			if err != nil {
				return nil, err
			}
			times[i] = append(times[i], t)
		}
	}
	return times, nil
}

func (s *side) names() []string {
	var list []string
	for _, out := range s.session.Outputs() {
		list = append(list, out.Name)
	}
	return list
}
