package rewrite

import (
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/graph"
)

// tiedError reports a block that the rest of the graph needs as it was drawn.
// Nothing has been taken from the graph when it is returned.
type tiedError struct{ error }

func (e *tiedError) Unwrap() error { return e.error }

// freeShapes lets shapes be read from the graph's inputs instead of from values
// that are about to vanish or to be made by the operator itself. Exporters make
// masks from the shapes of present keys: what the operator reads must not wait
// for what it makes.
func (r *rewriter) freeShapes(region []*graph.Node, ins, made []*graph.Value) error {
	inside := map[*graph.Node]bool{}
	for _, n := range region {
		inside[n] = true
	}
	for _, n := range region {
		for _, v := range n.Out {
			if v == nil || slices.Contains(made, v) {
				continue
			}
			for _, u := range slices.Clone(v.Uses) {
				if inside[u.Node] || !u.Node.Is("Shape") {
					continue
				}
				if err := r.freeShape(u.Node); err != nil {
					return &tiedError{fmt.Errorf("the shape of %s is read elsewhere: %w", v.Name, err)}
				}
			}
		}
	}
	for _, n := range shapesBetween(made, ins) {
		if err := r.freeShape(n); err != nil {
			return &tiedError{fmt.Errorf("what it reads is made from the shape of what it makes: %w", err)}
		}
	}
	return nil
}

// freeShape replaces a Shape by its lengths, made from the graph's inputs.
func (r *rewriter) freeShape(n *graph.Node) error {
	shape := n.Output(0)
	lengths := r.shapes.Of(shape).Elems
	if lengths == nil {
		return fmt.Errorf("the lengths that %s reads are not known", n)
	}
	to, err := r.list(n.Graph, lengths)
	if err != nil {
		return err
	}
	n.Graph.Replace(shape, to)
	return nil
}

// shapesBetween lists the Shape nodes through which values depend on others.
func shapesBetween(from, to []*graph.Value) []*graph.Node {
	below := map[*graph.Value]bool{}
	var down func(v *graph.Value)
	down = func(v *graph.Value) {
		if v == nil || below[v] {
			return
		}
		below[v] = true
		for _, u := range v.Uses {
			// What a node inside a branch reads, the branch's outputs depend on.
			for n := u.Node; n != nil; n = n.Graph.Owner {
				for _, o := range n.Out {
					down(o)
				}
			}
		}
	}
	for _, v := range from {
		down(v)
	}
	var list []*graph.Node
	seen := map[*graph.Node]bool{}
	var up func(v *graph.Value)
	var visit func(n *graph.Node)
	visit = func(n *graph.Node) {
		for _, in := range n.In {
			up(in)
		}
		for _, s := range n.Subgraphs {
			for _, inner := range s.Nodes {
				visit(inner)
			}
		}
	}
	up = func(v *graph.Value) {
		if v == nil || v.Producer == nil || seen[v.Producer] {
			return
		}
		n := v.Producer
		seen[n] = true
		if n.Is("Shape") && below[n.In[0]] {
			list = append(list, n)
			return
		}
		visit(n)
	}
	for _, v := range to {
		up(v)
	}
	return list
}
