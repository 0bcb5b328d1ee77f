package graph

import (
	"math"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

func makeRules() map[string]func(*call) {
	return map[string]func(*call){
		"Shape":           shapeRule,
		"Size":            func(c *call) { c.set(0, shaped(onnx.Tensor_INT64).holding(Fact{Elems: []Dim{c.in(0).Count()}})) },
		"Range":           rangeRule,
		"ConstantOfShape": constantOfShapeRule,
		"Constant":        constantRule,
		"EyeLike": func(c *call) {
			c.set(0, like(c.in(0), onnx.Tensor_DataType(c.n.Int("dtype", 0))))
		},
		"RandomNormalLike":  randomLikeRule,
		"RandomUniformLike": randomLikeRule,
		"Bernoulli":         randomLikeRule,
		"RandomNormal":      randomRule,
		"RandomUniform":     randomRule,
		"Multinomial": func(c *call) {
			t := onnx.Tensor_DataType(c.n.Int("dtype", int64(onnx.Tensor_INT32)))
			c.set(0, shaped(t, c.in(0).Dim(0), DimInt(c.n.Int("sample_size", 1))))
		},
	}
}

func shapeRule(c *call) {
	x := c.in(0)
	if x.Rank < 0 {
		c.set(0, shaped(onnx.Tensor_INT64, Dim{}))
		return
	}
	clamp := func(n int64) int64 {
		if n < 0 {
			n += int64(x.Rank)
		}
		return min(max(n, 0), int64(x.Rank))
	}
	start, end := clamp(c.n.Int("start", 0)), clamp(c.n.Int("end", math.MaxInt64))
	dims := append([]Dim{}, x.Dims[start:max(start, end)]...)
	c.set(0, shaped(onnx.Tensor_INT64, DimInt(int64(len(dims)))).holding(Fact{Elems: dims}))
}

func rangeRule(c *call) {
	start, limit, delta := c.in(0), c.in(1), c.in(2)
	f := shaped(start.DType, Dim{})
	if x, ok := start.Scalar(); ok {
		y, okY := limit.Scalar()
		by, okBy := delta.Scalar()
		n := math.Max(0, math.Ceil((y-x)/by))
		if okY && okBy && by != 0 && n < farAway {
			f.Dims[0] = DimInt(int64(n))
			if n <= maxFloats {
				f.Floats = make([]float64, int(n))
				for i := range f.Floats {
					f.Floats[i] = rounded(f.DType, x+float64(i)*by)
				}
			}
		}
		c.set(0, f)
		return
	}
	first, span, by := start.one(), limit.one().sub(start.one()), delta.one()
	step, okStep := by.Const()
	n, okSpan := span.Const()
	switch {
	case okSpan && okStep && step != 0 && step != math.MinInt64:
		count := int64(0)
		if (n > 0) == (step > 0) && n != 0 {
			count = (int64(magnitude(n)-1))/int64(magnitude(step)) + 1
		}
		f.Dims[0] = DimInt(count)
		if count <= maxElems {
			f.Elems = make([]Dim, count)
			for i := range f.Elems {
				f.Elems[i] = first.Add(by.Mul(DimInt(int64(i))))
			}
		}
	case okStep && step == 1 && span.atLeastZero():
		f.Dims[0] = span
	case okStep && step == -1 && DimInt(0).sub(span).atLeastZero():
		f.Dims[0] = DimInt(0).sub(span)
	}
	c.set(0, f)
}

func constantOfShapeRule(c *call) {
	shape := c.in(0)
	f := unranked(onnx.Tensor_FLOAT)
	var value Fact
	if a := c.n.Attr("value"); a != nil && a.T != nil {
		f.DType = onnx.Tensor_DataType(a.T.GetDataType())
		value = fromTensor(&Value{Graph: c.n.Graph, Tensor: a.T})
	} else {
		value = Fact{Floats: []float64{0}}
	}
	n, ok := shape.Dim(0).Const()
	switch {
	case shape.Elems != nil:
		f = shaped(f.DType, shape.Elems...)
	case ok && n >= 0 && n <= maxRank:
		f = shaped(f.DType, make([]Dim, n)...)
	default:
		c.set(0, f)
		return
	}
	if max(len(value.Elems), len(value.Floats)) == 1 {
		f = f.shuffled(value, func([]int64) int64 { return 0 })
	}
	c.set(0, f)
}

// constantRule is for constants that are no tensors of numbers: the others are
// read where they stand.
func constantRule(c *call) {
	switch {
	case c.n.Attr("value_string") != nil:
		c.set(0, shaped(onnx.Tensor_STRING))
	case c.n.Attr("value_strings") != nil:
		c.set(0, shaped(onnx.Tensor_STRING, DimInt(int64(len(c.n.Attr("value_strings").Strings)))))
	}
}

func randomLikeRule(c *call) {
	c.set(0, like(c.in(0), onnx.Tensor_DataType(c.n.Int("dtype", 0))))
}

func randomRule(c *call) {
	dims, ok := c.n.Ints("shape")
	f := unranked(onnx.Tensor_DataType(c.n.Int("dtype", int64(onnx.Tensor_FLOAT))))
	if ok && len(dims) <= maxRank {
		f = shaped(f.DType, dimInts(dims)...)
	}
	c.set(0, f)
}
