package random

import (
	"math"
	"math/rand/v2"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

type randSource = rand.Rand

// lying is a shape that broadcasts to that of scores: some of its axes are 1, the first may be missing.
func (w *writer) lying(scores []dim) []dim {
	dims := append([]dim{}, scores...)
	for i := range dims {
		if w.one(3) {
			dims[i] = number(1)
		}
	}
	if w.one(4) {
		dims = dims[w.IntN(len(dims)):]
	}
	return dims
}

// hidden is what a mask adds to the scores of keys that are not seen. A row where a finite one hides every key is left
// with the digits of its scores that the sum has room for.
func (w *writer) hidden(kind onnx.Tensor_DataType) float64 {
	if kind == f16 {
		return pick(w, math.Inf(-1), -65504, -10000, -100)
	}
	return pick(w, math.Inf(-1), -1e9, -math.MaxFloat32, -10000, -1e4, -100)
}

// masked hides some of the scores, or adds a bias to them.
func (w *writer) masked(s value) value {
	q, k := s.axis(-2), s.axis(-1)
	switch w.IntN(9) {
	case 0, 1: // added as it comes
		return w.binary("Add", s, w.input("mask", s.kind, added(w.hidden(s.kind)), w.lying(s.dims)...))
	case 2: // a bias, a number for each score
		return w.binary("Add", s, w.input("bias", s.kind, normal, w.lying(s.dims)...))
	case 3, 4: // where it shows, or where it hides
		return w.chosen(s, w.input("shown", boolean, shown, w.lying(s.dims)...))
	case 5: // ones and zeros of an attention mask
		if s.rank() < 4 {
			break
		}
		kind := pick(w, i64, onnx.Tensor_INT32, boolean, s.kind)
		m := w.input("attention_mask", kind, shown, s.dims[0], k)
		wide := w.unsqueeze(w.unsqueeze(m, 1), 2)
		return w.inverted(s, wide)
	case 6: // lengths of the rows
		if s.rank() < 4 {
			break
		}
		n := w.input("lengths", i64, below(9), s.dims[0], number(1), number(1), number(1))
		return w.chosen(s, w.compare("Less", w.steps(k), n))
	case 7: // causal, by positions
		first := w.cast(w.steps(k), i64)
		later := w.unsqueeze(w.steps(q), 1)
		if !q.equal(k) { // the last query sees the last key
			ahead := w.node("Sub", []value{w.length(k), w.length(q)}, value{kind: i64, dims: []dim{number(1)}})
			later = w.binary("Add", later, ahead)
		}
		return w.chosen(s, w.compare("LessOrEqual", first, later))
	case 8: // causal, by a triangle
		return w.triangle(s, q, k)
	}
	return s
}

// steps are 0, 1, 2, ... as many as a length.
func (w *writer) steps(n dim) value {
	scalar := w.node("Squeeze", []value{w.length(n), w.ints(0)}, value{kind: i64})
	zero, one := w.full(i64, func(int64) float64 { return 0 }), w.full(i64, func(int64) float64 { return 1 })
	return w.node("Range", []value{zero, scalar, one}, value{kind: i64, dims: []dim{n}})
}

// compare gives truth values of two that broadcast.
func (w *writer) compare(op string, a, b value) value {
	if other := map[string]string{"Less": "Greater", "LessOrEqual": "GreaterOrEqual"}[op]; w.one(3) {
		return w.node(other, []value{b, a}, value{kind: boolean, dims: broadcast(a.dims, b.dims)})
	}
	return w.node(op, []value{a, b}, value{kind: boolean, dims: broadcast(a.dims, b.dims)})
}

// chosen takes scores where a mask of truth values shows them.
func (w *writer) chosen(s, shows value) value {
	out := s.like(broadcast(s.dims, shows.dims)...)
	low := w.scalar(s.kind, w.hidden(s.kind))
	switch w.IntN(4) {
	case 0: // by addition
		zero := w.scalar(s.kind, 0)
		return w.binary("Add", s, w.node("Where", []value{shows, zero, low}, s.like(broadcast(shows.dims, low.dims)...)))
	case 1:
		return w.node("Where", []value{w.unary("Not", shows), low, s}, out)
	}
	return w.node("Where", []value{shows, s, low}, out)
}

// inverted adds (1 - mask) times a low number to scores, or chooses by it.
func (w *writer) inverted(s, m value) value {
	if w.one(3) {
		return w.chosen(s, w.cast(m, boolean))
	}
	low := w.hidden(s.kind)
	if math.IsInf(low, 0) { // times zero is not a number
		low = -100
	}
	rest := w.node("Sub", []value{w.scalar(s.kind, 1), w.cast(m, s.kind)}, s.like(broadcast(nil, m.dims)...))
	return w.binary("Add", s, w.binary("Mul", rest, w.scalar(s.kind, low)))
}

// triangle hides what lies above the diagonal that ends at the last query and the last key.
func (w *writer) triangle(s value, q, k dim) value {
	if w.opset < 14 {
		return s
	}
	one := w.full(s.kind, func(int64) float64 { return 1 }, 1, 1)
	square := w.expand(one, q, k)
	ahead := w.node("Sub", []value{w.length(k), w.length(q)}, value{kind: i64, dims: []dim{number(1)}})
	above := w.node("Add", []value{w.node("Squeeze", []value{ahead, w.ints(0)}, value{kind: i64}),
		w.full(i64, func(int64) float64 { return 1 })}, value{kind: i64})
	upper := w.node("Trilu", []value{square, above}, square.like(q, k), "upper", 1)
	if w.one(2) {
		return w.chosen(s, w.unary("Not", w.cast(upper, boolean)))
	}
	return w.binary("Add", s, w.binary("Mul", upper, w.scalar(s.kind, -100)))
}
