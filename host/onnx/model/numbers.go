package model

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// Int64s gives the elements of an integer or boolean tensor in row-major order.
// More than limit elements, another data type, and a UINT64 beyond int64 are
// errors.
func (m *Model) Int64s(t *onnx.Tensor, limit int) ([]int64, error) {
	b, n, err := m.elements(t, limit)
	if err != nil {
		return nil, err
	}
	dataType := onnx.Tensor_DataType(t.GetDataType())
	at := integerAt(dataType)
	if at == nil {
		return nil, &diagnostic.Error{Kind: ErrMisused, Path: m.shown(),
			Found:  "tensor " + quote(t.GetName()) + " holds no integers: found " + TypeName(dataType),
			Needed: "an integer type"}
	}
	out := make([]int64, n)
	for i := range out {
		out[i] = at(b, i)
		if dataType == onnx.Tensor_UINT64 && out[i] < 0 {
			return nil, &diagnostic.Error{Kind: ErrMisused, Path: m.shown(),
				Found:  "tensor " + quote(t.GetName()) + " holds a number beyond int64: found " + fmt.Sprint(uint64(out[i])),
				Needed: "at most 2^63-1"}
		}
	}
	return out, nil
}

// Float64s gives the elements of a floating-point, integer or boolean tensor in
// row-major order; every type but INT64 and UINT64 beyond 2^53 is exact. More
// than limit elements, and complex numbers and strings, are errors.
func (m *Model) Float64s(t *onnx.Tensor, limit int) ([]float64, error) {
	b, n, err := m.elements(t, limit)
	if err != nil {
		return nil, err
	}
	dataType := onnx.Tensor_DataType(t.GetDataType())
	out := make([]float64, n)
	if at := floatAt(dataType); at != nil {
		for i := range out {
			out[i] = at(b, i)
		}
		return out, nil
	}
	at := integerAt(dataType)
	if at == nil {
		return nil, &diagnostic.Error{Kind: ErrMisused, Path: m.shown(),
			Found:  "tensor " + quote(t.GetName()) + " holds no real numbers: found " + TypeName(dataType),
			Needed: "a floating-point or integer type"}
	}
	for i := range out {
		v := at(b, i)
		out[i] = float64(v)
		if dataType == onnx.Tensor_UINT64 {
			out[i] = float64(uint64(v))
		}
	}
	return out, nil
}

func (m *Model) elements(t *onnx.Tensor, limit int) ([]byte, int, error) {
	n, err := NumElements(t)
	if err != nil {
		return nil, 0, located(err, m.shown())
	}
	if n > int64(limit) {
		return nil, 0, &diagnostic.Error{Kind: ErrMisused, Path: m.shown(),
			Found:  fmt.Sprintf("tensor %s is larger than expected: found %d elements", quote(t.GetName()), n),
			Needed: fmt.Sprintf("at most %d", limit)}
	}
	b, err := m.Data(t)
	return b, int(n), err
}

var little = binary.LittleEndian

// integerAt reads element i of raw data of an integer type; nil for others.
func integerAt(dataType onnx.Tensor_DataType) func(b []byte, i int) int64 {
	switch dataType {
	case onnx.Tensor_INT64, onnx.Tensor_UINT64:
		return func(b []byte, i int) int64 { return int64(little.Uint64(b[8*i:])) }
	case onnx.Tensor_INT32:
		return func(b []byte, i int) int64 { return int64(int32(little.Uint32(b[4*i:]))) }
	case onnx.Tensor_UINT32:
		return func(b []byte, i int) int64 { return int64(little.Uint32(b[4*i:])) }
	case onnx.Tensor_INT16:
		return func(b []byte, i int) int64 { return int64(int16(little.Uint16(b[2*i:]))) }
	case onnx.Tensor_UINT16:
		return func(b []byte, i int) int64 { return int64(little.Uint16(b[2*i:])) }
	case onnx.Tensor_INT8:
		return func(b []byte, i int) int64 { return int64(int8(b[i])) }
	case onnx.Tensor_UINT8, onnx.Tensor_BOOL:
		return func(b []byte, i int) int64 { return int64(b[i]) }
	case onnx.Tensor_INT4, onnx.Tensor_INT2:
		width := ElementBits(dataType)
		return func(b []byte, i int) int64 { return int64(int8(packedAt(b, i, width)<<(8-width)) >> (8 - width)) }
	case onnx.Tensor_UINT4, onnx.Tensor_UINT2:
		width := ElementBits(dataType)
		return func(b []byte, i int) int64 { return int64(packedAt(b, i, width)) }
	}
	return nil
}

// packedAt reads element i of a type of width bits, the first in the low bits.
func packedAt(b []byte, i, width int) byte {
	bit := i * width
	return b[bit/8] >> (bit % 8) & (1<<width - 1)
}

// floatAt reads element i of raw data of a floating-point type; nil for others.
func floatAt(dataType onnx.Tensor_DataType) func(b []byte, i int) float64 {
	small := func(exponent, mantissa, bias int, special specials) func(b []byte, i int) float64 {
		return func(b []byte, i int) float64 { return smallFloat(uint32(b[i]), exponent, mantissa, bias, special) }
	}
	switch dataType {
	case onnx.Tensor_FLOAT:
		return func(b []byte, i int) float64 { return float64(math.Float32frombits(little.Uint32(b[4*i:]))) }
	case onnx.Tensor_DOUBLE:
		return func(b []byte, i int) float64 { return math.Float64frombits(little.Uint64(b[8*i:])) }
	case onnx.Tensor_BFLOAT16:
		return func(b []byte, i int) float64 {
			return float64(math.Float32frombits(uint32(little.Uint16(b[2*i:])) << 16))
		}
	case onnx.Tensor_FLOAT16:
		return func(b []byte, i int) float64 {
			return smallFloat(uint32(little.Uint16(b[2*i:])), 5, 10, 15, specialsIEEE)
		}
	case onnx.Tensor_FLOAT8E4M3FN:
		return small(4, 3, 7, specialsTop)
	case onnx.Tensor_FLOAT8E4M3FNUZ:
		return small(4, 3, 8, specialsNegativeZero)
	case onnx.Tensor_FLOAT8E5M2:
		return small(5, 2, 15, specialsIEEE)
	case onnx.Tensor_FLOAT8E5M2FNUZ:
		return small(5, 2, 16, specialsNegativeZero)
	case onnx.Tensor_FLOAT8E8M0:
		return func(b []byte, i int) float64 {
			if b[i] == 0xff {
				return math.NaN()
			}
			return math.Ldexp(1, int(b[i])-127)
		}
	case onnx.Tensor_FLOAT4E2M1:
		return func(b []byte, i int) float64 { return smallFloat(uint32(packedAt(b, i, 4)), 2, 1, 1, specialsNone) }
	}
	return nil
}

// specials says which bit patterns a small float gives to infinity and NaN.
type specials int

const (
	specialsNone         specials = iota // every pattern is a number
	specialsIEEE                         // the top exponent: infinity, and NaN with a mantissa
	specialsTop                          // no infinity; NaN is all ones below the sign
	specialsNegativeZero                 // no infinity, no negative zero; its pattern is NaN
)

// smallFloat decodes a float with a sign bit above exponent and mantissa bits.
func smallFloat(v uint32, exponent, mantissa, bias int, special specials) float64 {
	sign := 1.0
	if v>>(exponent+mantissa)&1 == 1 {
		sign = -1
	}
	e := int(v >> mantissa & (1<<exponent - 1))
	f := float64(v & (1<<mantissa - 1))
	top, full := 1<<exponent-1, float64(uint32(1)<<mantissa-1)
	switch {
	case special == specialsIEEE && e == top && f == 0:
		return math.Inf(int(sign))
	case special == specialsIEEE && e == top,
		special == specialsTop && e == top && f == full,
		special == specialsNegativeZero && sign < 0 && e == 0 && f == 0:
		return math.NaN()
	case e == 0:
		return sign * math.Ldexp(f, 1-bias-mantissa)
	}
	return sign * math.Ldexp(float64(uint32(1)<<mantissa)+f, e-bias-mantissa)
}
