package blocks

import "github.com/opgraft/graft/host/onnx/graph"

// Copies tells which values of a model are one and the same with nothing but a detour between them: a copy, a pair of
// transposes that undo each other, a reshape there and back. Values that are computed twice are two.
type Copies struct{ f *finder }

// FindCopies looks at a main graph and its subgraphs. Graph.Bounded stops it.
func FindCopies(g *graph.Graph, shapes *graph.Shapes) *Copies {
	f := &finder{main: g, shapes: shapes, known: map[question]depths{}, read: map[*graph.Value][]graph.Use{}}
	f.disguise(g)
	return &Copies{f}
}

// First is the furthest value upstream with the same elements in the same shape; nil of nil.
func (c *Copies) First(v *graph.Value) *graph.Value { return c.f.first(v) }

// Readers are the nodes that read the elements of a value or of its copies, but for those that only copy it. Readers
// of its shape do not count.
func (c *Copies) Readers(v *graph.Value) []graph.Use { return c.f.readers(v) }

// ReadOutside reports that something other than some nodes needs a value or its copies: reads its elements or its
// shape, or hands it out.
func (c *Copies) ReadOutside(v *graph.Value, inside func(*graph.Node) bool) bool {
	first := c.f.first(v)
	if c.f.guises.outputs[first] != nil {
		return true
	}
	c.f.main.Spend(len(c.f.guises.uses[first]))
	for _, u := range c.f.guises.uses[first] {
		switch {
		case inside(u.Node), c.f.leadsBack(u.Node, first, 8):
		case u.Node.Is("Shape", "Size") && c.f.measuresDetour(u.Node, first, 4):
		default:
			return true
		}
	}
	return false
}

// measuresDetour reports a shape that nothing reads but what gives it back to a copy of the value that it is of.
func (f *finder) measuresDetour(n *graph.Node, of *graph.Value, depth int) bool {
	f.main.Spend(1)
	shape := f.first(n.Output(0))
	if depth == 0 || len(n.Out) != 1 || shape == nil || f.guises.outputs[shape] != nil {
		return false
	}
	for _, u := range f.guises.uses[shape] {
		f.main.Spend(1)
		switch {
		case f.leadsBack(u.Node, shape, 8):
		case u.Index == 1 && u.Node.Is("Reshape", "Expand") && f.leadsBack(u.Node, of, 8):
		default:
			return false
		}
	}
	return true
}
