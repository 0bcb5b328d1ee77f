package rewrite

import (
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/graph"
)

// tiedError reports a block that the rest of the graph needs as it was exported.
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
	within := &span{ins, made}
	for _, n := range region {
		for _, v := range n.Out {
			if v == nil || slices.Contains(made, v) {
				continue
			}
			for _, u := range slices.Clone(v.Uses) {
				if inside[u.Node] || !u.Node.Is("Shape") {
					continue
				}
				if err := r.freeShape(u.Node, within); err != nil {
					return &tiedError{fmt.Errorf("the shape of %s is read elsewhere: %w", v.Name, err)}
				}
			}
		}
	}
	for _, n := range shapesBetween(made, ins) {
		if err := r.freeShape(n, within); err != nil {
			return &tiedError{fmt.Errorf("what it reads is made from the shape of what it makes: %w", err)}
		}
	}
	return nil
}

// span is what a block reads and makes.
type span struct{ ins, made []*graph.Value }

// freeShape replaces a Shape by its lengths, made from the graph's inputs, or from
// values before a block.
func (r *rewriter) freeShape(n *graph.Node, block *span) error {
	shape := n.Output(0)
	lengths := r.shapes.Of(shape).Elems
	if lengths == nil {
		return fmt.Errorf("the lengths that %s reads are not known", n)
	}
	to, err := r.list(n.Graph, lengths)
	if err != nil {
		// What is read here may be too late for others: it is not reused for them.
		saved := r.lengths
		r.lengths, r.block = map[lengthKey]*graph.Value{}, block
		to, err = r.list(n.Graph, lengths)
		r.lengths, r.block = saved, nil
	}
	if err != nil {
		return err
	}
	n.Graph.Replace(shape, to)
	return nil
}

// before reports a value that is there before a block: it comes from nothing that
// the block makes, and from what it reads by its shape at most.
func (b *span) before(v *graph.Value) bool {
	return slices.Contains(b.ins, v) || !comesFrom(v, b.made, true) && !comesFrom(v, b.ins, false)
}

// comesFrom reports a value that is one of some, or made from them; their shapes
// count too when asked. Inputs of the graph come from nothing.
func comesFrom(v *graph.Value, from []*graph.Value, shapes bool) bool {
	seen := map[*graph.Node]bool{}
	var made func(v *graph.Value) bool
	var by func(n *graph.Node) bool
	made = func(v *graph.Value) bool {
		return v != nil && v.Producer != nil && (slices.Contains(from, v) || by(v.Producer))
	}
	by = func(n *graph.Node) bool {
		if seen[n] || n.Is("Shape") && !shapes {
			return false
		}
		seen[n] = true
		return slices.ContainsFunc(n.In, made) ||
			slices.ContainsFunc(n.Subgraphs, func(g *graph.Graph) bool { return slices.ContainsFunc(g.Nodes, by) })
	}
	return made(v)
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
