package rewrite

import (
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/onnx/graph"
)

// TiedError reports a block that the rest of the graph needs as it was exported.
// Nothing has been taken from the graph when it is returned.
type TiedError struct{ error }

func (e *TiedError) Unwrap() error { return e.error }

// CheckIndependent reports an error where one of some values is made from others: what one operator reads must not
// wait for what it makes.
func (e *Editor) CheckIndependent(ins, made []*graph.Value, shapes bool) error {
	for _, v := range ins {
		if v != nil && e.comesFrom(v, made, shapes) {
			return &TiedError{fmt.Errorf("%s is read here, and made from what is made here", v.Name)}
		}
	}
	return nil
}

// FreeShapes lets shapes be read from the graph's inputs instead of from values
// that are about to vanish or to be made by the operator itself. Exporters make
// masks from the shapes of present keys: what the operator reads must not wait
// for what it makes.
func (e *Editor) FreeShapes(region []*graph.Node, ins, made []*graph.Value) error {
	if err := e.CheckIndependent(ins, made, false); err != nil {
		return err
	}
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
			e.main.Spend(len(v.Uses))
			for _, u := range slices.Clone(v.Uses) {
				if inside[u.Node] || !u.Node.Is("Shape") {
					continue
				}
				if err := e.freeShape(u.Node, within); err != nil {
					return &TiedError{fmt.Errorf("the shape of %s is read elsewhere: %w", v.Name, err)}
				}
			}
		}
	}
	for _, n := range e.shapesBetween(made, ins) {
		if err := e.freeShape(n, within); err != nil {
			return &TiedError{fmt.Errorf("what it reads is made from the shape of what it makes: %w", err)}
		}
	}
	return nil
}

// span is what a block reads and makes.
type span struct{ ins, made []*graph.Value }

// FreeShape replaces a Shape by its lengths, made from the graph's inputs alone.
func (e *Editor) FreeShape(n *graph.Node) error { return e.freeShape(n, nil) }

// FreeShapeAnywhere is FreeShape whose lengths may also be read off the values that have them first.
func (e *Editor) FreeShapeAnywhere(n *graph.Node) error { return e.freeShape(n, &span{}) }

// freeShape replaces a Shape by its lengths, made from the graph's inputs, or from
// values before a block.
func (e *Editor) freeShape(n *graph.Node, block *span) error {
	shape := n.Output(0)
	lengths := e.shapes.Of(shape).Elems
	if lengths == nil {
		return fmt.Errorf("the lengths that %s reads are not known", n)
	}
	to, err := e.list(n.Graph, lengths)
	if err != nil {
		// What is read here may be too late for others: it is not reused for them.
		saved := e.lengths
		e.lengths, e.block = map[lengthKey]*graph.Value{}, block
		to, err = e.list(n.Graph, lengths)
		e.lengths, e.block = saved, nil
	}
	if err != nil {
		return err
	}
	n.Graph.Replace(shape, to)
	e.order.vanish(n)
	e.order.moved(to)
	return nil
}

// before reports a value that is there before a block: it comes from nothing that
// the block makes, and from what it reads by its shape at most.
func (e *Editor) before(v *graph.Value, b *span) bool {
	return slices.Contains(b.ins, v) || !e.comesFrom(v, b.made, true) && !e.comesFrom(v, b.ins, false)
}

// comesFrom reports a value that is one of some, or made from them; their shapes
// count too when asked. Inputs of the graph come from nothing.
func (e *Editor) comesFrom(v *graph.Value, from []*graph.Value, shapes bool) bool {
	lowest, any := e.lowest(from)
	if !any {
		return false
	}
	seen := map[*graph.Node]bool{}
	for way := []*graph.Value{v}; len(way) > 0; {
		v, way = way[len(way)-1], way[:len(way)-1]
		if v == nil || v.Producer == nil {
			continue
		}
		if slices.Contains(from, v) {
			return true
		}
		n := v.Producer
		if seen[n] || n.Is("Shape") && !shapes || e.order.of(n) < lowest {
			continue
		}
		seen[n] = true
		e.main.Spend(1)
		n.EachRead(func(in *graph.Value) { way = append(way, in) })
	}
	return false
}

// shapesBetween lists the Shape nodes through which values depend on others.
func (e *Editor) shapesBetween(from, to []*graph.Value) []*graph.Node {
	lowest, any := e.lowest(from)
	if !any {
		return nil
	}
	below := e.below(from, to, lowest)
	var list []*graph.Node
	seen := map[*graph.Node]bool{}
	way := slices.Clone(to)
	for slices.Reverse(way); len(way) > 0; {
		v := way[len(way)-1]
		way = way[:len(way)-1]
		if v == nil || v.Producer == nil || seen[v.Producer] || e.order.of(v.Producer) < lowest {
			continue
		}
		n := v.Producer
		seen[n] = true
		e.main.Spend(1)
		if n.Is("Shape") && (slices.Contains(from, n.In[0]) || below[n]) {
			list = append(list, n)
			continue
		}
		before := len(way)
		n.EachRead(func(in *graph.Value) { way = append(way, in) })
		slices.Reverse(way[before:])
	}
	return list
}

// below tells of the nodes above some values, and no lower than a place, whether what they
// read is one of others or made from them.
func (e *Editor) below(from, to []*graph.Value, lowest int) map[*graph.Node]bool {
	below := map[*graph.Node]bool{}
	type step struct {
		n    *graph.Node
		gone bool // what it reads was looked at
	}
	var way []step // chains of nodes are as long as a model makes them
	visit := func(v *graph.Value) {
		if v == nil || v.Producer == nil || e.order.of(v.Producer) < lowest {
			return
		}
		if _, seen := below[v.Producer]; !seen {
			way = append(way, step{n: v.Producer})
		}
	}
	for _, v := range to {
		visit(v)
		for len(way) > 0 {
			at := &way[len(way)-1]
			n := at.n
			if !at.gone {
				if _, seen := below[n]; seen {
					way = way[:len(way)-1]
					continue
				}
				at.gone, below[n] = true, false
				e.main.Spend(1)
				n.EachRead(visit)
				continue
			}
			way = way[:len(way)-1]
			n.EachRead(func(in *graph.Value) {
				below[n] = below[n] || slices.Contains(from, in) || in.Producer != nil && below[in.Producer]
			})
		}
	}
	return below
}
