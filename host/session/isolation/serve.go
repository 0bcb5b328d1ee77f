package isolation

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// Tasks are what an executable that can be a worker does for this package: pass them to worker.Main.
func Tasks() map[string]worker.Handler {
	s := &server{kernels: map[uint64]*plugin.Kernel{}}
	return map[string]worker.Handler{
		taskOpen: worker.Handle(func(_ context.Context, r openRequest) (openAnswer, error) { return s.open(r) }),
		taskCreate: worker.Handle(
			func(_ context.Context, r createRequest) (nothing, error) { return nothing{}, s.create(r) }),
		taskInfer: worker.Handle(func(_ context.Context, r inferRequest) ([]*shape, error) { return s.infer(r) }),
		taskDrop: worker.Handle(
			func(_ context.Context, kernel uint64) (nothing, error) { return nothing{}, s.drop(kernel) }),
		taskServe: worker.Handle(func(_ context.Context, slot int) (nothing, error) { return nothing{}, s.serve(slot) }),
	}
}

// server is a worker's side. Its parent is not doubted.
type server struct {
	plugin          *plugin.Plugin
	request         openRequest
	data, constants []byte

	mu      sync.RWMutex
	kernels map[uint64]*plugin.Kernel
}

// open loads the library, and maps the memory.
func (s *server) open(r openRequest) (a openAnswer, err error) {
	a.Protocol = protocol
	if r.Protocol != protocol || s.plugin != nil {
		return a, nil // its caller sees what differs
	}
	s.request = r
	for i, m := range []struct {
		into       *[]byte
		size       int64
		protection int
	}{{&s.data, slots * r.Window, protReadWrite}, {&s.constants, r.Constant, protRead}} {
		file := worker.Inherited(i)
		if file == nil {
			return a, errors.New("there is no memory for calls")
		}
		if *m.into, err = mapped(int(file.Fd()), m.size, m.protection); err != nil {
			return a, err
		}
		file.Close()
	}
	p, err := plugin.Open(r.Folder, plugin.OpenOptions{AcceptUnverified: true, SHA256: r.SHA256})
	if err != nil {
		return a, err
	}
	s.plugin, a.Info = p, p.Info
	return a, nil
}

func (s *server) create(r createRequest) error {
	if s.plugin == nil {
		return errors.New("no plugin is open")
	}
	constants := make([]*tensor.Tensor, r.Inputs)
	for _, c := range r.Constants {
		t := &tensor.Tensor{DType: c.DType, Shape: c.Shape, Data: unsafe.Pointer(&s.constants[c.Offset])}
		constants[c.Input] = t
	}
	var attributes []manifest.Attribute
	for _, a := range r.Attributes {
		attributes = append(attributes, manifest.Attribute{Name: a.Name, Value: a.Default})
	}
	k, err := s.plugin.Create(r.Operator, attributes, constants, tensor.CPU)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kernels[r.Kernel] = k
	return nil
}

func (s *server) kernel(number uint64) (*plugin.Kernel, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if k := s.kernels[number]; k != nil {
		return k, nil
	}
	return nil, fmt.Errorf("there is no kernel %d", number)
}

func (s *server) drop(number uint64) error {
	s.mu.Lock()
	k := s.kernels[number]
	delete(s.kernels, number)
	s.mu.Unlock()
	if k != nil {
		k.Destroy()
	}
	return nil
}

func (s *server) infer(r inferRequest) ([]*shape, error) {
	k, err := s.kernel(r.Kernel)
	if err != nil {
		return nil, err
	}
	inputs := make([]*tensor.Tensor, len(r.Inputs))
	for i, in := range r.Inputs {
		if in != nil {
			inputs[i] = &tensor.Tensor{DType: in.DType, Shape: in.Shape}
		}
	}
	outputs, err := k.Infer(inputs, r.Wanted)
	if err != nil {
		return nil, err
	}
	list := make([]*shape, len(outputs))
	for i, out := range outputs {
		if out != nil {
			list[i] = &shape{out.DType, out.Shape}
		}
	}
	return list, nil
}

// serve has a thread answer the calls of a window from now on.
func (s *server) serve(slot int) error {
	if s.plugin == nil || slot < 0 || slot >= slots {
		return fmt.Errorf("there is no window %d", slot)
	}
	window := s.data[int64(slot)*s.request.Window:][:s.request.Window]
	go func() {
		runtime.LockOSThread()
		c := &caller{server: s, window: window}
		h := headerAt(window)
		for {
			state := atomic.LoadUint32(&h.state)
			if state%2 == 0 || state == lost {
				await(&h.state, state, time.Hour)
				continue
			}
			h.failed = 0
			if err := c.answer(h); err != nil {
				h.failed, h.length = 1, uint32(copy(h.text[:], err.Error()))
			}
			atomic.StoreUint32(&h.state, state+1)
			wake(&h.state)
		}
	}()
	return nil
}

// caller answers the calls of one window, with memory that it uses again.
type caller struct {
	server    *server
	window    []byte
	workspace []byte
}

func (c *caller) answer(h *header) error {
	k, err := c.server.kernel(h.kernel)
	if err != nil {
		return err
	}
	tensors := h.tensors[:h.inputs+h.outputs]
	inputs, wants := make([]*tensor.Tensor, h.inputs), make([]bool, h.outputs)
	end := int64(dataStart)
	for i := range inputs {
		d := tensors[i]
		memory := c.window
		switch d.place {
		case absent:
			continue
		case inConstant:
			memory = c.server.constants
		}
		t, size, err := d.view(0, int64(len(memory)))
		if err != nil {
			return fmt.Errorf("input %d has %w", i, err)
		}
		t.Data = unsafe.Pointer(&memory[d.offset])
		if d.place == inWindow {
			end = max(end, int64(d.offset)+size)
		}
		inputs[i] = &t
	}
	for i := range wants {
		wants[i] = tensors[len(inputs)+i].place == wanted
	}
	outputs, err := k.Infer(inputs, wants)
	if err != nil {
		return err
	}
	for i, t := range outputs {
		d := &tensors[len(inputs)+i]
		if t == nil {
			continue
		}
		n, err := tensor.Elements(t.Shape)
		size := n * t.DType.Size()
		end = aligned(end)
		if err != nil || size > int64(len(c.window))-end {
			return fmt.Errorf("output %d has the shape %v of %s, needed at most %d bytes, which an isolated plugin may have "+
				"in a call", i, t.Shape, t.DType, len(c.window))
		}
		t.Data = unsafe.Pointer(&c.window[min(end, int64(len(c.window))-1)])
		if err := d.describe(inWindow, numberNamed(t.DType), end, t.Shape); err != nil {
			return err
		}
		end += size
	}
	threads := c.server.request.Threads
	need, err := k.Workspace(inputs, outputs, threads)
	if err != nil {
		return err
	}
	if need > math.MaxInt64/2 {
		return fmt.Errorf("it needs a workspace of %d bytes", need)
	}
	if uint64(len(c.workspace)) < need {
		c.workspace = plugin.NewWorkspace(need)
	}
	return k.Run(&plugin.RunContext{Workspace: c.workspace[:need], Threads: threads}, inputs, outputs)
}
