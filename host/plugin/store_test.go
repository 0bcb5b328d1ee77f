package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// toyCases are conformance cases that the fixture passes.
const toyCases = `cases:
  - name: twice
    operator: Scale
    inputs: {x: {shape: [3, 5], seed: 1}}
    expect: {formula: {y: 2 * x}}
    tolerance: {absolute: 0}
  - name: by three
    operator: Scale
    attributes: {by: 3.0}
    inputs: {x: {shape: [2], values: [1, -0.5]}}
    expect: {values: {y: [3, -1.5]}}
    tolerance: {relative: 1e-6}
  - name: nothing
    operator: Scale
    inputs: {x: {shape: [0, 7]}}
    expect: {values: {y: []}}
    tolerance: {absolute: 0}
`

// source makes the folder of a plugin in some variation of the fixture.
func source(t testing.TB, flags ...string) string {
	t.Helper()
	return writePlugin(t, filepath.Join(t.TempDir(), "toy-source"), toyManifest+toyCases, buildFixture(t, flags...))
}

// entries lists a store's folder, hidden entries included, without its lock.
func entries(t testing.TB, s *Store) []string {
	t.Helper()
	found, err := os.ReadDir(s.Root())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	names := []string{}
	for _, e := range found {
		if e.Name() != ".lock" {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestInstall(t *testing.T) {
	s := StoreAt(t.TempDir())
	from := source(t)
	var steps []string
	opts := CheckOptions{Progress: func(p Progress) { steps = append(steps, fmt.Sprintf("%d/%d %s", p.Done, p.Total, p.Step)) }}
	in, err := s.Install(context.Background(), from, opts)
	if err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(s.Root(), "toy")
	if in.Name != "toy" || in.Version != "0.1.0" || in.Folder != want || in.Replaced != "" || len(in.Checked) != 1 ||
		in.Checked[0].Path != filepath.Join(want, "libtoy.so") || len(in.Checked[0].Cases) != 3 || in.Checked[0].Score != 50 {
		t.Errorf("installation %+v", in)
	}
	wantSteps := []string{"0/0 copying " + from, "0/5 loading libtoy.so in a child process", "1/5 probing libtoy.so", "2/5 case twice", "3/5 case by three", "4/5 case nothing"}
	if !slices.Equal(steps, wantSteps) {
		t.Errorf("steps %q, want %q", steps, wantSteps)
	}
	if got := entries(t, s); !slices.Equal(got, []string{"toy"}) {
		t.Errorf("the store holds %q", got)
	}
	if _, err := Open(in.Folder, OpenOptions{Trust: s.Trust()}); err != nil {
		t.Errorf("open: %v", err)
	}

	list, err := s.List()
	if err != nil || len(list) != 1 || list[0].Name != "toy" || list[0].Version != "0.1.0" || list[0].Source != from || list[0].Problem != "" {
		t.Errorf("list %+v, %v", list, err)
	}
	if checks, err := s.Verify(context.Background(), nil, CheckOptions{}); err != nil || len(checks) != 1 || checks[0].Name != "toy" || len(checks[0].Checked) != 1 {
		t.Errorf("verify %+v, %v", checks, err)
	}

	// A newer version takes its place.
	newer := writePlugin(t, filepath.Join(t.TempDir(), "newer"), strings.Replace(toyManifest, "0.1.0", "0.2.0", 1), "")
	if _, err := s.Install(context.Background(), newer, CheckOptions{}); err == nil {
		t.Error("a plugin without its library is installed")
	}
	writeFile(t, filepath.Join(newer, "libtoy.so"), readFile(t, buildFixture(t)))
	_, err = s.Install(context.Background(), newer, CheckOptions{})
	wantErr := newer + `/libtoy.so: found version "0.1.0" in its ELF note, needed "0.2.0" as in plugin.yaml; build the library and the manifest from the same source`
	if err == nil || err.Error() != wantErr || !errors.Is(err, ErrIncompatible) {
		t.Errorf("a library of another version: %v, want %s", err, wantErr)
	}
	writeFile(t, filepath.Join(newer, ManifestName), []byte(strings.ReplaceAll(toyManifest, "amd64", runtime.GOARCH)+"# a newer one\n"))
	writeFile(t, filepath.Join(newer, "NOTES"), []byte("new"))
	in, err = s.Install(context.Background(), newer, CheckOptions{})
	if err != nil || in.Replaced != "0.1.0" {
		t.Fatalf("replacing: %+v, %v", in, err)
	}
	if string(readFile(t, filepath.Join(in.Folder, "NOTES"))) != "new" {
		t.Error("the new version is not in place")
	}
	if got := entries(t, s); !slices.Equal(got, []string{"toy"}) {
		t.Errorf("the store holds %q", got)
	}

	if err := s.Remove(context.Background(), "toy"); err != nil {
		t.Fatal(err)
	}
	if got := entries(t, s); len(got) != 0 {
		t.Errorf("after removal the store holds %q", got)
	}
	content, err := s.Trust().read()
	if err != nil || len(content.Libraries) != 0 {
		t.Errorf("after removal the record holds %v, %v", content, err)
	}
	wantErr = s.Root() + `: found no plugin "toy", needed the name of an installed one; run: graft plugin list`
	if err := s.Remove(context.Background(), "toy"); err == nil || err.Error() != wantErr || !errors.Is(err, ErrNotFound) {
		t.Errorf("removed again: %v", err)
	}
	if err := s.Remove(context.Background(), "../toy"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a name that is a path: %v", err)
	}
}

func TestInstallRefusals(t *testing.T) {
	crashes := "; report this to its author; do not install it"
	for _, test := range []struct {
		name     string
		flags    []string
		deadline time.Duration
		kind     error
		want     string // after the library's path
	}{
		{"crash in a constructor", []string{"-DCRASH_IN_CONSTRUCTOR"}, 0, ErrVerification,
			": it was ended by SIGSEGV (segmentation fault) in a child process (task describe)" + crashes},
		{"hang in a constructor", []string{"-DHANG_IN_CONSTRUCTOR"}, 500 * time.Millisecond, ErrVerification,
			": it gave no answer within 500ms and was ended in a child process (task describe); report this to its author, or allow more time when the machine is slow"},
		{"abort in a constructor", []string{"-DABORT_IN_CONSTRUCTOR"}, 0, ErrVerification,
			`: it was ended by SIGABRT (aborted) in a child process (task describe), printing "the fixture gives up"` + crashes},
		{"exit in a constructor", []string{"-DEXIT_IN_CONSTRUCTOR"}, 0, ErrVerification,
			": it ended the process with exit code 0 in a child process (task describe); report this to its author: a plugin must never end the process"},
		{"crash in run", []string{"-DCRASH_IN_RUN"}, 0, ErrVerification,
			": it was ended by SIGSEGV (segmentation fault) in a child process (task case)" + crashes},
		{"hang in run", []string{"-DHANG_IN_RUN"}, 500 * time.Millisecond, ErrVerification,
			": it gave no answer within 500ms and was ended in a child process (task case); report this to its author, or allow more time when the machine is slow"},
		{"error from create", []string{"-DCREATE_FAILS"}, 0, ErrVerification,
			`: case "twice" failed: create of Scale failed: the fixture makes no kernels (not supported); report this to the plugin's author; do not use it`},
		{"error from run", []string{"-DRUN_FAILS"}, 0, ErrVerification,
			`: case "twice" failed: run of Scale failed: the fixture cannot run (internal error); report this to the plugin's author; do not use it`},
		{"non-finite values", []string{"-DWRITE_NAN"}, 0, ErrVerification,
			`: case "twice" failed: output y[2 4] is NaN, expected is -0.256138414144516 within 0 + 0 relative (1 threads); report this to the plugin's author; do not use it`},
		{"wrong values", []string{"-DWRITE_WRONG"}, 0, ErrVerification,
			`: case "twice" failed: output y[0 0] is 1.2662463188171387, expected is 0.2662462890148163 within 0 + 0 relative (1 threads); report this to the plugin's author; do not use it`},
		{"values beyond", []string{"-DWRITE_BEYOND"}, 0, ErrVerification,
			`: case "twice" failed: it wrote outside output y (1 threads); report this to the plugin's author; do not use it`},
		{"another description", []string{`-DDESCRIBED_NAME="tory"`}, 0, ErrIncompatible,
			`: found name "tory" in the library's description, needed "toy" as in plugin.yaml; build the library and the manifest from the same source`},
		{"a machine it does not like", []string{"-DSCORE=0"}, 0, ErrIncompatible,
			": found that it cannot run on this machine: the fixture does not like this machine; install a plugin or a build that suits this machine"},
		{"a score beyond", []string{"-DSCORE=101"}, 0, ErrKernel, ": probe gave the score 101, needed 0 to 100"},
		{"no symbol", []string{"-DNO_ENTRY"}, 0, ErrIncompatible,
			": found no symbol graft_plugin_v1, needed the entry point of a graft plugin; export it from the library (abi/graft_plugin.h), or point at a library that is a graft plugin"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := StoreAt(t.TempDir())
			from := source(t, test.flags...)
			_, err := s.Install(context.Background(), from, CheckOptions{Deadline: test.deadline})
			if want := from + "/libtoy.so" + test.want; err == nil || err.Error() != want {
				t.Errorf("error\n%v\nwant\n%s", err, want)
			}
			if !errors.Is(err, test.kind) {
				t.Errorf("error is not of kind %v", test.kind)
			}
			if got := entries(t, s); len(got) != 0 {
				t.Errorf("the store holds %q", got)
			}
			if content, err := s.Trust().read(); err != nil || len(content.Libraries) != 0 {
				t.Errorf("the record holds %v, %v", content, err)
			}
		})
	}
}

func TestInstallNoisyLibrary(t *testing.T) {
	s := StoreAt(t.TempDir())
	if _, err := s.Install(context.Background(), source(t, "-DPRINT_IN_CONSTRUCTOR"), CheckOptions{}); err != nil {
		t.Errorf("a library that prints: %v", err)
	}
}

func TestInstallSources(t *testing.T) {
	s := StoreAt(t.TempDir())
	from := source(t)
	library := filepath.Join(from, "libtoy.so")
	for _, test := range []struct{ source, want string }{
		{filepath.Join(from, "none"), from + "/none: cannot read: no such file or directory, needed a plugin's folder or an archive of it"},
		{library, library + ": found a single file, needed a plugin's folder or an archive of it (.tar.gz, .tgz, .tar, .zip); run: graft plugin install " + from},
		{filepath.Join(from, ManifestName), from + "/plugin.yaml: found a single file, needed a plugin's folder or an archive of it (.tar.gz, .tgz, .tar, .zip)"},
		{s.Root(), s.Root() + ": found no plugin.yaml, needed it at the top, beside the libraries; point at the folder that holds plugin.yaml"},
	} {
		if _, err := s.Install(context.Background(), test.source, CheckOptions{}); err == nil || err.Error() != test.want {
			// The last source exists once the store does.
			t.Errorf("error\n%v\nwant\n%s", err, test.want)
		}
		if err := os.MkdirAll(s.Root(), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	outside := filepath.Join(t.TempDir(), "secret")
	writeFile(t, outside, []byte("x"))
	if err := os.Symlink(outside, filepath.Join(from, "notes")); err != nil {
		t.Fatal(err)
	}
	want := from + "/notes: cannot follow the link: path escapes from parent, needed links that stay inside the folder; replace it by the file"
	if _, err := s.Install(context.Background(), from, CheckOptions{}); err == nil || err.Error() != want {
		t.Errorf("a link to the outside: %v, want %s", err, want)
	}
	if err := os.Remove(filepath.Join(from, "notes")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(from, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	want = from + "/pipe: found a named pipe, needed plain files and folders; remove it from the folder"
	if _, err := s.Install(context.Background(), from, CheckOptions{}); err == nil || err.Error() != want {
		t.Errorf("a named pipe: %v, want %s", err, want)
	}
	if err := os.Remove(filepath.Join(from, "pipe")); err != nil {
		t.Fatal(err)
	}
	// A link that stays inside is copied as a file.
	if err := os.Rename(library, library+".1"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("libtoy.so.1", library); err != nil {
		t.Fatal(err)
	}
	in, err := s.Install(context.Background(), from, CheckOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(filepath.Join(in.Folder, "libtoy.so")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the installed library is %v, %v; want a file", info.Mode(), err)
	}
}

func TestInstallConcurrently(t *testing.T) {
	data := t.TempDir()
	from := source(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, err := StoreAt(data).Install(context.Background(), from, CheckOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	stop := make(chan struct{})
	watched := make(chan struct{})
	go func() { // from the first installation on, the plugin is there at every moment
		defer close(watched)
		s, there := StoreAt(data), false
		for {
			m, err := ReadManifest(filepath.Join(s.Root(), "toy"))
			if there && err != nil {
				t.Errorf("the plugin is not there: %v", err)
			}
			there = there || m != nil
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	all.Wait()
	close(stop)
	<-watched
	s := StoreAt(data)
	if got := entries(t, s); !slices.Equal(got, []string{"toy"}) {
		t.Errorf("the store holds %q", got)
	}
	if _, err := s.Verify(context.Background(), []string{"toy"}, CheckOptions{}); err != nil {
		t.Errorf("verify: %v", err)
	}
}

func TestInstallInterrupted(t *testing.T) {
	s := StoreAt(t.TempDir())
	if _, err := s.Install(context.Background(), source(t), CheckOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{{"-DHANG_IN_CONSTRUCTOR"}, {"-DHANG_IN_RUN"}} {
		ctx, cancel := context.WithTimeout(context.Background(), 400*time.Millisecond)
		_, err := s.Install(ctx, source(t, flags...), CheckOptions{})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, want the context's error", flags, err)
		}
		if got := entries(t, s); !slices.Equal(got, []string{"toy"}) {
			t.Errorf("%s: the store holds %q", flags, got)
		}
	}
	if _, err := s.Verify(context.Background(), []string{"toy"}, CheckOptions{}); err != nil {
		t.Errorf("the plugin that was there: %v", err)
	}
}

// TestInstallKilled kills an installing process outright; the next installation sweeps up.
func TestInstallKilled(t *testing.T) {
	s := StoreAt(t.TempDir())
	if from := os.Getenv("GRAFT_TEST_INSTALL_FROM"); from != "" {
		_, err := StoreAt(os.Getenv("GRAFT_TEST_INSTALL_TO")).Install(context.Background(), from, CheckOptions{})
		t.Fatal(err) // unreachable: it is killed while the library hangs
	}
	// What the killed process cannot clean up lies here; a socket's path must stay short.
	temp, err := os.MkdirTemp("/tmp", "k")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(temp)
	cmd := exec.Command(os.Args[0], "-test.run=^TestInstallKilled$")
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "GRAFT_TEST_INSTALL_FROM="+source(t, "-DHANG_IN_CONSTRUCTOR"), "GRAFT_TEST_INSTALL_TO="+filepath.Dir(s.Root()))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); len(entries(t, s)) == 0 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond)
	if got := entries(t, s); len(got) != 1 || !strings.HasPrefix(got[0], stagingPrefix) {
		t.Errorf("during the installation the store holds %q", got)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if search := Discover(DiscoverOptions{Folders: []string{s.Root()}, Only: true}); len(search.Found) != 0 {
		t.Errorf("a search finds the half of a plugin: %+v", search.Found)
	}
	if _, err := s.Install(context.Background(), source(t), CheckOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := entries(t, s); !slices.Equal(got, []string{"toy"}) {
		t.Errorf("after the next installation the store holds %q", got)
	}
}

func TestVerifyChanges(t *testing.T) {
	install := func(t *testing.T) (*Store, string) {
		s := StoreAt(t.TempDir())
		in, err := s.Install(context.Background(), source(t), CheckOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return s, in.Folder
	}
	again := "; install the plugin again: graft plugin install DIR"
	for _, test := range []struct {
		name   string
		change func(folder string) error
		want   string
	}{
		{"changed", func(f string) error { return appendTo(filepath.Join(f, ManifestName), "# x\n") }, "/plugin.yaml: found sha256 "},
		{"gone", func(f string) error { return os.Remove(filepath.Join(f, "libtoy.so")) }, "/libtoy.so: found that the file is gone" + again},
		{"added", func(f string) error { return appendTo(filepath.Join(f, "x"), "") }, "/x: found a file that was not installed" + again},
		{"no record", func(f string) error { return os.Remove(filepath.Join(f, recordName)) }, "/.graft-record.json: cannot read the record of the installed files: no such file or directory" + again},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, folder := install(t)
			if err := test.change(folder); err != nil {
				t.Fatal(err)
			}
			checks, err := s.Verify(context.Background(), nil, CheckOptions{})
			if err == nil || !strings.HasPrefix(err.Error(), folder+test.want) || !errors.Is(err, ErrVerification) {
				t.Errorf("error\n%v\nwant\n%s%s", err, folder, test.want)
			}
			if len(checks) != 1 || checks[0].Problem != err.Error() {
				t.Errorf("results %+v", checks)
			}
		})
	}
	t.Run("another library", func(t *testing.T) {
		s, folder := install(t)
		if err := os.Remove(filepath.Join(folder, "libtoy.so")); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(folder, "libtoy.so"), readFile(t, buildFixture(t, "-DWRITE_WRONG")))
		if _, err := Open(folder, OpenOptions{Trust: s.Trust()}); err == nil || !errors.Is(err, ErrVerification) || !strings.Contains(err.Error(), "run: graft plugin install "+folder) {
			t.Errorf("open: %v", err)
		}
	})
	t.Run("nothing installed", func(t *testing.T) {
		s := StoreAt(t.TempDir())
		want := s.Root() + ": found no installed plugin; install one with: graft plugin install DIR"
		if _, err := s.Verify(context.Background(), nil, CheckOptions{}); err == nil || err.Error() != want {
			t.Errorf("verify: %v, want %s", err, want)
		}
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
	s := StoreAt(t.TempDir())
	folder := source(t)
	before, err := hashFolder(folder)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(folder, OpenOptions{Trust: s.Trust()}); !errors.Is(err, ErrVerification) {
		t.Errorf("before: %v, want a refusal", err)
	}
	if _, err := s.Verify(context.Background(), []string{folder}, CheckOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(folder, OpenOptions{Trust: s.Trust()}); err != nil {
		t.Errorf("after: %v", err)
	}
	after, err := hashFolder(folder)
	if err != nil || fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("the folder changed: %v, %v, %v", before, after, err)
	}
}

// TestReadOnlyStore works as a user without privileges, whatever user runs the tests.
func TestReadOnlyStore(t *testing.T) {
	data := t.TempDir()
	from := source(t)
	for _, folder := range []string{filepath.Dir(data), data, filepath.Dir(filepath.Dir(from)), filepath.Dir(from), from} {
		if err := os.Chmod(folder, 0o755); err != nil { // t.TempDir keeps others out
			t.Fatal(err)
		}
	}
	if err := os.Chmod(data, 0o555); err != nil {
		t.Fatal(err)
	}
	unprivileged(t, func() {
		_, err := StoreAt(data).Install(context.Background(), from, CheckOptions{})
		want := data + "/plugins: cannot make the folder: permission denied; make the folder writable, or set XDG_DATA_HOME to one that is"
		if err == nil || err.Error() != want || !errors.Is(err, ErrStore) {
			t.Errorf("error %v, want %s", err, want)
		}
	})
	if err := os.Chmod(data, 0o755); err != nil {
		t.Fatal(err)
	}
	s := StoreAt(data)
	if err := os.MkdirAll(s.Root(), 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(s.Root(), ".lock"), nil)
	if err := errors.Join(os.Chmod(filepath.Join(s.Root(), ".lock"), 0o666), os.Chmod(s.Root(), 0o555)); err != nil {
		t.Fatal(err)
	}
	unprivileged(t, func() {
		_, err := s.Install(context.Background(), from, CheckOptions{})
		want := s.Root() + ": cannot write: permission denied; make the folder writable, or set XDG_DATA_HOME to one that is"
		if err == nil || err.Error() != want || !errors.Is(err, ErrStore) {
			t.Errorf("error %v, want %s", err, want)
		}
	})
	if err := os.Chmod(s.Root(), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := entries(t, s); len(got) != 0 {
		t.Errorf("the store holds %q", got)
	}
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

func TestInspect(t *testing.T) {
	folder := source(t)
	in, err := Inspect(context.Background(), folder)
	if err != nil {
		t.Fatal(err)
	}
	if in.Manifest == nil || in.Manifest.Name != "toy" || len(in.Libraries) != 1 || in.Libraries[0].Library.Note == nil || in.Libraries[0].Problem != "" {
		t.Errorf("folder: %+v", in)
	}
	library := filepath.Join(folder, "libtoy.so")
	if in, err = Inspect(context.Background(), library); err != nil || in.Manifest != nil || len(in.Libraries) != 1 || in.Libraries[0].Library.Path != library {
		t.Errorf("library: %+v, %v", in, err)
	}
	archive := filepath.Join(t.TempDir(), "toy.tar.gz")
	writeTarGz(t, archive, folderEntries(t, folder, "toy/"))
	if in, err = Inspect(context.Background(), archive); err != nil || in.Manifest == nil || len(in.Libraries) != 1 || in.Libraries[0].Library.Path != archive+"/toy/libtoy.so" {
		t.Errorf("archive: %+v, %v", in, err)
	}
	mark := filepath.Join(t.TempDir(), "ran")
	strange := buildFixture(t, "-DNO_ENTRY", `-DMARK_IN_CONSTRUCTOR="`+mark+`"`)
	if in, err = Inspect(context.Background(), strange); err != nil || !strings.Contains(in.Libraries[0].Problem, "found no symbol graft_plugin_v1") {
		t.Errorf("no plugin: %+v, %v", in, err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("inspection ran the library")
	}
	if _, err := Inspect(context.Background(), filepath.Join(folder, "none")); !errors.Is(err, ErrNotFound) {
		t.Errorf("nothing: %v", err)
	}
	if data, err := json.Marshal(in); err != nil || !strings.Contains(string(data), `"abi":"1.0"`) {
		t.Errorf("JSON %s, %v", data, err)
	}
}
