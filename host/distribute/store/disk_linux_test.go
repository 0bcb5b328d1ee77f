package store

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/host/plugin/verification"
	"github.com/opgraft/graft/internal/must"
)

// TestFullDisk upgrades on a disk with ever more room: too little, and the older version is there, whole, with one
// error that says so and nothing beside it; enough, and the newer one is current.
func TestFullDisk(t *testing.T) {
	const inside = "GRAFT_TEST_ON_SMALL_DISK"
	if os.Getenv(inside) == "" {
		// A file system of a few pages is made where only this process's child sees it.
		cmd := exec.Command(os.Args[0], "-test.run=^TestFullDisk$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1", "TMPDIR="+t.TempDir())
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS, UidMappings: ids,
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
		output, err := cmd.CombinedOutput()
		if errors.Is(err, os.ErrPermission) || strings.Contains(string(output), cannotMount) {
			t.Skip("this system lets nobody mount a file system")
		}
		if err != nil {
			t.Errorf("%v\n%s", err, output)
		}
		return
	}
	older, newer := plugintest.Versioned(t, filepath.Join(t.TempDir(), "old"), "0.1.0"),
		plugintest.Versioned(t, filepath.Join(t.TempDir(), "new"), "0.2.0")
	data := t.TempDir()
	refused, upgraded := 0, 0
	for room := int64(0); upgraded < 3; room += int64(os.Getpagesize()) {
		if err := unix.Mount("none", data, "tmpfs", 0, "size=4m,mode=700"); err != nil {
			t.Fatal(cannotMount, err)
		}
		s := At(data)
		must.Value(s.Install(t.Context(), older, verification.Options{}))(t)
		leave(t, data, room)
		_, err := s.Upgrade(t.Context(), "toy", newer, verification.Options{})
		want := "0.2.0"
		if err != nil {
			refused++
			want = "0.1.0"
			if text := err.Error(); !strings.Contains(text, "no space left on device") || strings.Contains(text, "\n") {
				t.Errorf("%d bytes free: %v", room, err)
			}
		} else {
			upgraded++
		}
		holds(t, s, want)
		must.Succeed(t, os.Remove(filepath.Join(data, "filler")))
		must.Value(s.Upgrade(t.Context(), "toy", newer, verification.Options{}))(t, room, "bytes free before")
		holds(t, s, "0.2.0")
		must.Succeed(t, unix.Unmount(data, 0))
	}
	if refused < 5 {
		t.Errorf("%d upgrades had too little room, want some at each step", refused)
	}
}

const cannotMount = "cannot mount: "

// leave fills a disk up to so many bytes.
func leave(t *testing.T, folder string, room int64) {
	t.Helper()
	var at unix.Statfs_t
	must.Succeed(t, unix.Statfs(folder, &at))
	must.Succeed(t, os.WriteFile(filepath.Join(folder, "filler"), make([]byte, max(0, int64(at.Bavail)*at.Bsize-room)),
		0o600))
}

// holds checks that a version is current, whole, and that a program loads it.
func holds(t *testing.T, s *Store, version string) {
	t.Helper()
	list, err := s.List()
	if err != nil || len(list) != 1 || list[0].Version != version || list[0].Problem != "" {
		t.Fatalf("the store holds %+v, %v; want version %s", list, err, version)
	}
	must.Succeed(t, plugin.Check(list[0].Folder, plugin.OpenOptions{Trust: s.Trust()}))
	for _, old := range list[0].Retained {
		if old.Version == version || old.Problem != "" {
			t.Errorf("retained is %+v", old)
		}
	}
}
