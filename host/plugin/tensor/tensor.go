// Package tensor holds tensors as plugins see them: an element type, a shape, memory and where it lies.
package tensor

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/opgraft/graft/host/base/abi"
)

// DType is an element type of the C ABI, by the name that ONNX and numpy give it.
type DType string

// The element types that a tensor can have.
const (
	Float32  DType = "float32"
	Float16  DType = "float16"
	BFloat16 DType = "bfloat16"
	Float64  DType = "float64"
	Int8     DType = "int8"
	Int16    DType = "int16"
	Int32    DType = "int32"
	Int64    DType = "int64"
	Uint8    DType = "uint8"
	Uint16   DType = "uint16"
	Uint32   DType = "uint32"
	Uint64   DType = "uint64"
	Bool     DType = "bool"
)

// dtypes pairs names with DLPack's codes and widths.
var dtypes = []struct {
	name DType
	code uint8
	bits uint8
}{
	{Float32, abi.TypeFloat, 32}, {Float16, abi.TypeFloat, 16}, {BFloat16, abi.TypeBFloat, 16},
	{Float64, abi.TypeFloat, 64},
	{Int8, abi.TypeInt, 8}, {Int16, abi.TypeInt, 16}, {Int32, abi.TypeInt, 32}, {Int64, abi.TypeInt, 64},
	{Uint8, abi.TypeUint, 8}, {Uint16, abi.TypeUint, 16}, {Uint32, abi.TypeUint, 32}, {Uint64, abi.TypeUint, 64},
	{Bool, abi.TypeBool, 8},
}

// TypeNames are the element types that a tensor can have.
var TypeNames = func() []string {
	names := make([]string, len(dtypes))
	for i, t := range dtypes {
		names[i] = string(t.name)
	}
	return names
}()

// Size is the bytes of one element, 0 for an unknown type.
func (d DType) Size() int64 {
	_, bits, _ := d.code()
	return int64(bits / 8)
}

func (d DType) code() (code, bits uint8, ok bool) {
	for _, t := range dtypes {
		if t.name == d {
			return t.code, t.bits, true
		}
	}
	return 0, 0, false
}

func DTypeOf(t abi.DataType) (DType, bool) {
	for _, known := range dtypes {
		if known.code == t.Code && known.bits == t.Bits && t.Lanes == 1 {
			return known.name, true
		}
	}
	return "", false
}

// Tensor is memory of the caller's with a type and a shape. With a nil Data it is a shape alone, as for
// Kernel.Infer, where a negative size is one that is not known.
type Tensor struct {
	DType   DType
	Shape   []int64
	Strides []int64 // in elements; nil for compact, row-major
	Data    unsafe.Pointer
	Device  Device // the zero value is CPU
}

// maxElements bounds sizes in bytes far from overflow.
const maxElements = math.MaxInt64 / 16

// New makes a compact tensor in host memory, aligned to 64 bytes and filled with zeros.
func New(d DType, shape ...int64) (*Tensor, error) {
	n, err := Elements(shape)
	if err != nil {
		return nil, err
	}
	if d.Size() == 0 {
		return nil, fmt.Errorf("found element type %q, needed one of %v", d, TypeNames)
	}
	return &Tensor{DType: d, Shape: shape, Data: unsafe.Pointer(unsafe.SliceData(Aligned(n * d.Size())))}, nil
}

// Elements is the product of the sizes.
func Elements(shape []int64) (int64, error) {
	if len(shape) > abi.MaxRank {
		return 0, fmt.Errorf("found rank %d, needed at most %d", len(shape), abi.MaxRank)
	}
	n := int64(1)
	for _, size := range shape {
		if size < 0 || (size > 0 && n > maxElements/size) {
			return 0, fmt.Errorf("found shape %v, needed sizes of 0 or more and fewer than 2^59 elements", shape)
		}
		n *= size
	}
	return n, nil
}

// Elements is the number of elements, 0 when a size is unknown.
func (t *Tensor) Elements() int64 {
	n, err := Elements(t.Shape)
	if err != nil {
		return 0
	}
	return n
}

// Bytes is the memory of a compact tensor in host memory.
func (t *Tensor) Bytes() []byte { return Elems[byte](t) }

// Elems is the memory of a compact tensor in host memory, seen as elements of type E.
func Elems[E any](t *Tensor) []E {
	var e E
	n := t.Elements() * t.DType.Size() / int64(unsafe.Sizeof(e))
	if t.Data == nil || n == 0 {
		return nil
	}
	return unsafe.Slice((*E)(t.Data), n)
}

// Aligned makes n bytes that begin at a multiple of 64, with a line to spare after them.
func Aligned(n int64) []byte {
	const line = 64
	buffer := make([]byte, n+2*line)
	offset := (line - int64(uintptr(unsafe.Pointer(&buffer[0]))%line)) % line
	return buffer[offset : offset+n : offset+n]
}

// ABI builds the DLTensor of t; nil stays null. The result holds pointers into t and must not outlive it.
func (t *Tensor) ABI() (*abi.Tensor, error) {
	if t == nil {
		return nil, nil
	}
	code, bits, ok := t.DType.code()
	if !ok {
		return nil, fmt.Errorf("found element type %q, needed one of %v", t.DType, TypeNames)
	}
	if len(t.Shape) > abi.MaxRank {
		return nil, fmt.Errorf("found rank %d, needed at most %d", len(t.Shape), abi.MaxRank)
	}
	if t.Strides != nil && len(t.Strides) != len(t.Shape) {
		return nil, fmt.Errorf("found %d strides, needed %d as the shape has", len(t.Strides), len(t.Shape))
	}
	device := t.Device
	if device.Kind == "" {
		device = CPU
	}
	where, err := device.ABI()
	if err != nil {
		return nil, err
	}
	return &abi.Tensor{
		Data: t.Data, Device: where, Ndim: int32(len(t.Shape)), Dtype: abi.DataType{Code: code, Bits: bits, Lanes: 1},
		Shape: unsafe.SliceData(t.Shape), Strides: unsafe.SliceData(t.Strides),
	}, nil
}
