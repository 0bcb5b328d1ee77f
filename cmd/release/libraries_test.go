package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

func TestNewer(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{{"2.28", "2.28", false}, {"2.29", "2.28", true}, {"2.4", "2.28", false}, {"2.2.5", "2.28", false},
		{"2.28.1", "2.28", true}, {"3.0", "2.28", true}} {
		if got := newer(c.a, c.b); got != c.want {
			t.Errorf("%s is newer than %s: %v", c.a, c.b, got)
		}
	}
}

// TestPortable: what a library needs beyond an old glibc is told by its name.
func TestPortable(t *testing.T) {
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	here := platforms[0]
	for _, p := range platforms {
		if p.goarch == runtime.GOARCH {
			here = p
		}
	}
	build := func(source string, flags ...string) string {
		t.Helper()
		folder := t.TempDir()
		path := filepath.Join(folder, "libx.so")
		must.Succeed(t, os.WriteFile(filepath.Join(folder, "x.c"), []byte(source), 0o644))
		if out, err := exec.Command(compiler,
			append([]string{"-shared", "-fPIC", "-o", path, filepath.Join(folder, "x.c")},
				flags...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return path
	}
	old := here
	old.maximum = "2.1"
	other := platforms[0]
	if other == here {
		other = platforms[1]
	}
	plain := "int twice(int x) { return 2 * x; }"
	for name, c := range map[string]struct {
		path string
		p    platform
		want string
	}{
		"fits": {build(plain), here, ""},
		"too new": {build("#include <stdio.h>\nvoid say(void) { puts(\"x\"); }"), old,
			"found that it needs puts of glibc 2."},
		"another library": {build(plain, "-Wl,--no-as-needed", "-lgcc_s"), here,
			"found that it needs libgcc_s.so.1, needed nothing but glibc"},
		"another processor":   {build(plain), other, "found a library for"},
		"not a library":       {"libraries_test.go", here, "bad magic number"},
		"a file that is gone": {filepath.Join(t.TempDir(), "libx.so"), here, "no such file"},
	} {
		err := portable(c.path, c.p)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, needed %q", name, err, c.want)
		}
	}
}

// TestReplaceable: only a release is written over.
func TestReplaceable(t *testing.T) {
	folder := t.TempDir()
	must.Succeed(t, replaceable(filepath.Join(folder, "none")))
	must.Succeed(t, replaceable(folder))
	for i, name := range []string{"notes.txt", "SHA256SUMS"} {
		must.Succeed(t, os.WriteFile(filepath.Join(folder, name), nil, 0o644))
		if err := replaceable(folder); (err == nil) != (i == 1) {
			t.Errorf("with %s: %v", name, err)
		}
	}
}
