package graph

import (
	"math"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

func dimInts(list []int64) []Dim {
	dims := make([]Dim, len(list))
	for i, n := range list {
		dims[i] = DimInt(n)
	}
	return dims
}

// constants are the lengths as numbers; ok is false unless all are constant.
func constants(dims []Dim) (list []int64, ok bool) {
	list = make([]int64, len(dims))
	for i, d := range dims {
		if list[i], ok = d.Const(); !ok {
			return nil, false
		}
	}
	return list, true
}

func isFloating(t onnx.Tensor_DataType) bool {
	switch t {
	case onnx.Tensor_FLOAT, onnx.Tensor_DOUBLE, onnx.Tensor_FLOAT16, onnx.Tensor_BFLOAT16:
		return true
	}
	return false
}

// followed reports whether elements of the type are followed: those that shape
// arithmetic is made of.
func followed(t onnx.Tensor_DataType) bool {
	return t == onnx.Tensor_INT64 || t == onnx.Tensor_INT32 || t == onnx.Tensor_BOOL
}

// tracks reports whether anything is known of the content.
func (f Fact) tracks() bool { return f.Elems != nil || f.Floats != nil }

// ints are the elements as numbers; ok is false unless all are constant.
func (f Fact) ints() (list []int64, ok bool) {
	if f.Elems == nil {
		return nil, false
	}
	return constants(f.Elems)
}

// one is the only element of an integer tensor, unknown when it has more.
func (f Fact) one() Dim {
	if len(f.Elems) != 1 {
		return Dim{}
	}
	return f.Elems[0]
}

// size is the number of elements where all lengths are constant and their
// product fits 64 bits.
func (f Fact) size() (n int64, ok bool) {
	n, ok = 1, f.Rank >= 0
	for _, d := range f.Dims {
		k, isConst := d.Const()
		if !isConst {
			return 0, false
		}
		if n, ok = mulInt(n, k); !ok {
			return 0, false
		}
	}
	return n, ok
}

// holding gives a fact the content of another one with the same elements in
// the same order.
func (f Fact) holding(o Fact) Fact {
	f.Elems, f.Floats = o.Elems, o.Floats
	return f
}

// shuffled gives a fact of constant shape elements of src: at each position of
// f, from names the position in src, from coordinates in f.
func (f Fact) shuffled(src Fact, from func(at []int64) int64) Fact {
	dims, ok := constants(f.Dims)
	n, fits := f.size()
	if !src.tracks() || f.Rank < 0 || !ok || !fits || n < 0 || n > maxElems {
		return f
	}
	have := int64(max(len(src.Elems), len(src.Floats)))
	if src.Elems != nil {
		f.Elems = make([]Dim, 0, n)
	}
	if src.Floats != nil {
		f.Floats = make([]float64, 0, n)
	}
	at := make([]int64, len(dims))
	for range n {
		i := from(at)
		if i < 0 || i >= have {
			f.Elems, f.Floats = nil, nil // the graph is wrong
			return f
		}
		if src.Elems != nil {
			f.Elems = append(f.Elems, src.Elems[i])
		}
		if src.Floats != nil {
			f.Floats = append(f.Floats, src.Floats[i])
		}
		next(at, dims)
	}
	return f
}

// next counts coordinates on in row-major order.
func next(at, dims []int64) {
	for i := len(at) - 1; i >= 0; i-- {
		if at[i]++; at[i] < dims[i] {
			return
		}
		at[i] = 0
	}
}

// strides are the distances, in elements, between neighbours on each axis.
func strides(dims []int64) []int64 {
	list := make([]int64, len(dims))
	step := int64(1)
	for i := len(dims) - 1; i >= 0; i-- {
		list[i] = step
		step *= max(dims[i], 1)
	}
	return list
}

// spread is src broadcast to a constant shape.
func spread(src Fact, dims []Dim) Fact {
	f := shaped(src.DType, dims...)
	own, ok := constants(src.Dims)
	if !ok || len(own) > len(dims) {
		return f
	}
	step := strides(own)
	lead := len(dims) - len(own)
	return f.shuffled(src, func(at []int64) int64 {
		i := int64(0)
		for k, d := range own {
			if d != 1 {
				i += at[lead+k] * step[k]
			}
		}
		return i
	})
}

// rounded is x as a floating type holds it.
func rounded(t onnx.Tensor_DataType, x float64) float64 {
	switch t {
	case onnx.Tensor_FLOAT:
		return float64(float32(x))
	case onnx.Tensor_FLOAT16:
		return roundTo(x, 11, -24, 65504)
	case onnx.Tensor_BFLOAT16:
		return roundTo(x, 8, -133, math.Ldexp(255, 120))
	}
	return x
}

// roundTo rounds to the nearest number of `bits` bits, ties to even, above the
// smallest power of two there is; what goes beyond the largest is infinite.
func roundTo(x float64, bits, smallest int, largest float64) float64 {
	if x == 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return x
	}
	_, exp := math.Frexp(x)
	unit := max(exp-bits, smallest)
	r := math.Ldexp(math.RoundToEven(math.Ldexp(x, -unit)), unit)
	if math.Abs(r) > largest {
		return math.Copysign(math.Inf(1), x)
	}
	return r
}
