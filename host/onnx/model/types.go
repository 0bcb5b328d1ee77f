package model

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// elementBits is the storage of one element in raw data. Types below a byte are
// packed, the first element in the low bits.
var elementBits = map[onnx.Tensor_DataType]int{
	onnx.Tensor_FLOAT: 32, onnx.Tensor_DOUBLE: 64, onnx.Tensor_FLOAT16: 16, onnx.Tensor_BFLOAT16: 16,
	onnx.Tensor_UINT8: 8, onnx.Tensor_INT8: 8, onnx.Tensor_UINT16: 16, onnx.Tensor_INT16: 16,
	onnx.Tensor_UINT32: 32, onnx.Tensor_INT32: 32, onnx.Tensor_UINT64: 64, onnx.Tensor_INT64: 64,
	onnx.Tensor_BOOL: 8, onnx.Tensor_COMPLEX64: 64, onnx.Tensor_COMPLEX128: 128,
	onnx.Tensor_FLOAT8E4M3FN: 8, onnx.Tensor_FLOAT8E4M3FNUZ: 8,
	onnx.Tensor_FLOAT8E5M2: 8, onnx.Tensor_FLOAT8E5M2FNUZ: 8, onnx.Tensor_FLOAT8E8M0: 8,
	onnx.Tensor_UINT4: 4, onnx.Tensor_INT4: 4, onnx.Tensor_FLOAT4E2M1: 4,
	onnx.Tensor_UINT2: 2, onnx.Tensor_INT2: 2,
}

// ElementBits is the number of bits that one element takes in raw data: 32 for
// FLOAT, 4 for INT4. It is 0 for STRING, UNDEFINED and types not known here.
func ElementBits(dataType onnx.Tensor_DataType) int { return elementBits[dataType] }

// TypeName is the lower-case name of a data type, as messages and reports print
// it: "float32" and "float64" for FLOAT and DOUBLE, else ONNX's own name.
func TypeName(dataType onnx.Tensor_DataType) string {
	switch dataType {
	case onnx.Tensor_FLOAT:
		return "float32"
	case onnx.Tensor_DOUBLE:
		return "float64"
	}
	if name, ok := onnx.Tensor_DataType_name[int32(dataType)]; ok {
		return strings.ToLower(name)
	}
	return fmt.Sprintf("type %d", int32(dataType))
}

// NumElements is the product of t's dims, 1 for a scalar. A negative dimension
// and a product beyond int64 are errors.
func NumElements(t *onnx.Tensor) (int64, error) { return product(t.GetName(), t.GetDims()) }

func product(name string, dims []int64) (int64, error) {
	n := uint64(1)
	empty := false
	for _, d := range dims {
		if d < 0 {
			return 0, &diagnostic.Error{Kind: ErrDamaged,
				Found:  "tensor " + quote(name) + " has a negative dimension: found " + shapeText(dims),
				Needed: "zero or more in every place", Fix: fixDamaged}
		}
		if d == 0 {
			empty = true
			continue
		}
		hi, lo := bits.Mul64(n, uint64(d))
		if hi != 0 || lo > 1<<63-1 {
			return 0, &diagnostic.Error{Kind: ErrDamaged,
				Found:  "tensor " + quote(name) + " has more elements than can be counted: found " + shapeText(dims),
				Needed: "a product below 2^63", Fix: fixDamaged}
		}
		n = lo
	}
	if empty {
		return 0, nil
	}
	return int64(n), nil
}

// ByteSize is the length of t's elements as raw data, in bytes, rounded up to
// whole bytes. Strings and types not known here have no such size: an error.
func ByteSize(t *onnx.Tensor) (int64, error) {
	n, err := NumElements(t)
	if err != nil {
		return 0, err
	}
	return rawSize(t.GetName(), onnx.Tensor_DataType(t.GetDataType()), n)
}

func rawSize(name string, dataType onnx.Tensor_DataType, elements int64) (int64, error) {
	width := ElementBits(dataType)
	if width == 0 {
		return 0, &diagnostic.Error{Kind: ErrDamaged,
			Found:  "tensor " + quote(name) + " has no raw form: found " + TypeName(dataType),
			Needed: "a data type of fixed width"}
	}
	hi, lo := bits.Mul64(uint64(elements), uint64(width))
	if hi != 0 || lo > 1<<63-8 {
		return 0, &diagnostic.Error{Kind: ErrDamaged,
			Found: fmt.Sprintf("tensor %s is larger than can be addressed: found %d elements of %s", quote(name), elements,
				TypeName(dataType)),
			Needed: "less than 2^60 bytes", Fix: fixDamaged}
	}
	return int64((lo + 7) / 8), nil
}

// shapeText prints dims as "[2 3]", cut short when a file gives absurdly many.
func shapeText(dims []int64) string {
	if len(dims) > 8 {
		return strings.TrimSuffix(fmt.Sprint(dims[:8]), "]") + fmt.Sprintf(" ... %d dims]", len(dims))
	}
	return fmt.Sprint(dims)
}
