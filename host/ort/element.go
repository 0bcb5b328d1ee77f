package ort

import (
	"unsafe"

	"github.com/opgraft/graft/host/ort/internal/slot"
)

// created is the number by which the library makes tensors of an element type. ONNX Runtime 1.30
// takes ONNX's numbers there, which are not those of its own header, by which it tells types, for
// Uint2, Int2 and Float8E8M0. So the library is asked once which number makes which.
func (l *Library) created(e ElementType) uintptr {
	if e < Uint2 || e > Float8E8M0 {
		return uintptr(e)
	}
	l.elementOnce.Do(func() {
		l.elements = map[ElementType]uintptr{}
		for n := Uint2; n <= Float8E8M0; n++ {
			if told, ok := l.probe(n); ok {
				l.elements[told] = uintptr(n)
			}
		}
	})
	if n, ok := l.elements[e]; ok {
		return n
	}
	return uintptr(e)
}

// probe tells the type of a tensor made with a number.
func (l *Library) probe(n ElementType) (ElementType, bool) {
	var allocator, native uintptr
	if l.Try("GetAllocatorWithDefaultOptions", slot.GetAllocatorWithDefaultOptions,
		uintptr(unsafe.Pointer(&allocator))) != nil {
		return 0, false
	}
	shape := []int64{1}
	if l.Try("CreateTensorAsOrtValue", slot.CreateTensorAsOrtValue, allocator,
		uintptr(unsafe.Pointer(unsafe.SliceData(shape))),
		1, uintptr(n), uintptr(unsafe.Pointer(&native))) != nil {
		return 0, false
	}
	v, err := OwnValue(l, native)
	if err != nil {
		return 0, false
	}
	defer v.Close()
	return v.element, true
}
