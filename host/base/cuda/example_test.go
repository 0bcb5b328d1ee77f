package cuda_test

import (
	"errors"
	"fmt"
	"os"

	"github.com/opgraft/graft/host/base/cuda"
)

// Scales numbers on the first device, where there is one.
func Example() {
	device, err := cuda.GetDevice(0)
	if errors.Is(err, cuda.ErrNoDriver) {
		fmt.Println("no GPU here")
		return
	}
	if err == nil {
		err = scale(device, []float32{1, 2, 3, 4}, 10)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func scale(device cuda.Device, x []float32, by float32) error {
	context, err := device.PrimaryContext()
	if err != nil {
		return err
	}
	defer context.Close() // and all that is made in it
	module, err := context.LoadModule("cudatest/testdata/kernels.ptx")
	if err != nil {
		return err
	}
	kernel, err := module.Function("scale")
	if err != nil {
		return err
	}
	memory, err := context.MemAlloc(int64(4 * len(x)))
	if err != nil {
		return err
	}
	if err := context.MemcpyHtoD(memory, cuda.Bytes(x)); err != nil {
		return err
	}
	config := cuda.LaunchConfig{Grid: cuda.Dim3{X: (len(x) + 127) / 128}, Block: cuda.Dim3{X: 128}}
	if err := kernel.Launch(config, memory, memory, by, uint32(len(x))); err != nil {
		return err
	}
	return context.MemcpyDtoH(cuda.Bytes(x), memory)
}
