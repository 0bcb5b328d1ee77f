package graph

import (
	"math"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// unary makes the rule of an operator over single elements. Either function
// may be nil, when content of that kind is not followed through it.
func unary(ints func(Dim) Dim, floats func(float64) float64) func(*call) {
	return func(c *call) {
		x := c.in(0)
		f := like(x, onnx.Tensor_UNDEFINED)
		if ints != nil && x.Elems != nil {
			f.Elems = make([]Dim, len(x.Elems))
			for i, d := range x.Elems {
				f.Elems[i] = ints(d)
			}
		}
		if floats != nil && x.Floats != nil {
			f.Floats = make([]float64, len(x.Floats))
			for i, v := range x.Floats {
				f.Floats[i] = rounded(f.DType, floats(v))
			}
		}
		c.set(0, f)
	}
}

// binary makes the rule of an operator over broadcast pairs of elements. t is
// the type of the result, undefined for that of the first input.
func binary(t onnx.Tensor_DataType, ints func(a, b Dim) Dim, floats func(a, b float64) float64) func(*call) {
	return func(c *call) {
		f := c.in(0)
		for i := 1; i < len(c.n.In); i++ {
			f = c.s.combine(t, f, c.in(i), ints, floats)
		}
		c.set(0, f)
	}
}

func (s *Shapes) combine(t onnx.Tensor_DataType, a, b Fact, ints func(a, b Dim) Dim,
	floats func(a, b float64) float64) Fact {
	f := Fact{DType: t}
	if t == onnx.Tensor_UNDEFINED {
		f.DType = a.DType
		if f.DType == onnx.Tensor_UNDEFINED {
			f.DType = b.DType
		}
	}
	f.Rank, f.Dims = s.broadcast(a, b)
	if n, ok := f.size(); !ok || n > maxElems || n < 0 {
		return f
	}
	switch {
	case ints != nil && a.Elems != nil && b.Elems != nil:
		x, y := spread(a, f.Dims).Elems, spread(b, f.Dims).Elems
		if len(x) != len(y) {
			break
		}
		f.Elems = make([]Dim, len(x))
		for i := range x {
			f.Elems[i] = ints(x[i], y[i])
		}
	case floats != nil && a.Floats != nil && b.Floats != nil:
		x, y := spread(a, f.Dims).Floats, spread(b, f.Dims).Floats
		if len(x) != len(y) {
			break
		}
		if t == onnx.Tensor_BOOL {
			f.Elems = make([]Dim, len(x))
			for i := range x {
				f.Elems[i] = DimInt(int64(floats(x[i], y[i])))
			}
			break
		}
		f.Floats = make([]float64, len(x))
		for i := range x {
			f.Floats[i] = rounded(f.DType, floats(x[i], y[i]))
		}
	}
	return f
}

// compare makes the rule of a comparison. holds tells from the sign of a - b.
func compare(holds func(sign int) bool) func(*call) {
	truth := func(ok bool) int64 {
		if ok {
			return 1
		}
		return 0
	}
	return binary(onnx.Tensor_BOOL,
		func(a, b Dim) Dim {
			diff := a.sub(b)
			sign := diff.sign()
			if sign != 0 || diff.Is(0) {
				return DimInt(truth(holds(sign)))
			}
			// A difference that is only known not to change its sign
			// still decides when both cases answer alike.
			if diff.atLeastZero() && holds(0) == holds(1) {
				return DimInt(truth(holds(0)))
			}
			if neg := b.sub(a); neg.atLeastZero() && holds(0) == holds(-1) {
				return DimInt(truth(holds(0)))
			}
			return Dim{}
		},
		func(a, b float64) float64 {
			switch {
			case a < b:
				return float64(truth(holds(-1)))
			case a > b:
				return float64(truth(holds(1)))
			case a == b:
				return float64(truth(holds(0)))
			}
			return 0 // not a number
		})
}

func onConst(f func(int64) int64) func(Dim) Dim {
	return func(d Dim) Dim {
		if n, ok := d.Const(); ok {
			return DimInt(f(n))
		}
		return Dim{}
	}
}

func onBools(f func(a, b bool) bool, decides bool) func(a, b Dim) Dim {
	return func(a, b Dim) Dim {
		x, okX := a.Const()
		y, okY := b.Const()
		switch {
		case okX && okY && f(x != 0, y != 0):
			return DimInt(1)
		case okX && okY:
			return DimInt(0)
		case okX && (x != 0) == decides && f(decides, true) == f(decides, false):
			return boolDim(f(decides, true))
		case okY && (y != 0) == decides && f(true, decides) == f(false, decides):
			return boolDim(f(decides, true))
		}
		return Dim{}
	}
}

func boolDim(b bool) Dim {
	if b {
		return DimInt(1)
	}
	return DimInt(0)
}

// divInts divides as integers do, towards zero.
func divInts(a, b Dim) Dim {
	x, okX := a.Const()
	y, okY := b.Const()
	if okX && okY {
		if y == 0 || y == -1 && x == math.MinInt64 {
			return Dim{}
		}
		return DimInt(x / y)
	}
	q, _ := a.Div(b)
	return q
}

// modInts is the remainder; a polynomial's is that of its constant when all
// else is divisible.
func modInts(fmod bool) func(a, b Dim) Dim {
	return func(a, b Dim) Dim {
		m, ok := b.Const()
		if !ok || !a.Known() || m == 0 || m == -1 {
			return Dim{}
		}
		if len(a.terms) > 0 && !(a.c >= 0 && m > 0) {
			return Dim{} // the sign of the remainder is open
		}
		for _, t := range a.terms {
			if t.coef%m != 0 || t.coef < 0 {
				return Dim{}
			}
		}
		r := a.c % m
		if !fmod && r != 0 && (r < 0) != (m < 0) {
			r += m
		}
		return DimInt(r)
	}
}

func powInts(a, b Dim) Dim {
	n, ok := b.Const()
	if !ok || n < 0 || n > 64 {
		return Dim{}
	}
	p := DimInt(1)
	for range n {
		p = p.Mul(a)
	}
	return p
}

// extreme is the larger of two (want 1) or the smaller (want -1), when it is
// certain which that is.
func extreme(want int) func(a, b Dim) Dim {
	return func(a, b Dim) Dim {
		high, low := a, b
		if b.sub(a).atLeastZero() {
			high, low = b, a
		}
		switch {
		case !high.sub(low).atLeastZero():
			return Dim{}
		case want < 0:
			return low
		}
		return high
	}
}

func arithmeticRules() map[string]func(*call) {
	const same = onnx.Tensor_UNDEFINED
	const boolean = onnx.Tensor_BOOL
	rules := map[string]func(*call){
		"Add": binary(same, Dim.Add, func(a, b float64) float64 { return a + b }),
		"Sub": binary(same, Dim.sub, func(a, b float64) float64 { return a - b }),
		"Mul": binary(same, Dim.Mul, func(a, b float64) float64 { return a * b }),
		"Div": binary(same, divInts, func(a, b float64) float64 { return a / b }),
		"Pow": binary(same, powInts, math.Pow),
		"Max": binary(same, extreme(1), math.Max),
		"Min": binary(same, extreme(-1), math.Min),
		"Sum": binary(same, Dim.Add, func(a, b float64) float64 { return a + b }),
		"Mod": func(c *call) {
			binary(same, modInts(c.n.Int("fmod", 0) != 0), math.Mod)(c)
		},
		"And": binary(boolean, onBools(func(a, b bool) bool { return a && b }, false), nil),
		"Or":  binary(boolean, onBools(func(a, b bool) bool { return a || b }, true), nil),
		"Xor": binary(boolean, onBools(func(a, b bool) bool { return a != b }, true), nil),

		"Equal":          compare(func(s int) bool { return s == 0 }),
		"Greater":        compare(func(s int) bool { return s > 0 }),
		"GreaterOrEqual": compare(func(s int) bool { return s >= 0 }),
		"Less":           compare(func(s int) bool { return s < 0 }),
		"LessOrEqual":    compare(func(s int) bool { return s <= 0 }),

		"Neg": unary(func(d Dim) Dim { return DimInt(0).sub(d) }, func(x float64) float64 { return -x }),
		"Abs": unary(func(d Dim) Dim { return extreme(1)(d, DimInt(0).sub(d)) }, math.Abs),
		"Not": unary(onConst(func(n int64) int64 { return 1 - n }), nil),
		"Sign": unary(func(d Dim) Dim {
			if s := d.sign(); s != 0 || d.Is(0) {
				return DimInt(int64(s))
			}
			return Dim{}
		}, func(x float64) float64 {
			switch {
			case x > 0:
				return 1
			case x < 0:
				return -1
			}
			return x
		}),
		"Sqrt":       unary(nil, math.Sqrt),
		"Reciprocal": unary(nil, func(x float64) float64 { return 1 / x }),
		"Exp":        unary(nil, math.Exp),
		"Log":        unary(nil, math.Log),
		"Floor":      unary(nil, math.Floor),
		"Ceil":       unary(nil, math.Ceil),
		"Round":      unary(nil, math.RoundToEven),
		"Sin":        unary(nil, math.Sin),
		"Cos":        unary(nil, math.Cos),
		"Tanh":       unary(nil, math.Tanh),
		"Erf":        unary(nil, math.Erf),
		"Sigmoid":    unary(nil, func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }),
		"Relu": unary(func(d Dim) Dim { return extreme(1)(d, DimInt(0)) },
			func(x float64) float64 { return math.Max(x, 0) }),
		"Clip":     clipRule,
		"Identity": func(c *call) { c.set(0, c.in(0)) },
		"Dropout": func(c *call) {
			c.set(0, like(c.in(0), same))
			if !c.has(2) { // it is not told that it trains
				c.set(0, c.in(0))
			}
			c.set(1, like(c.in(0), boolean))
			if c.n.Graph.Opset("") < 10 {
				c.set(1, like(c.in(0), same))
			}
		},
	}
	for _, op := range []string{
		"Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Celu", "Cosh", "Elu", "Gelu", "HardSigmoid",
		"HardSwish", "Hardmax", "LeakyRelu", "LogSoftmax", "Mish", "Selu", "Shrink", "Sinh", "Softmax", "Softplus",
		"Softsign", "Swish", "Tan", "ThresholdedRelu", "CumSum", "CumProd", "LRN", "LpNormalization",
		"MeanVarianceNormalization", "ReverseSequence", "Scatter", "ScatterElements", "ScatterND", "TensorScatter",
	} {
		rules[op] = unary(nil, nil)
	}
	for _, op := range []string{"BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Mean", "PRelu"} {
		rules[op] = binary(same, nil, nil)
	}
	for _, op := range []string{"IsNaN", "IsInf"} {
		rules[op] = func(c *call) { c.set(0, like(c.in(0), boolean)) }
	}
	return rules
}

func clipRule(c *call) {
	x := c.in(0)
	f := like(x, onnx.Tensor_UNDEFINED)
	if !c.has(1) && !c.has(2) && c.n.Attr("min") == nil && c.n.Attr("max") == nil {
		f = f.holding(x)
	}
	if x.Elems != nil {
		f.Elems = x.Elems
		for i, want := range []int{1, -1} {
			if c.has(1 + i) {
				f.Elems = c.s.combine(f.DType, shaped(f.DType, x.Dims...).holding(Fact{Elems: f.Elems}),
					c.in(1+i), extreme(want), nil).Elems
			}
		}
	}
	c.set(0, f)
}
