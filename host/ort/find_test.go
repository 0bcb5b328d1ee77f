package ort

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/ort/fetch"
	"github.com/opgraft/graft/internal/must"
)

// touch makes a file that Find takes for a library; Find does not open it.
func touch(t *testing.T, path string) string {
	t.Helper()
	must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.Succeed(t, os.WriteFile(path, nil, 0o644))
	return path
}

func TestFindOrder(t *testing.T) {
	t.Setenv(EnvPath, "")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	system := t.TempDir()
	t.Setenv("LD_LIBRARY_PATH", ":relative:"+system)
	exe := must.Value(os.Executable())(t)
	cache := must.Value(fetch.Dir())(t)
	dir := t.TempDir()
	// From the last place that Find looks at to the first: each wins over those before.
	for _, step := range []struct {
		source, path string
		prepare      func(path string)
	}{
		{"system", filepath.Join(system, "libonnxruntime.so"), nil},
		{"executable", filepath.Join(filepath.Dir(exe), "libonnxruntime.so"),
			func(path string) { t.Cleanup(func() { os.Remove(path) }) }},
		{"executable", filepath.Join(filepath.Dir(exe), "libonnxruntime.so.1"),
			func(path string) { t.Cleanup(func() { os.Remove(path) }) }},
		{"cache", filepath.Join(cache, fetch.LibraryName), nil},
		{EnvPath, filepath.Join(dir, "mine.so"), func(path string) { t.Setenv(EnvPath, path) }},
	} {
		touch(t, step.path)
		if step.prepare != nil {
			step.prepare(step.path)
		}
		found, err := Find("")
		if err != nil || found != (Location{step.source, step.path}) {
			t.Errorf("got %v (%v), want %s from %s", found, err, step.path, step.source)
		}
	}
	option := touch(t, filepath.Join(dir, "option.so"))
	if found, err := Find(option); err != nil || found != (Location{"option", option}) {
		t.Errorf("option: got %v (%v)", found, err)
	}
}

// TestFindNamesEveryPath: an error that a user can act on. A path that the user named is not
// replaced by another silently.
func TestFindNamesEveryPath(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("LD_LIBRARY_PATH", t.TempDir())
	t.Setenv(EnvPath, "")
	locations := Locations("")
	if len(locations) < 8 {
		t.Errorf("only %d places are looked at: %v", len(locations), locations)
	}
	missing := filepath.Join(t.TempDir(), "none.so")
	for _, c := range []struct{ option, env string }{{missing, ""}, {"", missing}} {
		t.Setenv(EnvPath, c.env)
		_, err := FindAndOpen(c.option)
		if !errors.Is(err, ErrNotFound) || strings.Count(err.Error(), "\n  /") != 1 ||
			!strings.Contains(err.Error(), missing) ||
			!strings.Contains(err.Error(), "graft doctor --fetch") || !strings.Contains(err.Error(), EnvPath) {
			t.Errorf("option %q, environment %q: got %v", c.option, c.env, err)
		}
	}
}

func TestNothingFound(t *testing.T) {
	t.Setenv(EnvPath, "")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	_, err := Find("")
	if err == nil {
		return // this machine has one in a system folder
	}
	for _, l := range Locations("") {
		if !strings.Contains(err.Error(), "\n  "+l.Path+" ("+l.Source+")") {
			t.Errorf("%v does not name %s", err, l.Path)
		}
	}
}
