package bisect

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/memory/shared"
	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/host/session/sessions"
)

// traceJob compares values inside of a model with two sides.
type traceJob struct {
	comparison.Job
	Watch []string // names of values of the main graph, in its order
}

// traced is the first of them that leaves the tolerance.
type traced struct {
	Found bool
	First comparison.OutputParity
}

// some is how many values are compared first; there are more each time, since the first that differs is mostly among
// the first.
const some = 8

// trace finds the first value that leaves the tolerance with some of B's choices.
func (r *run) trace(ctx context.Context, parts []int) (*Tensor, error) {
	r.step("finding the first tensor")
	m, err := model.Open(r.Model)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	g, err := graph.NewWithin(ctx, m.Proto(), m)
	if err != nil {
		return nil, err
	}
	path, err := r.planned(parts)
	if err != nil {
		return nil, err
	}
	_, after := r.region(g, parts)
	j := traceJob{Job: r.comparison(r.Options)}
	j.Options.B, j.Options.Step, j.Options.Progress = path, nil, nil
	makes := map[string]*graph.Node{}
	for _, v := range after {
		j.Watch, makes[v.Name] = append(j.Watch, v.Name), v.Producer
	}
	child, err := comparison.Start(ctx, worker.Options{Subject: r.Model, Deadline: r.Deadline, Output: r.Output})
	if err != nil {
		return nil, err
	}
	defer child.Close()
	found, err := comparison.Ask[traced](ctx, child, taskTrace, j)
	if err != nil || !found.Found {
		return nil, err
	}
	n := makes[found.First.Name]
	return &Tensor{OutputParity: found.First, Node: n.Path(), Op: n.Op()}, nil
}

// region are the nodes of the main graph for which B's choices stand, and the values that depend on what they make,
// in the order of the graph.
func (r *run) region(g *graph.Graph, parts []int) (inside map[*graph.Node]bool, after []*graph.Value) {
	inside, reached := map[*graph.Node]bool{}, map[*graph.Value]bool{}
	for _, i := range parts {
		for _, c := range r.units[i].choices {
			for _, name := range c.Outputs {
				if v := g.Lookup(name); v != nil && v.Producer != nil {
					reached[v], inside[v.Producer] = true, true
				}
			}
			for _, name := range c.Nodes {
				if v := g.Lookup(name); v != nil && v.Producer != nil {
					inside[v.Producer] = true
				}
			}
		}
	}
	for _, n := range g.Nodes {
		depends := false
		eachRead(n, func(v *graph.Value) { depends = depends || reached[v] })
		for _, v := range n.Out {
			if v == nil {
				continue
			}
			if depends {
				reached[v] = true
			}
			if reached[v] {
				after = append(after, v)
			}
		}
	}
	return inside, after
}

// trace runs in the child.
func (j traceJob) trace(ctx context.Context) (found traced, err error) {
	l, err := ort.FindAndOpen(j.Runtime)
	if err != nil {
		return found, err
	}
	set, _, err := comparison.Plugins(j.Folders, true)
	if err != nil {
		return found, err
	}
	m, err := model.Open(j.Model)
	if err != nil {
		return found, err
	}
	defer m.Close()
	fed, err := inputs.Make(l, j.Model, j.Options.Inputs)
	if err != nil {
		return found, err
	}
	defer fed.Close()
	a, err := instrument(ctx, l, set, m, j.Options.A, j.Options, j.Watch)
	if err != nil {
		return found, err
	}
	defer a.session.Close()
	b, err := instrument(ctx, l, set, m, j.Options.B, j.Options, j.Watch)
	if err != nil {
		return found, err
	}
	defer b.session.Close()
	var both []string // values that both sides have
	for _, name := range j.Watch {
		if a.names[name] != "" && b.names[name] != "" {
			both = append(both, name)
		}
	}
	for size := some; len(both) > 0; size *= 2 {
		now := both[:min(size, len(both))]
		both = both[len(now):]
		if found, err = j.differ(ctx, a, b, fed, now); err != nil || found.Found {
			return found, err
		}
	}
	return found, nil
}

// differ runs both sides and compares some values.
func (j traceJob) differ(ctx context.Context, a, b *instrumented, fed *inputs.Batch, names []string) (found traced,
	err error) {
	x, err := a.values(ctx, fed, names)
	if err != nil {
		return found, fmt.Errorf("a: %w", err)
	}
	defer closeAll(x)
	y, err := b.values(ctx, fed, names)
	if err != nil {
		return found, fmt.Errorf("b: %w", err)
	}
	defer closeAll(y)
	for i, name := range names {
		if a.names[name] != b.names[name] && !slices.Equal(x[i].Shape(), y[i].Shape()) {
			continue // what stands for it is laid out otherwise
		}
		if p := comparison.CompareValues(name, x[i], y[i], j.Options.Absolute, j.Options.Relative); !p.OK {
			return traced{true, p}, nil
		}
	}
	return found, nil
}

func closeAll(values []*ort.Value) {
	for _, v := range values {
		v.Close()
	}
}

// instrumented is a session of a side that also gives values inside of the model. ONNX Runtime fuses none of them away.
type instrumented struct {
	session *session.Session
	names   map[string]string // of what stands for the model's values in the session
}

func (s *instrumented) values(ctx context.Context, fed *inputs.Batch, names []string) ([]*ort.Value, error) {
	asked := make([]string, len(names))
	for i, name := range names {
		asked[i] = s.names[name]
	}
	return s.session.Run(ctx, fed.Values, asked...)
}

// instrument makes one of side none, or of one whose operators are those of set.
func instrument(ctx context.Context, l *ort.Library, set *loaded.Set, m *model.Model, side string,
	o comparison.Options,
	watch []string) (*instrumented, error) {
	s := &instrumented{}
	patcher := func(r session.Request) (p *session.Patch, err error) {
		if side != "none" {
			po, err := comparison.PlanOptions(set, side, o)
			if err != nil {
				return nil, err
			}
			if p, err = (&sessions.Patcher{Plugins: set.Plugins, Options: set.Plan(po)}).Patch(r); err != nil {
				return nil, err
			}
		}
		if p == nil {
			out, err := patch.Serialize(m, m.Proto(), true, false, shared.Never)
			if err != nil {
				return nil, err
			}
			p = &session.Patch{Model: out.Model, ExternalFolder: out.Folder, Weights: out.Weights}
		}
		if p.Model, s.names, err = watched(m.Proto().GetGraph(), p.Model, watch); err != nil {
			p.Release()
			return nil, err
		}
		return p, nil
	}
	var err error
	s.session, err = session.OpenContext(ctx, l, m.Path(),
		session.Options{IntraOpThreads: o.Threads, Optimization: session.OptimizeNone, Patcher: patcher})
	return s, err
}

// watched makes values of a model outputs of another that was made from it, where something stands for them.
func watched(of *onnx.Graph, content []byte, watch []string) ([]byte, map[string]string, error) {
	var m onnx.Model
	if err := proto.Unmarshal(content, &m); err != nil {
		return nil, nil, err
	}
	to := m.GetGraph()
	names := standIns(of, to, watch)
	given := map[string]bool{}
	for _, out := range to.GetOutput() {
		given[out.GetName()] = true
	}
	for _, name := range watch {
		if in := names[name]; in != "" && !given[in] {
			given[in] = true
			to.Output = append(to.Output, &onnx.ValueInfo{Name: proto.String(in)})
		}
	}
	content, err := proto.Marshal(&m)
	return content, names, err
}

// standIns finds what stands for values of a graph in one that was made from it: a value of that name, or what a node
// that is in both reads in its place.
func standIns(of, to *onnx.Graph, watch []string) map[string]string {
	made, same := map[string]bool{}, map[string]*onnx.Node{}
	for _, n := range to.GetNode() {
		for _, out := range n.GetOutput() {
			if out != "" {
				made[out], same[out] = true, n
			}
		}
	}
	wanted, names := map[string]bool{}, map[string]string{}
	for _, name := range watch {
		if wanted[name] = true; made[name] {
			names[name] = name
		}
	}
	for _, n := range of.GetNode() {
		if len(n.GetOutput()) == 0 {
			continue
		}
		m := same[n.GetOutput()[0]]
		if m == nil || m.GetOpType() != n.GetOpType() || len(m.GetInput()) != len(n.GetInput()) {
			continue
		}
		for i, in := range n.GetInput() {
			if wanted[in] && names[in] == "" && made[m.GetInput()[i]] {
				names[in] = m.GetInput()[i]
			}
		}
	}
	return names
}
