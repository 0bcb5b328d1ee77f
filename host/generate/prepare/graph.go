package prepare

import (
	"context"
	"slices"

	"github.com/opgraft/graft/host/base/memory/shared"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/rewrite/linear"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/patch"
)

// Graph is a rewritten graph, ready for a session.
type Graph struct {
	*graph.Graph
	Model   *model.Model // the opened file that its weights lie in
	Shapes  *graph.Shapes
	Plugins []string // those whose operators stand in it
	Logits  string   // its output that is logits; "" where it has none
}

// replace lets plugins stand in wherever they can, and drops what they have no use for.
// with names plugins whose operators stand in the graph already; edit, which may be nil,
// changes the graph as soon as the others do.
func replace(ctx context.Context, x *patch.Analysis, o Options, edit func(*graph.Graph), with ...string) (*Graph,
	error) {
	// A step has few rows nearly always, unlike what the plan must reckon with when
	// it knows no more of a model than its graph: what can run, runs.
	chosen := o.Plan
	chosen.Force = true
	chosen.AsTheyLie = true // an engine lays weights out itself
	chosen.OwnPanels = true
	chosen.Padding = plan.KeepPadding // an engine has none
	chosen.QuantizationNoise = true   // its attention over a cache rounds in its own way already
	if err := x.Choose(ctx, o.Plugins.Manifests(), o.Plugins.Plan(chosen)); err != nil {
		return nil, err
	}
	if err := x.Apply(ctx); err != nil {
		return nil, err
	}
	g := &Graph{Graph: x.Graph, Model: x.Model, Shapes: x.Shapes}
	for _, name := range append(with, x.Plugins()...) {
		if !slices.Contains(g.Plugins, name) {
			g.Plugins = append(g.Plugins, name)
		}
	}
	if edit != nil {
		edit(g.Graph)
	}
	return g, x.Within(ctx, func() error {
		if err := linear.DropReshapes(g.Graph, g.Shapes); err != nil {
			return err
		}
		return giveBack(g.Model, g.Graph)
	})
}

// Single prepares a model alone, as an encoder is. Close closes its file.
func Single(ctx context.Context, path string, plugins *loaded.Set, p plan.Options) (*Graph, error) {
	m, err := openExported(path)
	if err != nil {
		return nil, err
	}
	x, err := patch.View(ctx, m, m.Proto())
	if err == nil {
		var g *Graph
		if g, err = replace(ctx, x, Options{Plugins: plugins, Plan: p}, nil); err == nil {
			return g, nil
		}
	}
	_ = m.Close() // that error says more
	return nil, err
}

// Close closes the file of a graph that Single made.
func (g *Graph) Close() { _ = g.Model.Close() } // it was only read

// Open makes an unpatched session of the graph, which holds its weights, shared with other processes as is wished, or
// with mapped maps the model's files.
func (g *Graph) Open(ctx context.Context, l *ort.Library, o session.Options, mapped bool,
	share shared.Wish) (*session.Session, error) {
	return newSession(ctx, l, g.Model, g.Graph.Model(), o, mapped, share)
}

// newSession makes one of a graph whose weights lie with a model.
func newSession(ctx context.Context, l *ort.Library, m *model.Model, p *onnx.Model, o session.Options, mapped bool,
	share shared.Wish) (*session.Session, error) {
	out, err := patch.Serialize(m, p, true, mapped, share)
	if err != nil {
		return nil, err
	}
	if out.Folder != "" {
		if o.Config == nil {
			o.Config = map[string]string{}
		}
		o.Config[session.ConfigExternalFolder] = out.Folder
	}
	o.Weights = out.Weights
	return session.FromBytesContext(ctx, l, out.Model, o)
}
