package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/opgraft/graft/internal/must"
)

// tasks misbehave in the ways that native code can, without native code.
var tasks = map[string]Handler{
	"double": Handle(func(_ context.Context, n int) (int, error) { return 2 * n, nil }),
	"fail":   Handle(func(_ context.Context, text string) (int, error) { return 0, errors.New(text) }),
	"panic":  Handle(func(context.Context, int) (int, error) { panic("out of ideas") }),
	"signal": Handle(func(_ context.Context, s syscall.Signal) (int, error) {
		if _, err := syscall.Write(2, []byte("first line\nlast words\n")); err != nil {
			return 0, err
		}
		runtime.LockOSThread()
		return 0, unix.Tgkill(os.Getpid(), unix.Gettid(), s)
	}),
	"fault": Handle(func(context.Context, int) (int, error) {
		data, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			return 0, err
		}
		return int(data[0]), nil
	}),
	"exit": Handle(func(_ context.Context, code int) (int, error) {
		os.Exit(code)
		return 0, nil
	}),
	"hang": Handle(func(context.Context, int) (int, error) { time.Sleep(time.Hour); return 0, nil }),
	"print": Handle(func(_ context.Context, lines int) (int, error) {
		junk := []byte(strings.Repeat("1|1|unix|/nowhere|", 1000))
		for range lines {
			if _, err := syscall.Write(1, junk); err != nil {
				return 0, err
			}
		}
		return lines, nil
	}),
	"core": Handle(func(context.Context, int) (uint64, error) {
		var limit unix.Rlimit
		err := unix.Getrlimit(unix.RLIMIT_CORE, &limit)
		return limit.Cur, err
	}),
}

func TestMain(m *testing.M) {
	Main(tasks)
	if path := os.Getenv(parentVariable); path != "" {
		becomeParent(path)
	}
	os.Exit(m.Run())
}

// started starts a child and checks at the end of the test that it is gone and left nothing.
func started(t *testing.T, opts Options) *Child {
	t.Helper()
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	opts.Subject = "/p/libtoy.so"
	child := must.Value(Start(context.Background(), opts))(t)
	t.Cleanup(func() {
		child.Close()
		gone(t, child.process.cmd.Process.Pid)
		if left, _ := filepath.Glob(filepath.Join(temp, "*")); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})
	return child
}

// gone waits until a process does not exist, or is a zombie that its new parent will reap.
func gone(t *testing.T, pid int) {
	t.Helper()
	for range 500 {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(status), ") Z ") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %d is still there", pid)
}

func TestRun(t *testing.T) {
	child := started(t, Options{})
	for n := range 3 {
		var got int
		if err := child.Run(context.Background(), "double", n, &got); err != nil || got != 2*n {
			t.Errorf("double %d: %d, %v", n, got, err)
		}
	}
	for _, test := range []struct {
		task    string
		request any
		want    string
	}{
		{"fail", "no luck", "no luck"},
		{"panic", 1, "task panic panicked: out of ideas\n"},
		{"nap", 1, `this executable knows no task "nap"; use the graft of the same version`},
		{"double", "two", "cannot read the request: json: cannot unmarshal string into Go value of type int"},
	} {
		var ignored any
		err := child.Run(context.Background(), test.task, test.request, &ignored)
		if !errors.Is(err, ErrTask) || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.task, err, test.want)
		}
	}
	// A child outlives errors of its tasks.
	var got uint64
	if err := child.Run(context.Background(), "core", 1, &got); err != nil || got != 0 {
		t.Errorf("limit on core files %d, %v; want 0", got, err)
	}
}

func TestCrashes(t *testing.T) {
	for _, test := range []struct {
		task    string
		request any
		want    string
	}{
		{"signal", syscall.SIGSEGV,
			`/p/libtoy.so: it was ended by SIGSEGV (segmentation fault) in a child process (task signal), printing "last words"; report this to its author; do not install it`},
		{"signal", syscall.SIGABRT,
			`/p/libtoy.so: it was ended by SIGABRT (aborted) in a child process (task signal), printing "last words"; report this to its author; do not install it`},
		{"signal", syscall.SIGILL,
			`/p/libtoy.so: it was ended by SIGILL (illegal instruction) in a child process (task signal), printing "last words"; report this to its author; do not install it`},
		{"fault", 1,
			`/p/libtoy.so: it was ended by SIGSEGV (segmentation fault) in a child process (task fault); report this to its author; do not install it`},
		{"exit", 0,
			`/p/libtoy.so: it ended the process with exit code 0 in a child process (task exit); report this to its author: a plugin must never end the process`},
		{"exit", 7,
			`/p/libtoy.so: it ended the process with exit code 7 in a child process (task exit); report this to its author: a plugin must never end the process`},
	} {
		t.Run(fmt.Sprint(test.task, test.request), func(t *testing.T) {
			child := started(t, Options{})
			var ignored any
			err := child.Run(context.Background(), test.task, test.request, &ignored)
			must.FailExactly(t, err, test.want, ErrEnded)
			if again := child.Run(context.Background(), "double", 1, &ignored); again != err {
				t.Errorf("a further task: %v, want the same error", again)
			}
		})
	}
}

func TestDeadline(t *testing.T) {
	child := started(t, Options{Deadline: 200 * time.Millisecond})
	var ignored any
	err := child.Run(context.Background(), "hang", 1, &ignored)
	want := "/p/libtoy.so: it gave no answer within 200ms and was ended in a child process (task hang); report this to " +
		"its author, or allow more time when the machine is slow"
	must.FailExactly(t, err, want, ErrDeadline)
}

func TestCancel(t *testing.T) {
	child := started(t, Options{})
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	var ignored any
	must.Fail(t, child.Run(ctx, "hang", 1, &ignored), context.DeadlineExceeded)
	must.Fail(t, must.Error(Start(ctx, Options{Subject: "x"})), context.DeadlineExceeded)
}

func TestOutputDoesNotDisturb(t *testing.T) {
	child := started(t, Options{})
	var got int
	if err := child.Run(context.Background(), "print", 200, &got); err != nil || got != 200 {
		t.Fatalf("print: %d, %v", got, err)
	}
	if err := child.Run(context.Background(), "double", 4, &got); err != nil || got != 8 {
		t.Errorf("after it: %d, %v", got, err)
	}
}

// parentVariable makes the test executable a parent that writes the number of its child's guard to a file
// and waits.
const parentVariable = "GRAFT_TEST_PARENT"

func becomeParent(path string) {
	child, err := Start(context.Background(), Options{Subject: "inner"})
	if err == nil {
		err = os.WriteFile(path, []byte(strconv.Itoa(child.process.cmd.Process.Pid)), 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var ignored any
	_ = child.Run(context.Background(), "hang", 1, &ignored)
}

func TestDiesWithParent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pid")
	outer := exec.Command(os.Args[0])
	outer.Env = append(os.Environ(), parentVariable+"="+path)
	must.Succeed(t, outer.Start())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = outer.Wait()
	}()
	guard, child := 0, 0
	for child == 0 {
		if data, err := os.ReadFile(path); err == nil {
			guard, _ = strconv.Atoi(string(data))
		}
		if guard > 0 {
			child = only(guard)
		}
		select {
		case <-done:
			t.Fatal("the parent ended early")
		case <-time.After(10 * time.Millisecond):
		}
	}
	must.Succeed(t, outer.Process.Kill())
	gone(t, guard)
	gone(t, child)
	<-done
}

func mustGlob(t *testing.T, pattern string) []string {
	t.Helper()
	found := must.Value(filepath.Glob(pattern))(t)
	return found
}

func TestStartFailures(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	for _, test := range []struct{ executable, want string }{
		{"/no/such/graft", "/p/libtoy.so: cannot start the child process /no/such/graft worker: fork/exec /no/such/graft: " +
			"no such file or directory; it must be a graft of this version"},
		{"/bin/true", "/p/libtoy.so: cannot start the child process /bin/true worker: "},
	} {
		_, err := Start(context.Background(), Options{Subject: "/p/libtoy.so", Executable: test.executable})
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.executable, err, test.want)
		}
	}
	must.Empty(t, mustGlob(t, filepath.Join(temp, "*")))
}

func TestExecutable(t *testing.T) {
	defer hosted.Store(true)
	self, err := os.Executable()
	must.Succeed(t, err)
	must.Equal(t, must.Value(executable("/p/libtoy.so"))(t), self)
	hosted.Store(false)
	folder := t.TempDir()
	t.Setenv("PATH", folder)
	_, err = executable("/p/libtoy.so")
	want := "/p/libtoy.so: found no graft executable in " + filepath.Dir(self) +
		" and on PATH, needed one to run a plugin apart from this program; install it: go install " +
		"github.com/opgraft/graft/cmd/graft@latest"
	must.FailExactly(t, err, want, ErrNoExecutable)
	onPath := filepath.Join(folder, "graft")
	must.Succeed(t, os.WriteFile(onPath, []byte("#!/bin/sh\n"), 0o755))
	must.Equal(t, must.Value(executable("/p/libtoy.so"))(t), onPath)
}
