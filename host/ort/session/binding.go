package session

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/slot"
)

// A Binding fixes where a session's inputs and outputs lie (OrtIoBinding), so that runs reuse
// memory: bind the present of one step as the past of the next without a copy, or keep tensors on
// a device between runs. One goroutine at a time.
type Binding struct {
	session *Session
	native  uintptr
	bound   map[string]*ort.Value // holds what ONNX Runtime refers to
	cleanup runtime.Cleanup
	closed  atomic.Bool
}

// NewBinding makes an empty binding for runs of the session.
func (s *Session) NewBinding() (*Binding, error) {
	if s.closed.Load() {
		return nil, ort.ErrClosed
	}
	defer runtime.KeepAlive(s)
	l := s.library
	var native uintptr
	if err := l.Try("CreateIoBinding", slot.CreateIoBinding, s.native, uintptr(unsafe.Pointer(&native))); err != nil {
		return nil, err
	}
	b := &Binding{session: s, native: native, bound: map[string]*ort.Value{}}
	b.cleanup = runtime.AddCleanup(b, func(native uintptr) { l.Call(slot.ReleaseIoBinding, native) }, native)
	return b, nil
}

// Close releases the binding. What was bound stays open.
func (b *Binding) Close() {
	if b == nil || b.closed.Swap(true) {
		return
	}
	b.cleanup.Stop()
	b.session.library.Call(slot.ReleaseIoBinding, b.native)
	b.bound = nil
}

// Input binds an input to a value, in place of what was bound before.
func (b *Binding) Input(name string, v *ort.Value) error {
	return b.bind("BindInput", slot.BindInput, "<", name, v)
}

// Output binds an output to a value's memory, which must have the type and shape that the run
// will produce. The value may also be bound as an input, if the model allows that.
func (b *Binding) Output(name string, v *ort.Value) error {
	return b.bind("BindOutput", slot.BindOutput, ">", name, v)
}

func (b *Binding) bind(call string, s slot.Slot, side, name string, v *ort.Value) error {
	if b.closed.Load() || v == nil || v.Closed() {
		return fmt.Errorf("binding %q: %w", name, ort.ErrClosed)
	}
	p, err := b.session.name(name)
	if err != nil {
		return err
	}
	if err := b.session.library.Try(call, s, b.native, uintptr(unsafe.Pointer(p)), v.Native()); err != nil {
		return err
	}
	b.bound[side+name] = v
	return nil
}

// OutputTo lets ONNX Runtime allocate an output, of whatever shape, in memory m at each run.
func (b *Binding) OutputTo(name string, m *ort.Memory) error {
	if b.closed.Load() {
		return ort.ErrClosed
	}
	p, err := b.session.name(name)
	if err != nil {
		return err
	}
	delete(b.bound, ">"+name)
	err = b.session.library.Try("BindOutputToDevice", slot.BindOutputToDevice, b.native, uintptr(unsafe.Pointer(p)),
		m.Native())
	runtime.KeepAlive(m)
	return err
}

// Run runs the session on what is bound. Inputs on devices must be ready; outputs are ready when
// it returns.
func (b *Binding) Run(ctx context.Context) error {
	if b.closed.Load() || b.session.closed.Load() {
		return ort.ErrClosed
	}
	l := b.session.library
	options, done, err := runOptions(l, ctx)
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(b)
	err = l.Try("SynchronizeBoundInputs", slot.SynchronizeBoundInputs, b.native)
	if err == nil {
		b.session.run(func() { err = l.Try("RunWithBinding", slot.RunWithBinding, b.session.native, options, b.native) })
	}
	if err == nil {
		err = l.Try("SynchronizeBoundOutputs", slot.SynchronizeBoundOutputs, b.native)
	}
	done()
	if err != nil {
		return contextError(ctx, err)
	}
	return nil
}

// Outputs gives the bound outputs after a run by name, each a new Value to be closed.
func (b *Binding) Outputs() (map[string]*ort.Value, error) {
	if b.closed.Load() {
		return nil, ort.ErrClosed
	}
	defer runtime.KeepAlive(b)
	l := b.session.library
	var allocator uintptr
	if err := l.Try("GetAllocatorWithDefaultOptions", slot.GetAllocatorWithDefaultOptions,
		uintptr(unsafe.Pointer(&allocator))); err != nil {
		return nil, err
	}
	var text, lengths, n uintptr
	if err := l.Try("GetBoundOutputNames", slot.GetBoundOutputNames, b.native, allocator, uintptr(unsafe.Pointer(&text)),
		uintptr(unsafe.Pointer(&lengths)), uintptr(unsafe.Pointer(&n))); err != nil {
		return nil, err
	}
	var names []string
	if n > 0 {
		at := text // the names lie one after another, unterminated
		for i := range int(n) {
			length := cmem.LoadWord(lengths, i)
			names = append(names, string(unsafe.Slice((*byte)(cmem.Pointer(at)), length)))
			at += length
		}
		_ = l.Try("AllocatorFree", slot.AllocatorFree, allocator, text)
		_ = l.Try("AllocatorFree", slot.AllocatorFree, allocator, lengths)
	}
	var list, count uintptr
	if err := l.Try("GetBoundOutputValues", slot.GetBoundOutputValues, b.native, allocator,
		uintptr(unsafe.Pointer(&list)), uintptr(unsafe.Pointer(&count))); err != nil {
		return nil, err
	}
	outputs := map[string]*ort.Value{}
	var err error
	for i := range int(count) {
		v, wrapErr := ort.OwnValue(l, cmem.LoadWord(list, i))
		if wrapErr != nil {
			err = wrapErr
			continue
		}
		// The memory may be a bound Value's: hold it as long.
		v.Back(b.bound[">"+names[i]])
		outputs[names[i]] = v
	}
	if count > 0 {
		_ = l.Try("AllocatorFree", slot.AllocatorFree, allocator, list)
	}
	if err != nil {
		for _, v := range outputs {
			v.Close()
		}
		return nil, err
	}
	return outputs, nil
}
