// Package patch leads a model along its whole way: read, viewed as a graph,
// recognised, planned, rewritten. The command line, sessions and comparisons all go
// through it.
package patch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/fused"
	"github.com/opgraft/graft/host/meaning/padding"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/rewrite/linear"
	rewrite "github.com/opgraft/graft/host/rewrite/session"
)

// Analysis is a model with what was recognised in it and what is planned.
type Analysis struct {
	Model  *model.Model
	Graph  *graph.Graph
	Shapes *graph.Shapes
	Report *blocks.Report
	Plan   *plan.Plan
	// Padding is how the model could run without hidden tokens; nil where it could not. PaddingReason is why they are
	// computed, "" where they are not, or there is no mask.
	Padding       *padding.Facts
	PaddingReason string
	// Obstacle is why graft places nothing in the model, see Brought; "" where it may.
	Obstacle string

	parts     *fused.Parts // operators that were taken apart
	applied   bool
	manifests []*manifest.Manifest
	options   plan.Options
}

// ErrPadding is the kind of error of a model whose padding was to be removed and could not be: it can be planned
// anew, with plan.KeepPadding.
var ErrPadding = errors.New("its padding could not be removed")

// DefaultTime is how much of a thread's processor time the analysis of a model may take where its context has no limit.
const DefaultTime = 10 * time.Second

// limited gives a context the limit that it has not.
func limited(ctx context.Context) context.Context {
	if graph.HasLimit(ctx) {
		return ctx
	}
	return graph.WithProcessorTime(ctx, DefaultTime)
}

// Analyse recognises the blocks of a model and plans which operators take them.
// Nothing is changed. The model stays the caller's to close. A model is left alone, with an error of kind
// [graph.ErrBounds], when that takes more steps or memory than a graph of its size needs, or longer than ctx allows.
func Analyse(ctx context.Context, m *model.Model, manifests []*manifest.Manifest, o plan.Options) (*Analysis, error) {
	ctx = limited(ctx)
	a, err := ViewFor(ctx, m, o)
	if err != nil {
		return nil, err
	}
	if err := a.Choose(ctx, manifests, o); err != nil {
		return nil, err
	}
	return a, nil
}

// ViewFor recognises the blocks of a model as sessions of a device need it. Nothing is planned yet: Choose does that.
// Errors are those of Analyse.
func ViewFor(ctx context.Context, m *model.Model, o plan.Options) (*Analysis, error) {
	a, err := view(ctx, m, m.Proto(), apartOn(o))
	if err != nil {
		return nil, err
	}
	a.Obstacle = Brought(m.Proto())
	return a, nil
}

// View recognises the blocks of a graph whose weights lie with a model. Nothing is
// planned yet: Choose does that. Errors are those of Analyse.
func View(ctx context.Context, m *model.Model, p *onnx.Model) (*Analysis, error) {
	return view(ctx, m, p, nothingApart)
}

// ViewRows is View of a graph that is to run without padding, as that of an engine: what [fused.TakeGroupsApart]
// takes apart then is. The graph is changed.
func ViewRows(ctx context.Context, m *model.Model, p *onnx.Model) (*Analysis, error) {
	return view(ctx, m, p, groupsApart)
}

// ViewApart is View of a graph whose fused operators are taken apart, as Analyse sees it for sessions on the CPU.
// Apply makes one operator again of parts that nothing took.
func ViewApart(ctx context.Context, m *model.Model, p *onnx.Model) (*Analysis, error) {
	return view(ctx, m, p, fusedApart)
}

// apart says what of a graph is taken apart before blocks are looked for.
type apart int

const (
	nothingApart apart = iota
	fusedApart         // what fused.TakeApart takes apart, and parts put together
	groupsApart        // what fused.TakeGroupsApart does
)

// apartOn is what is taken apart for sessions.
func apartOn(o plan.Options) apart {
	if o.Device != nil {
		return nothingApart
	}
	return fusedApart
}

func view(ctx context.Context, m *model.Model, p *onnx.Model, what apart) (a *Analysis, err error) {
	defer diagnostic.Recovered(m.Path(), "analysis", &err)
	ctx = limited(ctx)
	g, err := graph.NewWithin(ctx, p, m)
	if err == nil {
		err = g.Complete()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Path(), err)
	}
	a = &Analysis{Model: m, Graph: g}
	if err := a.Within(ctx, func() error {
		a.Shapes = graph.Infer(g)
		changed, err := false, error(nil)
		switch what {
		case fusedApart:
			a.parts, err = fused.TakeApart(g, a.Shapes)
			changed = a.parts.Any()
		case groupsApart:
			changed, err = fused.TakeGroupsApart(g, a.Shapes)
		}
		if err != nil {
			return err
		}
		if changed {
			a.Shapes = graph.Infer(g)
		}
		a.Report = blocks.Find(g, a.Shapes)
		were := a.parts.Were()
		for _, b := range a.Report.Blocks {
			if op := were[b.Wiring.Anchor.Proto.GetName()]; op != "" {
				b.Attention.Form = op
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	return a, nil
}

// Choose plans which operators take the blocks. Errors are those of Analyse.
func (a *Analysis) Choose(ctx context.Context, manifests []*manifest.Manifest, o plan.Options) (err error) {
	defer diagnostic.Recovered(a.Model.Path(), "analysis", &err)
	return a.Within(ctx, func() error {
		a.Plan, a.manifests, a.options = plan.Make(a.Graph, a.Shapes, a.Report, manifests, o), manifests, o
		if a.Padding, a.PaddingReason = padding.Find(a.Graph, a.Shapes, a.Report); a.Padding != nil {
			a.PaddingReason = a.Plan.Unpad(a.Graph, a.Shapes, a.Padding, manifests, o)
		}
		if a.Obstacle != "" {
			for i := range a.Plan.Choices {
				a.Plan.Choices[i].Leave(a.Obstacle)
			}
		}
		return nil
	})
}

// Settle leaves the choices that sessions leave: blocks that turn out to be tied to the rest of the graph when they are
// placed, and those of which Misshapen has a reason. It places them in a copy of the graph, chosen for as Choose does
// with the same arguments. Errors are those of Analyse.
func (a *Analysis) Settle(ctx context.Context, manifests []*manifest.Manifest, o plan.Options) error {
	ctx = limited(ctx)
	for again := true; again && a.Plan.Changes(); {
		trial, err := view(ctx, a.Model, proto.CloneOf(a.Model.Proto()), apartOn(o))
		if err != nil {
			return err
		}
		if err := trial.Choose(ctx, manifests, o); err != nil {
			return err
		}
		trial.Plan.LeaveOut(a.Plan.LeftOut())
		if err := trial.Apply(ctx); err != nil {
			return err
		}
		wrong := trial.Misshapen()
		a.Plan.LeaveOut(wrong)
		a.Plan.LeaveOut(trial.Plan.LeftOut())
		again = len(wrong) > 0
	}
	return nil
}

// Apply rewrites the model as planned. It may be called once. After an error, which may be
// one of Analyse too, the model is not to be used.
func (a *Analysis) Apply(ctx context.Context) (err error) {
	defer diagnostic.Recovered(a.Model.Path(), "rewriting", &err)
	if a.applied {
		return fmt.Errorf("%s: the plan was applied before", a.Model.Path())
	}
	a.applied = true
	if a.Plan.Rows() != plan.AllRows {
		return a.unpad(ctx)
	}
	a.Plan.KeepPadding()
	return a.Within(ctx, a.place)
}

// place puts the operators of the plan into the graph.
func (a *Analysis) place() error {
	if err := rewrite.Apply(a.Graph, a.Shapes, a.Plan); err != nil {
		return err
	}
	if a.Plan.Panels() {
		if err := linear.Panels(a.Graph, a.Shapes, a.Model); err != nil {
			return err
		}
	}
	return a.parts.PutBack(a.Graph)
}

// unpad removes the model's padding, and applies the other choices of the plan to what is left.
func (a *Analysis) unpad(ctx context.Context) error {
	if err := a.Within(ctx, func() error {
		return rewrite.RemovePadding(a.Graph, a.Shapes, a.Padding, a.Plan.Rows() == plan.MaskedRows)
	}); err != nil {
		return errors.Join(ErrPadding, err)
	}
	rows, err := ViewApart(ctx, a.Model, a.Graph.Model())
	if err != nil {
		return errors.Join(ErrPadding, err)
	}
	rows.Graph.Inherit(a.Graph)
	rows.parts = a.parts.And(rows.parts)
	o := a.options
	o.Padding = plan.KeepPadding
	if err := rows.Choose(ctx, a.manifests, o); err != nil {
		return errors.Join(ErrPadding, err)
	}
	planned, left := a.Plan.Placed(), a.Plan.LeftOut()
	for i := range rows.Plan.Choices {
		c := &rows.Plan.Choices[i]
		if before := planned[c.Key()]; c.Operator != nil && (before == nil || before.Kept != nil) {
			c.Leave(cmp.Or(left[c.Key()], "it is not in the plan"))
		}
	}
	err = rows.Within(ctx, rows.place)
	placed := rows.Plan.Placed()
	left = rows.Plan.LeftOut()
	for k, c := range planned {
		if c.Kept == nil && placed[k] == nil {
			c.Leave(cmp.Or(left[k], "without padding it is not there"))
		}
	}
	a.Graph, a.Shapes = rows.Graph, rows.Shapes
	return err
}

// Within runs one more part of the analysis. Its errors get the model's name, and are those of Analyse too.
func (a *Analysis) Within(ctx context.Context, part func() error) error {
	ctx = limited(ctx)
	if err := a.Graph.Bounded(ctx, part); err != nil {
		return fmt.Errorf("%s: %w", a.Model.Path(), err)
	}
	return nil
}

// Hidden are the outputs whose rows of hidden tokens are zeros in a session of the plan; nil for none.
func (a *Analysis) Hidden() *session.Hidden {
	if a.Padding == nil || len(a.Padding.Outputs) == 0 || a.Plan.Rows() != plan.VisibleRows {
		return nil
	}
	return &session.Hidden{Mask: a.Padding.From, Added: a.Padding.Added, Outputs: a.Padding.Outputs}
}

// Plugins names the plugins that the plan uses.
func (a *Analysis) Plugins() []string {
	var names []string
	seen := map[string]bool{}
	if name := a.Plan.Packs(); name != "" {
		seen[name], names = true, append(names, name)
	}
	for _, c := range a.Plan.Choices {
		if c.Operator != nil && !seen[c.Plugin] {
			seen[c.Plugin] = true
			names = append(names, c.Plugin)
		}
	}
	return names
}

// Write writes the rewritten model with its weights to a file of its own.
func (a *Analysis) Write(ctx context.Context, path string, o model.WriteOptions) error {
	return a.Model.Write(ctx, a.Model.Proto(), path, o)
}
