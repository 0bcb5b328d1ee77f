package blocks

import (
	"fmt"

	"github.com/opgraft/graft/host/onnx/graph"
)

// Rotary is a rotary position embedding (Su et al. 2021, equation 34): pairs of
// features of query and key are turned by angles that grow with the position. Of
// a pair (x, y), turned by a, become x cos(a) - y sin(a) and y cos(a) + x sin(a).
type Rotary struct {
	// Style says which features are a pair: "half", j and j + Size/2; or
	// "interleaved", 2j and 2j+1.
	Style string `json:"style"`
	// Size is how many features of a head are turned: its first ones.
	Size int64 `json:"size"`

	// Cos and Sin are what features are multiplied by. Their last axis has Size
	// elements where Doubled, each angle standing twice as its pair does, and
	// Size/2 where not. They may carry a factor of their own, as the schemes that
	// lengthen contexts have: then cos^2 + sin^2 is not 1. Angles at some lengths
	// come from [Rotary.Angles].
	Cos     *graph.Value `json:"-"`
	Sin     *graph.Value `json:"-"`
	Doubled bool         `json:"-"`
	// Rows are the positions that are looked up in Cos and Sin, which are tables
	// of (positions, Size/2) then; nil where Cos and Sin lie by token.
	Rows *graph.Value `json:"-"`
}

// Angles arranges what Cos or Sin holds, in a shape of one row of tokens, as
// (tokens, Size/2). It is an error when tokens differ in more than one axis, or
// a doubled angle is not the same both times.
func (r *Rotary) Angles(shape []int64, data []float32) ([]float32, error) {
	width, half := r.Size/2, r.Size/2
	if r.Doubled {
		width = r.Size
	}
	if len(shape) == 0 || shape[len(shape)-1] != width {
		return nil, fmt.Errorf("rotary angles have the shape %v: need %d in the last axis", shape, width)
	}
	tokens := int64(1)
	for _, n := range shape[:len(shape)-1] {
		if n != 1 && tokens != 1 {
			return nil, fmt.Errorf("rotary angles have the shape %v: need one axis of tokens before the last", shape)
		}
		tokens *= n
	}
	if int64(len(data)) != tokens*width {
		return nil, fmt.Errorf("rotary angles have %d elements, their shape %v needs %d", len(data), shape, tokens*width)
	}
	if !r.Doubled {
		return data, nil
	}
	list := make([]float32, 0, tokens*half)
	for t := range tokens {
		line := data[t*width : (t+1)*width]
		for j := range half {
			first, second := j, j+half
			if r.Style == "interleaved" {
				first, second = 2*j, 2*j+1
			}
			if line[first] != line[second] {
				return nil, fmt.Errorf("features %d and %d of token %d are turned by different angles (%g and %g)", first, second,
					t, line[first], line[second])
			}
			list = append(list, line[first])
		}
	}
	return list, nil
}

// turn is a rotary embedding and what it is applied to, a value of the same shape.
type turn struct {
	of *graph.Value
	Rotary
}

// raw follows a query or key up to what a rotary embedding is applied to, in a
// layout that an operator reads. Without one it is the view itself, and nil; not
// ok when there is one after which the axes cannot be told apart.
func (f *finder) raw(v view) (raw view, t *turn, ok bool) {
	for at := v; ; {
		if t := f.turn(at.value); t != nil {
			if f.shapes.Of(t.of).Rank != len(at.dims) {
				return v, t, false
			}
			raw, _, ok := f.up(view{t.of, at.dims, at.scale}, false, operand{key: true})
			return raw, t, ok
		}
		next, ok := f.stepUp(at, false)
		if !ok {
			return v, nil, true
		}
		at = next
	}
}

// rotary states what query and key are before they are turned, when both are by
// the same angles, or neither is.
func (f *finder) rotary(w *Wiring, query, key view) {
	q, qt, qok := f.raw(query)
	k, kt, kok := f.raw(key)
	if !qok || !kok || (qt == nil) != (kt == nil) || qt != nil && !f.sameAngles(&qt.Rotary, &kt.Rotary) {
		return
	}
	w.RawQuery, w.RawQueryLayout = q.value, q.layout()
	w.RawKey, w.RawKeyLayout = k.value, k.layout()
	if kt != nil {
		w.Rotary = &kt.Rotary
	}
}

// sameAngles reports that two embeddings turn alike.
func (f *finder) sameAngles(a, b *Rotary) bool {
	return a.Style == b.Style && a.Size == b.Size && a.Doubled == b.Doubled &&
		f.alike(a.Cos, b.Cos, 4) && f.alike(a.Sin, b.Sin, 4) && f.alike(a.Rows, b.Rows, 4)
}

// rotated returns what a rotary embedding was applied to, or nil, whatever axes
// were moved and types changed on the way.
func (f *finder) rotated(v *graph.Value) *graph.Value {
	for range 16 {
		if t := f.turn(v); t != nil {
			return t.of
		}
		n := f.maker(v)
		switch {
		case n.Is("Transpose", "Cast") || reshapes(n):
			v = n.Input(0)
		case n.Is("Mul", "Div"): // a scale on top of the rotation
			x, _, ok := f.scalarFactor(n)
			if !ok {
				return nil
			}
			v = x
		default:
			return nil
		}
	}
	return nil
}

// unrotate looks through a rotary embedding.
func (f *finder) unrotate(v *graph.Value) *graph.Value {
	if x := f.rotated(v); x != nil {
		return x
	}
	return v
}

// turn recognises a rotary embedding by what it makes: one RotaryEmbedding; or,
// written out, x*cos + rotate(x)*sin, with rotate made of slices, a negation and a
// concatenation; or that of the first features, and the others beside it.
func (f *finder) turn(v *graph.Value) *turn { return f.turnWithin(v, maxPassed) }

// maxPassed is how often features may be passed beside those that are turned.
const maxPassed = 8

func (f *finder) turnWithin(v *graph.Value, depth int) *turn {
	n := f.maker(v)
	switch {
	case n.Is("RotaryEmbedding", "com.microsoft.RotaryEmbedding"):
		if n.Unread() != "" {
			return nil
		}
		return f.turnOperator(n)
	case n.Is("Add"):
		l, r := f.maker(n.Input(0)), f.maker(n.Input(1))
		if !l.Is("Mul") || !r.Is("Mul") {
			return nil
		}
		if t := f.turned(r, l); t != nil {
			return t
		}
		return f.turned(l, r)
	case depth > 0 && n.Is("Concat") && len(n.In) == 2 && f.alongLast(n):
		t, first, rest := f.turnWithin(n.Input(0), depth-1), (*piece)(nil), f.piece(n.Input(1))
		if t != nil {
			first = f.piece(t.of)
		}
		if first == nil || rest == nil || first.of != rest.of || first.offset != 0 || rest.offset != first.width ||
			!f.shapes.Of(first.of).Dim(-1).Is(first.width+rest.width) {
			return nil
		}
		t.of = first.of
		return t
	}
	return nil
}

// alongLast reports a Concat along the last axis.
func (f *finder) alongLast(n *graph.Node) bool {
	axis := n.Int("axis", 0)
	return axis == -1 || axis == int64(f.shapes.Of(n.Output(0)).Rank-1)
}

// turnOperator reads ONNX's RotaryEmbedding (opset 23) and ONNX Runtime's, whose
// inputs stand in another order.
func (f *finder) turnOperator(n *graph.Node) *turn {
	t := &turn{of: f.in(n, 0), Rotary: Rotary{Style: "half", Cos: f.in(n, 1), Sin: f.in(n, 2), Rows: f.in(n, 3)}}
	if n.Op() == "com.microsoft.RotaryEmbedding" {
		t.Rows, t.Cos, t.Sin = t.Cos, t.Sin, t.Rows
	}
	if n.Int("interleaved", 0) != 0 {
		t.Style = "interleaved"
	}
	if half, ok := f.shapes.Of(t.Cos).Dim(-1).Const(); ok {
		t.Size = 2 * half
	}
	return t
}

// turned matches rotate(x) * sin beside x * cos.
func (f *finder) turned(sine, cosine *graph.Node) *turn {
	for i, side := range sine.In {
		x, style := f.halves(side)
		if x == nil {
			x, style = f.neighbours(side)
		}
		if x == nil {
			continue
		}
		for j := range cosine.In {
			if f.in(cosine, j) != x {
				continue
			}
			t := &turn{of: x, Rotary: Rotary{Style: style, Doubled: true, Cos: f.in(cosine, 1-j), Sin: f.in(sine, 1-i)}}
			t.Size, _ = f.shapes.Of(x).Dim(-1).Const()
			return t
		}
	}
	return nil
}

// halves matches Concat(-second half of x, first half of x) and returns x.
func (f *finder) halves(v *graph.Value) (x *graph.Value, style string) {
	n := f.maker(v)
	if !n.Is("Concat") || len(n.In) != 2 || !f.alongLast(n) {
		return nil, ""
	}
	neg, other := f.maker(n.Input(0)), f.piece(n.Input(1))
	if !neg.Is("Neg") || other == nil {
		return nil, ""
	}
	turned := f.piece(neg.Input(0))
	if turned == nil || turned.of != other.of || other.offset != 0 || turned.offset != other.width ||
		turned.width != other.width ||
		!f.shapes.Of(turned.of).Dim(-1).Is(2*other.width) {
		return nil, ""
	}
	return turned.of, "half"
}

// neighbours matches (-x1, x0, -x3, x2, ...), written as every second feature of x,
// negated, beside the others, and returns x.
func (f *finder) neighbours(v *graph.Value) (x *graph.Value, style string) {
	n := f.maker(v)
	for reshapes(n) {
		n = f.maker(n.Input(0))
	}
	if !n.Is("Concat") || len(n.In) != 2 || !f.alongLast(n) || !f.shapes.Of(n.Output(0)).Dim(-1).Is(2) {
		return nil, ""
	}
	odd, one, negated := f.second(n.Input(0))
	even, zero, known := f.second(n.Input(1))
	if odd == nil || odd != even || one != 1 || zero != 0 || !negated || known ||
		!f.shapes.Of(v).Dim(-1).Equal(f.shapes.Of(odd).Dim(-1)) {
		return nil, ""
	}
	return odd, "interleaved"
}

// second recognises every second element of the last axis of another value, from
// the one at start on, negated or not.
func (f *finder) second(v *graph.Value) (of *graph.Value, start int64, negated bool) {
	n := f.maker(v)
	for ; reshapes(n) || n.Is("Neg"); n = f.maker(n.Input(0)) {
		negated = negated != n.Is("Neg")
	}
	if !n.Is("Slice") {
		return nil, 0, false
	}
	starts, ends, axes, steps := f.numbers(n, 1, "starts"), f.numbers(n, 2, "ends"), f.numbers(n, 3, "axes"),
		f.numbers(n, 4, "steps")
	of = f.in(n, 0)
	s := f.shapes.Of(of)
	width, known := s.Dim(-1).Const()
	if len(starts) != 1 || len(ends) != 1 || len(axes) != 1 || len(steps) != 1 || steps[0] != 2 || !known ||
		axes[0] != -1 && axes[0] != int64(s.Rank-1) || ends[0] < width || starts[0] < 0 {
		return nil, 0, false
	}
	return of, starts[0], negated
}
