// Package cudatest has a CUDA driver without a device, for tests on machines without a GPU: a library that
// host/base/cuda opens like NVIDIA's. testdata/driver.c says what it does and what it can be told.
package cudatest

import (
	"embed"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
)

//go:embed testdata/*.c testdata/*.h
var source embed.FS

// Kernels is PTX of three kernels that the fake driver knows and that devices run too:
//
//	scale(float* out, const float* x, float a, uint32_t n)   out[i] = x[i] * a + i
//	parameters(void* out, u8, u16, u32, float, double, 12 bytes, u64)   stores them
//	reverse(uint32_t* data)   turns each block's part around, 4 bytes of dynamic shared memory a thread
//
// and a variable, uint32_t answer = 42.
//
//go:embed testdata/kernels.ptx
var Kernels []byte

// compiled is the library, made once a process.
var compiled = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "cudatest")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, source); err != nil {
		return nil, err
	}
	c, so := filepath.Join(dir, "testdata/driver.c"), filepath.Join(dir, "libcuda.so.1")
	out, err := exec.Command("gcc", "-shared", "-fPIC", "-O1", "-fvisibility=hidden", "-Wall", "-Werror", "-pthread", "-o",
		so, c).CombinedOutput()
	if err != nil {
		return nil, &exec.Error{Name: "gcc: " + string(out), Err: err}
	}
	return os.ReadFile(so)
})

// Library writes the fake driver into a folder of its own, so that it has variables of its own, and gives
// its path. Programs find it by GRAFT_CUDA_DRIVER, and tell it what to do by FAKE_CUDA.
func Library(t testing.TB) string {
	t.Helper()
	data, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "libcuda.so.1")
	if err := os.WriteFile(path, data, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// Fake is a fake driver in this process.
type Fake struct {
	Path                string
	set, get, complaint uintptr
}

// Load loads a fake driver and tells it what to do, "devices=0" for example. It leaves signal handlers
// alone unless told "signals=1". When the test ends, nothing that the driver made may be left, and it may
// have nothing to complain of.
func Load(t testing.TB, settings ...string) *Fake {
	t.Helper()
	f := Attach(t, Library(t), settings...)
	t.Cleanup(func() {
		for what, n := range f.Left() {
			t.Errorf("left open: %d %s", n, what)
		}
		if text := f.Complaint(); text != "" {
			t.Errorf("the driver complains: %s", text)
		}
	})
	return f
}

// Attach is Load of a library that is there, without checks at the end.
func Attach(t testing.TB, path string, settings ...string) *Fake {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		t.Fatal(err)
	}
	f := &Fake{Path: path}
	for name, at := range map[string]*uintptr{"fake_set": &f.set, "fake_get": &f.get, "fake_complaint": &f.complaint} {
		if *at, err = purego.Dlsym(handle, name); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range append([]string{"signals=0"}, settings...) {
		name, value, _ := strings.Cut(s, "=")
		f.Set(name, value)
	}
	return f
}

// Set tells the driver what to do.
func (f *Fake) Set(name, value string) {
	n, v := append([]byte(name), 0), append([]byte(value), 0)
	purego.SyscallN(f.set, uintptr(unsafe.Pointer(&n[0])), uintptr(unsafe.Pointer(&v[0])))
}

// Get asks how many there are of contexts, memory, host, streams, events, modules; how much went away with
// its context instead of being closed ("abandoned"); how many contexts the calling thread has ("current");
// how many calls wait for a stream ("waiting"); how long the last PTX was ("image"); or in how many calls a
// failure comes ("fail").
func (f *Fake) Get(name string) int {
	n := append([]byte(name), 0)
	r, _, _ := purego.SyscallN(f.get, uintptr(unsafe.Pointer(&n[0])))
	return int(r)
}

// Left is what the driver made and nobody closed, now or when its context was.
func (f *Fake) Left() map[string]int {
	left := map[string]int{}
	for _, what := range []string{"contexts", "memory", "host", "streams", "events", "modules", "abandoned"} {
		if n := f.Get(what); n != 0 {
			left[what] = n
		}
	}
	return left
}

// Complaint is what the driver has found wrong first: a bad argument, a freed address, no context.
func (f *Fake) Complaint() string {
	r, _, _ := purego.SyscallN(f.complaint)
	if r == 0 {
		return ""
	}
	var b strings.Builder
	for p := *(**byte)(unsafe.Pointer(&r)); *p != 0; p = (*byte)(unsafe.Add(unsafe.Pointer(p), 1)) {
		b.WriteByte(*p)
	}
	return b.String()
}
