//go:build linux && (amd64 || arm64)

package signals

import (
	"os/signal"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// action is the kernel's struct sigaction, which is the same on amd64 and arm64 and is not the C library's.
type action struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     uint64
}

const (
	count     = 64 // signals of these kernels, the first is 1
	onStack   = 0x08000000
	byDefault = 0 // SIG_DFL
	ignored   = 1 // SIG_IGN
)

// goHandler is the address of the one handler that the runtime installs for every signal it handles. No
// library has been loaded by this package's users when it is read.
var goHandler = func() uintptr {
	a, _ := get(unix.SIGSEGV)
	return a.handler
}()

func get(s unix.Signal) (a action, ok bool) {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), 0, uintptr(unsafe.Pointer(&a)),
		unsafe.Sizeof(a.mask), 0, 0)
	return a, errno == 0
}

// set changes how a signal is handled. SIGKILL and SIGSTOP cannot be changed, and are never asked for.
func set(s unix.Signal, a *action) {
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(a)), 0, unsafe.Sizeof(a.mask), 0,
		0)
}

// saved is what the calls of Preserve that overlap share: with a list each, a second call would take the
// handlers that the first one's library has just installed for Go's.
var saved struct {
	sync.Mutex
	calls   int
	actions [count + 1]action
}

// Preserve calls f and then gives Go back the signal handlers that native code in f took. Calls may overlap.
func Preserve(f func()) {
	enter()
	defer leave()
	f()
}

func enter() {
	saved.Lock()
	defer saved.Unlock()
	if saved.calls++; saved.calls > 1 {
		return
	}
	for s := range saved.actions {
		saved.actions[s], _ = get(unix.Signal(s)) // there is no signal 0: the kernel refuses it
	}
}

func leave() {
	saved.Lock()
	defer saved.Unlock()
	saved.calls--
	for s := range saved.actions {
		before := &saved.actions[s]
		now, ok := get(unix.Signal(s))
		switch {
		case !ok || now.handler == goHandler && now.flags&onStack != 0:
		case now.handler == ignored && signal.Ignored(unix.Signal(s)): // by Go, meanwhile
		case before.handler == goHandler:
			set(unix.Signal(s), before)
		case now.handler != byDefault && now.handler != ignored && now.flags&onStack == 0:
			now.flags |= onStack
			set(unix.Signal(s), &now)
		}
	}
}

// Hold notes how signals are handled now and gives the function that handles them so again, whatever native
// code did meanwhile.
func Hold(list ...unix.Signal) (again func()) {
	actions := make([]action, len(list))
	for i, s := range list {
		actions[i], _ = get(s)
	}
	return func() {
		for i, s := range list {
			if now, ok := get(s); ok && now != actions[i] {
				set(s, &actions[i])
			}
		}
	}
}
