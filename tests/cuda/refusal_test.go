//go:build cuda

package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ebitengine/purego"
)

// compile makes a program or a library of a C source under testdata.
func compile(t *testing.T, source, output string, options ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), output)
	gcc := exec.Command("gcc", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", "-I", root+"/abi",
		filepath.Join("testdata", source), "-o", path)
	gcc.Args = append(gcc.Args, options...)
	if out, err := gcc.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", source, err, out)
	}
	return path
}

// ask runs a library in a process of its own, with more variables, and gives its answer to a probe: the code,
// the score and the reason.
func ask(t *testing.T, program, library string, environment ...string) string {
	t.Helper()
	probe := exec.Command(program, library)
	probe.Env = append(os.Environ(), environment...)
	out, err := probe.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", library, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestRefusals(t *testing.T) {
	program := compile(t, "probe.c", "probe", "-ldl")
	driver := compile(t, "driver.c", "libcuda.so.1", "-shared", "-fPIC")
	const other = ", or use the plugin's CPU variant"
	for name, c := range map[string]struct{ driver, want string }{
		"old": {"12080 0", "0 0 found an NVIDIA driver for CUDA 12.8, need CUDA 13.0; install driver release 580 or " +
			"later" + other},
		"no device": {"13000 100", "0 0 found 0 CUDA devices, need number 0 counted from 0; see nvidia-smi -L and " +
			"CUDA_VISIBLE_DEVICES" + other},
		"mismatch": {"13010 803", "0 0 found an NVIDIA driver for CUDA 13.1 that does not answer: " +
			"cudaErrorSystemDriverMismatch: system has unsupported " +
			"display driver / cuda driver combination; see what nvidia-smi says" + other},
	} {
		for plugin, library := range built(t) {
			got := ask(t, program, library, "LD_LIBRARY_PATH="+filepath.Dir(driver), "GRAFT_TEST_DRIVER="+c.driver)
			if got != c.want {
				t.Errorf("%s: %s: found %s\nneed %s", name, plugin, got, c.want)
			}
		}
	}
}

// The machine as it is: without a driver each variant says so; with one it says anything else.
func TestThisMachine(t *testing.T) {
	program := compile(t, "probe.c", "probe", "-ldl")
	_, err := purego.Dlopen("libcuda.so.1", purego.RTLD_LAZY|purego.RTLD_LOCAL)
	driver := err == nil
	for plugin, library := range built(t) {
		got := ask(t, program, library)
		none := got == "0 0 found no NVIDIA driver (libcuda.so.1), need release 580 or later; install one, or mount the "+
			"host's "+
			"into the container, or use the plugin's CPU variant"
		if none == driver {
			t.Errorf("%s: found %s\non a machine with driver: %v", plugin, got, driver)
		}
	}
}
