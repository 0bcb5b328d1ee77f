package hook

import (
	"sync"
	"unsafe"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/slot"
)

// A span is memory of a tensor.
type span struct{ start, end uintptr }

func (s span) overlaps(list []span) bool {
	for _, t := range list {
		if s.start < t.end && t.start < s.end {
			return true
		}
	}
	return false
}

// spanOf is the memory of an OrtValue. A value without memory that a run could write, of another kind or not yet
// there, has none.
func spanOf(l *ort.Library, value uintptr) (s span, ok bool) {
	var tensor int32
	var data, size uintptr
	if value == 0 || l.Try("IsTensor", slot.IsTensor, value, uintptr(unsafe.Pointer(&tensor))) != nil || tensor == 0 ||
		l.Try("GetTensorMutableData", slot.GetTensorMutableData, value, uintptr(unsafe.Pointer(&data))) != nil || data == 0 {
		return s, false
	}
	if l.Try("GetTensorSizeInBytes", slot.GetTensorSizeInBytes, value, uintptr(unsafe.Pointer(&size))) != nil {
		size = 1 // of strings, whose first is all that is known
	}
	return span{data, data + size}, true
}

func spansOf(l *ort.Library, values uintptr, n int) (list []span) {
	for i := range n {
		if s, ok := spanOf(l, cmem.LoadWord(values, i)); ok {
			list = append(list, s)
		}
	}
	return list
}

// runOverlaps reports of the arguments of Run that an output has its place in the memory of an input: what failed may
// have written there.
func runOverlaps(l *ort.Library, args [8]uintptr) bool {
	inputs := spansOf(l, args[3], int(args[4]))
	for _, s := range spansOf(l, args[7], int(args[6])) {
		if s.overlaps(inputs) {
			return true
		}
	}
	return false
}

// bound is the memory of the inputs of a binding, which ONNX Runtime does not tell.
type bound struct {
	mu     sync.Mutex
	inputs map[string]span
}

func (h *hook) createBinding(session, out uintptr) uintptr {
	status := h.library.Original(slot.CreateIoBinding, session, out)
	if status == 0 && h.backs.of(session) != nil {
		h.bindings.Store(*cmem.WordAt(out), &bound{inputs: map[string]span{}})
	}
	return status
}

func (h *hook) releaseBinding(binding uintptr) {
	h.bindings.Delete(binding) // before the address can name another
	h.library.Original(slot.ReleaseIoBinding, binding)
}

func (h *hook) boundOf(binding uintptr) *bound {
	if v, ok := h.bindings.Load(binding); ok {
		return v.(*bound)
	}
	return nil
}

func (h *hook) bindInput(binding, name, value uintptr) uintptr {
	status := h.library.Original(slot.BindInput, binding, name, value)
	if b := h.boundOf(binding); b != nil && status == 0 {
		s, ok := spanOf(h.library, value)
		b.mu.Lock()
		defer b.mu.Unlock()
		if ok {
			b.inputs[cmem.GoString(name)] = s
		} else {
			delete(b.inputs, cmem.GoString(name))
		}
	}
	return status
}

func (h *hook) clearBoundInputs(binding uintptr) {
	h.library.Original(slot.ClearBoundInputs, binding)
	if b := h.boundOf(binding); b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		clear(b.inputs)
	}
}

// bindingOverlaps is runOverlaps of RunWithBinding. Of a binding that was made before the session could be seen, or by
// other means, nothing is known.
func (h *hook) bindingOverlaps(args [8]uintptr) bool {
	l, b := h.library, h.boundOf(args[2])
	var allocator, list, n uintptr
	if b == nil || l.Try("GetAllocatorWithDefaultOptions", slot.GetAllocatorWithDefaultOptions,
		uintptr(unsafe.Pointer(&allocator))) != nil ||
		l.Try("GetBoundOutputValues", slot.GetBoundOutputValues, args[2], allocator, uintptr(unsafe.Pointer(&list)),
			uintptr(unsafe.Pointer(&n))) != nil {
		return true
	}
	if n == 0 {
		return false
	}
	outputs := spansOf(l, list, int(n))
	for i := range int(n) {
		l.Call(slot.ReleaseValue, cmem.LoadWord(list, i))
	}
	_ = l.Try("AllocatorFree", slot.AllocatorFree, allocator, list)
	b.mu.Lock()
	defer b.mu.Unlock()
	var inputs []span
	for _, s := range b.inputs {
		inputs = append(inputs, s)
	}
	for _, s := range outputs {
		if s.overlaps(inputs) {
			return true
		}
	}
	return false
}
