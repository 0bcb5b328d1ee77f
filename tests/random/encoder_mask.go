package random

import (
	"math"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// forms is how many ways there are in which a mask hides keys.
const forms = 12

// hide lets scores (B, H, S, S) know of the mask, mostly in the form of the whole graph.
func (e *encoder) hide(s value) value {
	form := e.form
	if e.one(12) {
		form = e.IntN(forms)
	}
	if e.added.name != "" {
		s = e.binary("Add", s, e.added)
	} else if e.one(40) { // attention that sees all tokens
	} else {
		s = e.masking(s, form)
	}
	if e.one(6) {
		s = e.binary("Add", s, e.relative(s))
	}
	return s
}

// low is a number that hides a key when it is added to a score, or that does not. Of a row that it hides wholly no
// digit is left, or the model's type has few: a greater one would leave some of them to rounding.
func (e *encoder) low() float64 {
	if e.one(24) {
		return pick(e.writer, -100.0, -1)
	}
	switch {
	case e.float == f16 && e.finite:
		return -1e4
	case e.float == f16:
		return pick(e.writer, -65504, -1e4)
	case e.finite:
		return pick(e.writer, -1e9, -1e30)
	}
	return pick(e.writer, -1e9, -math.MaxFloat32, -math.MaxFloat32)
}

// number is a constant of a mask, which no layer has as its weight: scores would be as low as what hides them.
func (e *encoder) number(kind onnx.Tensor_DataType, x float64) value {
	before := len(e.weights)
	v := e.scalar(kind, x)
	e.weights = e.weights[:before]
	return v
}

// lowest is such a number, or minus infinity.
func (e *encoder) lowest() float64 {
	if e.finite {
		return e.low()
	}
	return pick(e.writer, e.low(), math.Inf(-1))
}

// over is the mask as stored over scores.
func (e *encoder) over(m value, s value, wide bool) value {
	x := e.unsqueeze(e.unsqueeze(m, 1), 2)
	if wide {
		return e.expand(x, e.batch, pick(e.writer, number(1), s.dims[1]), e.tokens, e.tokens)
	}
	return x
}

// masking hides keys in one of the forms.
func (e *encoder) masking(s value, form int) value {
	if made, ok := e.shared[form]; ok && !e.one(6) {
		return e.apply(s, made)
	}
	made := e.made(s, form)
	e.shared[form] = made
	return e.apply(s, made)
}

// apply adds floats to scores, or takes scores where a truth value is true.
func (e *encoder) apply(s, made value) value {
	if made.kind != boolean {
		return e.binary("Add", s, made)
	}
	low := e.number(s.kind, pick(e.writer, -1e4, e.lowest()))
	out := s.like(broadcast(s.dims, made.dims)...)
	if e.one(3) {
		return e.node("Where", []value{e.unary("Not", made), low, s}, out)
	}
	return e.node("Where", []value{made, s, low}, out)
}

// made is what is added to scores, or where they are seen.
func (e *encoder) made(s value, form int) value {
	m := e.mask
	float := func(x value) value { return e.cast(x, s.kind) }
	one := func() value { return e.scalar(s.kind, 1) }
	less := func(a, b value) value { return e.node("Sub", []value{a, b}, s.like(broadcast(a.dims, b.dims)...)) }
	var sees value // truth values
	switch form {
	case 0: // (1 - mask) * low
		return e.near(s, e.binary("Mul", less(one(), float(e.over(m, s, e.one(4)))), e.number(s.kind, e.low())))
	case 1: // (mask - 1) * high
		return e.near(s, e.binary("Mul", less(float(e.over(m, s, false)), one()), e.number(s.kind, -e.low())))
	case 2: // what is hidden filled with a number, over what is not
		rest := less(one(), float(e.over(m, s, true)))
		return e.near(s, e.node("Where", []value{e.cast(rest, boolean), e.number(s.kind, e.low()), rest},
			rest.like(rest.dims...)))
	case 3: // chosen between numbers
		low := e.lowest()
		shows := e.over(e.cast(m, boolean), s, e.one(2))
		return e.near(s, e.node("Where", []value{shows, e.scalar(s.kind, 0), e.number(s.kind, low)}, s.like(shows.dims...)))
	case 4: // compared with a number
		x := e.over(m, s, e.one(2))
		if x.kind == boolean {
			sees = x
			break
		}
		at := func(n float64) value { return e.full(x.kind, func(int64) float64 { return n }) }
		none := e.node("Equal", []value{x, at(0)}, value{kind: boolean, dims: x.dims})
		switch {
		case e.one(2):
			sees = e.unary("Not", none)
		case x.kind == f16:
			sees = e.cast(x, boolean)
		default:
			sees = e.node("Greater", []value{x, at(0)}, value{kind: boolean, dims: x.dims})
		}
	case 5: // of queries and keys
		if e.one(2) {
			a, b := e.unsqueeze(e.unsqueeze(m, 1), 3), e.unsqueeze(e.unsqueeze(m, 1), 2)
			both := e.binary("And", e.cast(a, boolean), e.cast(b, boolean))
			if e.one(2) {
				sees = both
				break
			}
			return e.node("Where", []value{both, e.scalar(s.kind, 0), e.number(s.kind, e.low())}, s.like(both.dims...))
		}
		x := e.cast(m, pick(e.writer, i64, s.kind))
		a, b := e.unsqueeze(x, 2), e.unsqueeze(x, 1)
		sees = e.cast(e.unsqueeze(e.binary("Mul", a, b), 1), boolean)
	case 6: // of queries alone: the keys of what is hidden are seen by others
		if e.one(2) {
			sees = e.cast(e.unsqueeze(e.unsqueeze(m, 1), 3), boolean)
			break
		}
		fallthrough
	case 7: // of the one before
		if e.one(4) {
			turned := e.node("Concat",
				[]value{e.cut(m, -1, math.MaxInt64, number(1)), e.cut(m, 0, -1, plus(e.tokens, number(-1)))}, m.like(m.dims...),
				"axis", 1)
			sees = e.cast(e.over(turned, s, false), boolean)
			break
		}
		fallthrough
	default:
		sees = e.over(e.cast(m, boolean), s, e.one(3))
	}
	if e.window {
		sees = e.binary("And", sees, e.band())
	}
	return sees
}

// cut is a part of each row of a mask.
func (e *encoder) cut(m value, from, to int64, n dim) value {
	return e.node("Slice", []value{m, e.ints(from), e.ints(to), e.ints(1)}, m.like(m.dims[0], n))
}

// near lets what is added to scores know of a window.
func (e *encoder) near(s, added value) value {
	if !e.window || !e.one(2) {
		return added
	}
	shows := e.band()
	if e.one(2) {
		window := e.node("Where", []value{shows, e.scalar(s.kind, 0), e.number(s.kind, e.low())}, s.like(shows.dims...))
		return e.binary("Add", added, window)
	}
	return e.node("Where", []value{shows, added, e.number(s.kind, e.lowest())},
		s.like(broadcast(shows.dims, added.dims)...))
}

// band is true where a key is near its query: (S, S), or with axes of one before.
func (e *encoder) band() value {
	at := e.steps(e.tokens)
	i, j := e.unsqueeze(at, 1), e.unsqueeze(at, 0)
	if e.one(4) {
		i, j = j, i
	}
	apart := e.node("Sub", []value{i, j}, value{kind: i64, dims: []dim{e.tokens, e.tokens}})
	bound := func(n float64) value { return e.full(i64, func(int64) float64 { return n }) }
	w := float64(pick(e.writer, 0, 1, 2, 3, 8))
	var sees value
	switch e.IntN(4) {
	case 0: // keys before the query alone
		sees = e.compare("LessOrEqual", bound(0), apart)
	case 1:
		sees = e.binary("And", e.compare("LessOrEqual", apart, bound(w)), e.compare("LessOrEqual", bound(-w-1), apart))
	default:
		sees = e.compare("LessOrEqual", e.unary("Abs", apart), bound(w))
	}
	if e.one(2) {
		sees = e.unsqueeze(e.unsqueeze(sees, 0), 0)
	}
	return sees
}

// relative is a bias of distances: looked up, or of slopes; now and then one that the program gives.
func (e *encoder) relative(s value) value {
	at := e.steps(e.tokens)
	apart := e.node("Sub", []value{e.unsqueeze(at, 0), e.unsqueeze(at, 1)},
		value{kind: i64, dims: []dim{e.tokens, e.tokens}})
	switch e.IntN(4) {
	case 0:
		far := e.cast(e.unary("Abs", apart), s.kind)
		slopes := e.full(s.kind, func(i int64) float64 { return -0.1 * float64(i+1) }, 1, e.count, 1, 1)
		return e.binary("Mul", e.unsqueeze(e.unsqueeze(far, 0), 0), slopes)
	case 1:
		return e.input("bias", s.kind, normal, pick(e.writer, e.batch, number(1)), number(e.count), e.tokens, e.tokens)
	}
	shifted := e.binary("Add", apart, e.full(i64, func(int64) float64 { return longest }))
	b := e.node("Gather", []value{e.weight(1, 2*longest+1, e.count), shifted}, s.like(e.tokens, e.tokens, number(e.count)))
	return e.unsqueeze(e.transpose(b, 2, 0, 1), 0)
}

// disentangled are products of queries, or of keys, with positions: of each the one that its distance to the other has.
func (e *encoder) disentangled(s value, h heads) value {
	at := e.steps(e.tokens)
	apart := e.node("Sub", []value{e.unsqueeze(at, 1), e.unsqueeze(at, 0)},
		value{kind: i64, dims: []dim{e.tokens, e.tokens}})
	index := e.binary("Add", apart, e.full(i64, func(int64) float64 { return longest }))
	wide := e.expand(index, e.batch, number(e.count), e.tokens, e.tokens)
	table := e.weight(0.3, e.count, e.size, 2*longest+1)
	of := func(rows value) value {
		all := e.node("MatMul", []value{rows, table}, rows.like(e.batch, number(e.count), e.tokens, number(2*longest+1)))
		return e.node("GatherElements", []value{all, wide}, s.like(s.dims...), "axis", pick(e.writer, -1, 3))
	}
	switch e.IntN(3) {
	case 0:
		return of(h.q)
	case 1:
		return e.transpose(of(h.k), 0, 1, 3, 2)
	}
	return e.binary("Add", of(h.q), e.transpose(of(h.k), 0, 1, 3, 2))
}

// asOperator is attention as one operator of ONNX, where there is one.
func (e *encoder) asOperator(h heads) (value, bool) {
	if e.opset < 23 || e.added.name != "" || !e.one(2) {
		return value{}, false
	}
	full := value{kind: h.q.kind, dims: []dim{e.batch, number(e.count), e.tokens, e.tokens}}
	mask := e.made(full, pick(e.writer, e.form, 0, 2, 3, 8))
	if e.one(2) || mask.dims[2].is(1) { // ONNX Runtime takes no axis of one for queries
		mask = e.expand(mask, e.batch, pick(e.writer, number(1), number(e.count)), e.tokens, e.tokens)
	}
	return e.node("Attention", []value{h.q, h.k, h.v, mask}, h.q.like(h.q.dims...), "scale", 1/math.Sqrt(float64(e.size))),
		true
}
