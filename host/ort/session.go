package ort

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// A Session is an OrtSession. Runs may be concurrent. Close it when done; a Session that is
// garbage is closed too.
type Session struct {
	library *Library
	native  uintptr
	inputs  []ValueInfo
	outputs []ValueInfo
	cnames  map[string]*byte // of inputs and outputs, zero-terminated

	cleanup runtime.Cleanup
	closed  atomic.Bool
	foreign atomic.Bool // has a provider of a device, and has not run
}

// run makes a call that runs the session: its first may start a driver.
func (s *Session) run(f func()) { withSignals(s.foreign.CompareAndSwap(true, false), f) }

// NewSession makes a session from a model file.
func (l *Library) NewSession(path string, o SessionOptions) (*Session, error) {
	weights := lent{weights: o.Weights}
	defer weights.close()
	p, err := cString(path)
	if err != nil {
		return nil, err
	}
	// Pinned memory does not move, so its address may stand in a struct.
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(p)
	return l.newSession(creation{path: uintptr(unsafe.Pointer(p))}, o, &weights)
}

// NewSessionFromBytes makes a session from a model in memory, which may go away afterwards. Its
// external data, if any, lie in the folder that [ConfigExternalFolder] names.
func (l *Library) NewSessionFromBytes(model []byte, o SessionOptions) (*Session, error) {
	weights := lent{weights: o.Weights}
	defer weights.close()
	if len(model) == 0 {
		return nil, &diagnostic.Error{Found: "the model is empty", Needed: "the bytes of an .onnx file"}
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&model[0])
	return l.newSession(creation{model: uintptr(unsafe.Pointer(&model[0])), size: uintptr(len(model))}, o, &weights)
}

func (l *Library) newSession(c creation, o SessionOptions, weights *lent) (*Session, error) {
	if len(weights.weights) > 0 && !o.Unpatched {
		return nil, errors.New("onnxruntime: weights in memory need an unpatched session")
	}
	env, err := l.env()
	if err != nil {
		return nil, err
	}
	l.know(env)
	var native uintptr
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&native)
	c.ownOptions, c.noArena = true, o.NoArena
	c.env, c.out = env, uintptr(unsafe.Pointer(&native))
	for _, p := range o.Providers {
		c.own = appendNew(c.own, Appended{providerName(p.Name), deviceNumber(p.Options["device_id"])})
	}
	weights.copyInstead(func(x Weight) bool { return x.Packed })
	err = weights.made(func() (err error) {
		if c.options, err = l.newOptions(o); err != nil {
			return err
		}
		defer l.call(slotReleaseSessionOptions, c.options)
		if err := weights.give(l, c.options); err != nil {
			return err
		}
		return l.create(c, o)
	})
	if err != nil {
		return nil, err
	}
	if len(weights.weights) > 0 {
		l.hook.keep(native, nil, *weights)
		*weights = lent{}
	}
	made, err := l.wrapSession(native)
	if err == nil {
		made.foreign.Store(len(c.own) > 0)
	}
	return made, err
}

func (l *Library) create(c creation, o SessionOptions) error {
	if o.Patcher != nil {
		request := c.request(l)
		made, err := l.hook.patch(Hook{Patcher: o.Patcher}.Ready(), request, c)
		if err != nil {
			return fmt.Errorf("%s was not patched: %w", request.name(), err)
		}
		if made {
			return nil
		}
	}
	name, s, args := "CreateSession", slotCreateSession, []uintptr{c.env, c.path, c.options, c.out}
	if c.model != 0 {
		name, s, args = "CreateSessionFromArray", slotCreateSessionFromArray,
			[]uintptr{c.env, c.model, c.size, c.options, c.out}
	}
	var status uintptr
	withSignals(len(c.own) > 0, func() {
		if o.Unpatched || o.Patcher != nil {
			status = l.original(s, args...)
		} else {
			status = l.call(s, args...)
		}
	})
	return l.takeStatus(name, status)
}

// wrapSession takes ownership of an OrtSession.
func (l *Library) wrapSession(native uintptr) (*Session, error) {
	s := &Session{library: l, native: native, cnames: map[string]*byte{}}
	s.cleanup = runtime.AddCleanup(s, func(native uintptr) { l.releaseSession(native) }, native)
	var err error
	if s.inputs, err = s.describe(slotSessionGetInputCount, slotSessionGetInputName,
		slotSessionGetInputTypeInfo); err == nil {
		s.outputs, err = s.describe(slotSessionGetOutputCount, slotSessionGetOutputName, slotSessionGetOutputTypeInfo)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (l *Library) releaseSession(native uintptr) {
	after := l.hook.drop(native)
	l.original(slotReleaseSession, native)
	after()
}

func (s *Session) describe(count, name, typeInfo slot) ([]ValueInfo, error) {
	l := s.library
	var n, allocator uintptr
	if err := l.try("SessionGetInputCount", count, s.native, uintptr(unsafe.Pointer(&n))); err != nil {
		return nil, err
	}
	if err := l.try("GetAllocatorWithDefaultOptions", slotGetAllocatorWithDefaultOptions,
		uintptr(unsafe.Pointer(&allocator))); err != nil {
		return nil, err
	}
	infos := make([]ValueInfo, n)
	for i := range infos {
		var text, info uintptr
		if err := l.try("SessionGetInputName", name, s.native, uintptr(i), allocator,
			uintptr(unsafe.Pointer(&text))); err != nil {
			return nil, err
		}
		infos[i].Name = goString(text)
		if err := l.try("AllocatorFree", slotAllocatorFree, allocator, text); err != nil {
			return nil, err
		}
		p, err := cString(infos[i].Name)
		if err != nil {
			return nil, err
		}
		s.cnames[infos[i].Name] = p
		if err := l.try("SessionGetInputTypeInfo", typeInfo, s.native, uintptr(i),
			uintptr(unsafe.Pointer(&info))); err != nil {
			return nil, err
		}
		err = l.typeInfo(info, &infos[i])
		l.call(slotReleaseTypeInfo, info)
		if err != nil {
			return nil, err
		}
	}
	return infos, nil
}

// typeInfo reads an OrtTypeInfo.
func (l *Library) typeInfo(info uintptr, v *ValueInfo) error {
	var kind int32
	if err := l.try("GetOnnxTypeFromTypeInfo", slotGetOnnxTypeFromTypeInfo, info,
		uintptr(unsafe.Pointer(&kind))); err != nil {
		return err
	}
	v.Kind = Kind(kind)
	if v.Kind != KindTensor {
		return nil
	}
	var tensor uintptr // owned by info
	if err := l.try("CastTypeInfoToTensorInfo", slotCastTypeInfoToTensorInfo, info,
		uintptr(unsafe.Pointer(&tensor))); err != nil {
		return err
	}
	var err error
	if v.Element, v.Shape, err = l.tensorInfo(tensor); err != nil {
		return err
	}
	v.Dimensions = make([]string, len(v.Shape))
	names := make([]uintptr, len(v.Shape))
	if err := l.try("GetSymbolicDimensions", slotGetSymbolicDimensions, tensor,
		uintptr(unsafe.Pointer(unsafe.SliceData(names))), uintptr(len(names))); err != nil {
		return err
	}
	for i, name := range names {
		v.Dimensions[i] = goString(name)
	}
	return nil
}

// Inputs describes the model's inputs, in the model's order.
func (s *Session) Inputs() []ValueInfo { return s.inputs }

// Outputs describes the model's outputs, in the model's order.
func (s *Session) Outputs() []ValueInfo { return s.outputs }

// Close releases the session. It must not be running.
func (s *Session) Close() {
	if s == nil || s.closed.Swap(true) {
		return
	}
	s.cleanup.Stop()
	s.library.releaseSession(s.native)
}

// Run computes outputs, all of the model's when the list is empty, from named inputs. Ending ctx
// ends the run with an error at the next operator. The results are the caller's to close.
func (s *Session) Run(ctx context.Context, inputs map[string]*Value, outputs ...string) ([]*Value, error) {
	if len(outputs) == 0 {
		for _, o := range s.outputs {
			outputs = append(outputs, o.Name)
		}
	}
	results := make([]*Value, len(outputs))
	if err := s.RunInto(ctx, inputs, outputs, results); err != nil {
		return nil, err
	}
	return results, nil
}

// RunInto is Run with places for the results: a Value in results[i] receives outputs[i] in its
// own memory, which must have the right type and shape; nil is filled with a new Value.
func (s *Session) RunInto(ctx context.Context, inputs map[string]*Value, outputs []string, results []*Value) error {
	if s.closed.Load() {
		return ErrClosed
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
		if v == nil || v.closed.Load() {
			return fmt.Errorf("input %q: %w", name, ErrClosed)
		}
		if v.kind == KindOptional {
			// ONNX Runtime 1.30 reads through a null pointer there.
			return &diagnostic.Error{Found: fmt.Sprintf("input %q: an optional without content cannot be fed", name),
				Fix: "leave out the input or feed a content"}
		}
		names, values = append(names, p), append(values, v.native)
	}
	for i, name := range outputs {
		p, err := s.name(name)
		if err != nil {
			return err
		}
		names = append(names, p)
		if r := results[i]; r == nil {
			values = append(values, 0)
		} else if r.closed.Load() {
			return fmt.Errorf("output %q: %w", name, ErrClosed)
		} else {
			values = append(values, r.native)
		}
	}
	options, done, err := s.library.runOptions(ctx)
	if err != nil {
		return err
	}
	n := len(inputs)
	s.run(func() {
		err = s.library.try("Run", slotRun, s.native, options,
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
	made := make([]*Value, 0, len(outputs))
	for i, native := range values[n:] {
		if results[i] != nil || native == 0 {
			continue
		}
		v, wrapErr := s.library.newValue(native, nil, nil)
		if wrapErr != nil {
			err = wrapErr
			continue
		}
		made, results[i] = append(made, v), v
	}
	if err != nil {
		closeAll(made)
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
func (l *Library) runOptions(ctx context.Context) (options uintptr, done func(), err error) {
	if ctx.Done() == nil {
		return 0, func() {}, nil
	}
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	if err := l.try("CreateRunOptions", slotCreateRunOptions, uintptr(unsafe.Pointer(&options))); err != nil {
		return 0, nil, err
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = l.try("RunOptionsSetTerminate", slotRunOptionsSetTerminate, options)
	})
	return options, func() {
		if !stop() {
			<-ended // it is using the options
		}
		l.call(slotReleaseRunOptions, options)
	}, nil
}

// contextError says that a run failed because its context ended.
func contextError(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}
