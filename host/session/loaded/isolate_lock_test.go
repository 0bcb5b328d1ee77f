package loaded

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/opgraft/graft/host/distribute/store"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/lockfile"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/session/isolation"
	"github.com/opgraft/graft/internal/must"
)

// lockOf writes a lock of a plugin's folder.
func lockOf(t *testing.T, folder string) *lockfile.File {
	t.Helper()
	lock := lockfile.New(filepath.Join(t.TempDir(), lockfile.FileName))
	entry := must.Value(store.At(t.TempDir()).Locked(folder))(t)
	lock.Set(entry)
	must.Succeed(t, lock.Write())
	return lock
}

// longer appends to a file.
func longer(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Close())
	}
	must.Succeed(t, err)
}

// TestLockOfIsolated: an isolated plugin is what the lock says, to the bytes that its worker loads, and what differs
// is refused before any of it runs.
func TestLockOfIsolated(t *testing.T) {
	t.Setenv("GRAFT_PLUGIN_PATH", "")
	copied := func() string {
		folder := filepath.Join(t.TempDir(), "fused-gelu")
		must.Succeed(t, os.CopyFS(folder, os.DirFS("../../../build/plugins/fused-gelu")))
		return folder
	}
	load := func(folder string, lock *lockfile.File, isolate string) (*Set, error) {
		return LoadWith([]string{folder}, true, Ways{Lock: lock.Path(), Isolate: &Isolate{Names: []string{isolate}}})
	}
	is := func(set *Set, err error, lock *lockfile.File) {
		t.Helper()
		if err != nil || len(set.Plugins) != 1 || !set.Plugins[0].Apart() {
			t.Fatalf("%+v, %v; want one isolated plugin", set, err)
		}
		p, entry := set.Plugins[0], lock.Plugin("fused-gelu")
		if err := lock.Loaded(entry, p.Folder, p.Manifest.SHA256(), p.Variant.File, p.SHA256); err != nil {
			t.Error(err)
		}
	}
	folder := copied()
	lock := lockOf(t, folder)
	set, err := load(folder, lock, "fused-gelu")
	is(set, err, lock)

	// The manifest of the lock is the one that is used, though the library has a worker from before.
	longer(t, filepath.Join(folder, manifest.FileName), "# another\n")
	must.Fail(t, must.Error(load(folder, lock, "fused-gelu")), refusal.ErrLock)
	lock = lockOf(t, folder)
	set, err = load(folder, lock, "fused-gelu")
	is(set, err, lock)

	set, err = load(folder, lock, "flash-decode")
	if err == nil {
		err = set.Require([]string{"flash-decode"})
	}
	must.Fail(t, err, refusal.ErrNotFound)

	for name, text := range map[string]string{"libfused_gelu.so": "\x00", manifest.FileName: "# another\n"} {
		folder := copied()
		lock := lockOf(t, folder)
		longer(t, filepath.Join(folder, name), text)
		before := len(isolation.Stats())
		// In both places: when plugins are searched, and when one is opened that was changed since.
		_, searched := load(folder, lock, "fused-gelu")
		_, opened := isolation.Open(folder, plugin.OpenOptions{AcceptUnverified: true, Locked: lock}, isolation.Options{})
		for _, err := range []error{searched, opened} {
			must.Fail(t, err, refusal.ErrLock, filepath.Join(folder, name)+": ", "sha256 ")
		}
		must.Equal(t, len(isolation.Stats()), before, name)
	}

	lock = lockfile.New(filepath.Join(t.TempDir(), lockfile.FileName))
	must.Fail(t, must.Error(isolation.Open(copied(), plugin.OpenOptions{AcceptUnverified: true, Locked: lock},
		isolation.Options{})), refusal.ErrLock)
}
