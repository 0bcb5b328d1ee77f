package random

import "math"

// linear multiplies the last axis by a weight, and adds a bias or not.
func (w *writer) linear(x value, to int64) value {
	from := x.axis(-1).number
	scale := 1 / math.Sqrt(float64(max(from, 1)))
	out := x.like(append(append([]dim{}, x.dims[:x.rank()-1]...), number(to))...)
	switch w.IntN(8) {
	case 0, 1: // rows in one axis, as Gemm takes them
		return w.gemm(x, out, scale)
	case 2: // a weight that lies the other way
		weight := w.transpose(w.weight(scale, to, from), 1, 0)
		return w.biased(w.node("MatMul", []value{x, weight}, out), to)
	case 3: // a weight that comes when the model runs
		weight := w.input("weight", x.kind, small, number(from), number(to))
		return w.biased(w.node("MatMul", []value{x, weight}, out), to)
	case 4: // a weight with more axes
		if x.rank() == 3 {
			return w.biased(w.node("MatMul", []value{x, w.weight(scale, 1, from, to)}, out), to)
		}
	}
	weight := w.weight(scale, from, to)
	if w.one(10) {
		weight = w.unary("Identity", weight)
	}
	y := w.node("MatMul", []value{x, weight}, out)
	if w.one(12) {
		w.leave(y)
	}
	return w.biased(y, to)
}

// biased adds a bias, of one of the shapes that broadcast to it.
func (w *writer) biased(y value, width int64) value {
	switch w.IntN(10) {
	case 0, 1:
		return y
	case 2:
		return w.binary("Add", y, w.weight(0.1))
	case 3:
		return w.binary("Add", y, w.weight(0.1, 1))
	case 4:
		return w.binary("Add", y, w.weight(0.1, 1, width))
	case 5: // a bias that comes when the model runs
		return w.binary("Add", y, w.input("bias", y.kind, small, number(width)))
	case 6: // twice
		y = w.binary("Add", y, w.weight(0.1, width))
	case 7:
		return w.node("Sub", []value{y, w.weight(0.1, width)}, y.like(y.dims...))
	}
	return w.binary("Add", y, w.weight(0.1, width))
}

// gemm is ONNX's matmul of rank 2, with its four attributes.
func (w *writer) gemm(x, out value, scale float64) value {
	from, to := x.axis(-1), out.axis(-1)
	rows := number(1)
	for _, d := range x.dims[:x.rank()-1] {
		rows = times(rows, d)
	}
	flat := w.reshape(x, rows, from)
	var attributes []any
	in := []value{flat}
	if w.one(8) {
		in[0] = w.transpose(flat, 1, 0)
		attributes = append(attributes, "transA", 1)
	}
	if w.one(2) {
		in = append(in, w.weight(scale, to.number, from.number))
		attributes = append(attributes, "transB", 1)
	} else {
		in = append(in, w.weight(scale, from.number, to.number))
		if w.one(3) {
			attributes = append(attributes, "transB", 0)
		}
	}
	if w.one(8) {
		attributes = append(attributes, "alpha", pick(w, 1.0, 0.5))
	}
	if !w.one(4) {
		in = append(in, w.weight(0.1,
			pick(w, []int64{to.number}, []int64{to.number}, []int64{1, to.number}, []int64{1}, nil)...))
		if w.one(8) {
			attributes = append(attributes, "beta", pick(w, 1.0, 2.0))
		}
	}
	y := w.node("Gemm", in, x.like(rows, to), attributes...)
	return w.reshape(y, out.dims...)
}

// small are numbers of the size of weights.
func small(r *randSource, _ []int64) func(int64) float64 {
	return func(int64) float64 { return 0.2 * r.NormFloat64() }
}

// norm brings hidden states to mean 0 and variance 1, or to a mean square of 1. Nothing else reads its parts: see
// TestEpsilonOfFusedNorms.
func (w *writer) norm(x value) value {
	before := len(w.seen)
	y := w.normed(x)
	w.seen = append(w.seen[:before], y)
	return y
}

func (w *writer) normed(x value) value {
	width := x.axis(-1).number
	epsilon := pick(w, 1e-5, 1e-6, 1e-12)
	if w.float == f16 {
		epsilon = 1e-3
	}
	gain := w.full(x.kind, func(int64) float64 { return 1 + 0.1*w.NormFloat64() }, width)
	if w.opset >= 17 && w.one(2) {
		in := []value{x, gain}
		if !w.one(3) {
			in = append(in, w.weight(0.1, width))
		}
		return w.node("LayerNormalization", in, x.like(x.dims...), "axis", pick(w, -1, x.rank()-1), "epsilon", epsilon)
	}
	if w.opset >= 23 && w.one(2) {
		return w.node("RMSNormalization", []value{x, gain}, x.like(x.dims...), "axis", -1, "epsilon", epsilon)
	}
	y, square := x, value{}
	two := w.scalar(x.kind, 2)
	if !w.one(3) {
		y = w.node("Sub", []value{x, w.mean(x)}, x.like(x.dims...))
	}
	if w.one(3) {
		square = w.node("Mul", []value{y, y}, y.like(y.dims...))
	} else {
		square = w.node("Pow", []value{y, two}, y.like(y.dims...))
	}
	root := w.unary("Sqrt", w.binary("Add", w.mean(square), w.scalar(x.kind, epsilon)))
	if w.one(3) {
		y = w.binary("Mul", y, w.unary("Reciprocal", root))
	} else {
		y = w.node("Div", []value{y, root}, y.like(y.dims...))
	}
	y = w.binary("Mul", y, gain)
	if w.one(2) {
		return y
	}
	return w.binary("Add", y, w.weight(0.1, width))
}

// mean is that of the last axis, which stays with one element.
func (w *writer) mean(x value) value {
	out := x.like(append(append([]dim{}, x.dims[:x.rank()-1]...), number(1))...)
	if w.opset < 18 {
		return w.node("ReduceMean", []value{x}, out, "axes", []int64{pick(w, -1, int64(x.rank()-1))}, "keepdims", 1)
	}
	return w.node("ReduceMean", []value{x, w.ints(pick(w, -1, int64(x.rank()-1)))}, out)
}

// activation is a GELU in one of its spellings, a near miss of one, or another function.
func (w *writer) activation(x value) value {
	number := func(n float64) value {
		if w.one(20) {
			n *= 1.25 // a near miss
		}
		return w.scalar(x.kind, n)
	}
	div := func(a, b value) value { return w.node("Div", []value{a, b}, a.like(broadcast(a.dims, b.dims)...)) }
	switch w.IntN(8) {
	case 0, 1, 2:
		inner := value{}
		if w.one(4) {
			inner = w.binary("Mul", x, number(1/math.Sqrt2))
		} else {
			inner = div(x, number(math.Sqrt2))
		}
		up := w.binary("Add", w.unary("Erf", inner), number(1))
		if w.one(12) {
			w.leave(up)
		}
		switch w.IntN(4) {
		case 0:
			return w.binary("Mul", w.binary("Mul", x, number(0.5)), up)
		case 1:
			return w.binary("Mul", x, w.binary("Mul", up, number(0.5)))
		}
		return w.binary("Mul", w.binary("Mul", x, up), number(0.5))
	case 3, 4:
		cube := w.node("Pow", []value{x, number(3)}, x.like(x.dims...))
		sum := w.binary("Add", x, w.binary("Mul", cube, number(0.044715)))
		up := w.binary("Add", w.unary("Tanh", w.binary("Mul", sum, number(math.Sqrt(2/math.Pi)))), number(1))
		if w.one(2) {
			return w.binary("Mul", w.binary("Mul", x, up), number(0.5))
		}
		return w.binary("Mul", w.binary("Mul", x, number(0.5)), up)
	case 5:
		if w.opset >= 20 {
			return w.unary("Gelu", x, "approximate", pick(w, "none", "tanh"))
		}
	case 6:
		return w.binary("Mul", x, w.unary("Sigmoid", x))
	}
	return w.unary("Relu", x)
}

// feed is two linear layers with an activation between.
func (w *writer) feed(x value) value {
	width := pick(w, int64(1), 2, 5, 7, 16, 17, 33)
	y := w.activation(w.linear(x, width))
	if w.one(4) {
		y = w.binary("Mul", y, w.linear(x, width))
	}
	return w.linear(y, x.axis(-1).number)
}
