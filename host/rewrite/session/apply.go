// Package session applies a plan to the graph of a session: operators take the places of the blocks they implement,
// what only fed those blocks goes, and inputs and outputs of the model stay exactly as they were.
package session

import (
	"errors"
	"fmt"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/rewrite"
)

// Apply edits the graph, and its model, as the plan says. A block that
// turns out to be tied to the rest of the graph is left unchanged, and its choice in
// the plan then says why.
func Apply(g *graph.Graph, shapes *graph.Shapes, p *plan.Plan) error {
	r := newRewriter(g, shapes)
	r.named = fusedValues(g, p.Fusions)
	for i, c := range p.Choices {
		if c.Operator == nil {
			continue
		}
		var err error
		switch {
		case c.Block != nil:
			err = r.attention(c)
		case c.Match != nil:
			err = r.pattern(c)
		}
		var tied *rewrite.TiedError
		if errors.As(err, &tied) {
			p.Choices[i].Leave(tied.Error())
			continue
		}
		if err != nil {
			return fmt.Errorf("%s in place of %s: %w", c.Operator.Name, c.Node, err)
		}
	}
	r.SettleReshapes()
	g.Prune() // of what only read shapes
	if err := r.joinQuantized(p.Fusions); err != nil {
		return err
	}
	g.ImportOpset(manifest.Domain, rewrite.DomainVersion)
	if err := g.Sort(); err != nil {
		return err
	}
	g.Prune()
	return g.Commit()
}

type rewriter struct {
	*rewrite.Editor
	main   *graph.Graph
	shapes *graph.Shapes
	sums   map[string]*graph.Value       // what several blocks add to their scores, made once
	named  map[string]*graph.Value       // of fusedValues
	gelus  map[*graph.Value]*graph.Value // of matmuls of integers
	norms  map[*graph.Value]*norm        // of a sum with a matmul of integers
}

func newRewriter(g *graph.Graph, shapes *graph.Shapes) *rewriter {
	return &rewriter{Editor: rewrite.NewEditor(g, shapes), main: g, shapes: shapes, sums: map[string]*graph.Value{}}
}
