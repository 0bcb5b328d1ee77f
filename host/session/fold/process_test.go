package fold

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/opgraft/graft/internal/must"
)

// What a child process is to do, and where.
const (
	childTask   = "GRAFT_FOLD_TEST_CHILD"
	childFolder = "GRAFT_FOLD_TEST_FOLDER"
)

func TestMain(m *testing.M) {
	h := &half{}
	switch task := os.Getenv(childTask); task {
	case "hang":
		beforeRename = func(path string) error {
			fmt.Println(path)
			select {}
		}
		At(os.Getenv(childFolder), nil).get(h.source(), "Halve", constants(5), nil, float32s)
	case "many":
		c := At(os.Getenv(childFolder), nil)
		for i := range 40 {
			r, err := c.get(h.source(), "Halve", constants(i), nil, float32s)
			if err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			for _, w := range r.Weights() {
				if diff := cmp.Diff(want(i)[w.Name], w.Floats); diff != "" {
					fmt.Println(diff)
					os.Exit(1)
				}
			}
		}
	default:
		os.Exit(m.Run())
	}
}

func child(t *testing.T, task, folder string) *exec.Cmd {
	t.Helper()
	program := must.Value(os.Executable())(t)
	c := exec.Command(program)
	c.Env = append(os.Environ(), childTask+"="+task, childFolder+"="+folder)
	return c
}

// TestKilledBetweenWriteAndRename ends a process when its file is written and has not
// got its name yet.
func TestKilledBetweenWriteAndRename(t *testing.T) {
	folder := t.TempDir()
	c := child(t, "hang", folder)
	out := must.Value(c.StdoutPipe())(t)
	must.Succeed(t, c.Start())
	said := make([]byte, 4096)
	n, err := out.Read(said)
	if e := c.Process.Kill(); e != nil || err != nil {
		t.Fatal(err, e)
	}
	c.Wait()
	unfinished := strings.TrimSpace(string(said[:n]))
	if _, err := os.Stat(unfinished); err != nil || filepath.Dir(unfinished) != folder {
		t.Fatalf("the unfinished file %q: %v", unfinished, err)
	}
	if list, _ := filepath.Glob(filepath.Join(folder, "*"+suffix)); len(list) != 0 {
		t.Fatalf("found %v, want no finished file", list)
	}

	h := &half{}
	cache := At(folder, nil)
	for range 2 {
		r, err := cache.get(h.source(), "Halve", constants(5), nil, float32s)
		check(t, r, err, 5)
	}
	must.Equal(t, h.calls.Load(), 1)
	must.Fail(t, must.Error(os.Stat(unfinished)), fs.ErrNotExist)
}

// TestPlantedFiles puts what is no file of the user's where a fold is looked for: it is not waited for, not read and
// computed anew.
func TestPlantedFiles(t *testing.T) {
	for name, plant := range map[string]func(path string) error{
		"pipe":   func(path string) error { return unix.Mkfifo(path, 0o600) },
		"link":   func(path string) error { return os.Symlink("/dev/zero", path) },
		"folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"open": func(path string) error {
			return errors.Join(os.WriteFile(path, []byte("x"), 0o600), os.Chmod(path, 0o666))
		},
	} {
		folder, h := t.TempDir(), &half{}
		r, err := At(folder, nil).get(h.source(), "Halve", constants(5), nil, float32s)
		check(t, r, err, 5)
		list, _ := filepath.Glob(filepath.Join(folder, "*"+suffix))
		if len(list) != 1 {
			t.Fatalf("found %v, want one file", list)
		}
		if info, err := os.Stat(list[0]); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("weights lie in a file of mode %v, want one that only the user reads", info.Mode())
		}
		must.Succeed(t, errors.Join(os.Remove(list[0]), plant(list[0])))
		done := make(chan struct{})
		go func() {
			defer close(done)
			r, err = At(folder, slog.New(slog.DiscardHandler)).get(h.source(), "Halve", constants(5), nil, float32s)
		}()
		select {
		case <-done:
			check(t, r, err, 5)
		case <-time.After(60 * time.Second):
			t.Fatalf("%s: it is waited for", name)
		}
		must.Equal(t, h.calls.Load(), 2, name)
	}
}

// TestProcesses has several processes fill one folder at once.
func TestProcesses(t *testing.T) {
	folder := t.TempDir()
	var all sync.WaitGroup
	for range 3 {
		c := child(t, "many", folder)
		all.Go(func() {
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	all.Wait()
	list, err := os.ReadDir(folder)
	must.Succeed(t, err)
	must.Equal(t, len(list), 40)
	for _, e := range list {
		r, err := read(filepath.Join(folder, e.Name()))
		if err != nil {
			t.Errorf("%s: %v", e.Name(), err)
			continue
		}
		r.Close()
	}
}
