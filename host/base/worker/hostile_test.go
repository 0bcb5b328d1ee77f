//go:build linux

package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/internal/must"
)

// behaviour is a function of testdata/hostile.c and what it is called with.
type behaviour struct {
	Library, Function string
	Argument          int
}

func init() {
	tasks["behave"] = Handle(func(_ context.Context, b behaviour) (int, error) {
		library, err := purego.Dlopen(b.Library, purego.RTLD_NOW)
		if err != nil {
			return 0, err
		}
		function, err := purego.Dlsym(library, b.Function)
		if err != nil {
			return 0, err
		}
		result, _, _ := purego.SyscallN(function, uintptr(b.Argument))
		return int(result), nil
	})
}

// hostile is testdata/hostile.c as a library.
func hostile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "libhostile.so")
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-pthread", "-o", path,
		"testdata/hostile.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// Ways in which a system may not allow every layer.
var (
	all          = []string{}
	noNamespaces = []string{LayerNamespaces}
	noFilter     = []string{LayerFilter}
	neither      = []string{LayerNamespaces, LayerFilter}
	free         = []string{LayerNamespaces, LayerFilter, LayerLandlock} // shows that a behaviour is one
)

const markVariable = "GRAFT_TEST_MARK"

// TestHostile: whatever native code does, its task ends with an answer or an error that says what it did, and
// no process, file or descriptor is left; also where the system does not allow every layer.
func TestHostile(t *testing.T) {
	library := hostile(t)
	listener := must.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	const limit = 256 << 20
	for _, test := range []struct {
		function string
		argument int
		without  [][]string
		want     string // of the error, or the result
	}{
		{"succeed", 7, [][]string{all, noNamespaces, noFilter, neither}, "7"},
		{"daemonise", 7, [][]string{all, noNamespaces}, "SIGSYS (bad system call)"},
		{"daemonise", 7, [][]string{noFilter, neither}, "7"},
		{"abandon", 7, [][]string{all, noNamespaces}, "SIGSYS (bad system call)"},
		{"abandon", 7, [][]string{noFilter, neither}, "ended the process with exit code 0"},
		{"multiply", 3, [][]string{all, noNamespaces}, "SIGSYS (bad system call)"},
		{"multiply", 3, [][]string{noFilter, neither}, "0"},
		{"execute", 1, [][]string{all, noNamespaces}, "SIGSYS (bad system call)"},
		{"stop", 1, [][]string{all, neither}, "gave no answer within 300ms"},
		{"deaf", 1, [][]string{all, neither}, "gave no answer within 300ms"},
		{"busy", 4, [][]string{all, neither}, "gave no answer within 300ms"},
		{"swarm", 1, [][]string{all, neither}, "more than 4096 threads|1"},
		{"deafen", 1, [][]string{all, neither}, "broke the connection|exit code 2"},
		{"chatter", 1, [][]string{all, neither}, "gave no answer within 300ms"},
		{"litter", os.Getpid(), [][]string{all, noNamespaces, {LayerLandlock}}, "0"},
		{"litter", os.Getpid(), [][]string{free}, ">0"},
		{"hoard", 1024, [][]string{all, neither}, "<256|took more than 0.25 GiB of memory|exit code 2"},
		{"share", 4096, [][]string{all, neither}, "took more than 0.25 GiB of memory and was ended"},
		{"signal_parent", 1, [][]string{all, noNamespaces}, "SIGSYS (bad system call)"},
		{"signal_all", 1, [][]string{all, noNamespaces}, "SIGSYS (bad system call)"},
		{"signal_process", os.Getpid(), [][]string{all, noNamespaces}, "SIGSYS (bad system call)"},
		{"signal_process", os.Getpid(), [][]string{noFilter, neither}, "-1"},
		{"trace_process", os.Getpid(), [][]string{all, noNamespaces}, "SIGSYS (bad system call)"},
		{"trace_process", os.Getpid(), [][]string{noFilter, neither}, "-1"},
		{"write_process", os.Getpid(), [][]string{all, noNamespaces, neither, {LayerLandlock}}, "-1"},
		{"outlive", 1, [][]string{all, noNamespaces}, "0"},
		{"leave_namespaces", 1, [][]string{all, noNamespaces}, "SIGSYS (bad system call)"},
		{"old_call", 1, [][]string{all, noNamespaces}, "SIGSYS (bad system call)"},
		{"reach", port, [][]string{all, noNamespaces, noFilter, neither}, "-1"},
		{"reach", port, [][]string{free}, "0"},
		{"signal_process", os.Getpid(), [][]string{free}, "0"},
		{"crash", 1, [][]string{all, neither}, "SIGSEGV (segmentation fault)"},
		{"give_up", 1, [][]string{all, neither}, "SIGABRT (aborted)"},
	} {
		for _, without := range test.without {
			t.Run(test.function+" without "+strings.Join(without, ", "), func(t *testing.T) {
				before := descriptors(t)
				mark := fmt.Sprintf("%d-%d", os.Getpid(), time.Now().UnixNano())
				t.Setenv(markVariable, mark)
				deadline := time.Minute
				if strings.HasPrefix(test.want, "gave no answer") {
					deadline = 300 * time.Millisecond
				}
				began := time.Now()
				child := must.Value(Start(context.Background(),
					Options{Subject: "/p/libtoy.so", Deadline: deadline, Memory: limit, without: without}))(t)
				missing := missing(child, without)
				var result int
				err := child.Run(context.Background(), "behave", behaviour{library, test.function, test.argument}, &result)
				child.Close()
				if took := time.Since(began); took > 50*time.Second { // a pipe that is waited for would hold it until its deadline
					t.Errorf("it took %v", took)
				}
				if missing != "" {
					t.Logf("this system lacks layers that the outcome rests on: %s; got %d, %v", missing, result, err)
				} else if !met(test.want, result, err) {
					t.Errorf("gave %d, %v; want %s", result, err, test.want)
				}
				must.Empty(t, marked(t, mark))
				if now := descriptors(t); now > before {
					t.Errorf("%d descriptors, %d before", now, before)
				}
			})
		}
	}
	for _, folder := range []string{os.Getenv("TMPDIR"), os.Getenv("HOME")} {
		if left, _ := filepath.Glob(filepath.Join(folder, "*")); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	}
}

// TestSockets: a driver may listen on Unix sockets, nothing else may, and neither sends to anybody.
func TestSockets(t *testing.T) {
	library := hostile(t)
	address := filepath.Join(t.TempDir(), "socket")
	socket := must.Value(net.ListenPacket("unixgram", address))(t)
	defer socket.Close()
	t.Setenv("GRAFT_TEST_SOCKET", address)
	listener := must.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	for _, test := range []struct {
		function string
		argument int
		driver   bool
		without  []string
		want     int // what it gives, of a whisper the bytes that came
	}{
		{"hear", syscall.AF_UNIX, true, all, 0},
		{"hear", syscall.AF_UNIX, true, noNamespaces, 0},
		{"hear", syscall.AF_UNIX, false, all, -1},
		{"hear", syscall.AF_INET, true, all, -1},
		{"reach", port, true, noNamespaces, -1},
		{"whisper", syscall.SOCK_DGRAM, true, all, 0},
		{"whisper", syscall.SOCK_RAW, true, all, 0},
		{"whisper", syscall.SOCK_STREAM, true, all, 0},
		{"whisper", syscall.SOCK_SEQPACKET, true, all, 0},
		{"whisper", syscall.SOCK_DGRAM, false, all, 0},
		{"whisper", syscall.SOCK_DGRAM, false, noFilter, 1},
	} {
		t.Run(fmt.Sprint(test.function, test.argument, test.driver, test.without), func(t *testing.T) {
			child := must.Value(Start(context.Background(),
				Options{Subject: "/p/libtoy.so", Driver: test.driver, without: test.without}))(t)
			defer child.Close()
			var result int
			must.Succeed(t, child.Run(context.Background(), "behave",
				behaviour{library, test.function, test.argument}, &result))
			if test.function == "whisper" {
				must.Succeed(t, socket.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
				result, _, _ = socket.ReadFrom(make([]byte, 8))
			}
			if lacks := missing(child, test.without); lacks != "" {
				t.Logf("this system lacks %s; got %d", lacks, result)
			} else if result != test.want {
				t.Errorf("%d, want %d", result, test.want)
			}
		})
	}
}

// met compares an outcome with the alternatives that are wanted: a part of an error's text, a result, or a bound of it.
func met(want string, result int, err error) bool {
	return slices.ContainsFunc(strings.Split(want, "|"), func(want string) bool {
		if err != nil {
			return errors.Is(err, ErrEnded) != errors.Is(err, ErrDeadline) && strings.Contains(err.Error(), want)
		}
		bound, _ := strconv.Atoi(want[1:])
		switch want[0] {
		case '<':
			return result < bound
		case '>':
			return result > bound
		}
		return want == strconv.Itoa(result)
	})
}

// missing are the layers that this system does not allow, those left out on purpose aside.
func missing(c *Child, without []string) string {
	var list []string
	for _, l := range c.Layers() {
		if l.Problem != "" && !slices.Contains(without, l.Name) {
			list = append(list, l.Name)
		}
	}
	return strings.Join(list, ", ")
}

// marked are the processes with a mark in their environment that are not this one, after a while to end in.
func marked(t *testing.T, mark string) []string {
	t.Helper()
	var left []string
	for range 200 {
		left = nil
		found, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, path := range found {
			pid := filepath.Base(filepath.Dir(path))
			if data, err := os.ReadFile(path); err == nil && pid != fmt.Sprint(os.Getpid()) &&
				bytes.Contains(data, []byte(markVariable+"="+mark)) {
				left = append(left, pid)
			}
		}
		if len(left) == 0 {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return left
}

// descriptors is how many files this process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	entries := must.Value(os.ReadDir("/proc/self/fd"))(t)
	return len(entries)
}

// TestNothingLeaks: many children leave no process and no descriptor.
func TestNothingLeaks(t *testing.T) {
	mark := fmt.Sprintf("%d-leaks", os.Getpid())
	t.Setenv(markVariable, mark)
	before := 0
	for i := range 20 {
		child, err := Start(context.Background(), Options{Subject: "/p/libtoy.so", without: [][]string{all, neither}[i%2]})
		must.Succeed(t, err)
		var got int
		if err := child.Run(context.Background(), "double", i, &got); err != nil || got != 2*i {
			t.Fatalf("%d, %v", got, err)
		}
		child.Close()
		if i == 1 {
			before = descriptors(t)
		}
	}
	if now := descriptors(t); now > before {
		t.Errorf("%d descriptors, %d after the first two", now, before)
	}
	must.Empty(t, marked(t, mark))
}
