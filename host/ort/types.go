package ort

import (
	"fmt"
)

// An ElementType is the type of a tensor's elements, numbered as ONNX Runtime's
// ONNXTensorElementDataType. Up to Float4E2M1 that is also ONNX's TensorProto.DataType, which
// gives 24 to FLOAT8E8M0.
type ElementType int

// The element types.
const (
	Undefined      ElementType = 0
	Float32        ElementType = 1
	Uint8          ElementType = 2
	Int8           ElementType = 3
	Uint16         ElementType = 4
	Int16          ElementType = 5
	Int32          ElementType = 6
	Int64          ElementType = 7
	String         ElementType = 8
	Bool           ElementType = 9
	Float16        ElementType = 10
	Float64        ElementType = 11
	Uint32         ElementType = 12
	Uint64         ElementType = 13
	Complex64      ElementType = 14
	Complex128     ElementType = 15
	BFloat16       ElementType = 16
	Float8E4M3FN   ElementType = 17
	Float8E4M3FNUZ ElementType = 18
	Float8E5M2     ElementType = 19
	Float8E5M2FNUZ ElementType = 20
	Uint4          ElementType = 21
	Int4           ElementType = 22
	Float4E2M1     ElementType = 23
	Uint2          ElementType = 24
	Int2           ElementType = 25
	Float8E8M0     ElementType = 26
)

var elementTypes = [...]struct {
	name string
	bits int // 0: no fixed width
}{
	Undefined: {"undefined", 0}, Float32: {"float32", 32}, Uint8: {"uint8", 8}, Int8: {"int8", 8},
	Uint16: {"uint16", 16}, Int16: {"int16", 16}, Int32: {"int32", 32}, Int64: {"int64", 64},
	String: {"string", 0}, Bool: {"bool", 8}, Float16: {"float16", 16}, Float64: {"float64", 64},
	Uint32: {"uint32", 32}, Uint64: {"uint64", 64}, Complex64: {"complex64", 64},
	Complex128: {"complex128", 128}, BFloat16: {"bfloat16", 16}, Float8E4M3FN: {"float8e4m3fn", 8},
	Float8E4M3FNUZ: {"float8e4m3fnuz", 8}, Float8E5M2: {"float8e5m2", 8},
	Float8E5M2FNUZ: {"float8e5m2fnuz", 8}, Uint4: {"uint4", 4}, Int4: {"int4", 4},
	Float4E2M1: {"float4e2m1", 4}, Uint2: {"uint2", 2}, Int2: {"int2", 2},
	Float8E8M0: {"float8e8m0", 8},
}

// String is the type's name in lower case, "float32" for example.
func (e ElementType) String() string {
	if e < 0 || int(e) >= len(elementTypes) {
		return fmt.Sprintf("element type %d", int(e))
	}
	return elementTypes[e].name
}

// Bits is the width of one element in bits, 0 for strings and unknown types. Elements narrower
// than a byte are packed, the first in the lowest bits.
func (e ElementType) Bits() int {
	if e < 0 || int(e) >= len(elementTypes) {
		return 0
	}
	return elementTypes[e].bits
}

// Bytes is the memory that n elements take, the last byte of packed ones filled up.
func (e ElementType) Bytes(n int64) int64 { return (n*int64(e.Bits()) + 7) / 8 }

// A Kind is the kind of a model's input or output, or of a value.
type Kind int

// The kinds of ONNXType.
const (
	KindUnknown      Kind = 0
	KindTensor       Kind = 1
	KindSequence     Kind = 2
	KindMap          Kind = 3
	KindOpaque       Kind = 4
	KindSparseTensor Kind = 5
	KindOptional     Kind = 6
)

// String is the kind's name in lower case.
func (k Kind) String() string {
	names := [...]string{"unknown", "tensor", "sequence", "map", "opaque", "sparse tensor", "optional"}
	if k < 0 || int(k) >= len(names) {
		return fmt.Sprintf("kind %d", int(k))
	}
	return names[k]
}

// A ValueInfo describes an input or output of a session.
type ValueInfo struct {
	Name string
	Kind Kind
	// Element, Shape and Dimensions are set for tensors only.
	Element ElementType
	// Shape has -1 where the model leaves a dimension open.
	Shape []int64
	// Dimensions are the names of open dimensions, "" where there is none.
	Dimensions []string
}

// String is "name: float32[batch, 3, ?]".
func (v ValueInfo) String() string {
	if v.Kind != KindTensor {
		return v.Name + ": " + v.Kind.String()
	}
	s := v.Name + ": " + v.Element.String() + "["
	for i, d := range v.Shape {
		if i > 0 {
			s += ", "
		}
		switch {
		case d >= 0:
			s += fmt.Sprint(d)
		case v.Dimensions[i] != "":
			s += v.Dimensions[i]
		default:
			s += "?"
		}
	}
	return s + "]"
}

// Element is a Go type whose memory ONNX Runtime can use as a tensor's. Types that Go lacks
// (float16, int4 ...) go as bytes: [Library.NewTensorBytes].
type Element interface {
	float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | bool | complex64 | complex128
}

// elementTypeOf is the tensor type that a Go type stands for.
func elementTypeOf[T Element]() ElementType {
	var zero T
	switch any(zero).(type) {
	case float32:
		return Float32
	case float64:
		return Float64
	case int8:
		return Int8
	case int16:
		return Int16
	case int32:
		return Int32
	case int64:
		return Int64
	case uint8:
		return Uint8
	case uint16:
		return Uint16
	case uint32:
		return Uint32
	case uint64:
		return Uint64
	case bool:
		return Bool
	case complex64:
		return Complex64
	default:
		return Complex128
	}
}

// viewable reports whether memory of element type e may be viewed as T: the same type, or raw
// bits of the same width (uint16 for float16 and bfloat16, uint8 for float8 and bool).
func viewable[T Element](e ElementType) bool {
	t := elementTypeOf[T]()
	if t == e {
		return true
	}
	switch t {
	case Uint16:
		return e == Float16 || e == BFloat16
	case Uint8:
		return e.Bits() == 8
	}
	return false
}
