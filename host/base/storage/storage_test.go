package storage

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/opgraft/graft/internal/must"
)

func TestMain(m *testing.M) {
	if folder := os.Getenv("GRAFT_TEST_KILLED"); folder != "" {
		beKilled(folder)
	}
	os.Exit(m.Run())
}

// beKilled leaves an unfinished file and a temporary folder, and waits to be killed.
func beKilled(folder string) {
	f, err := Create(filepath.Join(folder, "a"), Shared)
	if err == nil {
		_, err = f.WriteString("half")
	}
	var t *Folder
	if err == nil {
		t, err = Temporary(folder)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(t.Path, "socket"), nil, 0o600)
	}
	if err != nil {
		os.Stdout.WriteString(err.Error() + "\n")
	}
	os.Stdout.WriteString("ready\n")
	for {
		time.Sleep(time.Hour)
		runtime.KeepAlive(f) // a file that nobody refers to is closed, and its lock with it
		runtime.KeepAlive(t)
	}
}

func names(t *testing.T, folder string) string {
	t.Helper()
	entries := must.Value(os.ReadDir(folder))(t)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return strings.Join(out, " ")
}

func write(t *testing.T, path, content string, access Access) {
	t.Helper()
	must.Succeed(t, Write(path, []byte(content), access))
}

func TestWrite(t *testing.T) {
	defer unix.Umask(unix.Umask(0o022))
	folder := t.TempDir()
	path := filepath.Join(folder, "a")
	mode := func() fs.FileMode {
		info := must.Value(os.Stat(path))(t)
		return info.Mode().Perm()
	}
	write(t, path, "1", Shared)
	must.Equal(t, mode(), 0o644)
	for _, kept := range []fs.FileMode{0o600, 0o666, 0o640} {
		must.Succeed(t, os.Chmod(path, kept))
		write(t, path, "2", Shared)
		must.Equal(t, mode(), kept)
	}
	write(t, path, "3", Private)
	must.Equal(t, mode(), 0o600)
	if data, err := os.ReadFile(path); string(data) != "3" || err != nil {
		t.Errorf("found %q, %v", data, err)
	}
	must.Equal(t, names(t, folder), "a")
}

// A link or a pipe in a file's place is replaced; what a link points at is left.
func TestWriteInPlaceOfOthers(t *testing.T) {
	folder := t.TempDir()
	victim, path := filepath.Join(folder, "victim"), filepath.Join(folder, "a")
	write(t, victim, "victim", Shared)
	must.Succeed(t, os.Symlink(victim, path))
	write(t, path, "mine", Private)
	if data, _ := os.ReadFile(victim); string(data) != "victim" {
		t.Errorf("the link's target holds %q", data)
	}
	must.Succeed(t, os.Remove(path))
	must.Succeed(t, unix.Mkfifo(path, 0o600))
	write(t, path, "mine", Private)
	if data, err := ReadOwn(path, 10); string(data) != "mine" || err != nil {
		t.Errorf("found %q, %v", data, err)
	}
}

func TestAFailedWriteLeavesWhatWasThere(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "a")
	write(t, path, "old", Shared)
	full := errors.New("full")
	must.Fail(t, WriteFrom(path, Shared,
		func(w io.Writer) error { _, _ = w.Write([]byte("half")); return full }), full)
	if data, _ := os.ReadFile(path); string(data) != "old" || names(t, folder) != "a" {
		t.Errorf("found %q among %s", data, names(t, folder))
	}
	must.Succeed(t, os.Mkdir(filepath.Join(folder, "folder"), 0o755))
	if err := Write(filepath.Join(folder, "folder"), nil, Shared); err == nil || names(t, folder) != "a folder" {
		t.Errorf("in a folder's place: %v, %s", err, names(t, folder))
	}
}

// Files and folders of a process that lives are left; those of a killed one go with the next run.
func TestTheNextRunSweeps(t *testing.T) {
	folder := t.TempDir()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "GRAFT_TEST_KILLED="+folder)
	out := must.Value(child.StdoutPipe())(t)
	must.Succeed(t, child.Start())
	said := make([]byte, 6)
	if _, err := io.ReadFull(out, said); err != nil || string(said) != "ready\n" {
		t.Fatalf("the child said %q, %v", said, err)
	}
	old := time.Now().Add(-1000 * time.Hour)
	next := func() (file, folders int) {
		entries, _ := filepath.Glob(filepath.Join(folder, "*"))
		hidden, _ := filepath.Glob(filepath.Join(folder, ".a.*"))
		for _, e := range append(entries, hidden...) {
			_ = os.Chtimes(e, old, old) // age is no reason
		}
		write(t, filepath.Join(folder, "a"), "whole", Shared)
		f := must.Value(Temporary(folder))(t)
		must.Succeed(t, f.Remove())
		entries, _ = filepath.Glob(filepath.Join(folder, folderPrefix+"*"))
		hidden, _ = filepath.Glob(filepath.Join(folder, ".a.*"))
		return len(hidden), len(entries)
	}
	if file, folders := next(); file != 1 || folders != 1 {
		t.Errorf("of a living process %d files and %d folders are left, want one each", file, folders)
	}
	must.Succeed(t, child.Process.Kill())
	_ = child.Wait()
	// Begun, but killed before it had its lock; and what others made with such a name.
	for _, name := range []string{"begun", "theirs"} {
		must.Succeed(t, os.Mkdir(filepath.Join(folder, folderPrefix+name), 0o700))
	}
	write(t, filepath.Join(folder, folderPrefix+"theirs", "precious"), "", Shared)
	if file, folders := next(); file != 0 || folders != 1 {
		t.Errorf("of a killed process %d files and %d folders are left, want none, and one that is not graft's", file,
			folders)
	}
	must.Equal(t, names(t, folder), "a "+folderPrefix+"theirs")
}

// What is no file of this user's is refused at once: nothing waits for the other end of a pipe.
func TestOpenOwn(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	write(t, at("mine"), "mine", Private)
	write(t, at("open"), "open", Private)
	write(t, at("theirs"), "theirs", Private)
	for _, err := range []error{
		os.Symlink(at("mine"), at("link")), unix.Mkfifo(at("pipe"), 0o600), os.Mkdir(at("folder"), 0o700),
		os.Chmod(at("open"), 0o602), os.Symlink("/dev/zero", at("device")),
	} {
		must.Succeed(t, err)
	}
	for name, want := range map[string]string{
		"mine": "", "link": "found a symbolic link", "pipe": "found a named pipe", "folder": "found a folder",
		"device": "found a symbolic link",
		"open":   "found that others can write to it (mode 602)",
	} {
		if data, err := ReadOwn(at(name), 100); want == "" && (err != nil || string(data) != "mine") ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %q, %v; want %s", name, data, err, want)
		}
	}
	for name, want := range map[string]string{"link": "", "pipe": "found a named pipe", "device": "found a device",
		"folder": "found a folder"} {
		if data, err := ReadRegular(at(name), 100); want == "" && (err != nil || string(data) != "mine") ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %q, %v; want %s", name, data, err, want)
		}
	}
	must.Fail(t, must.Error(ReadOwn(at("mine"), 3)), "found more than 3 bytes")
	if os.Geteuid() == 0 {
		must.Succeed(t, os.Chown(at("theirs"), 12345, -1))
		must.Fail(t, must.Error(ReadOwn(at("theirs"), 100)), "belongs to the user 12345")
	}
}

func TestManyWritersOfOneFile(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "a")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 20 {
				if err := Write(path, []byte(strings.Repeat(string(rune('a'+i)), 1000)), Private); err != nil {
					t.Error(err)
				}
				if data, err := ReadOwn(path, 1000); err != nil || len(data) != 1000 ||
					strings.Count(string(data), string(data[0])) != 1000 {
					t.Errorf("found %d bytes, %v", len(data), err)
				}
				if f, err := Temporary(folder); err != nil || f.Remove() != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	must.Equal(t, names(t, folder), "a")
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), ".lock")
	first := must.Value(Lock(context.Background(), path, nil))(t)
	ctx, cancel := context.WithCancel(context.Background())
	waited := 0
	if _, err := Lock(ctx, path, func() { waited++; cancel() }); !errors.Is(err, context.Canceled) || waited != 1 {
		t.Errorf("the second: %v, %d waits", err, waited)
	}
	first.Close()
	second := must.Value(Lock(context.Background(), path, nil))(t)
	second.Close()
}
