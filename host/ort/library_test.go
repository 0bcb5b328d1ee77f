package ort

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/internal/must"
)

// fakeRuntime compiles a library with the entry point of ONNX Runtime and some version.
func fakeRuntime(t *testing.T, version string, flags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "libonnxruntime.so."+version)
	out, err := exec.Command("cc", append(flags, "-shared", "-fPIC",
		"-DVERSION=\""+version+"\"", "-o", path, "testdata/fake_runtime.c")...).CombinedOutput()
	if err != nil {
		t.Fatalf("compiling a fake runtime: %v\n%s", err, out)
	}
	return path
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.so")
	must.Succeed(t, os.WriteFile(text, []byte("not a library"), 0o644))
	libc := filepath.Join(dir, "other.so")
	if out, err := exec.Command("cc", "-shared", "-o", libc, "-x", "c", "/dev/null").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	old, young, odd := fakeRuntime(t, "1.22.0"), fakeRuntime(t, "1.29.3", "-DMAY_ASK"), fakeRuntime(t, "nightly")
	for _, c := range []struct {
		name, path string
		is         error
		want       []string
	}{
		{"missing", filepath.Join(dir, "none.so"), os.ErrNotExist,
			[]string{"none.so: cannot read: no such file or directory, needed a libonnxruntime; ", "graft doctor --fetch",
				EnvPath}},
		{"not a library", text, ErrUnusable, []string{text + ": does not load: "}},
		{"another library", libc, ErrUnusable,
			[]string{libc + ": is not a libonnxruntime, needed a library that exports OrtGetApiBase; "}},
		{"too old", old, ErrTooOld,
			[]string{old + ": found ONNX Runtime 1.22.0, needed 1.29.0 or newer (API version 29); ", "graft doctor --fetch"}},
		{"new enough by name only", young, ErrTooOld, []string{young + `: found version "1.29.3" without API version 29; `}},
		{"odd version", odd, ErrUnusable, []string{odd + `: found version "nightly", needed the form major.minor.patch; `}},
	} {
		l, err := Open(c.path)
		if l != nil || err == nil || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: got %v, %v", c.name, l, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q lacks %q", c.name, err, want)
			}
		}
	}
	must.Equal(t, len(must.Value(Loaded())(t)), 1)
	// A binding may have mapped an old one: it is refused, and the good one is still found.
	handle := must.Value(purego.Dlopen(old, purego.RTLD_NOW))(t)
	defer purego.Dlclose(handle)
	libraries, err := Loaded()
	if len(libraries) != 1 || libraries[0] != library || !errors.Is(err, ErrTooOld) ||
		!strings.Contains(err.Error(), old) {
		t.Errorf("Loaded() beside an old runtime: %v, %v", libraries, err)
	}
}

func TestOpenTwice(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link.so")
	must.Succeed(t, os.Symlink(library.path, link))
	again, err := Open(link)
	if err != nil || again != library {
		t.Errorf("got %p (%v), want the same library %p", again, err, library)
	}
	must.Equal(t, cmem.GoString(callC(cmem.LoadWord(must.Value(library.APIBase())(t), 1))), library.Version())
}

func TestProviders(t *testing.T) {
	providers, err := library.Providers()
	if err != nil || len(providers) == 0 || providers[len(providers)-1] != "CPUExecutionProvider" {
		t.Errorf("got %v, %v", providers, err)
	}
}

// TestNotLoaded asks a process that has no runtime: this test binary once more, told by a marker
// to open none.
func TestNotLoaded(t *testing.T) {
	if os.Getenv(markNotLoaded) != "" {
		return // TestMain has answered
	}
	cmd := exec.Command(os.Args[0], "-test.run=TestNotLoaded")
	cmd.Env = append(os.Environ(), markNotLoaded+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), ErrNotLoaded.Error()) {
		t.Errorf("got %s (%v), want %v", out, err, ErrNotLoaded)
	}
}

const markNotLoaded = "GRAFT_TEST_NOT_LOADED"

func TestParseVersion(t *testing.T) {
	for version, ok := range map[string]bool{"1.29.0": true, "1.30.1-dev": true, "2.0.0": true, "1.28.9": false,
		"0.99.0": false} {
		err := checkVersion("x.so", version)
		must.Equal(t, err == nil, ok, version)
	}
}
