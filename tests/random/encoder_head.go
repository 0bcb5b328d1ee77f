package random

import "math"

// mixing lets rows see each other in another way than by attention.
func (e *encoder) mixing(x value) value {
	sum := func(x value) value {
		return e.node("ReduceSum", []value{x, e.ints(1)}, x.like(x.dims[0], number(1), x.dims[2]), "keepdims", 1)
	}
	switch e.IntN(9) {
	case 0: // the sum of all tokens, for each
		return e.binary("Add", x, e.binary("Mul", sum(x), e.scalar(x.kind, 0.1)))
	case 1: // that of visible ones
		return e.binary("Add", x, e.binary("Mul", sum(e.cleared(x)), e.scalar(x.kind, 0.1)))
	case 2: // the first token, for each
		return e.binary("Add", x,
			e.node("Slice", []value{x, e.ints(0), e.ints(1), e.ints(1)}, x.like(x.dims[0], number(1), x.dims[2])))
	case 3: // the one before
		around := e.node("Concat", []value{
			e.node("Slice", []value{x, e.ints(-1), e.ints(math.MaxInt64), e.ints(1)}, x.like(x.dims[0], number(1), x.dims[2])),
			e.node("Slice", []value{x, e.ints(0), e.ints(-1), e.ints(1)},
				x.like(x.dims[0], plus(e.tokens, number(-1)), x.dims[2]))},
			x.like(x.dims...), "axis", 1)
		return e.binary("Add", x, around)
	case 4: // weights over tokens
		return e.unary("Softmax", x, "axis", 1)
	case 5: // a convolution over tokens
		turned := e.transpose(x, 0, 2, 1)
		y := e.node("Conv", []value{turned, e.weight(0.3, x.dims[2].number, 1, 3)}, turned.like(turned.dims...), "pads",
			[]int64{1, 1}, "group", int(x.dims[2].number))
		return e.transpose(y, 0, 2, 1)
	case 6: // sums of what comes before
		if x.kind == f32 {
			return e.binary("Mul", e.node("CumSum", []value{x, e.full(i64, func(int64) float64 { return 1 })},
				x.like(x.dims...)), e.scalar(x.kind, 0.1))
		}
	case 7: // tokens of all sequences in another order
		back := e.reshape(e.transpose(x, 1, 0, 2), e.batch, e.tokens, x.dims[2])
		return e.binary("Add", x, back)
	case 8: // axes that change places and come back
		return e.transpose(e.unary("Tanh", e.transpose(x, 1, 0, 2)), 1, 0, 2)
	}
	return x
}

// head reads rows (B, S, W), and leaves what it makes of them.
func (e *encoder) head(x value) {
	b, w := x.dims[0], x.dims[2]
	drop := func(op string, x value, axis int64, attributes ...any) value {
		return e.node(op, []value{x, e.ints(axis)}, x.like(b, w), append(attributes, "keepdims", 0)...)
	}
	end := func(at int64) value {
		switch e.IntN(3) {
		case 0:
			index := e.full(i64, func(int64) float64 { return float64(at) })
			return e.node("Gather", []value{x, index}, x.like(b, w), "axis", pick(e.writer, 1, -2))
		case 1:
			return e.node("Gather", []value{x, e.ints(at)}, x.like(b, number(1), w), "axis", 1)
		}
		to := at + 1
		if to == 0 {
			to = math.MaxInt64
		}
		return e.node("Slice", []value{x, e.ints(at), e.ints(to), e.ints(pick(e.writer, int64(1), -2))},
			x.like(b, number(1), w))
	}
	switch e.IntN(20) {
	case 0, 1:
		e.leave(e.unary("Identity", x))
	case 2: // a classifier of each token
		y := e.layered(x, 3)
		if e.one(2) {
			y = e.unary("Softmax", y, "axis", -1)
		}
		e.leave(y)
	case 3: // tokens last
		e.leave(e.transpose(x, 0, 2, 1))
	case 4: // tokens first, or sequences and tokens in one axis
		if e.one(2) {
			e.leave(e.transpose(x, 1, 0, 2))
			return
		}
		e.leave(e.reshape(x, times(b, e.tokens), w))
	case 5, 6, 7:
		y := end(0)
		if e.one(2) {
			y = e.unary("Tanh", e.layered(y, 3))
		}
		e.leave(y)
	case 8:
		e.leave(e.layered(end(-1), 3))
	case 9, 10, 11: // the mean of visible tokens
		if e.mask.name == "" {
			e.leave(end(0))
			return
		}
		total := drop("ReduceSum", e.cleared(x), 1)
		m := e.cast(e.unsqueeze(e.mask, 2), x.kind)
		n := e.node("ReduceSum", []value{m, e.ints(1)}, x.like(b, number(1)), "keepdims", 0)
		n = e.node("Max", []value{n, e.scalar(x.kind, 1)}, n.like(n.dims...))
		e.leave(e.node("Div", []value{total, n}, total.like(total.dims...)))
	case 12: // the sum of all tokens, or of visible ones
		e.leave(drop("ReduceSum", pick(e.writer, x, e.cleared(x)), 1))
	case 13: // the greatest of visible tokens, which passes over what is no number
		if e.mask.name == "" || !e.finite {
			return
		}
		low := e.number(x.kind, -1e4)
		y := e.node("Where", []value{e.cast(e.unsqueeze(e.mask, 2), boolean), x, low}, x.like(x.dims...))
		if e.opset >= 18 {
			e.leave(drop("ReduceMax", y, 1))
			return
		}
		e.leave(e.node("ReduceMax", []value{y}, x.like(b, w), "axes", []int64{1}, "keepdims", 0))
	case 14: // weights of tokens, under the mask
		s := e.layered(x, 1)
		if e.mask.name != "" {
			rest := e.node("Sub", []value{e.scalar(s.kind, 1), e.cast(e.unsqueeze(e.mask, 2), s.kind)}, s.like(s.dims...))
			s = e.binary("Add", s, e.binary("Mul", rest, e.number(s.kind, -1e4)))
		}
		e.leave(drop("ReduceSum", e.binary("Mul", e.unary("Softmax", s, "axis", 1), x), 1))
	case 15: // the second token, or all but the first
		if e.one(2) {
			e.leave(e.node("Slice", []value{x, e.ints(1), e.ints(2), e.ints(1)}, x.like(b, symbol("second"), w)))
			return
		}
		e.leave(e.node("Slice", []value{x, e.ints(1), e.ints(math.MaxInt64), e.ints(1)},
			x.like(b, plus(e.tokens, number(-1)), w)))
	case 16: // the token with the greatest id
		at := e.node("ArgMax", []value{e.ids}, value{kind: i64, dims: []dim{b, number(1)}}, "axis", 1)
		at = e.expand(e.unsqueeze(at, 2), b, number(1), w)
		e.leave(e.node("GatherElements", []value{x, at}, x.like(b, number(1), w), "axis", 1))
	case 17: // rows that the mask clears
		e.leave(e.cleared(x))
	case 18: // its lengths
		e.leave(e.unary("Cast", e.node("Shape", []value{x}, value{kind: i64, dims: []dim{number(3)}}), "to", int(i64)))
		e.leave(end(0))
	case 19: // a norm of each row, and a number a token
		square := e.node("ReduceSum", []value{e.node("Mul", []value{x, x}, x.like(x.dims...)), e.ints(2)},
			x.like(b, e.tokens), "keepdims", 0)
		e.leave(square)
	}
}
