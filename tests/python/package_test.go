package python

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/tests/graftcommand"
)

// packageCases are those of package/cases.py, with whether go test -short runs them, in the newest runtime alone.
var packageCases = []struct {
	name  string
	short bool
}{
	{"ways", true},
	{"calls", true},
	{"models", true},
	{"options", true},
	{"options_before", true},
	{"profile", false},
	{"left", true},
	{"settings", true},
	{"binary", false},
	{"places", false},
	{"hang", true},
	{"processor", true},
	{"cache_places", true},
	{"cache_full", true},
	{"cache_of_others", false},
	{"changes", true},
	{"replaced", true},
	{"changed_meanwhile", true},
	{"programs", false},
	{"threads", true},
	{"fork", true},
	{"exit", false},
	{"way_back", true},
	{"no_way_back", true},
	{"way_back_as_made", true},
	{"results", false},
	{"comparison", false},
	{"command", false},
	{"many", false},
}

// TestPackage runs the cases of Python's package graft, each in a process and with a cache of its own.
func TestPackage(t *testing.T) {
	binary := command(t)
	peers := []string{"new", "old"}
	if testing.Short() {
		peers = peers[:1]
	}
	for _, peer := range peers {
		program := must.Value(filepath.Abs(filepath.Join("..", "..", "build", "peers", peer, "bin", "python")))(t)
		if _, err := os.Stat(program); err != nil {
			t.Fatalf("the Python environment is not there: %v; run `make peers`", err)
		}
		for _, c := range packageCases {
			if testing.Short() && !c.short {
				continue
			}
			t.Run(peer+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				runCase(t, c.name, binary, program)
			})
		}
	}
}

// command builds graft where every user finds it: a case runs as another.
func command(t *testing.T) string {
	t.Helper()
	folder := must.Value(os.MkdirTemp("", "graft-python-"))(t)
	t.Cleanup(func() { os.RemoveAll(folder) })
	must.Succeed(t, os.Chmod(folder, 0o755))
	binary := filepath.Join(folder, "graft")
	must.Succeed(t, graftcommand.Write(binary))
	return binary
}

// runCase runs a case, with the command at binary, in a Python: its path, or a program that runs it and what that is
// called with.
func runCase(t *testing.T, name, binary string, python ...string) {
	t.Helper()
	plugins := must.Value(filepath.Abs("../../build/plugins"))(t)
	library, err := ort.Find("") // for graft ab, where the environment's onnxruntime is too old for it
	must.Succeed(t, err)
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, python[0], append(python[1:], "cases.py", name)...)
	cmd.Dir = "package"
	cmd.Env = append(os.Environ(), "GRAFT_BINARY="+binary, "GRAFT_PLUGIN_PATH="+plugins, "GRAFT_PLUGIN_UNVERIFIED=1",
		"GRAFT_ONNXRUNTIME="+library.Path,
		"XDG_CACHE_HOME="+t.TempDir(), "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestPackageServed runs the package in a server that forks, which is installed beside the newest runtime.
func TestPackageServed(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	runCase(t, "gunicorn", command(t), newest(t))
}

// TestPackageWithoutAVX2 runs the package on a processor of 2008, which QEMU emulates.
func TestPackageWithoutAVX2(t *testing.T) {
	qemu, err := exec.LookPath("qemu-x86_64")
	if err != nil || runtime.GOARCH != "amd64" {
		t.Skip("no qemu-x86_64 (Debian's qemu-user, which make arm64 brings), or another processor than x86-64")
	}
	own := must.Value(os.ReadFile("/proc/cpuinfo"))(t)
	root := t.TempDir() // in which the program finds what it would find in /
	must.Succeed(t, os.Mkdir(filepath.Join(root, "proc"), 0o700))
	if err := os.WriteFile(filepath.Join(root, "proc", "cpuinfo"), regexp.MustCompile(` avx\w*`).ReplaceAll(own, nil),
		0o600); err != nil {
		t.Fatal(err)
	}
	runCase(t, "emulated", command(t), qemu, "-cpu", "Nehalem", "-L", root, newest(t))
}

// newest is the Python with the newest runtime.
func newest(t *testing.T) string {
	t.Helper()
	program := must.Value(filepath.Abs("../../build/peers/new/bin/python"))(t)
	return program
}

// TestEveryCaseIsListed holds the table against the file.
func TestEveryCaseIsListed(t *testing.T) {
	text := must.Value(os.ReadFile("package/cases.py"))(t)
	// a part of programs; in the newest runtime alone
	listed := map[string]bool{"one_program": true, "gunicorn": true, "emulated": true}
	for _, c := range packageCases {
		listed[c.name] = true
		if !strings.Contains(string(text), "\ndef case_"+c.name+"():") {
			t.Errorf("%s is not in package/cases.py", c.name)
		}
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "def case_"); ok {
			if name, _, _ = strings.Cut(name, "("); !listed[name] {
				t.Errorf("case_%s is run by no test", name)
			}
		}
	}
}

// TestOtherPythons runs cases in the Pythons that GRAFT_PYTHONS lists, with colons between: each has onnxruntime and
// onnx.
func TestOtherPythons(t *testing.T) {
	list := os.Getenv("GRAFT_PYTHONS")
	if list == "" {
		t.Skip("GRAFT_PYTHONS lists no Python")
	}
	binary := command(t)
	var once sync.Once
	for _, program := range filepath.SplitList(list) {
		for _, name := range []string{"ways", "calls", "models", "options", "options_before", "left", "changes", "threads",
			"fork", "exit", "way_back", "no_way_back", "way_back_as_made"} {
			t.Run(filepath.Base(filepath.Dir(filepath.Dir(program)))+"/"+name, func(t *testing.T) {
				if _, err := os.Stat(program); errors.Is(err, os.ErrNotExist) {
					once.Do(func() { t.Errorf("%s is not there", program) })
					return
				}
				runCase(t, name, binary, program)
			})
		}
	}
}
