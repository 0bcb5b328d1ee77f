// Package matching says where the patterns of a manifest's operators are in a model, and runs the graphs that a
// plugin brings to show what its patterns match.
package matching

import (
	"context"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/pattern"
)

// Found is what looking for an operator's pattern in a graph gave.
type Found struct {
	Matches []*pattern.Match
	// Reason says why there is none, or why one that was found is not counted: how far the search got, or what
	// constraint does not hold.
	Reason string
}

// Find looks for an operator's pattern in a model: each place where it is, with the constraints under where, no node
// in two places. Whether anything would be gained there is not asked. A constraint of the machine's holds. An error
// is of kind graph.ErrBounds, or of a model that is no graph.
func Find(ctx context.Context, op *manifest.Operator, m *onnx.Model, tensors graph.Tensors) (*Found, error) {
	g, err := graph.NewWithin(ctx, m, tensors)
	if err != nil {
		return nil, err
	}
	found := &Found{}
	err = g.Bounded(ctx, func() error {
		found.find(op, g, graph.Infer(g))
		return nil
	})
	return found, err
}

func (f *Found) find(op *manifest.Operator, g *graph.Graph, shapes *graph.Shapes) {
	finder := pattern.NewFinder(g, shapes)
	finder.Explain = true
	taken := map[*graph.Node]bool{}
	for _, form := range op.Forms() {
		givenUp := finder.Each(form.Form, func(n *graph.Node) bool { return taken[n] }, func(m *pattern.Match) {
			if why := refuses(op, m); why != "" {
				f.Reason = why
				return
			}
			for _, n := range m.Nodes {
				taken[n] = true
			}
			f.Matches = append(f.Matches, m)
		})
		if givenUp {
			f.Reason = "the search was given up: the graph has too many places that are like a part of the pattern"
		}
	}
	switch {
	case len(f.Matches) > 0:
		f.Reason = ""
	case f.Reason != "":
	case finder.Nearest != nil:
		f.Reason = finder.Nearest.String()
	default:
		f.Reason = "no node is like the last of any form of the pattern"
	}
}

// refuses says why nothing would be put in place of a match, whatever it gains, or "".
func refuses(op *manifest.Operator, m *pattern.Match) string {
	if m.Stretched() {
		return "a number that the pattern has is a tensor there that changes the shape of what it meets"
	}
	facts := m.Facts()
	for _, c := range op.Where {
		if c.Fact == "cpu_vnni" {
			continue // of the machine, not of the graph
		}
		if ok, why := c.Allows(facts[c.Fact]); !ok {
			return why
		}
	}
	return m.Unequal()
}
