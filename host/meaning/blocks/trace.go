package blocks

import (
	"fmt"

	"github.com/opgraft/graft/host/onnx/graph"
)

// up follows a view towards where its value comes from, through nodes that
// only rearrange or scale it, and returns the furthest point at which the
// axes stand in a layout that is looked for, and the end of the way with all scales on it. When scaled is false,
// scalar products end it.
func (f *finder) up(v view, scaled bool, as operand) (best, end view, found bool) {
	for {
		if v.reads(as) {
			best, found = v, true
		}
		next, ok := f.stepUp(v, scaled)
		if !ok {
			return best, v, found
		}
		v = next
	}
}

func (f *finder) stepUp(v view, scaled bool) (view, bool) {
	f.main.Spend(1)
	n := v.value.Producer
	if n == nil {
		return view{}, false
	}
	in := n.Input(0)
	switch {
	case f.copies(n):
		return view{in, v.dims, v.scale}, true
	case n.Is("Mul", "Div") && scaled:
		x, c, ok := f.scalarFactor(n)
		return view{x, v.dims, v.scale * c}, ok
	case n.Is("Transpose"):
		return v.transpose(f.perm(n), in)
	case reshapes(n):
		s := f.shapes.In(f.inside, in)
		if s.Rank < 0 {
			return view{}, false
		}
		return v.regroup(s.Dims, in)
	case n.Is("Expand", "Tile") || f.repeats(n):
		s := f.shapes.In(f.inside, in)
		if s.Rank < 0 {
			return view{}, false
		}
		return v.unrepeat(s.Dims, in)
	case n.Is("Pad"):
		return f.unpadded(v, n)
	}
	return view{}, false
}

// down follows what a block makes of values of a size through nodes that only rearrange it, or cut off what is made
// of the zeros that values were filled up with, as long as nothing else reads it, to the last arrangement that
// operators write. What nothing reads may lead around in a circle, of a value's guises.
func (f *finder) down(v view, size graph.Dim, as operand) (best view, found bool) {
	for range maxDetour {
		d, _ := v.size("d")
		if d.Equal(size) && v.reads(as) {
			best, found = v, true
		}
		n := f.soleReader(v.value)
		if n == nil {
			return best, found
		}
		next, ok := f.stepDown(v, n)
		if !ok && !d.Equal(size) {
			next, ok = f.cutOff(v, n, size)
		}
		if !ok {
			return best, found
		}
		v = next
	}
	return best, found
}

// stepDown takes a view through a node that reads it and only rearranges it.
func (f *finder) stepDown(v view, n *graph.Node) (view, bool) {
	f.main.Spend(1)
	out := n.Output(0)
	switch {
	case f.copies(n):
		return view{out, v.dims, v.scale}, true
	case n.Is("Transpose"):
		return v.permute(f.perm(n), out)
	case reshapes(n):
		if s := f.shapes.Of(out); s.Rank >= 0 {
			return v.regroup(s.Dims, out)
		}
	}
	return view{}, false
}

// copies reports a node whose output is its input: a Cast from fp32 to fp32, say.
func (f *finder) copies(n *graph.Node) bool {
	switch {
	case n.Is("Dropout"):
		return n.Input(2) == nil // it is not told that it trains
	case n.Is("Cast"):
		in := f.shapes.Of(n.Input(0)).DType
		return in != 0 && int64(in) == n.Int("to", 0)
	}
	return n.Is("Identity")
}

// reshapes reports a node that gives the same elements, in the same order, other
// dimensions.
func reshapes(n *graph.Node) bool { return n.Is("Reshape", "Flatten", "Squeeze", "Unsqueeze") }

// repeats reports a Concat of one value with itself.
func (f *finder) repeats(n *graph.Node) bool {
	if !n.Is("Concat") {
		return false
	}
	for _, v := range n.In {
		if f.first(v) != f.in(n, 0) {
			return false
		}
	}
	return true
}

// soleReader is the one node that reads a value's elements, as its first input;
// nil when there are none or several, or the value leaves the graph.
func (f *finder) soleReader(v *graph.Value) *graph.Node {
	list := f.readers(v)
	if f.output(v) != nil || len(list) != 1 || list[0].Index != 0 || list[0].Node.Graph != v.Graph {
		return nil
	}
	return list[0].Node
}

// scalarFactor splits x*c or x/c into x and the factor, when c is a single
// number known at load time.
func (f *finder) scalarFactor(n *graph.Node) (x *graph.Value, factor float64, ok bool) {
	a, b := f.in(n, 0), f.in(n, 1)
	if c, is := f.scalar(b); is && !f.isScalar(a) {
		if n.Is("Div") {
			return a, 1 / c, c != 0
		}
		return a, c, true
	}
	if c, is := f.scalar(a); is && n.Is("Mul") {
		return b, c, true
	}
	return nil, 0, false
}

// scalar is the number that a value holds, when it holds one and it is known.
func (f *finder) scalar(v *graph.Value) (float64, bool) {
	v = f.first(v)
	if v == nil {
		return 0, false
	}
	if x, ok := f.shapes.Of(v).Scalar(); ok {
		return x, true
	}
	if list, ok := v.Floats(); ok && len(list) == 1 {
		return list[0], true
	}
	return 0, false
}

func (f *finder) isScalar(v *graph.Value) bool {
	_, ok := f.scalar(v)
	return ok
}

func (f *finder) perm(n *graph.Node) []int64 {
	if p, ok := n.Ints("perm"); ok {
		return p
	}
	rank := f.shapes.Of(n.Input(0)).Rank
	p := make([]int64, max(rank, 0))
	for i := range p {
		p[i] = int64(rank - 1 - i)
	}
	return p
}

// cache is a key or value side of a block: what is new, and what is past.
type cache struct {
	fresh       view
	past        *graph.Value // nil without one
	present     *graph.Value // past and new together
	layout      string       // of past and present
	length      graph.Dim    // new positions
	pastLength  graph.Dim
	heads, size graph.Dim
	scale       float64 // between the matmul and where past and new, or the new keys, are read
	beyond      float64 // that and what lies further up
}

// keyValue follows one side of a block, the key's or the value's, from where the matmul reads it.
func (f *finder) keyValue(v view, as operand) (*cache, error) {
	best, end, found := f.up(v, as.key, as)
	n := end.value.Producer
	if !as.whole && n.Is("Concat") && len(n.In) == 2 && len(end.dims) > 0 {
		ax := n.Int("axis", 0)
		if ax < 0 {
			ax += int64(len(end.dims))
		}
		if ax >= 0 && ax < int64(len(end.dims)) && len(end.dims[ax]) == 1 && end.dims[ax][0].role == "s" {
			if c, err := f.appended(end, n, int(ax), as); err == nil {
				return c, nil
			} else if !found {
				return nil, err
			}
		}
	}
	if !found {
		return nil, fmt.Errorf("its axes could not be told apart after %s", describe(end.value))
	}
	c := &cache{fresh: best, scale: best.scale, beyond: end.scale}
	return c, c.measure(best)
}

// appended reads Concat(past, new) along the positions.
func (f *finder) appended(v view, n *graph.Node, ax int, as operand) (*cache, error) {
	layout := v.layout()
	if layout == "" {
		return nil, fmt.Errorf("past and new are joined in an arrangement that no operator reads")
	}
	past, fresh := f.in(n, 0), n.Input(1)
	ps, ns := f.shapes.Of(past), f.shapes.Of(fresh)
	if ps.Rank != len(v.dims) || ns.Rank != len(v.dims) {
		return nil, fmt.Errorf("the shapes of past and new are not known")
	}
	dims := make([][]axis, len(v.dims))
	copy(dims, v.dims)
	dims[ax] = []axis{{role: "s", size: ns.Dims[ax]}}
	best, _, found := f.up(view{fresh, dims, 1}, false, as)
	if !found {
		return nil, fmt.Errorf("its new part is written in an arrangement that no operator reads")
	}
	c := &cache{
		fresh: best, past: past, present: n.Output(0), layout: layout,
		pastLength: ps.Dims[ax], scale: v.scale, beyond: v.scale,
	}
	return c, c.measure(best)
}

func (c *cache) measure(v view) error {
	c.length, _ = v.size("s")
	c.size, _ = v.size("d")
	c.heads = graph.DimInt(1)
	if h, ok := v.size("h"); ok {
		c.heads = h
	}
	if _, ok := c.size.Const(); !ok {
		return fmt.Errorf("its head size is not a constant (%s)", c.size)
	}
	if _, ok := c.heads.Const(); !ok {
		return fmt.Errorf("its number of heads is not a constant (%s)", c.heads)
	}
	return nil
}

func describe(v *graph.Value) string {
	if v.Producer != nil {
		return v.Producer.Op() + " " + v.Producer.String()
	}
	return "value " + v.Name
}
