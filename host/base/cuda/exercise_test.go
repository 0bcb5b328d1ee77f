package cuda_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/opgraft/graft/host/base/cuda"
	"github.com/opgraft/graft/host/base/cuda/cudatest"
)

// exercise uses every function of the driver, on whatever device it is given, and closes what it made.
func exercise(device cuda.Device) (err error) {
	info, err := device.Info()
	if err != nil {
		return err
	}
	context, err := device.PrimaryContext()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, context.Close()) }()
	for _, part := range []func(*cuda.Context) error{copies, streams, kernels, configurations} {
		if err := part(context); err != nil {
			return err
		}
	}
	free, total, err := context.MemInfo()
	if err != nil {
		return err
	}
	if free <= 0 || free > total || total > info.TotalMem {
		return fmt.Errorf("%d bytes of memory are free, of %d, of %d", free, total, info.TotalMem)
	}
	return nil
}

// copies moves bytes to the device, on it, and back.
func copies(context *cuda.Context) error {
	source := []float32{1, 2, 3, 4, 5, 6, 7, 8}
	bytesOf := int64(4 * len(source))
	a, err := context.MemAlloc(bytesOf)
	if err != nil {
		return err
	}
	b, err := context.MemAlloc(bytesOf)
	if err != nil {
		return err
	}
	if err := context.MemcpyHtoD(a, cuda.Bytes(source)); err != nil {
		return err
	}
	if err := context.MemcpyDtoD(b, a, bytesOf); err != nil {
		return err
	}
	if err := context.MemsetD32(b.At(4), math.Float32bits(9), 2); err != nil {
		return err
	}
	if err := context.MemsetD8(b.At(12), 0, 4); err != nil {
		return err
	}
	got := make([]float32, len(source))
	if err := context.MemcpyDtoH(cuda.Bytes(got), b); err != nil {
		return err
	}
	if want := []float32{1, 9, 9, 0, 5, 6, 7, 8}; !slices.Equal(got, want) {
		return fmt.Errorf("copied %v, want %v", got, want)
	}
	return errors.Join(a.Close(), b.Close())
}

// streams moves bytes in two streams, of which one waits for the other, and takes times.
func streams(context *cuda.Context) error {
	const n = 1 << 16
	host, err := context.MemAllocHost(2 * n)
	if err != nil {
		return err
	}
	a, err := context.MemAlloc(n)
	if err != nil {
		return err
	}
	b, err := context.MemAlloc(n)
	if err != nil {
		return err
	}
	first, err := context.MakeStream(cuda.StreamNonBlocking)
	if err != nil {
		return err
	}
	second, err := context.MakeStream(cuda.StreamDefault)
	if err != nil {
		return err
	}
	start, err := context.MakeEvent(cuda.EventDefault)
	if err != nil {
		return err
	}
	end, err := context.MakeEvent(cuda.EventBlockingSync)
	if err != nil {
		return err
	}
	in, out := host.Bytes()[:n], host.Bytes()[n:]
	for i := range in {
		in[i] = byte(i * 7)
	}
	for _, step := range []func() error{
		func() error { return start.Record(first) },
		func() error { return context.MemcpyHtoDAsync(a, in, first) },
		func() error { return context.MemsetD8Async(a.At(8), 1, 4, first) },
		func() error { return context.MemsetD32Async(a.At(16), 0x04030201, 1, first) },
		func() error { return end.Record(first) },
		func() error { return second.Wait(end) },
		func() error { return context.MemcpyDtoDAsync(b, a, n, second) },
		func() error { return context.MemcpyDtoHAsync(out, b, second) },
		func() error { return second.Synchronize() },
		func() error { return end.Synchronize() },
		func() error { return first.Synchronize() },
		func() error { return context.Synchronize() },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	want := bytes.Clone(in)
	copy(want[8:], []byte{1, 1, 1, 1})
	copy(want[16:], []byte{1, 2, 3, 4})
	if !bytes.Equal(out, want) {
		return errors.New("a copy in streams gives other bytes")
	}
	for name, query := range map[string]func() (bool, error){"stream": second.Query, "event": end.Query} {
		if done, err := query(); err != nil || !done {
			return errors.Join(fmt.Errorf("the %s is not done: %v", name, done), err)
		}
	}
	took, err := start.Elapsed(end)
	if err != nil {
		return err
	}
	if took <= 0 {
		return fmt.Errorf("two copies took %v", took)
	}
	return errors.Join(end.Close(), first.Close(), host.Close()) // the context closes the others
}

// kernels runs what cudatest.Kernels has.
func kernels(context *cuda.Context) error {
	module, err := context.LoadModuleData(cudatest.Kernels)
	if err != nil {
		return err
	}
	scale, err := module.Function("scale")
	if err != nil {
		return err
	}
	const n = 1000
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i % 13)
	}
	in, err := context.MemAlloc(4 * n)
	if err != nil {
		return err
	}
	out, err := context.MemAlloc(4*n + 4)
	if err != nil {
		return err
	}
	if err := context.MemcpyHtoD(in, cuda.Bytes(x)); err != nil {
		return err
	}
	config := cuda.LaunchConfig{Grid: cuda.Dim3{X: (n + 127) / 128}, Block: cuda.Dim3{X: 128}}
	if err := scale.Launch(config, out.At(4), in.Ptr(), float32(0.5), uint32(n)); err != nil {
		return err
	}
	got := make([]float32, n)
	if err := context.MemcpyDtoH(cuda.Bytes(got), out.At(4)); err != nil {
		return err
	}
	for i := range got {
		if want := x[i]*0.5 + float32(i); got[i] != want {
			return fmt.Errorf("scale: element %d is %v, want %v", i, got[i], want)
		}
	}
	if err := parameters(context, module); err != nil {
		return err
	}
	address, size, err := module.Global("answer")
	if err != nil {
		return err
	}
	answer := make([]uint32, 1)
	if err := context.MemcpyDtoH(cuda.Bytes(answer), address); err != nil {
		return err
	}
	if size != 4 || answer[0] != 42 {
		return fmt.Errorf("answer is %d of %d bytes", answer[0], size)
	}
	return module.Close()
}

// parameters passes one of each size.
func parameters(context *cuda.Context, module *cuda.Module) error {
	function, err := module.Function("parameters")
	if err != nil {
		return err
	}
	out, err := context.MemAlloc(48)
	if err != nil {
		return err
	}
	if err := context.MemsetD8(out, 0, 48); err != nil {
		return err
	}
	type triple struct {
		A int16
		_ [2]uint8
		B [2]float32
	}
	err = function.Launch(cuda.LaunchConfig{Grid: cuda.Dim3{X: 1}, Block: cuda.Dim3{X: 1}},
		out, true, uint16(0xbeef), int32(-5), float32(1.5), 2.25, triple{A: -2, B: [2]float32{3, 4}}, uint64(1)<<63+7)
	if err != nil {
		return err
	}
	got := make([]byte, 48)
	if err := context.MemcpyDtoH(got, out); err != nil {
		return err
	}
	want := make([]byte, 48)
	want[0] = 1
	le := binary.LittleEndian
	le.PutUint16(want[2:], 0xbeef)
	le.PutUint32(want[4:], 0xfffffffb)
	le.PutUint32(want[8:], math.Float32bits(1.5))
	le.PutUint64(want[16:], math.Float64bits(2.25))
	le.PutUint16(want[24:], 0xfffe)
	le.PutUint32(want[28:], math.Float32bits(3))
	le.PutUint32(want[32:], math.Float32bits(4))
	le.PutUint64(want[40:], 1<<63+7)
	if !bytes.Equal(got, want) {
		return fmt.Errorf("parameters arrive as\n%x, want\n%x", got, want)
	}
	return out.Close()
}

// configurations asks what a kernel takes, gives it more shared memory than it may have unasked, and runs
// it in a stream.
func configurations(context *cuda.Context) error {
	module, err := context.LoadModuleData(cudatest.Kernels)
	if err != nil {
		return err
	}
	reverse, err := module.Function("reverse")
	if err != nil {
		return err
	}
	registers, err := reverse.Attribute(cuda.FuncNumRegs)
	if err != nil {
		return err
	}
	threads, err := reverse.Attribute(cuda.FuncMaxThreadsPerBlock)
	if err != nil {
		return err
	}
	if registers < 1 || registers > 255 || threads != 256 {
		return fmt.Errorf("reverse takes %d registers and at most %d threads", registers, threads)
	}
	const shared = 96 << 10
	if err := reverse.SetMaxDynamicSharedSize(shared); err != nil {
		return err
	}
	if blocks, err := reverse.MaxActiveBlocksPerMultiprocessor(256, shared); err != nil || blocks < 1 {
		return errors.Join(fmt.Errorf("%d blocks a multiprocessor", blocks), err)
	}
	if blocks, threads, err := reverse.MaxPotentialBlockSize(shared, 128); err != nil || blocks < 1 || threads < 1 ||
		threads > 128 {
		return errors.Join(fmt.Errorf("best with %d blocks of %d threads", blocks, threads), err)
	}
	stream, err := context.MakeStream(cuda.StreamNonBlocking)
	if err != nil {
		return err
	}
	const n = 512
	data := make([]uint32, n)
	for i := range data {
		data[i] = uint32(i)
	}
	memory, err := context.MemAlloc(4 * n)
	if err != nil {
		return err
	}
	if err := context.MemcpyHtoD(memory, cuda.Bytes(data)); err != nil {
		return err
	}
	// A stream that does not wait for the default one has to be told that the copy is done.
	if err := context.Synchronize(); err != nil {
		return err
	}
	config := cuda.LaunchConfig{Grid: cuda.Dim3{X: 2}, Block: cuda.Dim3{X: 256}, SharedMem: shared, Stream: stream}
	if err := reverse.Launch(config, memory); err != nil {
		return err
	}
	if err := stream.Synchronize(); err != nil {
		return err
	}
	if err := context.MemcpyDtoH(cuda.Bytes(data), memory); err != nil {
		return err
	}
	for i, got := range data {
		if want := uint32(i/256*256 + 255 - i%256); got != want {
			return fmt.Errorf("reverse: element %d is %d, want %d", i, got, want)
		}
	}
	return nil
}
