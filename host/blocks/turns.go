package blocks

import (
	"bytes"
	"slices"

	"github.com/opgraft/graft/host/graph"
)

// Turn is a rotary embedding that a graph writes out: slices, a negation, a
// concatenation, products and a sum.
type Turn struct {
	// Of is what is turned, Result what comes of it: values of one shape, whose last
	// axis is the features of a head.
	Of, Result *graph.Value
	// Rotary says how. Its angles are doubled, and it is certain that both of a pair
	// are the same.
	Rotary
}

// FindTurns lists the rotary embeddings that a graph writes out, the last first. Those whose
// pairs may be turned by two angles are left out, for no rotation by one angle is
// the same. Subgraphs are not looked into. Graph.Bounded stops it.
func FindTurns(g *graph.Graph, shapes *graph.Shapes) (list []Turn) {
	f := &finder{main: g, shapes: shapes, known: map[question]depths{}, read: map[*graph.Value][]graph.Use{}, inside: g}
	f.disguise(g)
	inner := map[*graph.Node]bool{} // parts of others
	type asked struct {
		angles *graph.Value
		style  string
	}
	certain := map[asked]bool{}
	twice := func(v *graph.Value, style string) bool {
		k := asked{v, style}
		answer, ok := certain[k]
		if !ok {
			answer = f.twice(v, style, maxPairs)
			certain[k] = answer
		}
		return answer
	}
	for _, n := range slices.Backward(g.Nodes) {
		if inner[n] || !n.Is("Add", "Concat") {
			continue
		}
		t := f.turn(n.Output(0))
		if t == nil {
			continue
		}
		for in := n; in.Is("Concat"); {
			if in = f.maker(in.Input(0)); in != nil {
				inner[in] = true
			}
		}
		if !t.Doubled || t.Size < 2 || t.Size%2 != 0 {
			continue
		}
		t.Cos, t.Sin = f.lines(t.Cos, t.Size), f.lines(t.Sin, t.Size)
		if t.Cos != nil && t.Sin != nil && twice(t.Cos, t.Style) && twice(t.Sin, t.Style) {
			list = append(list, Turn{t.of, n.Output(0), t.Rotary})
		}
	}
	return list
}

// lines is the furthest value upstream that holds the same lines of a last axis of some
// width: exporters unsqueeze angles anew in each layer. It is nil for another width.
func (f *finder) lines(v *graph.Value, width int64) *graph.Value {
	v = f.first(v)
	if !f.shapes.Of(v).Dim(-1).Is(width) {
		return nil
	}
	for n := f.maker(v); reshapes(n) && f.shapes.Of(n.Input(0)).Dim(-1).Is(width); n = f.maker(v) {
		v = f.in(n, 0)
	}
	return v
}

// maxPairs is how many nodes in a row are looked through for what makes pairs the same.
const maxPairs = 32

// twice reports that in each line of a value's last axis the two elements of each pair
// are the same, as pairs stand in a style of rotary embedding: computed alike from one.
func (f *finder) twice(v *graph.Value, style string, depth int) bool {
	f.main.Spend(1)
	if v = f.first(v); v == nil || depth == 0 {
		return false
	}
	s := f.shapes.Of(v)
	width, ok := s.Dim(-1).Const()
	if !ok {
		return false
	}
	n := v.Producer
	if v.Tensor != nil {
		return f.twiceConstant(v, style, int(width))
	}
	if n == nil {
		return false
	}
	again := func(i int) bool { return f.twice(n.Input(i), style, depth-1) }
	from := f.shapes.Of(n.Input(0))
	switch {
	case n.Is("Cos", "Sin", "Cast", "Neg", "Identity"):
		return again(0)
	case n.Is("Mul", "Div", "Add", "Sub"):
		for i := range n.In {
			if in := f.shapes.Of(n.Input(i)); in.Rank != 0 && !in.Dim(-1).Is(1) && !again(i) {
				return false
			}
		}
		return !s.Dim(-1).Is(1)
	case reshapes(n):
		if from.Dim(-1).Is(width) {
			return again(0)
		}
		return style == "interleaved" && from.Dim(-1).Is(2) && f.repeated(n.Input(0))
	case n.Is("Transpose"):
		p := f.perm(n)
		return len(p) > 0 && p[len(p)-1] == int64(len(p)-1) && again(0)
	case n.Is("Gather"):
		axis := n.Int("axis", 0)
		return axis != -1 && axis != int64(from.Rank-1) && from.Rank > 1 && again(0)
	case n.Is("Slice", "Split"):
		return from.Dim(-1).Is(width) && again(0) && f.besideLast(n, from.Rank)
	case n.Is("Expand"):
		return from.Dim(-1).Is(width) && again(0)
	case n.Is("Concat") && !f.alongLast(n):
		for i := range n.In {
			if !again(i) {
				return false
			}
		}
		return true
	case n.Is("Concat"):
		return style == "half" && len(n.In) == 2 && f.alike(n.Input(0), n.Input(1), 4)
	case n.Is("Tile"):
		times := f.numbers(n, 1, "repeats")
		return style == "half" && len(times) > 0 && times[len(times)-1] == 2 && from.Dim(-1).Is(width/2)
	}
	return false
}

// besideLast reports a Slice or Split of other axes than the last.
func (f *finder) besideLast(n *graph.Node, rank int) bool {
	if n.Is("Split") {
		axis := n.Int("axis", 0)
		return axis != -1 && axis != int64(rank-1)
	}
	axes := f.numbers(n, 3, "axes")
	return len(axes) > 0 && !slices.Contains(axes, -1) && !slices.Contains(axes, int64(rank-1))
}

// repeated reports a value whose last axis, of length 2, holds one element twice.
func (f *finder) repeated(v *graph.Value) bool {
	n := f.maker(v)
	switch {
	case n.Is("Expand", "Tile"):
		return f.shapes.Of(n.Input(0)).Dim(-1).Is(1)
	case n.Is("Concat"):
		return len(n.In) == 2 && f.alongLast(n) && f.alike(n.Input(0), n.Input(1), 4)
	}
	return false
}

// twiceConstant looks at the elements of a constant.
func (f *finder) twiceConstant(v *graph.Value, style string, width int) bool {
	t := v.Tensor
	data, err := v.Graph.Data(t)
	count := 1
	for _, d := range t.Dims {
		count *= int(d)
	}
	if err != nil || count == 0 || len(data)%count != 0 {
		return false
	}
	f.main.Spend(1 + count/64)
	size := len(data) / count
	half := width / 2
	for line := range slices.Chunk(data, width*size) {
		if style == "half" {
			if !bytes.Equal(line[:half*size], line[half*size:]) {
				return false
			}
			continue
		}
		for pair := range slices.Chunk(line, 2*size) {
			if !bytes.Equal(pair[:size], pair[size:]) {
				return false
			}
		}
	}
	return width%2 == 0
}
