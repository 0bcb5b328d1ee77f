package cuda_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/base/cuda"
	"github.com/opgraft/graft/host/base/cuda/cudatest"
	"github.com/opgraft/graft/internal/must"
)

var garbage []byte

func TestModules(t *testing.T) {
	x := makeThings(t)
	for _, c := range []struct {
		image  string
		result cuda.Result
		text   string
	}{
		{"\x7fELF", cuda.NoBinaryForGPU,
			"cuModuleLoadDataEx: no kernel image is available for execution on the device (CUDA_ERROR_NO_BINARY_FOR_GPU)"},
		{"text", cuda.InvalidImage, "CUDA_ERROR_INVALID_IMAGE"},
		{".version 9.0\n.entry f(.param .wrong x) {}", cuda.InvalidPTX,
			"a PTX JIT compilation failed (CUDA_ERROR_INVALID_PTX): ptxas application ptx input, " +
				"line 3; fatal   : Parsing error"},
	} {
		must.Fail(t, must.Error(x.context.LoadModuleData([]byte(c.image))), c.result, c.text)
	}
	_, err := x.context.LoadModuleData(nil)
	refused(t, err, cuda.ErrArgument, "found an empty image, needed PTX")
	if _, err := x.module.Function("none"); !errors.Is(err, cuda.NotFound) || !strings.HasSuffix(err.Error(), `: "none"`) {
		t.Errorf("a function that is not there: %v", err)
	}
	if _, _, err := x.module.Global("none"); !errors.Is(err, cuda.NotFound) ||
		!strings.HasSuffix(err.Error(), `: "none"`) {
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
		must.Succeed(t, module.Close())
	}
	path := filepath.Join(t.TempDir(), "kernels.ptx")
	must.Succeed(t, os.WriteFile(path, cudatest.Kernels, 0o600))
	module := must.Value(x.context.LoadModule(path))(t)
	must.Equal(t, must.Value(module.Function("reverse"))(t).Name(), "reverse")
	must.Fail(t, must.Error(x.context.LoadModule(path+"2")), os.ErrNotExist)
	must.Succeed(t, os.WriteFile(path, []byte("text"), 0o600))
	if _, err := x.context.LoadModule(path); !errors.Is(err, cuda.InvalidImage) ||
		!strings.HasPrefix(err.Error(), path+": ") {
		t.Error(err)
	}
}
