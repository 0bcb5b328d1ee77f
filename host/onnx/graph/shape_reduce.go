package graph

import (
	"slices"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

func reduceRules() map[string]func(*call) {
	rules := map[string]func(*call){
		"ReduceProd": reduceRule(Dim.Mul, DimInt(1)),
		"ReduceSum":  reduceRule(Dim.Add, DimInt(0)),
		"ReduceMax":  reduceRule(extreme(1), Dim{}),
		"ReduceMin":  reduceRule(extreme(-1), Dim{}),
	}
	for _, op := range []string{"ReduceMean", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp",
		"ReduceSumSquare"} {
		rules[op] = reduceRule(nil, Dim{})
	}
	return rules
}

// reduceRule makes the rule of a reduction. fold joins elements, from an
// identity if there is one.
func reduceRule(fold func(a, b Dim) Dim, start Dim) func(*call) {
	return func(c *call) {
		x := c.in(0)
		keep := c.n.Int("keepdims", 1) != 0
		axes, given, ok := c.axes(1, "axes", x.Rank)
		if !given || ok && len(axes) == 0 {
			if c.n.Int("noop_with_empty_axes", 0) != 0 {
				c.set(0, like(x, onnx.Tensor_UNDEFINED))
				return
			}
			axes, ok = nil, x.Rank >= 0
			for i := range x.Rank {
				axes = append(axes, i)
			}
		}
		switch {
		case x.Rank < 0 && !given && !keep:
			c.set(0, shaped(x.DType)) // of everything
			return
		case !ok && keep && x.Rank >= 0:
			c.set(0, shaped(x.DType, make([]Dim, x.Rank)...))
			return
		case !ok:
			c.set(0, unranked(x.DType))
			return
		}
		f := reduced(x, axes, keep, x.DType)
		if fold != nil && x.Elems != nil && len(axes) == x.Rank {
			total := start
			for i, d := range x.Elems {
				if i == 0 && !start.Known() {
					total = d
				} else {
					total = fold(total, d)
				}
			}
			f.Elems = []Dim{total}
		}
		c.set(0, f)
	}
}

// reduced is x with the axes gone, or of length one. The axes are in order.
func reduced(x Fact, axes []int, keep bool, t onnx.Tensor_DataType) Fact {
	f := shaped(t)
	for i, d := range x.Dims {
		switch {
		case !slices.Contains(axes, i):
			f.Dims = append(f.Dims, d)
		case keep:
			f.Dims = append(f.Dims, DimInt(1))
		}
	}
	f.Rank = len(f.Dims)
	return f
}
