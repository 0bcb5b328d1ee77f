package bisect

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/host/session/sessions"
)

// choices are what a side replaces.
type choices struct {
	Choices  []choice
	Unpadded bool // padding is removed
	Refused  []string
}

// choice is one block with its operator.
type choice struct {
	Node, Kind, Plugin, Operator string
	Padding                      bool     // it stands only with the others that remove padding
	Outputs                      []string // the values of the main graph that it makes
	Nodes                        []string // the nodes of the main graph for which it stands, by their first outputs
}

const (
	taskChoices = "bisect choices"
	taskTrace   = "bisect trace"
)

// Tasks are what an executable that can be a child does for Apart, besides comparison.Tasks: pass them to worker.Main.
func Tasks() map[string]worker.Handler {
	return map[string]worker.Handler{
		taskChoices: comparison.Task(
			func(ctx context.Context, j comparison.Job) (choices, error) { return chosenBy(ctx, j) }),
		taskTrace: comparison.Task(func(ctx context.Context, j traceJob) (traced, error) { return j.trace(ctx) }),
	}
}

// choices asks a child what a side replaces.
func (r *run) choices(ctx context.Context, side string) (*choices, error) {
	if side == "none" {
		return &choices{}, nil
	}
	o := r.Options
	o.B, o.Step, o.Progress = side, nil, nil
	child, err := comparison.Start(ctx, worker.Options{Subject: r.Model, Deadline: r.Deadline, Output: r.Output})
	if err != nil {
		return nil, err
	}
	defer child.Close()
	found, err := comparison.Ask[choices](ctx, child, taskChoices,
		comparison.Job{Model: r.Model, Options: o, Runtime: r.Runtime, Folders: r.Folders})
	if r.Refused != nil {
		for _, why := range found.Refused {
			r.Refused(why)
		}
		r.Refused = nil
	}
	return &found, err
}

// chosenBy plans side B of a job as a session does.
func chosenBy(ctx context.Context, j comparison.Job) (found choices, err error) {
	l, err := ort.FindAndOpen(j.Runtime)
	if err != nil {
		return found, err
	}
	set, refused, err := comparison.Plugins(j.Folders, true)
	if err != nil {
		return found, err
	}
	found.Refused = refused
	po, err := comparison.PlanOptions(set, j.Options.B, j.Options)
	if err != nil {
		return found, err
	}
	planned := errors.New("planned") // in place of a session
	_, err = session.OpenContext(ctx, l, j.Model,
		session.Options{IntraOpThreads: j.Options.Threads, Patcher: func(r session.Request) (*session.Patch, error) {
			p, err := (&sessions.Patcher{Plugins: set.Plugins, Options: set.Plan(po)}).Plan(ctx, r)
			if p == nil || err != nil {
				return nil, cmp.Or(err, planned)
			}
			defer p.Close()
			found.take(p.Analysis)
			return nil, planned
		}})
	if !errors.Is(err, planned) {
		return found, err
	}
	return found, found.locate(ctx, set, j)
}

// take notes what a session places.
func (f *choices) take(a *patch.Analysis) {
	f.Unpadded = a.Plan.Rows() != plan.AllRows
	f.Choices = nil
	for _, c := range a.Plan.Choices {
		if c.Operator != nil {
			f.Choices = append(f.Choices,
				choice{Node: c.Node, Kind: c.Kind, Plugin: c.Plugin, Operator: c.Operator.Name,
					Padding: f.Unpadded && c.Kept != nil})
		}
	}
}

// locate says where the choices stand in the model as it is: a session's graph has been edited.
func (f *choices) locate(ctx context.Context, set *loaded.Set, j comparison.Job) error {
	m, err := model.Open(j.Model)
	if err != nil {
		return err
	}
	defer m.Close()
	fixed := map[string]string{}
	for _, c := range f.Choices {
		fixed[c.Node] = c.Operator
	}
	a, err := patch.Analyse(ctx, m, set.Manifests(),
		set.Plan(plan.Options{Fixed: fixed, QuantizationNoise: true, Padding: j.Options.Padding}))
	if err != nil {
		return err
	}
	return a.Within(ctx, func() error {
		for i := range f.Choices {
			to := &f.Choices[i]
			at := slices.IndexFunc(a.Plan.Choices, func(c plan.Choice) bool {
				return c.Key() == plan.Key{Node: to.Node, Kind: to.Kind} && c.Operator != nil
			})
			if at < 0 {
				continue
			}
			_, outs := a.Plan.Choices[at].Ends()
			for _, v := range outs {
				to.Outputs = appendNew(to.Outputs, outermost(v)...)
			}
			for _, n := range a.Plan.Choices[at].Region() {
				to.Nodes = appendNew(to.Nodes, keys(top(n))...)
			}
		}
		return nil
	})
}

// top is the node of the main graph that holds a node.
func top(n *graph.Node) *graph.Node {
	for n.Graph.Owner != nil {
		n = n.Graph.Owner
	}
	return n
}

// outermost are the names of a value of the main graph; of one inside, those that the node which holds it makes.
func outermost(v *graph.Value) []string {
	if v.Graph.Owner == nil {
		return []string{v.Name}
	}
	return keys(top(v.Graph.Owner))
}

// keys are the names of what a node makes.
func keys(n *graph.Node) (names []string) {
	for _, v := range n.Out {
		if v != nil {
			names = append(names, v.Name)
		}
	}
	return names
}

func appendNew(list []string, more ...string) []string {
	for _, s := range more {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}
