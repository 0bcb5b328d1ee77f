package library

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/internal/must"
)

// guard is the compiler's option for checked control flow.
var guard = map[string]string{"amd64": "-fcf-protection=full", "arm64": "-mbranch-protection=standard"}[runtime.GOARCH]

func TestHardening(t *testing.T) {
	source := filepath.Join(t.TempDir(), "a.c")
	plugintest.WriteFile(t, source, []byte(`#include <string.h>
__attribute__((visibility("default"))) int graft_plugin_v1(const char* text, int n) { char room[64]; memcpy(room, text, n); return room[n / 2]; }`))
	all := []string{"full read-only relocations", "separate code", "stack protector", "fortified functions",
		"control flow"}
	for _, c := range []struct {
		flags []string
		lacks []string
	}{
		{[]string{"-O2", "-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2", guard,
			"-Wl,-z,relro,-z,now,-z,separate-code"}, nil},
		{[]string{"-O2", "-fno-stack-protector", "-U_FORTIFY_SOURCE", "-fcf-protection=none",
			"-Wl,-z,norelro,-z,lazy,-z,noseparate-code"}, all},
		{[]string{"-O2", "-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2", guard,
			"-Wl,-z,relro,-z,lazy,-z,separate-code"}, all[:1]},
	} {
		if runtime.GOARCH == "arm64" {
			c.flags = slices.DeleteFunc(c.flags, func(f string) bool { return f == "-fcf-protection=none" })
		}
		path := filepath.Join(t.TempDir(), "liba.so")
		plugintest.Compile(t, path, append(slices.Clone(c.flags), source)...)
		lib := must.Value(Read(path))(t)
		must.Equal(t, lib.Hardening.Lacks(), c.lacks, c.flags, lib.Hardening)
	}
}

// The plugins of this repository have all of it.
func TestOurPluginsAreHardened(t *testing.T) {
	found := 0
	for _, folder := range filepath.SplitList(os.Getenv("GRAFT_PLUGIN_PATH")) {
		paths, _ := filepath.Glob(filepath.Join(folder, "*", "lib*.so"))
		for _, path := range paths {
			found++
			lib, err := Read(path)
			if err != nil {
				t.Error(err)
			} else if lacks := lib.Hardening.Lacks(); len(lacks) > 0 {
				t.Errorf("%s lacks %q: %+v", path, lacks, lib.Hardening)
			}
		}
	}
	if found == 0 {
		t.Error("found no plugins on GRAFT_PLUGIN_PATH; make plugins makes them, and make test names their folder")
	}
}
