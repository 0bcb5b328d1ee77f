package cuda_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/base/cuda"
	"github.com/opgraft/graft/host/base/cuda/cudatest"
	"github.com/opgraft/graft/internal/must"
)

// things is one of each.
type things struct {
	fake          *cudatest.Fake
	context       *cuda.Context
	stream        *cuda.Stream
	event, second *cuda.Event
	module        *cuda.Module
	scale         *cuda.Function
	memory        *cuda.Memory
	host          *cuda.HostMemory
}

func makeThings(t *testing.T) *things {
	t.Helper()
	fake, device := open(t)
	context, err := device.PrimaryContext()
	x := &things{fake: fake, context: context}
	must := func(err error) {
		must.Succeed(t, err)
	}
	must(err)
	t.Cleanup(func() { must(context.Close()) })
	x.stream, err = context.MakeStream(cuda.StreamNonBlocking)
	must(err)
	x.event, err = context.MakeEvent(cuda.EventDefault)
	must(err)
	x.second, err = context.MakeEvent(cuda.EventDisableTiming)
	must(err)
	x.module, err = context.LoadModuleData(cudatest.Kernels)
	must(err)
	x.scale, err = x.module.Function("scale")
	must(err)
	x.memory, err = context.MemAlloc(1024)
	must(err)
	x.host, err = context.MemAllocHost(1024)
	must(err)
	return x
}

func TestUseAfterClose(t *testing.T) {
	config := cuda.LaunchConfig{Grid: cuda.Dim3{X: 1}, Block: cuda.Dim3{X: 1}}
	buffer := make([]byte, 8)
	// Each use, by what must be open for it besides the context.
	uses := map[string]func(*things) error{
		"stream Synchronize":   func(x *things) error { return x.stream.Synchronize() },
		"stream Query":         func(x *things) error { _, err := x.stream.Query(); return err },
		"stream Wait":          func(x *things) error { return x.stream.Wait(x.event) },
		"stream Record":        func(x *things) error { return x.event.Record(x.stream) },
		"stream MemsetD8Async": func(x *things) error { return x.context.MemsetD8Async(x.memory, 0, 8, x.stream) },
		"stream MemcpyDtoDAsync": func(x *things) error {
			return x.context.MemcpyDtoDAsync(x.memory, x.memory.At(8), 8, x.stream)
		},
		"stream Launch": func(x *things) error {
			config := config
			config.Stream = x.stream
			return x.scale.Launch(config, x.memory, x.memory, float32(1), uint32(1))
		},
		"event Wait":        func(x *things) error { return x.stream.Wait(x.event) },
		"event Record":      func(x *things) error { return x.event.Record(nil) },
		"event Synchronize": func(x *things) error { return x.event.Synchronize() },
		"event Query":       func(x *things) error { _, err := x.event.Query(); return err },
		"event Elapsed":     func(x *things) error { _, err := x.second.Elapsed(x.event); return err },
		"module Function":   func(x *things) error { _, err := x.module.Function("scale"); return err },
		"module Global":     func(x *things) error { _, _, err := x.module.Global("answer"); return err },
		"module Attribute":  func(x *things) error { _, err := x.scale.Attribute(cuda.FuncNumRegs); return err },
		"module SetMaxDynamicSharedSize": func(x *things) error {
			return x.scale.SetMaxDynamicSharedSize(0)
		},
		"module Launch": func(
			x *things) error {
			return x.scale.Launch(config, x.memory, x.memory, float32(1), uint32(1))
		},
		"module MaxActiveBlocks": func(x *things) error {
			_,
				err := x.scale.MaxActiveBlocksPerMultiprocessor(1, 0)
			return err
		},
		"module MaxPotential": func(x *things) error { _, _, err := x.scale.MaxPotentialBlockSize(0, 0); return err },
		"memory MemcpyHtoD":   func(x *things) error { return x.context.MemcpyHtoD(x.memory, buffer) },
		"memory MemcpyDtoH":   func(x *things) error { return x.context.MemcpyDtoH(buffer, x.memory.At(8)) },
		"memory MemcpyDtoD":   func(x *things) error { return x.context.MemcpyDtoD(x.memory, x.memory.At(8), 8) },
		"memory MemsetD8":     func(x *things) error { return x.context.MemsetD8(x.memory, 0, 8) },
		"memory MemsetD32":    func(x *things) error { return x.context.MemsetD32(x.memory, 0, 8) },
		"memory Launch": func(
			x *things) error {
			return x.scale.Launch(config, x.memory.At(4), x.memory, float32(1), uint32(1))
		},
		"context MemAlloc":       func(x *things) error { _, err := x.context.MemAlloc(1); return err },
		"context MemAllocHost":   func(x *things) error { _, err := x.context.MemAllocHost(1); return err },
		"context MemInfo":        func(x *things) error { _, _, err := x.context.MemInfo(); return err },
		"context MakeStream":     func(x *things) error { _, err := x.context.MakeStream(cuda.StreamDefault); return err },
		"context MakeEvent":      func(x *things) error { _, err := x.context.MakeEvent(cuda.EventDefault); return err },
		"context LoadModuleData": func(x *things) error { _, err := x.context.LoadModuleData(cudatest.Kernels); return err },
		"context Synchronize":    func(x *things) error { return x.context.Synchronize() },
		"context Do":             func(x *things) error { return x.context.Do(func() error { return nil }) },
	}
	for name, use := range uses {
		what, _, _ := strings.Cut(name, " ")
		t.Run(name, func(t *testing.T) {
			x := makeThings(t)
			if err := use(x); errors.Is(err, cuda.ErrClosed) || errors.Is(err, cuda.ErrArgument) {
				t.Fatalf("before Close: %v", err)
			}
			closeOne := map[string]func() error{"stream": x.stream.Close, "event": x.event.Close, "module": x.module.Close,
				"memory": x.memory.Close, "context": x.context.Close}[what]
			must.Succeed(t, closeOne())
			refused(t, use(x), cuda.ErrClosed, "found ", what+" that is closed")
			must.Succeed(t, closeOne(), "the second Close")
			must.Succeed(t, x.context.Close())
			refused(t, use(x), cuda.ErrClosed, "found a context that is closed")
			must.Succeed(t, closeOne(), "the Close after the context's")
		})
	}
}

func TestHandlesAfterClose(t *testing.T) {
	x := makeThings(t)
	if x.stream.Handle() == 0 || x.context.Handle() == 0 || x.memory.Ptr() == 0 || len(x.host.Bytes()) != 1024 ||
		x.memory.Size() != 1024 {
		t.Error("open things have no address")
	}
	must.Equal(t, len(cuda.HostSlice[float32](x.host)), 256)
	host := x.host.Bytes()
	for _, c := range []func() error{x.stream.Close, x.memory.Close, x.host.Close} {
		must.Succeed(t, c())
	}
	if x.stream.Handle() != 0 || x.memory.Ptr() != 0 || x.host.Bytes() != nil {
		t.Error("closed things have an address")
	}
	more := must.Value(x.context.MemAlloc(8))(t)
	refused(t, x.context.MemcpyHtoDAsync(more, host[:8], nil), cuda.ErrArgument,
		"memory of Context.MemAllocHost that is open")
	if err := x.context.Close(); err != nil || x.context.Handle() != 0 {
		t.Errorf("the context after Close: %v", err)
	}
	var none *cuda.Stream
	if err := errors.Join(none.Close(), (*cuda.Event)(nil).Close(), (*cuda.Module)(nil).Close(),
		(*cuda.Context)(nil).Close()); err != nil || none.Handle() != 0 {
		t.Errorf("nothing does not close: %v", err)
	}
}

// TestFailingClose: the error is told, and told once.
func TestFailingClose(t *testing.T) {
	for name, closeOne := range map[string]func(*things) error{
		"cuStreamDestroy":           func(x *things) error { return x.stream.Close() },
		"cuEventDestroy":            func(x *things) error { return x.event.Close() },
		"cuModuleUnload":            func(x *things) error { return x.module.Close() },
		"cuMemFree":                 func(x *things) error { return x.memory.Close() },
		"cuMemFreeHost":             func(x *things) error { return x.host.Close() },
		"cuDevicePrimaryCtxRelease": func(x *things) error { return x.context.Close() },
	} {
		for _, byContext := range []bool{false, true} {
			x := makeThings(t)
			if byContext {
				closeOne = func(x *things) error { return x.context.Close() }
			}
			x.fake.Set("fail", name+":1:700")
			var call *cuda.CallError
			if err := closeOne(x); !errors.As(err, &call) || call.Function != name {
				t.Errorf("%s failed and the error is %v", name, err)
			}
			must.Succeed(t, closeOne(x), name, "the second Close")
			if name == "cuDevicePrimaryCtxRelease" { // nobody else gives it back
				x.fake.Set("contexts", "0")
			}
			_ = x.context.Close()
			x.fake.Set("abandoned", "0")
		}
	}
}

func TestContextClosesWhatItMade(t *testing.T) {
	x := makeThings(t)
	if left := x.fake.Left(); len(left) != 6 {
		t.Fatalf("made only %v", left)
	}
	must.Succeed(t, x.context.Close())
	if left := x.fake.Left(); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}

func TestOtherContext(t *testing.T) {
	x := makeThings(t)
	device := must.Value(x.context.Device().Driver().Device(1))(t)
	other := must.Value(device.PrimaryContext())(t)
	defer other.Close()
	refused(t, other.MemsetD8(x.memory, 0, 1), cuda.ErrArgument,
		"cuMemsetD8: found memory of another context, needed all of one")
	refused(t, other.MemsetD8Async(x.memory, 0, 1, x.stream), cuda.ErrArgument, "of another context")
	event := must.Value(other.MakeEvent(cuda.EventDefault))(t)
	refused(t, x.stream.Wait(event), cuda.ErrArgument, "found a stream of another context")
	refused(t, event.Record(x.stream), cuda.ErrArgument, "found a stream of another context")

	// Two of one device are one to the driver, and each has to be closed.
	same := must.Value(x.context.Device().PrimaryContext())(t)
	if same.Handle() != x.context.Handle() || x.fake.Get("contexts") != 3 {
		t.Errorf("%d contexts", x.fake.Get("contexts"))
	}
	must.Succeed(t, same.Close())
	must.Succeed(t, x.context.Synchronize())
}
