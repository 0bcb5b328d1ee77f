package worker

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hardenChild prepares the child for native code that may crash.
func hardenChild() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("cannot switch core files off: %w", err)
	}
	// With the kernel's default action a crash ends the child at once and its exit status names the
	// signal. Go's handlers would try to print goroutines from a process whose memory may be damaged.
	for _, s := range []syscall.Signal{unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGABRT, unix.SIGTRAP, unix.SIGSYS} {
		var action [8]uint64 // struct sigaction of zeros: SIG_DFL, no flags, empty mask
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
		if errno != 0 {
			return fmt.Errorf("cannot reset the handler of %v: %w", s, errno)
		}
	}
	return nil
}

// redirectOutput sends what native code prints to standard error, of which the parent holds the end.
func redirectOutput() {
	if err := unix.Dup3(2, 1, 0); err != nil {
		fmt.Fprintln(os.Stderr, "graft worker: cannot redirect standard output:", err)
	}
}

// childAttributes puts the child into its own process group and ties its life to the thread that starts
// it.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit returns when the process has ended and is not reaped yet, so that its process group can still
// be named.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return
		}
	}
}

// killGroup ends a child and whatever it started.
func killGroup(pid int) { _ = unix.Kill(-pid, unix.SIGKILL) }

// signalName is "SIGSEGV (segmentation fault)".
func signalName(s syscall.Signal) string {
	return fmt.Sprintf("%s (%s)", unix.SignalName(s), s)
}
