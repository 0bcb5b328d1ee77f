package cuda_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opgraft/graft/host/cuda"
	"github.com/opgraft/graft/host/cuda/cudatest"
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
		if err != nil {
			t.Fatal(err)
		}
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
		"module Launch":          func(x *things) error { return x.scale.Launch(config, x.memory, x.memory, float32(1), uint32(1)) },
		"module MaxActiveBlocks": func(x *things) error { _, err := x.scale.MaxActiveBlocksPerMultiprocessor(1, 0); return err },
		"module MaxPotential":    func(x *things) error { _, _, err := x.scale.MaxPotentialBlockSize(0, 0); return err },
		"memory MemcpyHtoD":      func(x *things) error { return x.context.MemcpyHtoD(x.memory, buffer) },
		"memory MemcpyDtoH":      func(x *things) error { return x.context.MemcpyDtoH(buffer, x.memory.At(8)) },
		"memory MemcpyDtoD":      func(x *things) error { return x.context.MemcpyDtoD(x.memory, x.memory.At(8), 8) },
		"memory MemsetD8":        func(x *things) error { return x.context.MemsetD8(x.memory, 0, 8) },
		"memory MemsetD32":       func(x *things) error { return x.context.MemsetD32(x.memory, 0, 8) },
		"memory Launch":          func(x *things) error { return x.scale.Launch(config, x.memory.At(4), x.memory, float32(1), uint32(1)) },
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
			if err := closeOne(); err != nil {
				t.Fatal(err)
			}
			refused(t, use(x), cuda.ErrClosed, "found ", what+" that is closed")
			if err := closeOne(); err != nil {
				t.Errorf("the second Close: %v", err)
			}
			if err := x.context.Close(); err != nil {
				t.Fatal(err)
			}
			refused(t, use(x), cuda.ErrClosed, "found a context that is closed")
			if err := closeOne(); err != nil {
				t.Errorf("the Close after the context's: %v", err)
			}
		})
	}
}

func TestHandlesAfterClose(t *testing.T) {
	x := makeThings(t)
	if x.stream.Handle() == 0 || x.context.Handle() == 0 || x.memory.Ptr() == 0 || len(x.host.Bytes()) != 1024 || x.memory.Size() != 1024 {
		t.Error("open things have no address")
	}
	if n := len(cuda.HostSlice[float32](x.host)); n != 256 {
		t.Errorf("1024 bytes are %d float32", n)
	}
	host := x.host.Bytes()
	for _, c := range []func() error{x.stream.Close, x.memory.Close, x.host.Close} {
		if err := c(); err != nil {
			t.Fatal(err)
		}
	}
	if x.stream.Handle() != 0 || x.memory.Ptr() != 0 || x.host.Bytes() != nil {
		t.Error("closed things have an address")
	}
	more, err := x.context.MemAlloc(8)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, x.context.MemcpyHtoDAsync(more, host[:8], nil), cuda.ErrArgument, "memory of Context.MemAllocHost that is open")
	if err := x.context.Close(); err != nil || x.context.Handle() != 0 {
		t.Errorf("the context after Close: %v", err)
	}
	var none *cuda.Stream
	if err := errors.Join(none.Close(), (*cuda.Event)(nil).Close(), (*cuda.Module)(nil).Close(), (*cuda.Context)(nil).Close()); err != nil || none.Handle() != 0 {
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
			if err := closeOne(x); err != nil {
				t.Errorf("%s: the second Close: %v", name, err)
			}
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
	if err := x.context.Close(); err != nil {
		t.Fatal(err)
	}
	if left := x.fake.Left(); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}

func TestOtherContext(t *testing.T) {
	x := makeThings(t)
	device, err := x.context.Device().Driver().Device(1)
	if err != nil {
		t.Fatal(err)
	}
	other, err := device.PrimaryContext()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	refused(t, other.MemsetD8(x.memory, 0, 1), cuda.ErrArgument, "cuMemsetD8: found memory of another context, needed all of one")
	refused(t, other.MemsetD8Async(x.memory, 0, 1, x.stream), cuda.ErrArgument, "of another context")
	event, err := other.MakeEvent(cuda.EventDefault)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, x.stream.Wait(event), cuda.ErrArgument, "found a stream of another context")
	refused(t, event.Record(x.stream), cuda.ErrArgument, "found a stream of another context")

	// Two of one device are one to the driver, and each has to be closed.
	same, err := x.context.Device().PrimaryContext()
	if err != nil {
		t.Fatal(err)
	}
	if same.Handle() != x.context.Handle() || x.fake.Get("contexts") != 3 {
		t.Errorf("%d contexts", x.fake.Get("contexts"))
	}
	if err := same.Close(); err != nil {
		t.Fatal(err)
	}
	if err := x.context.Synchronize(); err != nil {
		t.Error(err)
	}
}

// TestThreads: a thread has the context during a call and in Do, and no longer.
func TestThreads(t *testing.T) {
	x := makeThings(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := x.context.Synchronize(); err != nil || x.fake.Get("current") != 0 {
		t.Fatalf("after a call %d contexts are current: %v", x.fake.Get("current"), err)
	}
	wrong := errors.New("wrong")
	err := x.context.Do(func() error {
		if err := x.stream.Synchronize(); err != nil || x.fake.Get("current") != 1 {
			t.Errorf("in Do %d contexts are current: %v", x.fake.Get("current"), err)
		}
		return x.context.Do(func() error {
			if x.fake.Get("current") != 1 {
				t.Errorf("in Do of Do %d contexts are current", x.fake.Get("current"))
			}
			return wrong
		})
	})
	if err != wrong || x.fake.Get("current") != 0 {
		t.Errorf("after Do %d contexts are current: %v", x.fake.Get("current"), err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = x.context.Do(func() error { panic("in Do") })
	}()
	if x.fake.Get("current") != 0 {
		t.Errorf("after a panic in Do %d contexts are current", x.fake.Get("current"))
	}
	x.fake.Set("fail", "cuCtxPopCurrent:1:700")
	if err := x.context.Synchronize(); !errors.Is(err, cuda.IllegalAddress) {
		t.Errorf("cuCtxPopCurrent failed and the error is %v", err)
	}
	if err := x.context.Do(x.context.Close); err != nil {
		t.Errorf("Close in Do: %v", err)
	}
}

// TestManyGoroutines use one context, and close it under their own feet.
func TestManyGoroutines(t *testing.T) {
	x := makeThings(t)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for {
				if err := useAndClose(x); errors.Is(err, cuda.ErrClosed) {
					return
				} else if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	time.Sleep(200 * time.Millisecond)
	if err := x.context.Close(); err != nil {
		t.Error(err)
	}
	all.Wait()
}

func useAndClose(x *things) error {
	stream, err := x.context.MakeStream(cuda.StreamDefault)
	if err != nil {
		return err
	}
	memory, err := x.context.MemAlloc(64)
	if err != nil {
		return err
	}
	config := cuda.LaunchConfig{Grid: cuda.Dim3{X: 1}, Block: cuda.Dim3{X: 16}, Stream: stream}
	if err := x.context.MemsetD32Async(memory, 0, 16, stream); err != nil {
		return err
	}
	if err := x.scale.Launch(config, memory, memory, float32(1), uint32(16)); err != nil {
		return err
	}
	var other sync.WaitGroup // closes while this one waits
	other.Go(func() { _ = stream.Close() })
	if err := stream.Synchronize(); err != nil && !errors.Is(err, cuda.ErrClosed) {
		return err
	}
	other.Wait()
	got := make([]float32, 16)
	if err := x.context.MemcpyDtoH(cuda.Bytes(got), memory); err != nil {
		return err
	}
	if got[15] != 15 {
		return fmt.Errorf("scale gives %v", got)
	}
	return memory.Close()
}

// TestCloseWaits for a call that another goroutine makes.
func TestCloseWaits(t *testing.T) {
	for name, closeOne := range map[string]func(*things) error{
		"stream":  func(x *things) error { return x.stream.Close() },
		"context": func(x *things) error { return x.context.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			x := makeThings(t)
			x.fake.Set("slow", "50")
			done := make(chan error)
			go func() { done <- x.stream.Synchronize() }()
			for x.fake.Get("waiting") == 0 {
				runtime.Gosched()
			}
			if err := closeOne(x); err != nil {
				t.Error(err)
			}
			if x.fake.Get("waiting") != 0 {
				t.Error("closed while a call waits")
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestStreamsAreAsynchronous: nothing waits that was not asked to.
func TestStreamsAreAsynchronous(t *testing.T) {
	x := makeThings(t)
	in, out := x.host.Bytes()[:8], x.host.Bytes()[8:16]
	copy(in, "graphics")
	copy(out, "        ")
	for _, err := range []error{
		x.event.Record(x.stream),
		x.context.MemcpyHtoDAsync(x.memory, in, x.stream),
		x.context.MemcpyDtoHAsync(out, x.memory, x.stream),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, query := range map[string]func() (bool, error){"stream": x.stream.Query, "event": x.event.Query} {
		if done, err := query(); done || err != nil {
			t.Errorf("the %s is done: %v, %v", name, done, err)
		}
	}
	if _, err := x.event.Elapsed(x.event); !errors.Is(err, cuda.NotReady) {
		t.Errorf("the time between events that were not reached: %v", err)
	}
	if _, err := x.event.Elapsed(x.second); !errors.Is(err, cuda.InvalidHandle) {
		t.Errorf("the time to an event without time: %v", err)
	}
	if err := x.stream.Synchronize(); err != nil || string(out) != "graphics" {
		t.Errorf("copied %q: %v", out, err)
	}
	end, err := x.context.MakeEvent(cuda.EventDefault)
	if err != nil {
		t.Fatal(err)
	}
	if err := end.Record(x.stream); err != nil {
		t.Fatal(err)
	}
	if err := end.Synchronize(); err != nil {
		t.Fatal(err)
	}
	if took, err := x.event.Elapsed(end); took != 750*time.Microsecond || err != nil { // three steps of driver.c
		t.Errorf("two copies and an event took %v: %v", took, err)
	}
}

var garbage []byte

func TestModules(t *testing.T) {
	x := makeThings(t)
	for _, c := range []struct {
		image  string
		result cuda.Result
		text   string
	}{
		{"\x7fELF", cuda.NoBinaryForGPU, "cuModuleLoadDataEx: no kernel image is available for execution on the device (CUDA_ERROR_NO_BINARY_FOR_GPU)"},
		{"text", cuda.InvalidImage, "CUDA_ERROR_INVALID_IMAGE"},
		{".version 9.0\n.entry f(.param .wrong x) {}", cuda.InvalidPTX, "a PTX JIT compilation failed (CUDA_ERROR_INVALID_PTX): ptxas application ptx input, line 3; fatal   : Parsing error"},
	} {
		if _, err := x.context.LoadModuleData([]byte(c.image)); !errors.Is(err, c.result) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%q: %v", c.image, err)
		}
	}
	_, err := x.context.LoadModuleData(nil)
	refused(t, err, cuda.ErrArgument, "found an empty image, needed PTX")
	if _, err := x.module.Function("none"); !errors.Is(err, cuda.NotFound) || !strings.HasSuffix(err.Error(), `: "none"`) {
		t.Errorf("a function that is not there: %v", err)
	}
	if _, _, err := x.module.Global("none"); !errors.Is(err, cuda.NotFound) || !strings.HasSuffix(err.Error(), `: "none"`) {
		t.Errorf("a variable that is not there: %v", err)
	}
	// The driver learns the end of PTX from a zero. An image that fills its memory, beside others that were
	// written to, has none after it by luck.
	const size = 4096
	for range 64 {
		garbage = bytes.Repeat([]byte("x"), size)
	}
	runtime.GC()
	for range 8 {
		image := append(bytes.Repeat([]byte(" "), size-len(cudatest.Kernels)), cudatest.Kernels...)
		module, err := x.context.LoadModuleData(image)
		if err != nil || x.fake.Get("image") != len(image) {
			t.Fatalf("an image of %d bytes comes as one of %d: %v", len(image), x.fake.Get("image"), err)
		}
		if err := module.Close(); err != nil {
			t.Error(err)
		}
	}
	path := filepath.Join(t.TempDir(), "kernels.ptx")
	if err := os.WriteFile(path, cudatest.Kernels, 0o600); err != nil {
		t.Fatal(err)
	}
	module, err := x.context.LoadModule(path)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := module.Function("reverse"); err != nil || f.Name() != "reverse" {
		t.Error(err)
	}
	if _, err := x.context.LoadModule(path + "2"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := x.context.LoadModule(path); !errors.Is(err, cuda.InvalidImage) || !strings.HasPrefix(err.Error(), path+": ") {
		t.Error(err)
	}
}
