package ort

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"unsafe"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/slot"
)

// A Value is an OrtValue: a tensor or sequence, or a map or optional that a model gave out. Close
// it when done; a Value that is garbage is closed too. A Value may be read by several goroutines,
// but its content has no lock: a run that writes it excludes every other use.
type Value struct {
	library *Library
	native  uintptr
	kind    Kind
	element ElementType
	shape   []int64

	pin     *runtime.Pinner // holds Go memory that the tensor stands on
	backing any
	cleanup runtime.Cleanup
	closed  atomic.Bool
}

// ErrClosed reports the use of a Session, Value or Binding after Close.
var ErrClosed = errors.New("onnxruntime: used after Close")

// NewTensor makes a tensor of the given shape over data, without a copy: runs read and write the
// slice itself. len(data) must be the number of elements.
func NewTensor[T Element](l *Library, shape []int64, data []T) (*Value, error) {
	return tensorOver(l, elementTypeOf[T](), shape, unsafe.Pointer(unsafe.SliceData(data)),
		int64(len(data))*int64(unsafe.Sizeof(*new(T))), data)
}

// NewTensorBytes makes a tensor of any fixed-width element type over raw bytes in the machine's
// byte order, without a copy. len(data) must be element.Bytes(number of elements).
func (l *Library) NewTensorBytes(element ElementType, shape []int64, data []byte) (*Value, error) {
	return tensorOver(l, element, shape, unsafe.Pointer(unsafe.SliceData(data)), int64(len(data)), data)
}

// NewStrings makes a tensor of strings, copied.
func (l *Library) NewStrings(shape []int64, data []string) (*Value, error) {
	if n, err := Elements(shape); err != nil {
		return nil, err
	} else if n != int64(len(data)) {
		return nil, &diagnostic.Error{Found: fmt.Sprintf("%d strings for shape %v", len(data), shape),
			Needed: strconv.FormatInt(n, 10)}
	}
	v, err := l.Allocate(String, shape)
	if err != nil {
		return nil, err
	}
	list, err := cmem.CStrings(data)
	if err == nil {
		err = l.Try("FillStringTensor", slot.FillStringTensor, v.native, uintptr(unsafe.Pointer(unsafe.SliceData(list))),
			uintptr(len(list)))
		runtime.KeepAlive(list)
	}
	if err != nil {
		v.Close()
		return nil, err
	}
	return v, nil
}

// Allocate makes a tensor in the runtime's own CPU memory, content undefined.
func (l *Library) Allocate(element ElementType, shape []int64) (*Value, error) {
	if _, err := Elements(shape); err != nil {
		return nil, err
	}
	var allocator, native uintptr
	if err := l.Try("GetAllocatorWithDefaultOptions", slot.GetAllocatorWithDefaultOptions,
		uintptr(unsafe.Pointer(&allocator))); err != nil {
		return nil, err
	}
	if err := l.Try("CreateTensorAsOrtValue", slot.CreateTensorAsOrtValue, allocator,
		uintptr(unsafe.Pointer(unsafe.SliceData(shape))),
		uintptr(len(shape)), l.created(element), uintptr(unsafe.Pointer(&native))); err != nil {
		return nil, err
	}
	return OwnValue(l, native)
}

// NewSequence makes a sequence of tensors, copied, all of one element type, at least one: ONNX
// Runtime cannot tell the type of an empty sequence. The copies are the runtime's, because its
// operators hand tensors of a sequence on to their results, which may outlive the items.
func (l *Library) NewSequence(items []*Value) (*Value, error) {
	if len(items) == 0 {
		return nil, &diagnostic.Error{Found: "a sequence of no tensor", Needed: "at least one"}
	}
	copies := make([]*Value, 0, len(items))
	defer func() { CloseAll(copies) }()
	natives := make([]uintptr, len(items))
	for i, v := range items {
		c, err := v.copied()
		if err != nil {
			return nil, fmt.Errorf("item %d of a sequence: %w", i, err)
		}
		copies, natives[i] = append(copies, c), c.native
	}
	var native uintptr
	if err := l.Try("CreateValue", slot.CreateValue, uintptr(unsafe.Pointer(unsafe.SliceData(natives))),
		uintptr(len(natives)),
		uintptr(KindSequence), uintptr(unsafe.Pointer(&native))); err != nil {
		return nil, err
	}
	runtime.KeepAlive(natives)
	return OwnValue(l, native)
}

// copied is a tensor of the same content in the runtime's own CPU memory.
func (v *Value) copied() (*Value, error) {
	if v == nil || v.closed.Load() {
		return nil, ErrClosed
	}
	l := v.library
	if v.element == String {
		list, err := v.Strings()
		if err != nil {
			return nil, err
		}
		return l.NewStrings(v.shape, list)
	}
	from, err := v.Bytes()
	if err != nil {
		return nil, err
	}
	c, err := l.Allocate(v.element, v.shape)
	if err != nil {
		return nil, err
	}
	to, err := c.Bytes()
	if err != nil {
		c.Close()
		return nil, err
	}
	copy(to, from)
	return c, nil
}

// tensorOver makes a tensor over pinned Go memory.
func tensorOver(l *Library, element ElementType, shape []int64, data unsafe.Pointer, bytes int64, backing any) (*Value,
	error) {
	if err := checkSize(element, shape, bytes); err != nil {
		return nil, err
	}
	cpu, err := l.cpuMemory()
	if err != nil {
		return nil, err
	}
	if bytes == 0 {
		// ONNX Runtime refuses a null pointer even where there is nothing to point at.
		spare := new([16]byte)
		data, backing = unsafe.Pointer(spare), spare
	}
	pin := new(runtime.Pinner)
	pin.Pin(data)
	var native uintptr
	if err := l.Try("CreateTensorWithDataAsOrtValue", slot.CreateTensorWithDataAsOrtValue, cpu, uintptr(data),
		uintptr(bytes),
		uintptr(unsafe.Pointer(unsafe.SliceData(shape))), uintptr(len(shape)), l.created(element),
		uintptr(unsafe.Pointer(&native))); err != nil {
		pin.Unpin()
		return nil, err
	}
	return newValue(l, native, pin, backing)
}

// Elements is the number of elements of a shape.
func Elements(shape []int64) (int64, error) {
	n := int64(1)
	for i, d := range shape {
		if d < 0 {
			return 0, &diagnostic.Error{Found: fmt.Sprintf("dimension %d of shape %v is %d", i, shape, d), Needed: "0 or more"}
		}
		if d > 0 && n > math.MaxInt64/16/d {
			return 0, &diagnostic.Error{Found: fmt.Sprintf("shape %v has too many elements", shape)}
		}
		n *= d
	}
	return n, nil
}

func checkSize(element ElementType, shape []int64, bytes int64) error {
	n, err := Elements(shape)
	if err != nil {
		return err
	}
	if element.Bits() == 0 {
		return &diagnostic.Error{Found: fmt.Sprintf("elements of type %v have no fixed width", element)}
	}
	if need := element.Bytes(n); need != bytes {
		return &diagnostic.Error{Found: fmt.Sprintf("%d bytes for a tensor of type %v and shape %v", bytes, element, shape),
			Needed: strconv.FormatInt(need, 10)}
	}
	return nil
}

// OwnValue takes ownership of an OrtValue.
func OwnValue(l *Library, native uintptr) (*Value, error) { return newValue(l, native, nil, nil) }

func newValue(l *Library, native uintptr, pin *runtime.Pinner, backing any) (*Value, error) {
	v := &Value{library: l, native: native, pin: pin, backing: backing}
	v.cleanup = runtime.AddCleanup(v, func(pin *runtime.Pinner) {
		l.Call(slot.ReleaseValue, native)
		if pin != nil {
			pin.Unpin()
		}
	}, pin)
	if err := v.describe(); err != nil {
		v.Close()
		return nil, err
	}
	return v, nil
}

// BorrowValue describes a value of the program's, which releases it.
func BorrowValue(l *Library, native uintptr) (*Value, error) {
	v := &Value{library: l, native: native}
	return v, v.describe()
}

func (v *Value) describe() error {
	l := v.library
	// An optional without content has no memory that could be asked.
	var has int32
	if err := l.Try("HasValue", slot.HasValue, v.native, uintptr(unsafe.Pointer(&has))); err != nil {
		return err
	}
	if has == 0 {
		v.kind = KindOptional
		return nil
	}
	var kind int32
	if err := l.Try("GetValueType", slot.GetValueType, v.native, uintptr(unsafe.Pointer(&kind))); err != nil {
		return err
	}
	v.kind = Kind(kind)
	if v.kind != KindTensor {
		return nil
	}
	var info uintptr
	if err := l.Try("GetTensorTypeAndShape", slot.GetTensorTypeAndShape, v.native,
		uintptr(unsafe.Pointer(&info))); err != nil {
		return err
	}
	defer l.Call(slot.ReleaseTensorTypeAndShapeInfo, info)
	var err error
	v.element, v.shape, err = TensorInfo(l, info)
	return err
}

// TensorInfo reads an OrtTensorTypeAndShapeInfo.
func TensorInfo(l *Library, info uintptr) (ElementType, []int64, error) {
	var element int32
	var rank uintptr
	if err := l.Try("GetTensorElementType", slot.GetTensorElementType, info,
		uintptr(unsafe.Pointer(&element))); err != nil {
		return 0, nil, err
	}
	if err := l.Try("GetDimensionsCount", slot.GetDimensionsCount, info, uintptr(unsafe.Pointer(&rank))); err != nil {
		return 0, nil, err
	}
	shape := make([]int64, rank)
	err := l.Try("GetDimensions", slot.GetDimensions, info, uintptr(unsafe.Pointer(unsafe.SliceData(shape))), rank)
	return ElementType(element), shape, err
}

// Native is the address of the OrtValue, as long as the value is open.
func (v *Value) Native() uintptr { return v.native }

// Closed reports that Close was called.
func (v *Value) Closed() bool { return v.closed.Load() }

// Back holds what the tensor's memory is of as long as the value.
func (v *Value) Back(by any) { v.backing = by }

// Close releases the value. Views of its memory are invalid afterwards, except of Go memory.
func (v *Value) Close() {
	if v == nil || v.closed.Swap(true) {
		return
	}
	v.cleanup.Stop()
	v.library.Call(slot.ReleaseValue, v.native)
	if v.pin != nil {
		v.pin.Unpin()
	}
}

// Kind says whether the value is a tensor, a sequence or a map. An optional is what it holds, and
// KindOptional when it holds nothing.
func (v *Value) Kind() Kind { return v.kind }

// Element is the type of a tensor's elements.
func (v *Value) Element() ElementType { return v.element }

// Shape is a tensor's shape, a copy.
func (v *Value) Shape() []int64 { return slices.Clone(v.shape) }

// Len is a tensor's number of elements.
func (v *Value) Len() int64 {
	n := int64(1)
	for _, d := range v.shape {
		n *= d
	}
	return n
}

// Pointer is the address of a tensor's data, on the device that holds it.
func (v *Value) Pointer() (uintptr, error) {
	if v.closed.Load() {
		return 0, ErrClosed
	}
	if v.kind != KindTensor {
		return 0, &diagnostic.Error{Found: fmt.Sprintf("the value is a %v", v.kind), Needed: "a tensor"}
	}
	var data uintptr
	err := v.library.Try("GetTensorMutableData", slot.GetTensorMutableData, v.native, uintptr(unsafe.Pointer(&data)))
	runtime.KeepAlive(v)
	return data, err
}

// Bytes is a view of a tensor's memory, valid until the Value is closed: keep the Value as long.
// Strings and device memory cannot be viewed.
func (v *Value) Bytes() ([]byte, error) {
	if v.kind == KindTensor && v.element.Bits() == 0 {
		return nil, &diagnostic.Error{Found: fmt.Sprintf("elements of type %v cannot be viewed as bytes", v.element)}
	}
	data, err := v.Pointer()
	if err != nil {
		return nil, err
	}
	if device, id, err := v.Device(); err != nil {
		return nil, err
	} else if device != DeviceCPU {
		return nil, &diagnostic.Error{Found: fmt.Sprintf("the tensor lies on %v %d", device, id),
			Fix: "copy it to the host first"}
	}
	n := v.element.Bytes(v.Len())
	if n == 0 {
		return []byte{}, nil
	}
	return unsafe.Slice((*byte)(cmem.Pointer(data)), n), nil
}

// Data is [Value.Bytes] as elements of a Go type: the tensor's own, or uint16 for float16 and
// bfloat16, or uint8 for any type of eight bits.
func Data[T Element](v *Value) ([]T, error) {
	if v.kind == KindTensor && !viewable[T](v.element) {
		return nil, &diagnostic.Error{Found: fmt.Sprintf("a tensor of %v cannot be viewed as %v", v.element,
			elementTypeOf[T]())}
	}
	b, err := v.Bytes()
	if err != nil || len(b) == 0 {
		return []T{}, err
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), v.Len()), nil
}

// Strings copies the content of a tensor of strings.
func (v *Value) Strings() ([]string, error) {
	if v.closed.Load() {
		return nil, ErrClosed
	}
	if v.kind != KindTensor || v.element != String {
		return nil, &diagnostic.Error{Found: fmt.Sprintf("the value is a %v of %v", v.kind, v.element),
			Needed: "a tensor of strings"}
	}
	defer runtime.KeepAlive(v)
	list := make([]string, v.Len())
	for i := range list {
		var n uintptr
		if err := v.library.Try("GetStringTensorElementLength", slot.GetStringTensorElementLength, v.native, uintptr(i),
			uintptr(unsafe.Pointer(&n))); err != nil {
			return nil, err
		}
		if n == 0 {
			continue
		}
		b := make([]byte, n)
		if err := v.library.Try("GetStringTensorElement", slot.GetStringTensorElement, v.native, n, uintptr(i),
			uintptr(unsafe.Pointer(&b[0]))); err != nil {
			return nil, err
		}
		list[i] = string(b)
	}
	return list, nil
}

// Items gives the elements of a sequence, each to be closed.
func (v *Value) Items() ([]*Value, error) {
	if v.closed.Load() {
		return nil, ErrClosed
	}
	if v.kind != KindSequence {
		return nil, &diagnostic.Error{Found: fmt.Sprintf("the value is a %v", v.kind), Needed: "a sequence"}
	}
	defer runtime.KeepAlive(v)
	l := v.library
	var n, allocator uintptr
	if err := l.Try("GetValueCount", slot.GetValueCount, v.native, uintptr(unsafe.Pointer(&n))); err != nil {
		return nil, err
	}
	if err := l.Try("GetAllocatorWithDefaultOptions", slot.GetAllocatorWithDefaultOptions,
		uintptr(unsafe.Pointer(&allocator))); err != nil {
		return nil, err
	}
	items := make([]*Value, 0, n)
	for i := range n {
		var native uintptr
		err := l.Try("GetValue", slot.GetValue, v.native, i, allocator, uintptr(unsafe.Pointer(&native)))
		var item *Value
		if err == nil {
			item, err = OwnValue(l, native)
		}
		if err != nil {
			CloseAll(items)
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

// CloseAll closes values.
func CloseAll(values []*Value) {
	for _, v := range values {
		v.Close()
	}
}
