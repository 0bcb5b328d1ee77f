package graph

import (
	"math"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

func castRules() map[string]func(*call) {
	return map[string]func(*call){
		"Cast": func(c *call) { c.cast(onnx.Tensor_DataType(c.n.Int("to", 0))) },
		"CastLike": func(c *call) {
			c.cast(c.in(1).DType)
		},
		"BitCast": func(c *call) {
			x := c.in(0)
			c.set(0, Fact{DType: onnx.Tensor_DataType(c.n.Int("to", 0)), Rank: x.Rank, Dims: x.Dims})
		},
		"Where": whereRule,
	}
}

func (c *call) cast(to onnx.Tensor_DataType) {
	x := c.in(0)
	f := Fact{DType: to, Rank: x.Rank, Dims: x.Dims}
	switch {
	case to == x.DType:
		f = f.holding(x)
	case x.Elems != nil && followed(to):
		f.Elems = make([]Dim, len(x.Elems))
		for i, d := range x.Elems {
			f.Elems[i] = castInt(d, to)
		}
	case x.Elems != nil && isFloating(to):
		if list, ok := constants(x.Elems); ok {
			f.Floats = make([]float64, len(list))
			for i, n := range list {
				f.Floats[i] = rounded(to, float64(n))
			}
		}
	case x.Floats != nil && isFloating(to):
		f.Floats = make([]float64, len(x.Floats))
		for i, v := range x.Floats {
			f.Floats[i] = rounded(to, v)
		}
	case x.Floats != nil && followed(to):
		f.Elems = make([]Dim, len(x.Floats))
		for i, v := range x.Floats {
			if to == onnx.Tensor_BOOL {
				f.Elems[i] = boolDim(v != 0)
			} else if math.Abs(v) < 1<<62 {
				f.Elems[i] = castInt(DimInt(int64(v)), to)
			}
		}
	}
	c.set(0, f)
}

// castInt is an integer as another type holds it. Lengths that are not known as
// numbers are taken to fit.
func castInt(d Dim, to onnx.Tensor_DataType) Dim {
	n, isConst := d.Const()
	switch {
	case to == onnx.Tensor_BOOL && isConst:
		return boolDim(n != 0)
	case to == onnx.Tensor_BOOL && d.sign() != 0:
		return boolDim(true)
	case to == onnx.Tensor_BOOL, to == onnx.Tensor_INT32 && isConst && int64(int32(n)) != n:
		return Dim{}
	}
	return d
}

func whereRule(c *call) {
	cond, x, y := c.in(0), c.in(1), c.in(2)
	f := Fact{DType: x.DType}
	if f.DType == onnx.Tensor_UNDEFINED {
		f.DType = y.DType
	}
	f.Rank, f.Dims = c.s.broadcast(cond, x, y)
	defer func() { c.set(0, f) }()
	if n, ok := f.size(); !ok || n > maxElems || n < 0 || cond.Elems == nil {
		return
	}
	pick := spread(cond, f.Dims).Elems
	a, b := spread(x, f.Dims), spread(y, f.Dims)
	if a.Elems != nil || b.Elems != nil {
		f.Elems = make([]Dim, len(pick))
	}
	if a.Floats != nil && b.Floats != nil && len(a.Floats) == len(pick) && len(b.Floats) == len(pick) {
		f.Floats = make([]float64, len(pick))
	}
	for i, p := range pick {
		n, ok := p.Const()
		var u, v Dim
		if i < len(a.Elems) {
			u = a.Elems[i]
		}
		if i < len(b.Elems) {
			v = b.Elems[i]
		}
		if f.Elems != nil {
			switch {
			case ok && n != 0, !ok && u.Equal(v):
				f.Elems[i] = u
			case ok:
				f.Elems[i] = v
			}
		}
		if f.Floats == nil {
			continue
		}
		switch {
		case ok && n != 0, a.Floats[i] == b.Floats[i]:
			f.Floats[i] = a.Floats[i]
		case ok:
			f.Floats[i] = b.Floats[i]
		default:
			f.Floats = nil
		}
	}
}
