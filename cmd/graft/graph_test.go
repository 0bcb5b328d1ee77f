package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/opgraft/graft/host/plugin/trust"
	"github.com/opgraft/graft/host/session/languages"
	"github.com/opgraft/graft/internal/must"
)

// TestGraphDepends: a stored graph holds until the model, the lock, the record of verified plugins or a folder of
// them is another.
func TestGraphDepends(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("XDG_DATA_HOME", filepath.Join(folder, "data"))
	model, lock := filepath.Join(folder, "model.onnx"), filepath.Join(folder, "graft.lock")
	plugins := []string{filepath.Join(folder, "one"), filepath.Join(folder, "two")}
	t.Setenv("GRAFT_PLUGIN_LOCK", lock)
	t.Setenv("GRAFT_PLUGIN_PATH", plugins[0]+string(os.PathListSeparator)+plugins[1])
	long := time.Now().Add(-time.Hour)
	installed, record := filepath.Join(folder, "data", "graft", "plugins"),
		filepath.Join(folder, "data", "graft", trust.FileName)
	for _, path := range append(plugins, installed) {
		must.Succeed(t, os.MkdirAll(path, 0o700))
	}
	for _, path := range []string{model, lock, record} {
		must.Succeed(t, os.WriteFile(path, []byte("text"), 0o600))
	}
	for _, changed := range append(plugins, model, lock, installed, record) {
		must.Succeed(t, os.Chtimes(changed, long, long))
		files := must.Value(depends(model, false))(t)
		entry := &languages.Entry{Files: files}
		if !entry.Holds() {
			t.Errorf("what was just looked at does not hold: %+v", files)
		}
		must.Succeed(t, os.Chtimes(changed, time.Time{}, time.Now()))
		if entry.Holds() {
			t.Errorf("the graph holds, and %s is another: %+v", changed, files)
		}
	}
}
