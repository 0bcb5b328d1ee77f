// Package session makes sessions of ONNX Runtime, from a model as it is or from a patch of it, and runs them.
package session

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/slot"
	"github.com/opgraft/graft/host/ort/operator"
)

// A Session is an OrtSession. Runs may be concurrent. Close it when done; a Session that is
// garbage is closed too.
type Session struct {
	library *ort.Library
	native  uintptr
	inputs  []ort.ValueInfo
	outputs []ort.ValueInfo
	cnames  map[string]*byte // of inputs and outputs, zero-terminated

	cleanup runtime.Cleanup
	closed  atomic.Bool
	foreign atomic.Bool // has a provider of a device, and has not run
}

// run makes a call that runs the session: its first may start a driver.
func (s *Session) run(f func()) { ort.WithSignals(s.foreign.CompareAndSwap(true, false), f) }

// Open is [OpenContext] with a context that does not end.
func Open(l *ort.Library, path string, o Options) (*Session, error) {
	return OpenContext(context.Background(), l, path, o)
}

// OpenContext makes a session from a model file. Ending ctx ends the load within ONNX Runtime too, between two of its
// steps: every version of its API that the package speaks can be told so.
func OpenContext(ctx context.Context, l *ort.Library, path string, o Options) (*Session, error) {
	weights := lent{weights: o.Weights}
	defer weights.close()
	p, err := cmem.CString(path)
	if err != nil {
		return nil, err
	}
	// Pinned memory does not move, so its address may stand in a struct.
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(p)
	return create(ctx, Creation{Library: l, Path: uintptr(unsafe.Pointer(p))}, o, &weights)
}

// FromBytes is [FromBytesContext] with a context that does not end.
func FromBytes(l *ort.Library, model []byte, o Options) (*Session, error) {
	return FromBytesContext(context.Background(), l, model, o)
}

// FromBytesContext is [OpenContext] of a model in memory, which may go away afterwards. Its external data, if any, lie
// in the folder that [ConfigExternalFolder] names.
func FromBytesContext(ctx context.Context, l *ort.Library, model []byte, o Options) (*Session, error) {
	weights := lent{weights: o.Weights}
	defer weights.close()
	if len(model) == 0 {
		return nil, &diagnostic.Error{Found: "the model is empty", Needed: "the bytes of an .onnx file"}
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&model[0])
	return create(ctx, Creation{Library: l, Model: uintptr(unsafe.Pointer(&model[0])), Size: uintptr(len(model))}, o,
		&weights)
}

func create(ctx context.Context, c Creation, o Options, weights *lent) (*Session, error) {
	l := c.Library
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(weights.weights) > 0 && !o.Unpatched {
		return nil, errors.New("onnxruntime: weights in memory need an unpatched session")
	}
	env, err := l.Environment()
	if err != nil {
		return nil, err
	}
	operator.Know(l, env)
	var native uintptr
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&native)
	c.ownOptions, c.noArena = true, o.NoArena
	c.Env, c.Out = env, uintptr(unsafe.Pointer(&native))
	for _, p := range o.Providers {
		c.own = ort.AppendProvider(c.own,
			ort.Appended{Name: ort.ProviderName(p.Name), Device: ort.DeviceNumber(p.Options["device_id"])})
	}
	weights.copyInstead(func(x Weight) bool { return x.Packed })
	err = weights.made(func() (err error) {
		if c.Options, err = newOptions(l, o); err != nil {
			return err
		}
		defer l.Call(slot.ReleaseSessionOptions, c.Options)
		if err := weights.give(l, c.Options); err != nil {
			return err
		}
		defer cancels(ctx, l, c.Options)()
		return c.withOptions(o)
	})
	if err != nil {
		return nil, contextError(ctx, err)
	}
	if len(weights.weights) > 0 {
		keptOf.Of(l).keep(native, nil, *weights)
		*weights = lent{}
	}
	made, err := Own(l, native)
	if err == nil && ctx.Err() != nil {
		made.Close()
		return nil, ctx.Err() // its options are marked as cancelled, and so are clones of them
	}
	if err == nil {
		made.foreign.Store(len(c.own) > 0)
	}
	return made, err
}

// cancels has the end of a context end loads with session options, or with clones of them, until done is called.
func cancels(ctx context.Context, l *ort.Library, options uintptr) (done func()) {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = l.Try("SessionOptionsSetLoadCancellationFlag", slot.SessionOptionsSetLoadCancellationFlag, options, 1)
	})
	return func() {
		if !stop() {
			<-ended // it is using the options
		}
	}
}

// withOptions makes the session as options say.
func (c Creation) withOptions(o Options) error {
	l := c.Library
	if o.Patcher != nil {
		request := c.Request()
		p, err := c.Patched(o.Patcher, request, nil)
		if err != nil {
			return fmt.Errorf("%s was not patched: %w", request.Name(), err)
		}
		if p != nil {
			return nil
		}
	}
	name, s, args := "CreateSession", slot.CreateSession, []uintptr{c.Env, c.Path, c.Options, c.Out}
	if c.Model != 0 {
		name, s, args = "CreateSessionFromArray", slot.CreateSessionFromArray,
			[]uintptr{c.Env, c.Model, c.Size, c.Options, c.Out}
	}
	var status uintptr
	ort.WithSignals(len(c.own) > 0, func() {
		if o.Unpatched || o.Patcher != nil {
			status = l.Original(s, args...)
		} else {
			status = l.Call(s, args...)
		}
	})
	return l.TakeStatus(name, status)
}

// Own takes ownership of an OrtSession.
func Own(l *ort.Library, native uintptr) (*Session, error) {
	s := &Session{library: l, native: native, cnames: map[string]*byte{}}
	s.cleanup = runtime.AddCleanup(s, func(native uintptr) { release(l, native) }, native)
	var err error
	if s.inputs, err = s.describe(slot.SessionGetInputCount, slot.SessionGetInputName,
		slot.SessionGetInputTypeInfo); err == nil {
		s.outputs, err = s.describe(slot.SessionGetOutputCount, slot.SessionGetOutputName, slot.SessionGetOutputTypeInfo)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// release releases an OrtSession, by way of the hook where one is installed, and then what it had.
func release(l *ort.Library, native uintptr) {
	after := Drop(l, native)
	l.Call(slot.ReleaseSession, native)
	after()
}

func (s *Session) describe(count, name, typed slot.Slot) ([]ort.ValueInfo, error) {
	l := s.library
	var n, allocator uintptr
	if err := l.Try("SessionGetInputCount", count, s.native, uintptr(unsafe.Pointer(&n))); err != nil {
		return nil, err
	}
	if err := l.Try("GetAllocatorWithDefaultOptions", slot.GetAllocatorWithDefaultOptions,
		uintptr(unsafe.Pointer(&allocator))); err != nil {
		return nil, err
	}
	infos := make([]ort.ValueInfo, n)
	for i := range infos {
		var text, info uintptr
		if err := l.Try("SessionGetInputName", name, s.native, uintptr(i), allocator,
			uintptr(unsafe.Pointer(&text))); err != nil {
			return nil, err
		}
		infos[i].Name = cmem.GoString(text)
		if err := l.Try("AllocatorFree", slot.AllocatorFree, allocator, text); err != nil {
			return nil, err
		}
		p, err := cmem.CString(infos[i].Name)
		if err != nil {
			return nil, err
		}
		s.cnames[infos[i].Name] = p
		if err := l.Try("SessionGetInputTypeInfo", typed, s.native, uintptr(i),
			uintptr(unsafe.Pointer(&info))); err != nil {
			return nil, err
		}
		err = typeInfo(l, info, &infos[i])
		l.Call(slot.ReleaseTypeInfo, info)
		if err != nil {
			return nil, err
		}
	}
	return infos, nil
}

// typeInfo reads an OrtTypeInfo.
func typeInfo(l *ort.Library, info uintptr, v *ort.ValueInfo) error {
	var kind int32
	if err := l.Try("GetOnnxTypeFromTypeInfo", slot.GetOnnxTypeFromTypeInfo, info,
		uintptr(unsafe.Pointer(&kind))); err != nil {
		return err
	}
	v.Kind = ort.Kind(kind)
	if v.Kind != ort.KindTensor {
		return nil
	}
	var tensor uintptr // owned by info
	if err := l.Try("CastTypeInfoToTensorInfo", slot.CastTypeInfoToTensorInfo, info,
		uintptr(unsafe.Pointer(&tensor))); err != nil {
		return err
	}
	var err error
	if v.Element, v.Shape, err = ort.TensorInfo(l, tensor); err != nil {
		return err
	}
	v.Dimensions = make([]string, len(v.Shape))
	names := make([]uintptr, len(v.Shape))
	if err := l.Try("GetSymbolicDimensions", slot.GetSymbolicDimensions, tensor,
		uintptr(unsafe.Pointer(unsafe.SliceData(names))), uintptr(len(names))); err != nil {
		return err
	}
	for i, name := range names {
		v.Dimensions[i] = cmem.GoString(name)
	}
	return nil
}

// Inputs describes the model's inputs, in the model's order.
func (s *Session) Inputs() []ort.ValueInfo { return s.inputs }

// Outputs describes the model's outputs, in the model's order.
func (s *Session) Outputs() []ort.ValueInfo { return s.outputs }

// Native is the address of the OrtSession, as long as the session is open.
func (s *Session) Native() uintptr { return s.native }

// Close releases the session. It must not be running.
func (s *Session) Close() {
	if s == nil || s.closed.Swap(true) {
		return
	}
	s.cleanup.Stop()
	release(s.library, s.native)
}

// Run computes outputs, all of the model's when the list is empty, from named inputs. Ending ctx
// ends the run with an error at the next operator. The results are the caller's to close.
func (s *Session) Run(ctx context.Context, inputs map[string]*ort.Value, outputs ...string) ([]*ort.Value, error) {
	if len(outputs) == 0 {
		for _, o := range s.outputs {
			outputs = append(outputs, o.Name)
		}
	}
	results := make([]*ort.Value, len(outputs))
	if err := s.RunInto(ctx, inputs, outputs, results); err != nil {
		return nil, err
	}
	return results, nil
}

// RunInto is Run with places for the results: a Value in results[i] receives outputs[i] in its
// own memory, which must have the right type and shape; nil is filled with a new Value.
func (s *Session) RunInto(ctx context.Context, inputs map[string]*ort.Value, outputs []string,
	results []*ort.Value) error {
	if s.closed.Load() {
		return ort.ErrClosed
	}
	if len(results) != len(outputs) {
		return &diagnostic.Error{Found: fmt.Sprintf("%d places for %d outputs", len(results), len(outputs)),
			Needed: "one each"}
	}
	names := make([]*byte, 0, len(inputs)+len(outputs))
	values := make([]uintptr, 0, len(inputs)+len(outputs))
	for name, v := range inputs {
		p, err := s.name(name)
		if err != nil {
			return err
		}
		if v == nil || v.Closed() {
			return fmt.Errorf("input %q: %w", name, ort.ErrClosed)
		}
		if v.Kind() == ort.KindOptional {
			// ONNX Runtime 1.30 reads through a null pointer there.
			return &diagnostic.Error{Found: fmt.Sprintf("input %q: an optional without content cannot be fed", name),
				Fix: "leave out the input or feed a content"}
		}
		names, values = append(names, p), append(values, v.Native())
	}
	for i, name := range outputs {
		p, err := s.name(name)
		if err != nil {
			return err
		}
		names = append(names, p)
		if r := results[i]; r == nil {
			values = append(values, 0)
		} else if r.Closed() {
			return fmt.Errorf("output %q: %w", name, ort.ErrClosed)
		} else {
			values = append(values, r.Native())
		}
	}
	options, done, err := runOptions(s.library, ctx)
	if err != nil {
		return err
	}
	n := len(inputs)
	s.run(func() {
		err = s.library.Try("Run", slot.Run, s.native, options,
			uintptr(unsafe.Pointer(unsafe.SliceData(names))), uintptr(unsafe.Pointer(unsafe.SliceData(values))), uintptr(n),
			uintptr(unsafe.Pointer(unsafe.SliceData(names[n:]))), uintptr(len(outputs)),
			uintptr(unsafe.Pointer(unsafe.SliceData(values[n:]))))
	})
	done()
	runtime.KeepAlive(inputs)
	runtime.KeepAlive(results)
	runtime.KeepAlive(names)
	runtime.KeepAlive(s)
	if err != nil {
		return contextError(ctx, err)
	}
	made := make([]*ort.Value, 0, len(outputs))
	for i, native := range values[n:] {
		if results[i] != nil || native == 0 {
			continue
		}
		v, wrapErr := ort.OwnValue(s.library, native)
		if wrapErr != nil {
			err = wrapErr
			continue
		}
		made, results[i] = append(made, v), v
	}
	if err != nil {
		ort.CloseAll(made)
	}
	return err
}

func (s *Session) name(name string) (*byte, error) {
	if p := s.cnames[name]; p != nil {
		return p, nil
	}
	return nil, &diagnostic.Error{Found: fmt.Sprintf("the model has no input or output %q", name),
		Needed: fmt.Sprintf("one of inputs %v and outputs %v", s.inputs, s.outputs)}
}

// runOptions makes OrtRunOptions that ctx can end, null for a context that cannot end. done must
// be called after the run.
func runOptions(l *ort.Library, ctx context.Context) (options uintptr, done func(), err error) {
	if ctx.Done() == nil {
		return 0, func() {}, nil
	}
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	if err := l.Try("CreateRunOptions", slot.CreateRunOptions, uintptr(unsafe.Pointer(&options))); err != nil {
		return 0, nil, err
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = l.Try("RunOptionsSetTerminate", slot.RunOptionsSetTerminate, options)
	})
	return options, func() {
		if !stop() {
			<-ended // it is using the options
		}
		l.Call(slot.ReleaseRunOptions, options)
	}, nil
}

// contextError says that a run or a load failed because its context ended.
func contextError(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}
