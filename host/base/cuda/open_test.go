package cuda_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/opgraft/graft/host/base/diagnostic"

	"github.com/opgraft/graft/host/base/cuda"
	"github.com/opgraft/graft/host/base/cuda/cudatest"
	"github.com/opgraft/graft/internal/must"
)

// refused requires an *diagnostic.Error of a kind, with every one of the texts.
func refused(t *testing.T, err error, kind error, texts ...string) {
	t.Helper()
	var e *diagnostic.Error
	if !errors.As(err, &e) || !errors.Is(err, kind) {
		t.Fatalf("found the error %v, want one of kind %v", err, kind)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error is\n%s\nwithout\n%s", err, text)
		}
	}
}

func TestNoDriver(t *testing.T) {
	module := filepath.Join(t.TempDir(), "version")
	cuda.SetModuleFile(t, module)
	t.Setenv(cuda.EnvPath, "")
	if cuda.Expected() {
		t.Error("a driver is expected without a reason")
	}
	library := filepath.Join(t.TempDir(), "libcuda.so.1")
	_, err := cuda.OpenPath(library)
	refused(t, err, cuda.ErrNoDriver, library+": found no such library: ", "No such file",
		"name the driver's libcuda.so.1 with GRAFT_CUDA_DRIVER")

	if _, err := cuda.Open(); errors.Is(err, cuda.ErrNoDriver) {
		if _, again := cuda.Open(); again != err {
			t.Errorf("the second error is not the first: %v", again)
		}
		_, err = cuda.Nowhere()
		refused(t, err, cuda.ErrNoDriver,
			"libcuda.so.1: found no NVIDIA driver, needed release 580 or newer to use a GPU; install it, and in a container")
		for _, call := range []func() error{
			func() error { _, err := cuda.Devices(); return err },
			func() error { _, err := cuda.GetDevice(0); return err },
			func() error { _, err := cuda.DriverVersion(); return err },
		} {
			refused(t, call(), cuda.ErrNoDriver)
		}
	}

	// A kernel's module without its library is a container without its GPUs.
	line := "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 07:10:10 UTC 2025\nGCC version:  " +
		"gcc 12\n"
	must.Succeed(t, os.WriteFile(module, []byte(line), 0o600))
	if !cuda.Expected() {
		t.Error("no driver is expected where the kernel has its module")
	}
	_, err = cuda.Nowhere()
	refused(t, err, cuda.ErrNoDriver, "found the kernel's module 580.65.06 but not this library", "/usr/lib64",
		"docker run --gpus all", cuda.EnvPath)
}

func TestNotADriver(t *testing.T) {
	text := filepath.Join(t.TempDir(), "libcuda.so.1")
	must.Succeed(t, os.WriteFile(text, []byte("text"), 0o600))
	_, err := cuda.OpenPath(text)
	refused(t, err, cuda.ErrDriver, text+": found a library that does not load: ",
		"needed the libcuda.so.1 of NVIDIA's driver for ")

	other := filepath.Join(t.TempDir(), "libcuda.so.1")
	compile(t, other, "int x;")
	_, err = cuda.OpenPath(other)
	refused(t, err, cuda.ErrDriver, other+": found a library without cuDriverGetVersion, needed NVIDIA's driver; ")

	early := filepath.Join(t.TempDir(), "libcuda.so.1")
	compile(t, early, "int cuDriverGetVersion(int *v) { return *v = 13000, 0; }")
	_, err = cuda.OpenPath(early)
	refused(t, err, cuda.ErrDriver,
		early+": found a driver for CUDA 13.0 without cuGetProcAddress_v2, needed all of CUDA 13.0; ")
}

func compile(t *testing.T, library, source string) {
	t.Helper()
	cmd := exec.Command("gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", library)
	cmd.Stdin = strings.NewReader(source)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestUnusableDrivers(t *testing.T) {
	for _, c := range []struct {
		name, settings string
		kind           error
		result         cuda.Result
		texts          []string
	}{
		{"old", "version=12040", cuda.ErrDriverTooOld, 0,
			[]string{"found a driver for CUDA 12.4, needed 13.0 or newer; install release 580 or newer of NVIDIA's driver, " +
				"or its package cuda-compat-13-0"}},
		{"very old", "version=10020", cuda.ErrDriverTooOld, 0, []string{"for CUDA 10.2,"}},
		{"without a version", "version=0", cuda.ErrDriver, cuda.Unknown,
			[]string{"found that cuDriverGetVersion fails: CUDA result 999; install the driver again"}},
		{"no device", "devices=0", cuda.ErrNoDevice, cuda.NoDevice,
			[]string{"found a driver for CUDA 13.0 and no device, needed an NVIDIA GPU; see whether nvidia-smi shows one"}},
		{"stub", "init=34", cuda.ErrDriver, cuda.StubLibrary,
			[]string{"found the toolkit's stub for linking, needed the driver; take the toolkit's folder stubs out of " +
				"LD_LIBRARY_PATH"}},
		{"mismatch", "init=803", cuda.ErrDriver, cuda.DriverMismatch,
			[]string{"found a library of another release than the kernel's module",
				"restart the machine after an update of the driver"}},
		{"compat", "init=804", cuda.ErrDriver, cuda.CompatNotSupported,
			[]string{"cuda-compat on a device that it does not support"}},
		{"fabric", "init=802", cuda.ErrDriver, cuda.SystemNotReady,
			[]string{"does not start: cuInit: system not yet initialized (CUDA_ERROR_SYSTEM_NOT_READY); start NVIDIA's " +
				"fabric manager"}},
		{"unknown", "init=999", cuda.ErrDriver, cuda.Unknown,
			[]string{"does not start: cuInit: unknown error (CUDA_ERROR_UNKNOWN); see whether nvidia-smi works"}},
		{"a result without a name", "init=12345", cuda.ErrDriver, 12345,
			[]string{"cuInit: an error without a text (CUDA result 12345)"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fake := cudatest.Load(t, c.settings)
			_, err := cuda.OpenPath(fake.Path)
			refused(t, err, c.kind, append(c.texts, fake.Path+": ")...)
			if c.result != 0 && !errors.Is(err, c.result) {
				t.Errorf("%v is not %v", err, c.result)
			}
			if _, again := cuda.OpenPath(fake.Path); again != err {
				t.Errorf("the second error is not the first: %v", again)
			}
		})
	}
}

func TestNoVisibleDevice(t *testing.T) {
	t.Setenv("CUDA_VISIBLE_DEVICES", "7")
	fake := cudatest.Load(t, "devices=0")
	_, err := cuda.OpenPath(fake.Path)
	refused(t, err, cuda.ErrNoDevice,
		`and no device among CUDA_VISIBLE_DEVICES="7", needed an NVIDIA GPU; change or unset that`)
}

// TestMissingFunctions hides one function after the other.
func TestMissingFunctions(t *testing.T) {
	for _, name := range cuda.Functions() {
		fake := cudatest.Load(t, "hide="+name)
		_, err := cuda.OpenPath(fake.Path)
		refused(t, err, cuda.ErrDriver, fake.Path+": found a driver for CUDA 13.0 without "+name+" of CUDA ",
			"needed all of CUDA 13.0")
	}
}

func TestOpenOnce(t *testing.T) {
	fake := cudatest.Load(t, "version=13010")
	var all sync.WaitGroup
	drivers := make([]*cuda.Driver, 8)
	for i := range drivers {
		all.Go(func() { drivers[i], _ = cuda.OpenPath(fake.Path) })
	}
	all.Wait()
	for _, d := range drivers {
		if d == nil || d != drivers[0] {
			t.Fatalf("drivers %v", drivers)
		}
	}
	if d := drivers[0]; d.Path() != fake.Path || d.Version() != 13010 || d.Version().String() != "13.1" {
		t.Errorf("the driver is %s of CUDA %v", d.Path(), d.Version())
	}
}

// TestEnvironment needs a process of its own, because the driver of a process is opened once.
func TestEnvironment(t *testing.T) {
	if os.Getenv("GRAFT_TEST_ENVIRONMENT") != "" {
		version, err := cuda.DriverVersion()
		fmt.Println(version, err)
		device, err := cuda.GetDevice(1)
		fmt.Println(device.Ordinal(), err)
		devices, err := cuda.Devices()
		fmt.Println(len(devices), err)
		return
	}
	for settings, want := range map[string]string{
		"signals=0 devices=3":     "13.0 <nil>\n1 <nil>\n3 <nil>\n",
		"signals=0 version=12080": "12.8 <nil>\n0 LIBRARY: found a driver for CUDA 12.8, need",
		"signals=0 devices=0":     "13.0 <nil>\n0 LIBRARY: found a driver for CUDA 13.0 and no device",
		"signals=0 devices=1":     "13.0 <nil>\n0 LIBRARY: found no device 1, needed 0 to 0\n1 <nil>\n",
	} {
		library := cudatest.Library(t)
		cmd := exec.Command(os.Args[0], "-test.run=^TestEnvironment$")
		cmd.Env = append(os.Environ(), "GRAFT_TEST_ENVIRONMENT=1", cuda.EnvPath+"="+library, "FAKE_CUDA="+settings,
			"GORACE=atexit_sleep_ms=0")
		out, err := cmd.CombinedOutput()
		if want = strings.ReplaceAll(want, "LIBRARY", library); err != nil || !strings.HasPrefix(string(out), want) {
			t.Errorf("%s: %v, found\n%s\nwant\n%s", settings, err, out, want)
		}
	}
}

func TestDevices(t *testing.T) {
	fake := cudatest.Load(t)
	driver := must.Value(cuda.OpenPath(fake.Path))(t)
	devices, err := driver.Devices()
	if err != nil || len(devices) != 2 {
		t.Fatalf("found %d devices: %v", len(devices), err)
	}
	info, err := devices[1].Info()
	want := cuda.DeviceInfo{Ordinal: 1, Name: "Fake H200 1", UUID: "10111213-1415-1617-1819-1a1b1c1d1e1f", Major: 9,
		TotalMem:        1 << 30,
		Multiprocessors: 132, L2Cache: 50 << 20, SharedPerBlock: 48 << 10, SharedPerBlockOptin: 227 << 10,
		MaxThreadsPerBlock: 1024, MaxThreadsPerMultiprocessor: 2048}
	if err != nil || info != want {
		t.Errorf("found %+v: %v\nwant %+v", info, err, want)
	}
	must.Equal(t, info.Architecture(), "sm_90")
	if major, minor, err := devices[0].ComputeCapability(); major != 9 || minor != 0 || err != nil {
		t.Errorf("compute capability %d.%d: %v", major, minor, err)
	}
	if devices[1].Ordinal() != 1 || devices[1].Driver() != driver {
		t.Errorf("device 1 is number %d", devices[1].Ordinal())
	}
	for _, ordinal := range []int{-1, 2} {
		_, err = driver.Device(ordinal)
		refused(t, err, cuda.ErrNoDevice, fmt.Sprintf("found no device %d, needed 0 to 1", ordinal))
	}
	must.Fail(t, must.Error(devices[0].Attribute(12345)), cuda.InvalidValue, "device attribute 12345")
	must.Fail(t, must.Error((cuda.Device{}).Name()), cuda.ErrArgument)
	for _, name := range []string{"cuDeviceGetCount", "cuDeviceGet"} {
		fake.Set("fail", name+":1:700")
		var call *cuda.CallError
		if _, err := driver.Devices(); !errors.As(err, &call) || call.Function != name {
			t.Errorf("%s failed and the error is %v", name, err)
		}
	}
	fake.Set("devices", "0")
	_, err = driver.Devices()
	refused(t, err, cuda.ErrNoDevice, "and no device")
}
