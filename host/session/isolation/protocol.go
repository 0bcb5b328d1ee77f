package isolation

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/signature"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// protocol is the number of what the two processes say to each other: the worker may be a graft executable of another
// version.
const protocol = 1

// The tasks of a worker, besides which it answers calls through shared memory.
const (
	taskOpen   = "isolation open"
	taskCreate = "isolation create"
	taskInfer  = "isolation infer"
	taskDrop   = "isolation drop"
	taskServe  = "isolation serve"
)

// openRequest names a library, and how the memory is divided that calls go through.
type openRequest struct {
	Protocol         int
	Folder, SHA256   string
	Window, Constant int64 // bytes of a call's memory, and of all constants
	Threads          int   // of an operator
}

type openAnswer struct {
	Protocol int
	Info     *plugin.Info
}

// createRequest makes a kernel. Constants lie in memory that the worker reads.
type createRequest struct {
	Kernel     uint64
	Operator   string
	Attributes []signature.Attribute // their values as defaults
	Inputs     int
	Constants  []constant
}

type constant struct {
	Input  int
	DType  tensor.DType
	Shape  []int64
	Offset int64
}

// inferRequest asks for shapes; nil is an absent tensor.
type inferRequest struct {
	Kernel uint64
	Inputs []*shape
	Wanted []bool
}

type shape struct {
	DType tensor.DType
	Shape []int64
}

type nothing struct{}

// A window is the memory of one call: a header, then tensors. Both processes write to it.
type header struct {
	state   uint32 // which both wait for: a call is an odd number, its answer the next even one
	failed  uint32 // 1: text says why
	kernel  uint64
	inputs  uint32
	outputs uint32
	length  uint32 // of text
	_       uint32
	text    [maxText]byte
	tensors [maxTensors]descriptor // inputs, then outputs
}

// A descriptor is a tensor of a call.
type descriptor struct {
	place  uint32 // one of the places
	dtype  uint32 // its number among dtypes
	rank   uint32
	_      uint32
	offset uint64 // where its place begins
	shape  [abi.MaxRank]int64
}

const (
	absent     = iota // or an output that nobody wants
	inWindow          // its data lie in the window
	inConstant        // in the memory of constants
	wanted            // an output that is to be made
)

// Limits of a call.
const (
	maxText    = 1024
	maxTensors = 256
	dataStart  = 64 << 10 // of a window
	alignment  = 64
)

var _ = [1]byte{}[unsafe.Sizeof(header{})/dataStart] // the header fits

// lost is the state of a window whose worker has ended.
const lost = ^uint32(0)

// headerAt is the header of a window.
func headerAt(window []byte) *header { return (*header)(unsafe.Pointer(unsafe.SliceData(window))) }

func aligned(n int64) int64 { return (n + alignment - 1) &^ (alignment - 1) }

// An elementType is a plugin's, with ONNX Runtime's.
type elementType struct {
	name    tensor.DType
	element ort.ElementType
}

// dtypes numbers element types.
var dtypes = []elementType{
	{tensor.Float32, ort.Float32}, {tensor.Float16, ort.Float16}, {tensor.BFloat16, ort.BFloat16},
	{tensor.Float64, ort.Float64},
	{tensor.Int8, ort.Int8}, {tensor.Int16, ort.Int16}, {tensor.Int32, ort.Int32}, {tensor.Int64, ort.Int64},
	{tensor.Uint8, ort.Uint8}, {tensor.Uint16, ort.Uint16}, {tensor.Uint32, ort.Uint32}, {tensor.Uint64, ort.Uint64},
	{tensor.Bool, ort.Bool},
}

// numberOf is that of an element type of ONNX Runtime's.
func numberOf(e ort.ElementType) (uint32, error) {
	for i, t := range dtypes {
		if t.element == e {
			return uint32(i), nil
		}
	}
	return 0, fmt.Errorf("a tensor has elements of type %v, which plugins do not take", e)
}

// numberNamed is that of a name, which there must be.
func numberNamed(name tensor.DType) uint32 {
	return uint32(slices.IndexFunc(dtypes, func(t elementType) bool { return t.name == name }))
}

// elementOf is ONNX Runtime's element type of a name.
func elementOf(name tensor.DType) (ort.ElementType, error) {
	for _, t := range dtypes {
		if t.name == name {
			return t.element, nil
		}
	}
	return ort.Undefined, fmt.Errorf("found element type %q, needed one of %v", name, tensor.TypeNames)
}

// describe writes a tensor.
func (d *descriptor) describe(place, dtype uint32, offset int64, shape []int64) error {
	if len(shape) > abi.MaxRank {
		return fmt.Errorf("a tensor has rank %d, needed at most %d", len(shape), abi.MaxRank)
	}
	d.place, d.dtype, d.rank, d.offset = place, dtype, uint32(len(shape)), uint64(offset)
	copy(d.shape[:], shape)
	return nil
}

// view reads a tensor that lies in memory of so many bytes from a start. The descriptor is a copy: the memory may
// change.
func (d descriptor) view(start, end int64) (t tensor.Tensor, size int64, err error) {
	if int(d.dtype) >= len(dtypes) || d.rank > abi.MaxRank {
		return t, 0, fmt.Errorf("element type %d and rank %d", d.dtype, d.rank)
	}
	t.DType, t.Shape = dtypes[d.dtype].name, slices.Clone(d.shape[:d.rank])
	n, err := tensor.Elements(t.Shape)
	if err != nil {
		return t, 0, err
	}
	size = n * t.DType.Size()
	if size == 0 {
		return t, 0, nil
	}
	if d.offset < uint64(start) || d.offset > uint64(end) || uint64(size) > uint64(end)-d.offset ||
		d.offset%alignment != 0 {
		return t, 0, fmt.Errorf("shape %v, %d bytes at %d, in a memory of %d to %d", t.Shape, size, d.offset, start, end)
	}
	return t, size, nil
}
