package sealed

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/internal/must"
)

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libtoy.so")
	content := strings.Repeat("content", 1000)
	must.Succeed(t, os.WriteFile(path, []byte(content), 0o644))
	f := must.Value(Read(path, 7000))(t)
	defer f.Close()
	sum := sha256.Sum256([]byte(content))
	if f.Size != 7000 || f.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("%d bytes with hash %s", f.Size, f.SHA256)
	}
	// The file goes, and nobody can change what was read of it.
	must.Succeed(t, os.WriteFile(path, []byte("other"), 0o644))
	same := func(where string, r io.Reader) {
		t.Helper()
		if got, err := io.ReadAll(r); err != nil || string(got) != content {
			t.Errorf("%s: %d bytes, %v; want what was read", where, len(got), err)
		}
	}
	same("memory", io.NewSectionReader(f, 0, f.Size))
	if runtime.GOOS == "linux" {
		if _, err := f.memory.WriteAt([]byte("x"), 0); err == nil {
			t.Error("the memory can be written")
		}
		if err := f.memory.Truncate(1); err == nil {
			t.Error("the memory can be cut")
		}
	}
	for _, taken := range []bool{false, true} {
		at, done, err := f.Loadable(func(string) bool { return taken })
		must.Succeed(t, err)
		if strings.HasPrefix(at, "/proc/") == taken {
			t.Errorf("taken %v: %s", taken, at)
		}
		opened := must.Value(os.Open(at))(t)
		same(at, opened)
		opened.Close()
		if info, err := os.Stat(filepath.Dir(at)); taken && (err != nil || info.Mode().Perm() != 0o700) {
			t.Errorf("the copy's folder: %v, %v", info.Mode(), err)
		}
		done()
		if _, err := os.Stat(at); taken && !os.IsNotExist(err) {
			t.Errorf("the copy is left behind: %v", err)
		}
	}
}

func TestReadRefusals(t *testing.T) {
	folder := t.TempDir()
	large, pipe := filepath.Join(folder, "large"), filepath.Join(folder, "pipe")
	must.Succeed(t, os.WriteFile(large, make([]byte, 11), 0o644))
	must.Succeed(t, syscall.Mkfifo(pipe, 0o600))
	for path, want := range map[string]string{
		folder:        "found a folder, needed a regular file",
		pipe:          "found a named pipe, needed a regular file",
		large:         "found 11 bytes, needed at most 10",
		"/dev/null":   "found a device, needed a regular file",
		folder + "/x": "no such file or directory",
	} {
		if _, err := Read(path, 10); err == nil || diagnostic.Cause(err) != want {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}
