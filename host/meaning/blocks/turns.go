package blocks

import (
	"bytes"
	"slices"

	"github.com/opgraft/graft/host/onnx/graph"
)

// Turn is a rotary embedding that a graph writes out: slices, a negation, a
// concatenation, products and a sum.
type Turn struct {
	// Of is what is turned, Result what comes of it: values of one shape, whose last
	// axis is the features of a head.
	Of, Result *graph.Value
	// Style and Size are those of [Rotary].
	Style string
	Size  int64
	// Cos and Sin are what features are multiplied by, each pair's once.
	Cos, Sin Pairs
}

// Pairs are the elements First, First+Step, ... of the last axis of a value, as many as there are pairs of features.
type Pairs struct {
	Of          *graph.Value
	First, Step int64
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
		size   int64
	}
	answers := map[asked]*Pairs{}
	pairs := func(v *graph.Value, t *turn) *Pairs {
		k := asked{f.lines(v, t.Size), t.Style, t.Size}
		answer, ok := answers[k]
		if !ok {
			answer = f.pairs(k.angles, t.Style, t.Size)
			answers[k] = answer
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
		if cos, sin := pairs(t.Cos, t), pairs(t.Sin, t); cos != nil && sin != nil {
			list = append(list, Turn{t.of, n.Output(0), t.Style, t.Size, *cos, *sin})
		}
	}
	return list
}

// pairs finds what stands once for each pair where lines hold it twice; nil where that is not certain.
func (f *finder) pairs(v *graph.Value, style string, size int64) *Pairs {
	if v == nil {
		return nil
	}
	if style == "half" {
		if f.twice(v, style, maxPairs) {
			return &Pairs{v, 0, 1}
		}
		return nil
	}
	once := f.interleaved(v, size)
	if once == nil {
		if f.twice(v, style, maxPairs) {
			return &Pairs{v, 0, 2}
		}
		return nil
	}
	if p := f.piece(once); p != nil {
		if width, ok := f.shapes.Of(p.of).Dim(-1).Const(); ok {
			return &Pairs{f.lines(p.of, width), p.offset, 1}
		}
	}
	return &Pairs{f.lines(once, size/2), 0, 1}
}

// interleaved is the value (rows, 1, ..., size/2) of which lines (rows, 1, ..., size) hold each
// element twice, as torch's repeat_interleave is written: with a new axis that is expanded, of which
// each element is gathered by its two indices. Of rows, whose number is not known, and
// elements, whose number is, no transpose takes one for the other.
func (f *finder) interleaved(v *graph.Value, size int64) *graph.Value {
	rows := f.shapes.Of(v).Dim(0)
	if _, constant := rows.Const(); constant || !rows.Known() || !lineEach(f.shapes.Of(v), rows, size) {
		return nil
	}
	moves := func(n *graph.Node) bool { return n.Is("Transpose", "Squeeze", "Unsqueeze") }
	n := f.maker(v)
	for moves(n) {
		n = f.maker(n.Input(0))
	}
	if !n.Is("GatherND") || n.Int("batch_dims", 0) != 0 {
		return nil
	}
	at := f.shapes.Of(n.Input(1))
	indices := f.numbers(n, 1, "")
	if at.Rank != 2 || !at.Dims[1].Is(2) || int64(len(indices)) != 2*size {
		return nil
	}
	for i, x := range indices {
		if i%2 == 0 && x != int64(i/4) || i%2 == 1 && x != 0 && x != 1 {
			return nil
		}
	}
	e := f.maker(n.Input(0))
	if !e.Is("Expand") {
		return nil
	}
	from, to := f.shapes.Of(e.Input(0)), f.shapes.Of(e.Output(0))
	if from.Rank != to.Rank || from.Rank < 3 || !from.Dims[0].Is(size/2) || !from.Dims[1].Is(1) ||
		!to.Dims[0].Is(size/2) || !to.Dims[1].Is(2) ||
		!slices.EqualFunc(from.Dims[2:], to.Dims[2:], func(a, b graph.Dim) bool { return a.Known() && a.Equal(b) }) {
		return nil
	}
	for once := f.in(e, 0); ; {
		if lineEach(f.shapes.Of(once), rows, size/2) {
			return once
		}
		if n = f.maker(once); !moves(n) {
			return nil
		}
		once = f.in(n, 0)
	}
}

// lineEach reports dimensions (rows, 1, ..., size).
func lineEach(s graph.Fact, rows graph.Dim, size int64) bool {
	return s.Rank > 1 && s.Dims[0].Equal(rows) && s.Dim(-1).Is(size) &&
		!slices.ContainsFunc(s.Dims[1:s.Rank-1], func(d graph.Dim) bool { return !d.Is(1) })
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
		return len(p) > 0 && p[len(p)-1] == int64(len(p)-1) && again(0) ||
			style == "interleaved" && f.interleaved(v, width) != nil
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
