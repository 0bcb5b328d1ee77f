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

// pairing asks a node whether the two elements of each pair of what it makes are the same.
type pairing struct {
	*finder
	n          *graph.Node
	style      string
	depth      int
	made, from graph.Fact // what it makes, and its first input
	width      int64      // of the last axis of what it makes
}

// twiceIn asks the same of an input.
func (p *pairing) twiceIn(i int) bool { return p.twice(p.n.Input(i), p.style, p.depth-1) }

// sameWidth reports that the last axis of the first input is as long as that of what is made.
func (p *pairing) sameWidth() bool { return p.from.Dim(-1).Is(p.width) }

// pairRules say for each operator whether pairs are the same.
var pairRules map[string]func(*pairing) bool

func init() { // rules ask other nodes, by their rules
	pairRules = map[string]func(*pairing) bool{"Transpose": (*pairing).transposed, "Gather": (*pairing).gathered,
		"Slice": (*pairing).partOfAxes, "Split": (*pairing).partOfAxes, "Concat": (*pairing).concatenated,
		"Tile":   (*pairing).tiled,
		"Expand": func(p *pairing) bool { return p.sameWidth() && p.twiceIn(0) },
	}
	for _, op := range []string{"Cos", "Sin", "Cast", "Neg", "Identity"} {
		pairRules[op] = func(p *pairing) bool { return p.twiceIn(0) }
	}
	for _, op := range []string{"Mul", "Div", "Add", "Sub"} {
		pairRules[op] = (*pairing).combined
	}
	for _, op := range []string{"Reshape", "Flatten", "Squeeze", "Unsqueeze"} {
		pairRules[op] = (*pairing).reshaped
	}
}

// twice reports that in each line of a value's last axis the two elements of each pair
// are the same, as pairs stand in a style of rotary embedding: computed alike from one.
func (f *finder) twice(v *graph.Value, style string, depth int) bool {
	f.main.Spend(1)
	if v = f.first(v); v == nil || depth == 0 {
		return false
	}
	made := f.shapes.Of(v)
	width, ok := made.Dim(-1).Const()
	if !ok {
		return false
	}
	if v.Tensor != nil {
		return f.twiceConstant(v, style, int(width))
	}
	if v.Producer == nil {
		return false
	}
	rule := pairRules[v.Producer.Op()]
	return rule != nil && rule(&pairing{finder: f, n: v.Producer, style: style, depth: depth, made: made,
		from: f.shapes.Of(v.Producer.Input(0)), width: width})
}

// combined is of inputs that are broadcast to each other: of each, pairs are the same, or it is one number for all.
func (p *pairing) combined() bool {
	for i := range p.n.In {
		in := p.shapes.Of(p.n.Input(i))
		one := in.Rank == 0 || in.Dim(-1).Is(1)
		if !one && !p.twiceIn(i) {
			return false
		}
	}
	return !p.made.Dim(-1).Is(1)
}

func (p *pairing) reshaped() bool {
	if p.sameWidth() {
		return p.twiceIn(0)
	}
	return p.style == "interleaved" && p.from.Dim(-1).Is(2) && p.repeated(p.n.Input(0))
}

func (p *pairing) transposed() bool {
	perm := p.perm(p.n)
	last := len(perm) - 1
	if last >= 0 && perm[last] == int64(last) && p.twiceIn(0) {
		return true
	}
	return p.style == "interleaved" && p.interleaved(p.n.Out[0], p.width) != nil
}

// gathered is of lines that are taken as they are.
func (p *pairing) gathered() bool {
	axis := p.n.Int("axis", 0)
	last := axis == -1 || axis == int64(p.from.Rank-1)
	return !last && p.from.Rank > 1 && p.twiceIn(0)
}

func (p *pairing) partOfAxes() bool {
	return p.sameWidth() && p.twiceIn(0) && p.besideLast(p.n, p.from.Rank)
}

func (p *pairing) concatenated() bool {
	if p.alongLast(p.n) {
		return p.style == "half" && len(p.n.In) == 2 && p.alike(p.n.Input(0), p.n.Input(1), 4)
	}
	for i := range p.n.In {
		if !p.twiceIn(i) {
			return false
		}
	}
	return true
}

func (p *pairing) tiled() bool {
	times := p.numbers(p.n, 1, "repeats")
	return p.style == "half" && len(times) > 0 && times[len(times)-1] == 2 && p.from.Dim(-1).Is(p.width/2)
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
