package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/content"
	"github.com/opgraft/graft/host/plugin/discovery"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/verification"
	"github.com/opgraft/graft/internal/must"
)

// source makes the folder of a plugin in some variation of the fixture.
func source(t testing.TB, flags ...string) string {
	t.Helper()
	return plugintest.Write(t, filepath.Join(t.TempDir(), "toy-source"), plugintest.Manifest+plugintest.Cases,
		plugintest.Build(t, flags...))
}

// entries lists a store's folder, hidden entries included, without its lock.
func entries(t testing.TB, s *Store) []string {
	t.Helper()
	found, err := os.ReadDir(s.root)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	names := []string{}
	for _, e := range found {
		if e.Name() != ".lock" && e.Name() != discovery.VersionsFolder {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestVerifyChanges(t *testing.T) {
	install := func(t *testing.T) (*Store, string) {
		s := At(t.TempDir())
		in := must.Value(s.Install(context.Background(), source(t), verification.Options{}))(t)
		return s, discovery.Current(in.Folder)
	}
	again := ", needed the folder as it was installed; install the plugin again: graft plugin install DIR"
	for _, test := range []struct {
		name   string
		change func(folder string) error
		want   string
	}{
		{"changed", func(f string) error { return appendTo(filepath.Join(f, manifest.FileName), "# x\n") },
			"/plugin.yaml: found sha256 "},
		{"gone", func(f string) error { return os.Remove(filepath.Join(f, "libtoy.so")) },
			"/libtoy.so: found that the file is gone" + again},
		{"added", func(f string) error { return appendTo(filepath.Join(f, "x"), "") },
			"/x: found a file that was not there" + again},
		{"no record", func(f string) error { return os.Remove(filepath.Join(f, content.RecordName)) },
			"/.graft-record.json: cannot read the record of the installed files: no such file or directory; install the " +
				"plugin again: graft plugin install DIR"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, folder := install(t)
			must.Succeed(t, test.change(folder))
			checks, err := s.Verify(context.Background(), nil, verification.Options{})
			if err == nil || !strings.HasPrefix(err.Error(), folder+test.want) || !errors.Is(err, refusal.ErrVerification) {
				t.Errorf("error\n%v\nwant\n%s%s", err, folder, test.want)
			}
			if len(checks) != 1 || checks[0].Problem != err.Error() {
				t.Errorf("results %+v", checks)
			}
			// Named as a folder, it is the installed plugin still.
			if _, again := s.Verify(context.Background(), []string{folder}, verification.Options{}); again == nil ||
				again.Error() != err.Error() {
				t.Errorf("by its folder: %v, want %v", again, err)
			}
		})
	}
	t.Run("another library", func(t *testing.T) {
		s, folder := install(t)
		must.Succeed(t, os.Remove(filepath.Join(folder, "libtoy.so")))
		plugintest.WriteFile(t, filepath.Join(folder, "libtoy.so"),
			plugintest.ReadFile(t, plugintest.Build(t, "-DWRITE_WRONG")))
		if _, err := plugin.Open(folder, plugin.OpenOptions{Trust: s.Trust()}); err == nil ||
			!errors.Is(err, refusal.ErrVerification) || !strings.Contains(err.Error(), "run: graft plugin install "+folder) {
			t.Errorf("open: %v", err)
		}
	})
	t.Run("nothing installed", func(t *testing.T) {
		s := At(t.TempDir())
		want := s.root + ": found no installed plugin; install one with: graft plugin install DIR"
		must.FailExactly(t, must.Error(s.Verify(context.Background(), nil, verification.Options{})), want)
		if list, err := s.List(); err != nil || len(list) != 0 {
			t.Errorf("list: %v, %v", list, err)
		}
	})
}

func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(text)
	return err
}

// TestVerifyFolder verifies a build folder in place: only the record outside it changes.
func TestVerifyFolder(t *testing.T) {
	s := At(t.TempDir())
	folder := source(t)
	before := must.Value(content.Read(folder, nil))(t)
	must.Fail(t, must.Error(plugin.Open(folder, plugin.OpenOptions{Trust: s.Trust()})), refusal.ErrVerification)
	must.Value(s.Verify(context.Background(), []string{folder}, verification.Options{}))(t)
	must.Value(plugin.Open(folder, plugin.OpenOptions{Trust: s.Trust()}))(t, "after")
	after, err := content.Read(folder, nil)
	must.Succeed(t, err)
	must.Equal(t, fmt.Sprint(before), fmt.Sprint(after))
}

// TestReadOnlyStore works as a user without privileges, whatever user runs the tests.
func TestReadOnlyStore(t *testing.T) {
	data := t.TempDir()
	from := source(t)
	for _, folder := range []string{filepath.Dir(data), data, filepath.Dir(filepath.Dir(from)), filepath.Dir(from), from} {
		if err := os.Chmod(folder, 0o755); err != nil { // t.TempDir shuts others out
			t.Fatal(err)
		}
	}
	must.Succeed(t, os.Chmod(data, 0o555))
	unprivileged(t, func() {
		_, err := At(data).Install(context.Background(), from, verification.Options{})
		want := data + "/plugins: cannot make the folder: permission denied; make the folder writable, or set " +
			"XDG_DATA_HOME to one that is"
		must.FailExactly(t, err, want, refusal.ErrStore)
	})
	must.Succeed(t, os.Chmod(data, 0o755))
	s := At(data)
	must.Succeed(t, os.MkdirAll(s.root, 0o755))
	plugintest.WriteFile(t, filepath.Join(s.root, ".lock"), nil)
	must.Succeed(t, errors.Join(os.Chmod(filepath.Join(s.root, ".lock"), 0o666), os.Chmod(s.root, 0o555)))
	unprivileged(t, func() {
		_, err := s.Install(context.Background(), from, verification.Options{})
		want := s.root + ": cannot write: permission denied; make the folder writable, or set XDG_DATA_HOME to one that is"
		must.FailExactly(t, err, want, refusal.ErrStore)
	})
	must.Succeed(t, os.Chmod(s.root, 0o755))
	must.Empty(t, entries(t, s))
}

// unprivileged runs do without root's right to write everywhere. The file-system user belongs to a
// thread, so do runs on one that ends afterwards.
func unprivileged(t *testing.T, do func()) {
	t.Helper()
	if os.Getuid() != 0 {
		do()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread is not used again
		const nobody = 65534
		if err := unix.Setfsuid(nobody); err != nil {
			t.Error(err)
			return
		}
		do()
	}()
	<-done
}
