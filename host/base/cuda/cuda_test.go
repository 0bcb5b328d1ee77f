package cuda_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/opgraft/graft/host/base/cuda"
	"github.com/opgraft/graft/host/base/cuda/cudatest"
	"github.com/opgraft/graft/internal/must"
)

// open opens a fake driver of the test's own.
func open(t *testing.T, settings ...string) (*cudatest.Fake, cuda.Device) {
	t.Helper()
	fake := cudatest.Load(t, settings...)
	driver := must.Value(cuda.OpenPath(fake.Path))(t)
	device := must.Value(driver.Device(0))(t)
	return fake, device
}

func TestExercise(t *testing.T) {
	_, device := open(t)
	for range 2 {
		must.Succeed(t, exercise(device))
	}
}

// TestOnDevice is TestExercise on a GPU.
func TestOnDevice(t *testing.T) {
	devices, err := cuda.Devices()
	if errors.Is(err, cuda.ErrNoDriver) || errors.Is(err, cuda.ErrNoDevice) {
		t.Skip(err)
	}
	must.Succeed(t, err)
	for _, device := range devices {
		info := must.Value(device.Info())(t)
		t.Logf("%+v", info)
		must.Succeed(t, exercise(device), "device", device.Ordinal())
	}
}

// TestEveryFailure lets every call of every function fail once: the error names it, and whatever was made
// until then is closed.
func TestEveryFailure(t *testing.T) {
	fake, device := open(t)
	// What closes something leaves it behind when it fails.
	closes := []string{"cuMemFree", "cuMemFreeHost", "cuStreamDestroy", "cuEventDestroy", "cuModuleUnload",
		"cuDevicePrimaryCtxRelease"}
	// These were called when the driver was opened, or have no failure of their own.
	before := []string{"cuInit", "cuGetErrorName", "cuGetErrorString", "cuDeviceGetCount", "cuDeviceGet"}
	const illegalAddress = 700
	for _, name := range cuda.Functions() {
		if slices.Contains(before, name) || slices.Contains(closes, name) || name == "cuCtxPopCurrent" {
			continue
		}
		calls := 0
		for ; ; calls++ {
			fake.Set("fail", fmt.Sprintf("%s:%d:%d", name, calls+1, illegalAddress))
			err := exercise(device)
			if fake.Get("fail") > 0 {
				break // there are no more calls of it
			}
			var call *cuda.CallError
			if !errors.As(err, &call) || call.Function != name || !errors.Is(err, cuda.IllegalAddress) ||
				call.Name != "CUDA_ERROR_ILLEGAL_ADDRESS" || call.Text != "an illegal memory access was encountered" {
				t.Fatalf("call %d of %s failed and the error is %v", calls+1, name, err)
			}
			if name == "cuCtxGetCurrent" || name == "cuCtxPushCurrent" {
				fake.Set("abandoned", "0") // a Close that cannot make its context current leaves things to that
			}
			if left := fake.Left(); len(left) > 0 {
				t.Fatalf("call %d of %s failed and %v are left", calls+1, name, left)
			}
		}
		if calls == 0 {
			t.Errorf("%s is never called", name)
		}
	}
	fake.Set("fail", "none:0:0")
}
