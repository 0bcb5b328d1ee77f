package cuda_test

import (
	"testing"
	"unsafe"

	"github.com/opgraft/graft/host/base/cuda"
	"github.com/opgraft/graft/internal/must"
)

func TestLaunchArguments(t *testing.T) {
	x := makeThings(t)
	config := cuda.LaunchConfig{Grid: cuda.Dim3{X: 1}, Block: cuda.Dim3{X: 1}}
	for _, c := range []struct {
		name string
		args []any
		want string
	}{
		{"too few", []any{x.memory, x.memory, float32(1)}, "launch of scale: found 3 arguments, needed 4"},
		{"too many", []any{x.memory, x.memory, float32(1), uint32(1), uint32(1)}, "found 5 arguments, needed 4"},
		{"int", []any{x.memory, x.memory, float32(1), 1},
			"found argument 3 of type int, needed a number of a size that is in its name, such as int32"},
		{"uintptr", []any{uintptr(1), x.memory, float32(1), uint32(1)}, "argument 0 of type uintptr"},
		{"Go's pointer", []any{unsafe.Pointer(x), x.memory, float32(1), uint32(1)}, "argument 0 of type unsafe.Pointer"},
		{"slice", []any{[]float32{1}, x.memory, float32(1), uint32(1)}, "argument 0 of type []float32"},
		{"nil", []any{nil, x.memory, float32(1), uint32(1)}, "argument 0 of type <nil>"},
		{"struct with a pointer", []any{struct{ p *int }{}, x.memory, float32(1), uint32(1)}, "argument 0 of type struct"},
		{"empty struct", []any{struct{}{}, x.memory, float32(1), uint32(1)}, "argument 0 of type struct {}"},
		{"no memory", []any{(*cuda.Memory)(nil), x.memory, float32(1), uint32(1)},
			"found argument 0 without memory, needed a place in it, or DevicePtr(0)"},
		{"beyond memory", []any{x.memory.At(1024), x.memory, float32(1), uint32(1)}, "found argument 0 without memory"},
		{"before memory", []any{x.memory, x.memory.At(-1), float32(1), uint32(1)}, "found argument 1 without memory"},
		{"wide", []any{x.memory, x.memory, 1.0, uint32(1)}, "found argument 2 of type float64, 8 bytes, needed 4 bytes"},
		{"narrow", []any{x.memory, x.memory, float32(1), uint16(1)},
			"found argument 3 of type uint16, 2 bytes, needed 4 bytes"},
		{"array", []any{x.memory, x.memory, [2]float32{}, uint32(1)},
			"found argument 2 of type [2]float32, 8 bytes, needed 4 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			refused(t, x.scale.Launch(config, c.args...), cuda.ErrArgument, c.want)
		})
	}
	type count uint32
	for _, args := range [][]any{
		{x.memory.Ptr(), x.memory.At(4), float32(1), count(1)},
		{x.memory, uint64(x.memory.Ptr()), [1]float32{1}, struct{ n int32 }{1}},
		{cuda.DevicePtr(0), x.memory, float32(1), int32(0)},
	} {
		must.Succeed(t, x.scale.Launch(config, args...), args)
	}
}

func TestLaunchLimits(t *testing.T) {
	x := makeThings(t)
	reverse := must.Value(x.module.Function("reverse"))(t)
	same := must.Value(x.module.Function("reverse"))(t)
	one := cuda.Dim3{X: 1}
	for want, config := range map[string]cuda.LaunchConfig{
		"found a grid of 0 in x, needed 1 to 2147483647":          {Block: one},
		"found a grid of -1 in y, needed 1 to 65535":              {Grid: cuda.Dim3{X: 1, Y: -1}, Block: one},
		"found a grid of 65536 in y, needed 1 to 65535":           {Grid: cuda.Dim3{X: 1, Y: 65536}, Block: one},
		"found a grid of 65536 in z, needed 1 to 65535":           {Grid: cuda.Dim3{X: 1, Z: 65536}, Block: one},
		"found a grid of 2147483648 in x, needed 1 to 2147483647": {Grid: cuda.Dim3{X: 1 << 31}, Block: one},
		"found a block of 0 in x, needed 1 to 1024":               {Grid: one},
		"found a block of 65 in z, needed 1 to 64": {Grid: one,
			Block: cuda.Dim3{X: 1, Z: 65}},
		"found a block of 257 threads, needed at most 256, for the registers that it takes": {Grid: one,
			Block: cuda.Dim3{X: 257}},
		"found a block of 512 threads, needed at most 256": {Grid: one,
			Block: cuda.Dim3{X: 16, Y: 16, Z: 2}},
		"found -1 bytes of dynamic shared memory, needed 0 or more": {Grid: one,
			Block: one, SharedMem: -1},
		"found 49153 bytes of dynamic shared memory, needed at most 49152; raise it with SetMaxDynamicSharedSize": {Grid: one,
			Block: one, SharedMem: 49153},
	} {
		refused(t, reverse.Launch(config, x.memory), cuda.ErrArgument, "launch of reverse: "+want)
	}
	// Both Functions are one kernel: what one raises holds for the other.
	must.Succeed(t, same.SetMaxDynamicSharedSize(100<<10))
	must.Succeed(t, reverse.Launch(cuda.LaunchConfig{Grid: one, Block: one, SharedMem: 100 << 10}, x.memory))
	refused(t, reverse.Launch(cuda.LaunchConfig{Grid: one, Block: one, SharedMem: 100<<10 + 1}, x.memory),
		cuda.ErrArgument, "needed at most 102400")
	must.Succeed(t, reverse.SetMaxDynamicSharedSize(1<<10))
	refused(t, reverse.Launch(cuda.LaunchConfig{Grid: one, Block: one, SharedMem: 2 << 10}, x.memory), cuda.ErrArgument,
		"needed at most 1024")
	refused(t, reverse.SetMaxDynamicSharedSize(-1), cuda.ErrArgument, "found -1 bytes, needed 0 or more")
	if err := reverse.SetMaxDynamicSharedSize(1 << 20); err == nil {
		t.Error("a block got a mebibyte of shared memory")
	}
}

func TestCopyArguments(t *testing.T) {
	x := makeThings(t)
	c, b := x.context, make([]byte, 1025)
	for want, call := range map[string]func() error{
		"cuMemAlloc: found 0 bytes, needed at least 1": func() error {
			_,
				err := c.MemAlloc(0)
			return err
		},
		"cuMemHostAlloc: found -1 bytes, needed at least 1": func() error {
			_,
				err := c.MemAllocHost(-1)
			return err
		},
		"cuMemcpyHtoD: found 1025 bytes where there are 1024, needed no more": func() error {
			return c.MemcpyHtoD(
				x.memory, b)
		},
		"cuMemcpyDtoH: found 1024 bytes where there are 1023": func() error {
			return c.MemcpyDtoH(
				b[:1024], x.memory.At(1))
		},
		"cuMemcpyDtoD: found 2 bytes where there are 1": func() error {
			return c.MemcpyDtoD(
				x.memory, x.memory.At(1023), 2)
		},
		"cuMemcpyDtoD: found -1 bytes, needed 0 or more": func() error {
			return c.MemcpyDtoD(
				x.memory, x.memory, -1)
		},
		"cuMemcpyDtoDAsync: found 3 bytes where there are 2": func() error {
			return c.MemcpyDtoDAsync(x.memory.At(1022),
				x.memory, 3, nil)
		},
		"cuMemcpyDtoH: found an offset outside of the memory, needed 0 to its size": func() error {
			return c.MemcpyDtoH(
				b[:1], x.memory.At(1025))
		},
		"cuMemcpyHtoD: found an offset outside of the memory": func() error {
			return c.MemcpyHtoD(
				x.memory.At(-1), b[:1])
		},
		"cuMemcpyHtoD: found no place in device memory, needed a *Memory, a Range or a": func() error {
			return c.MemcpyHtoD(
				nil, b[:1])
		},
		"cuMemcpyHtoD: found 1 bytes where there are 0": func() error {
			return c.MemcpyHtoD(
				(*cuda.Memory)(nil), b[:1])
		},
		"cuMemcpyHtoDAsync: found memory of the host that may move or be freed, " +
			"needed memory of Context.MemAllocHost": func() error {
			return c.MemcpyHtoDAsync(x.memory, b[:1], x.stream)
		},
		"cuMemcpyHtoDAsync: found memory of the host that may": func() error { // its end is outside
			return c.MemcpyHtoDAsync(x.memory, unsafe.Slice(&x.host.Bytes()[1020], 5), nil)
		},
		"cuMemcpyDtoHAsync: found memory of the host that may move": func() error {
			return c.MemcpyDtoHAsync(b[:1], x.memory,
				nil)
		},
		"cuMemsetD32: found 1028 bytes where there are 1024": func() error { return c.MemsetD32(x.memory, 0, 257) },
		"cuMemsetD32: found a count of -1, needed 0 or more": func() error { return c.MemsetD32(x.memory, 0, -1) },
		"cuMemsetD32: found a count of 4611686018427387905": func() error {
			return c.MemsetD32(x.memory, 0,
				1<<62+1)
		},
		"cuMemsetD32Async: found the address 0x": func() error {
			return c.MemsetD32Async(x.memory.At(2),
				0, 1, nil)
		},
		"cuMemsetD8Async: found 1025 bytes where there are 1024": func() error {
			return c.MemsetD8Async(x.memory, 0, 1025,
				x.stream)
		},
		"cuStreamWaitEvent: found no event, needed one of MakeEvent": func() error { return x.stream.Wait(nil) },
		"cuStreamSynchronize: found the default stream": func() error {
			return (*cuda.Stream)(
				nil).Synchronize()
		},
		"cuEventElapsedTime: found no second event": func() error {
			_,
				err := x.event.Elapsed(nil)
			return err
		},
		"cuEventRecord: found no event": func() error { return (*cuda.Event)(nil).Record(nil) },
		"cuModuleGetFunction: found no module": func() error {
			_,
				err := (*cuda.Module)(nil).Function("f")
			return err
		},
		"cuCtxSynchronize: found no context": func() error {
			return (*cuda.Context)(
				nil).Synchronize()
		},
	} {
		refused(t, call(), cuda.ErrArgument, want)
	}
	// Nothing is to be done for nothing.
	for i, err := range []error{
		c.MemcpyHtoD(x.memory, nil), c.MemcpyDtoH(nil, x.memory.At(1024)), c.MemcpyDtoD(x.memory, x.memory, 0),
		c.MemsetD8(x.memory, 0, 0),
		c.MemcpyHtoDAsync(x.memory, nil, nil), c.MemcpyDtoHAsync(nil, x.memory, nil),
		c.MemcpyDtoDAsync(x.memory, x.memory, 0, nil),
	} {
		must.Succeed(t, err, i)
	}
	_, err := c.MemAlloc(1 << 40)
	must.FailExactly(t, err, "cuMemAlloc: out of memory (CUDA_ERROR_OUT_OF_MEMORY): 1099511627776 bytes")
	if _, err := c.MemAllocHost(1 << 40); err == nil {
		t.Error("a tebibyte of the host was pinned")
	}
}

// TestDefaultStream waits for streams that wait for it, and for no others.
func TestDefaultStream(t *testing.T) {
	x := makeThings(t)
	waits := must.Value(x.context.MakeStream(cuda.StreamDefault))(t)
	for _, err := range []error{
		x.context.MemsetD8Async(x.memory, 1, 8, waits),
		x.context.MemsetD8Async(x.memory.At(8), 2, 8, x.stream),
		x.context.MemsetD8Async(x.memory.At(16), 3, 8, nil),
	} {
		must.Succeed(t, err)
	}
	first, err := waits.Query()
	if !first || err != nil {
		t.Errorf("the stream that the default stream waits for is done: %v, %v", first, err)
	}
	other, err := x.stream.Query()
	if other || err != nil {
		t.Errorf("the stream that it does not wait for is done: %v, %v", other, err)
	}
	must.Succeed(t, x.context.Synchronize())
	if other, err := x.stream.Query(); !other || err != nil {
		t.Errorf("after Context.Synchronize a stream is done: %v, %v", other, err)
	}
}
