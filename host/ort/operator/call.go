package operator

import (
	"unsafe"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/slot"
)

// A Node is the node that a kernel is made for.
type Node struct {
	Inputs, Outputs int

	library *ort.Library
	info    uintptr
}

// A Tensor is a view of a tensor of ONNX Runtime's on the CPU, valid as long as what gave it.
type Tensor struct {
	Element ort.ElementType
	Shape   []int64
	Data    []byte
}

// Constant is the value of an input that is the same in every run, valid as long as the kernel; not ok where there is
// none.
func (n *Node) Constant(i int) (t Tensor, ok bool, err error) {
	l := n.library
	var constant int32
	var value uintptr
	if l.Try("KernelInfoGetConstantInput_tensor", slot.KernelInfoGetConstantInput_tensor, n.info, uintptr(i),
		uintptr(unsafe.Pointer(&constant)),
		uintptr(unsafe.Pointer(&value))) != nil || constant == 0 || value == 0 {
		return t, false, nil // an input that the node leaves out is an error of it
	}
	t, err = tensorAt(l, value)
	return t, err == nil, err
}

// Wants reports that the node has an output.
func (n *Node) Wants(i int) bool {
	size := new(uintptr) // of its name, with the closing zero
	err := n.library.Try("KernelInfo_GetOutputName", slot.KernelInfo_GetOutputName, n.info, uintptr(i), 0,
		uintptr(unsafe.Pointer(size)))
	return err != nil || *size > 1
}

// Int reads an attribute; not ok where the node has none of that name and kind. The others are like it.
func (n *Node) Int(name string) (v int64, ok bool) {
	ok = n.attribute(name, slot.KernelInfoGetAttribute_int64, uintptr(unsafe.Pointer(&v)))
	return v, ok
}

func (n *Node) Float(name string) (v float32, ok bool) {
	ok = n.attribute(name, slot.KernelInfoGetAttribute_float, uintptr(unsafe.Pointer(&v)))
	return v, ok
}

func (n *Node) Text(name string) (string, bool) {
	b, ok := attributes[byte](n, name, slot.KernelInfoGetAttribute_string)
	if len(b) > 0 {
		b = b[:len(b)-1] // the runtime counts the closing zero
	}
	return string(b), ok
}

func (n *Node) Ints(name string) ([]int64, bool) {
	return attributes[int64](n, name, slot.KernelInfoGetAttributeArray_int64)
}

func (n *Node) Floats(name string) ([]float32, bool) {
	return attributes[float32](n, name, slot.KernelInfoGetAttributeArray_float)
}

//go:uintptrescapes
func (n *Node) attribute(name string, s slot.Slot, into ...uintptr) bool {
	p, err := cmem.CString(name)
	if err != nil {
		return false
	}
	return n.library.Try("KernelInfoGetAttribute", s,
		append([]uintptr{n.info, uintptr(unsafe.Pointer(p))}, into...)...) == nil
}

// attributes reads a list: first its length, then its elements.
func attributes[T byte | int64 | float32](n *Node, name string, s slot.Slot) ([]T, bool) {
	count := new(uintptr)
	if !n.attribute(name, s, 0, uintptr(unsafe.Pointer(count))) {
		return nil, false
	}
	list := make([]T, *count)
	if *count == 0 {
		return list, true
	}
	return list, n.attribute(name, s, uintptr(unsafe.Pointer(&list[0])), uintptr(unsafe.Pointer(count)))
}

// A Call is one run of a kernel. It and what it gives are valid until Run returns.
type Call struct {
	Inputs, Outputs int // of the node

	library *ort.Library
	context uintptr
}

// Input is an input of the node; not ok where it leaves it out.
func (c *Call) Input(i int) (t Tensor, ok bool, err error) {
	l := c.library
	var value uintptr
	if err := l.Try("KernelContext_GetInput", slot.KernelContext_GetInput, c.context, uintptr(i),
		uintptr(unsafe.Pointer(&value))); err != nil || value == 0 {
		return t, false, err
	}
	t, err = tensorAt(l, value)
	return t, err == nil, err
}

// Output makes an output of the node with a shape; not ok where it leaves it out.
func (c *Call) Output(i int, shape []int64) (t Tensor, ok bool, err error) {
	l := c.library
	var value uintptr
	if err := l.Try("KernelContext_GetOutput", slot.KernelContext_GetOutput, c.context, uintptr(i),
		uintptr(unsafe.Pointer(unsafe.SliceData(shape))),
		uintptr(len(shape)), uintptr(unsafe.Pointer(&value))); err != nil || value == 0 {
		return t, false, err
	}
	t, err = tensorAt(l, value)
	return t, err == nil, err
}

// tensorAt views a tensor on the CPU.
func tensorAt(l *ort.Library, value uintptr) (t Tensor, err error) {
	var info, data uintptr
	if err := l.Try("GetTensorTypeAndShape", slot.GetTensorTypeAndShape, value,
		uintptr(unsafe.Pointer(&info))); err != nil {
		return t, err
	}
	t.Element, t.Shape, err = ort.TensorInfo(l, info)
	l.Call(slot.ReleaseTensorTypeAndShapeInfo, info)
	if err != nil {
		return t, err
	}
	n, err := ort.Elements(t.Shape)
	if err != nil {
		return t, err
	}
	size := t.Element.Bytes(n)
	if size == 0 {
		return t, nil
	}
	if err := l.Try("GetTensorMutableData", slot.GetTensorMutableData, value, uintptr(unsafe.Pointer(&data))); err != nil {
		return t, err
	}
	t.Data = unsafe.Slice((*byte)(cmem.Pointer(data)), size)
	return t, nil
}
