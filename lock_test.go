package graft_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	onnx "github.com/yalue/onnxruntime_go"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/host/distribute/store"
	"github.com/opgraft/graft/host/plugin/lockfile"
	"github.com/opgraft/graft/internal/must"
)

// lockOf writes a lock of plugins' folders.
func lockOf(t *testing.T, folders ...string) string {
	t.Helper()
	lock := lockfile.New(filepath.Join(t.TempDir(), "graft.lock"))
	for _, folder := range folders {
		entry := must.Value(store.At(t.TempDir()).Locked(folder))(t)
		lock.Set(entry)
	}
	must.Succeed(t, lock.Write())
	return lock.Path()
}

// edition copies a built plugin, with a line more in its manifest.
func edition(t *testing.T, name, to, line string) string {
	t.Helper()
	must.Succeed(t, os.CopyFS(to, os.DirFS(filepath.Join("build/plugins", name))))
	f, err := os.OpenFile(filepath.Join(to, "plugin.yaml"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(line)
		err = errors.Join(err, f.Close())
	}
	must.Succeed(t, err)
	return to
}

// locked are options of a session that has a lock.
func locked(t *testing.T, lock string) *onnx.SessionOptions {
	t.Helper()
	o := must.Value(onnx.NewSessionOptions())(t)
	t.Cleanup(func() { o.Destroy() })
	must.Succeed(t, o.AddSessionConfigEntry(graft.ConfigLock, lock))
	return o
}

// TestLock: a lock says which plugins are used, of several editions of one which, and what differs is refused.
func TestLock(t *testing.T) {
	environment(t)
	d := signature(t, tiny)
	unpatched := d.answers(t, tiny, nil)
	plugins := filepath.Join(os.Getenv("XDG_DATA_HOME"), "graft", "plugins")
	older := edition(t, "fused-gelu", filepath.Join(plugins, ".versions", "fused-gelu", "0.1.0-older"), "# older\n")
	current := edition(t, "fused-gelu", filepath.Join(plugins, ".versions", "fused-gelu", "0.1.0-newer"), "# newer\n")
	must.Succeed(t, os.Symlink(".versions/fused-gelu/0.1.0-newer", filepath.Join(plugins, "fused-gelu")))
	flash := edition(t, "flash-decode", filepath.Join(plugins, "flash-decode"), "")
	other := edition(t, "fused-gelu", filepath.Join(t.TempDir(), "other"), "# another\n")
	absent := edition(t, "ngram-block", filepath.Join(t.TempDir(), "absent"), "")
	broken := filepath.Join(t.TempDir(), "graft.lock")
	must.Succeed(t, os.WriteFile(broken, []byte("schema_version: 9\n"), 0o644))
	const fix = "run: graft plugin install --locked --lock "
	for _, test := range []struct {
		name      string
		lock      string
		variable  bool // the environment names it
		options   graft.Options
		replaced  int
		plugins   []string
		refused   error
		complaint []string
	}{
		{name: "no lock", replaced: 10, plugins: []string{"flash-decode", "fused-gelu"}},
		{name: "one of two", lock: lockOf(t, current), replaced: 5, plugins: []string{"fused-gelu"}},
		{name: "both", lock: lockOf(t, flash, current), replaced: 10, plugins: []string{"flash-decode", "fused-gelu"}},
		{name: "one that is not current", lock: lockOf(t, older), replaced: 5, plugins: []string{"fused-gelu"}},
		{name: "the environment's", lock: lockOf(t, current), variable: true, replaced: 5, plugins: []string{"fused-gelu"}},
		{name: "one that another place hides", lock: lockOf(t, current),
			options:  graft.Options{Common: graft.Common{Folders: []string{other}}},
			replaced: 5, plugins: []string{"fused-gelu"}},
		{name: "other files", lock: lockOf(t, other), refused: graft.ErrBadPlugin,
			complaint: []string{"another fused-gelu 0.1.0: " + current + "/plugin.yaml: sha256 ", fix}},
		{name: "one that is not there", lock: lockOf(t, absent, current), refused: graft.ErrBadPlugin,
			complaint: []string{"found no plugin ngram-block, needed the plugins that it names, as it says; ", fix}},
		{name: "two that differ", lock: lockOf(t, absent, other), refused: graft.ErrBadPlugin,
			complaint: []string{"another fused-gelu 0.1.0: ", ", no plugin ngram-block, needed "}},
		{name: "a plugin that the lock does not name", lock: lockOf(t, current),
			options: graft.Options{Common: graft.Common{Plugins: []string{"flash-decode"}}}, refused: graft.ErrNoPlugin,
			complaint: []string{`no plugin "flash-decode" is loaded, found fused-gelu`}},
		{name: "a lock that is none", lock: broken, refused: graft.ErrBadPlugin,
			complaint: []string{broken + ": found schema_version 9, needed 1"}},
		{name: "no file", lock: broken + "x", refused: graft.ErrBadPlugin,
			complaint: []string{"graft.lockx: cannot read: no such file or directory, needed a lock file; write one with: " +
				"graft plugin lock --out "}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var log record
			options := test.options
			options.AcceptUnverified, options.Force = true, true
			options.Strict, options.Logger = true, log.logger()
			if test.variable {
				t.Setenv("GRAFT_PLUGIN_LOCK", test.lock)
			} else if test.lock != "" {
				options.Lock = test.lock
			}
			err := graft.EnableWith(options)
			if test.refused != nil {
				if !errors.Is(err, test.refused) || strings.Contains(err.Error(), "\n") {
					t.Errorf("error %v, want one line of the kind %v", err, test.refused)
				}
				for _, want := range test.complaint {
					if err != nil && !strings.Contains(err.Error(), want) {
						t.Errorf("error %q, want %q in it", err, want)
					}
				}
				return
			}
			must.Succeed(t, err)
			same(t, d.answers(t, tiny, nil), unpatched)
			log.expect(t, test.replaced, test.plugins...)
		})
	}

	// One session's own lock: of what is loaded it uses what the lock names, which must be as it says.
	var log record
	must.Succeed(t, graft.EnableWith(
		graft.Options{Common: graft.Common{AcceptUnverified: true, Force: true}, Logger: log.logger()}))
	same(t, d.answers(t, tiny, locked(t, lockOf(t, current))), unpatched)
	log.expect(t, 5, "fused-gelu")
	for lock, want := range map[string]string{
		lockOf(t, older): "session config entry graft.lock: " + current + "/plugin.yaml: found sha256 ",
		lockOf(t,
			absent): `session config entry graft.lock: no plugin "ngram-block" is loaded, found flash-decode, fused-gelu`,
		broken: "session config entry graft.lock: " + broken + ": found schema_version 9",
	} {
		must.Equal(t, d.answers(t, tiny, locked(t, lock)), unpatched)
		if list := log.take(t); len(list) != 1 || list[0].Level != "WARN" || !strings.Contains(list[0].Reason, want) {
			t.Errorf("the log says %+v, want one warning with %q", list, want)
		}
	}
}

// TestLockOfChangedLibrary: bytes that were changed since the lock was written are not loaded, whatever is accepted.
func TestLockOfChangedLibrary(t *testing.T) {
	environment(t)
	folder := edition(t, "fused-gelu", filepath.Join(t.TempDir(), "fused-gelu"), "")
	lock := lockOf(t, folder)
	library := filepath.Join(folder, "libfused_gelu.so")
	data, err := os.ReadFile(library)
	if err == nil {
		err = os.WriteFile(library, append(data, 0), 0o755)
	}
	must.Succeed(t, err)
	err = graft.EnableWith(graft.Options{Common: graft.Common{Folders: []string{folder}, AcceptUnverified: true,
		Lock: lock}})
	if want := "another fused-gelu 0.1.0: " + library + ": sha256 "; !errors.Is(err, graft.ErrBadPlugin) ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}
