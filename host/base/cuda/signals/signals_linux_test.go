//go:build linux && (amd64 || arm64)

package signals_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/base/cuda"
	"github.com/opgraft/graft/host/base/cuda/cudatest"
	"github.com/opgraft/graft/host/base/cuda/signals"
	"github.com/opgraft/graft/internal/must"
)

// childVariable says to this test's executable that it is a child: "WAY CHECK LIBRARY".
const childVariable = "GRAFT_TEST_SIGNALS"

func TestMain(m *testing.M) {
	if words := strings.Fields(os.Getenv(childVariable)); len(words) == 3 {
		child(words[0], words[1], words[2])
	}
	os.Exit(m.Run())
}

// checks are what a Go program does with signals. Each needs Go's own handler.
var checks = map[string]func() error{
	"panic":      recoversFromNil,
	"profile":    profiles,
	"preemption": preempts,
	"notify":     notifies,
}

// TestGoHasItsSignals runs each check in a program that used a driver that takes all signals: by this
// package, after which it works, and without, after which it does not.
func TestGoHasItsSignals(t *testing.T) {
	library := cudatest.Library(t)
	t.Setenv("FAKE_CUDA", "sigurg=1")
	for check := range checks {
		t.Run(check, func(t *testing.T) {
			must.Equal(t, must.Value(runChild(t, "host/base/cuda", check, library))(t), "fine\n")
			must.Equal(t, must.Value(runChild(t, "saved", check, library))(t), "fine\n")
			if out, err := runChild(t, "bare", check, library); err == nil || strings.Contains(out, "fine") {
				t.Errorf("without: the driver does no harm, so the test shows nothing\n%s", out)
			}
		})
	}
}

// TestOnDevice runs the checks beside NVIDIA's own driver.
func TestOnDevice(t *testing.T) {
	if _, err := cuda.Open(); errors.Is(err, cuda.ErrNoDriver) || errors.Is(err, cuda.ErrNoDevice) {
		t.Skip(err)
	}
	for check := range checks {
		must.Equal(t, must.Value(runChild(t, "device", check, "-"))(t, check), "fine\n", check)
	}
}

// runChild runs a check in a child, and again when the runtime's signal for preemption came while the
// driver's handlers were in force, which a busy machine makes likely.
func runChild(t *testing.T, way, check, library string) (string, error) {
	const preempted = 60 + int(syscall.SIGURG) // driver.c's exit status
	for tries := 1; ; tries++ {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), childVariable+"="+way+" "+check+" "+library, "GORACE=atexit_sleep_ms=0")
		out, err := cmd.CombinedOutput()
		cancel()
		if cmd.ProcessState.ExitCode() != preempted || tries == 5 {
			return string(out), err
		}
	}
}

func child(way, check, library string) {
	// The driver's handlers are in force until it has returned, and end the process. No signal may come
	// meanwhile: the collector's are the only ones here.
	debug.SetGCPercent(-1)
	var err error
	switch way {
	case "compare":
		err = compare(library)
	case "host/base/cuda":
		var driver *cuda.Driver
		if driver, err = cuda.OpenPath(library); err == nil {
			err = useDriver(driver)
		}
	case "device":
		var driver *cuda.Driver
		if driver, err = cuda.Open(); err == nil {
			err = useDriver(driver)
		}
	case "saved":
		signals.Preserve(func() { err = takeSignals(library) })
	case "bare":
		err = takeSignals(library)
	}
	debug.SetGCPercent(100)
	if run := checks[check]; err == nil && run != nil {
		err = run()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("fine")
	os.Exit(0)
}

// takeSignals calls the driver's cuInit, which takes all handlers.
func takeSignals(library string) error {
	handle, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return err
	}
	start, err := purego.Dlsym(handle, "cuInit")
	if err != nil {
		return err
	}
	if r, _, _ := purego.SyscallN(start, 0); r != 0 {
		return fmt.Errorf("cuInit: %d", r)
	}
	return nil
}

// useDriver comes by all three places where the driver takes handlers: its start, the first module, and the
// first launch.
func useDriver(driver *cuda.Driver) error {
	device, err := driver.Device(0)
	if err != nil {
		return err
	}
	c, err := device.PrimaryContext()
	if err != nil {
		return err
	}
	module, err := c.LoadModuleData(cudatest.Kernels)
	if err != nil {
		return err
	}
	reverse, err := module.Function("reverse")
	if err != nil {
		return err
	}
	memory, err := c.MemAlloc(4)
	if err != nil {
		return err
	}
	err = reverse.Launch(cuda.LaunchConfig{Grid: cuda.Dim3{X: 1}, Block: cuda.Dim3{X: 1}, SharedMem: 4}, memory)
	return errors.Join(err, c.Close())
}

func recoversFromNil() (err error) {
	defer func() {
		if _, ok := recover().(runtime.Error); !ok {
			err = errors.New("no panic")
		}
	}()
	var p *int
	*p = 1
	return nil
}

//go:noinline
func busyForProfile(until time.Time) (n int) {
	for time.Now().Before(until) {
		n++
	}
	return n
}

func profiles() error {
	var profile bytes.Buffer
	if err := pprof.StartCPUProfile(&profile); err != nil {
		return err
	}
	busyForProfile(time.Now().Add(500 * time.Millisecond))
	pprof.StopCPUProfile()
	zip, err := gzip.NewReader(&profile)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(zip)
	if err != nil {
		return err
	}
	if !bytes.Contains(text, []byte("busyForProfile")) {
		return errors.New("no sample was taken of a busy function")
	}
	return nil
}

// preempts has one processor and a loop that never lets go of it by itself.
func preempts() error {
	runtime.GOMAXPROCS(1)
	var done atomic.Bool
	go done.Store(true)
	for !done.Load() {
	}
	return nil
}

func notifies() error {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGCHLD} {
		c := make(chan os.Signal, 1)
		signal.Notify(c, s)
		if err := syscall.Kill(syscall.Getpid(), s); err != nil {
			return err
		}
		select {
		case <-c:
		case <-time.After(10 * time.Second):
			return fmt.Errorf("no %v came", s)
		}
	}
	return nil
}

// action is the kernel's, as in signals_linux.go.
type action struct {
	handler        uintptr
	flags          uint64
	restorer, mask uintptr
}

func handlers() (list [65]action) {
	for s := range list {
		syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s), 0, uintptr(unsafe.Pointer(&list[s])), 8, 0, 0)
	}
	return list
}

// TestPreserveGivesBack compares what the kernel says before and after.
func TestPreserveGivesBack(t *testing.T) {
	for how, settings := range map[string]string{"other handlers": "signals=1",
		"the same without SA_ONSTACK": "signals=2"} {
		t.Setenv("FAKE_CUDA", settings)
		must.Equal(t, must.Value(runChild(t, "compare", "handlers", cudatest.Library(t)))(t, how), "fine\n", how)
	}
}

func compare(library string) error {
	before := handlers()
	taken := 0
	var failed error
	signals.Preserve(func() {
		failed = takeSignals(library)
		// A call that begins while the driver's handlers are there still knows Go's.
		signals.Preserve(func() {
			for s, a := range handlers() {
				if a != before[s] {
					taken++
				}
			}
		})
	})
	if failed != nil {
		return failed
	}
	after := handlers()
	if taken < 54 { // all but 32, 33, SIGKILL and SIGSTOP, and where only flags change those without a handler
		return fmt.Errorf("the driver took %d signals", taken)
	}
	const onStack = 0x08000000
	golang := before[syscall.SIGSEGV].handler
	given := 0
	for s := 1; s <= 64; s++ {
		switch {
		case before[s].handler == golang:
			given++
			if after[s] != before[s] {
				return fmt.Errorf("signal %d: %+v, before %+v", s, after[s], before[s])
			}
		case after[s].handler > 1 && after[s].flags&onStack == 0:
			return fmt.Errorf("signal %d: a handler without SA_ONSTACK", s)
		}
	}
	if given < 50 {
		return fmt.Errorf("only %d signals were Go's", given)
	}
	if os.Getenv("FAKE_CUDA") == "signals=1" && after[syscall.SIGTSTP].handler == before[syscall.SIGTSTP].handler {
		return errors.New("a signal that Go does not handle was taken back from the driver")
	}
	return nil
}

// TestMeanwhile: what Go does with signals while native code runs is not undone.
func TestMeanwhile(t *testing.T) {
	defer signal.Reset(syscall.SIGUSR1)
	signal.Ignore(syscall.SIGUSR2)
	c := make(chan os.Signal, 1)
	signals.Preserve(func() {
		signal.Notify(c, syscall.SIGUSR2)
		signal.Ignore(syscall.SIGUSR1)
	})
	defer signal.Stop(c)
	const ignored = 1 // SIG_IGN
	must.Equal(t, handlers()[syscall.SIGUSR1].handler, ignored)
	must.Succeed(t, syscall.Kill(syscall.Getpid(), syscall.SIGUSR2))
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Error("no signal came")
	}
}
