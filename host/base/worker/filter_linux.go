//go:build linux && (amd64 || arm64)

package worker

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// filter refuses system calls to every thread of this process, and to those it makes. What asks for another
// process, a signal to one, or what an administrator may do ends the process with SIGSYS: no plugin needs
// it. What a library may try innocently is an error that it can handle.
//
// Libraries for this let a program through that calls the kernel as another machine's program would (32-bit
// calls on amd64), when what is not listed is allowed; so the filter is written out. It knows these rules:
type rule struct {
	call   uint32
	action uint32
	test   test
	value  uint32 // of an argument
	second bool   // the argument is the call's second, its first else
}

type test int

const (
	always  test = iota
	isNot        // the argument is not the value
	is           // the argument is the value
	lacksIt      // the argument lacks the value's bit
	isType       // the argument without a socket's flags is the value
)

const (
	refuses  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	unknown  = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	passes   = unix.SECCOMP_RET_ALLOW
	thread   = unix.CLONE_THREAD
	x32Calls = 0x40000000
	flags    = unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
)

// rules are the filter's for this process, the first that fits. With a driver nothing ends it but a call of another
// machine's, and it may listen on Unix sockets: NVIDIA's does in cuInit, and fails where it cannot. They take whoever
// is in reach, and reach nobody themselves: connect is refused, and so are sockets that send without it.
func rules(driver bool) []rule {
	self := uint32(os.Getpid())
	ends := uint32(unix.SECCOMP_RET_KILL_PROCESS)
	if driver {
		ends = refuses
	}
	list := []rule{
		{unix.SYS_CLONE, ends, lacksIt, thread, false},
		{unix.SYS_CLONE3, unknown, always, 0, false}, // its flags are in memory; the C library then takes clone
		{unix.SYS_KILL, ends, isNot, self, false},
		{unix.SYS_TGKILL, ends, isNot, self, false},
		{unix.SYS_TKILL, refuses, always, 0, false}, // it does not say whose thread
		{unix.SYS_RT_SIGQUEUEINFO, ends, isNot, self, false},
		{unix.SYS_RT_TGSIGQUEUEINFO, ends, isNot, self, false},
		{unix.SYS_PRCTL, refuses, is, unix.PR_SET_PDEATHSIG, false},
	}
	for _, call := range slices.Concat(processCalls, []uint32{
		unix.SYS_EXECVE, unix.SYS_EXECVEAT,
		unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE,
		unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
		unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_CHROOT, unix.SYS_PIVOT_ROOT,
		unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_MOUNT_SETATTR, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE,
		unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_OPEN_BY_HANDLE_AT,
		unix.SYS_BPF, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD,
		unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_SYSLOG,
		unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
		unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_VHANGUP, unix.SYS_FANOTIFY_INIT,
	}) {
		list = append(list, rule{call: call, action: ends})
	}
	for _, call := range []uint32{unix.SYS_SOCKET, unix.SYS_SOCKETPAIR} {
		list = append(list, rule{call, refuses, isNot, unix.AF_UNIX, false},
			rule{call, refuses, isType, unix.SOCK_DGRAM, true},
			rule{call, refuses, isType, unix.SOCK_RAW, true}) // which makes a datagram's
	}
	if !driver {
		for _, call := range []uint32{unix.SYS_SOCKET, unix.SYS_BIND, unix.SYS_LISTEN} {
			list = append(list, rule{call: call, action: refuses})
		}
	}
	for _, call := range []uint32{
		unix.SYS_CONNECT,
		unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
	} {
		list = append(list, rule{call: call, action: refuses})
	}
	// it would do calls unseen
	for _, call := range []uint32{unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER} {
		list = append(list, rule{call: call, action: unknown})
	}
	return list
}

// program is the rules as the kernel runs them. Offsets are those of struct seccomp_data.
func program(list []rule) []unix.SockFilter {
	const number, machine, first, second = 0, 4, 16, 24
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	result := func(action uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
	}
	jump := func(kind uint16, value uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | kind, K: value, Jt: yes, Jf: no}
	}
	p := []unix.SockFilter{load(machine), jump(unix.BPF_JEQ, auditArch, 1, 0), result(unix.SECCOMP_RET_KILL_PROCESS),
		load(number),
		jump(unix.BPF_JGE, x32Calls, 0, 1), result(unknown)}
	for _, r := range list {
		if r.test == always {
			p = append(p, jump(unix.BPF_JEQ, r.call, 0, 1), result(r.action))
			continue
		}
		test := []unix.SockFilter{load(first)}
		if r.second {
			test[0] = load(second)
		}
		switch r.test {
		case is:
			test = append(test, jump(unix.BPF_JEQ, r.value, 0, 1))
		case isNot:
			test = append(test, jump(unix.BPF_JEQ, r.value, 1, 0))
		case lacksIt:
			test = append(test, jump(unix.BPF_JSET, r.value, 1, 0))
		case isType:
			test = append(test, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: ^uint32(flags)},
				jump(unix.BPF_JEQ, r.value, 0, 1))
		}
		test = append(test, result(r.action), load(number))
		p = append(append(p, jump(unix.BPF_JEQ, r.call, 0, uint8(len(test)))), test...)
	}
	return append(p, result(passes))
}

func filter(driver bool) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	p := program(rules(driver))
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	other, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(p)
	switch {
	case errno == unix.ENOSYS || errno == unix.EINVAL:
		return errors.New("the kernel has none")
	case errno != 0:
		return errno
	case other != 0:
		return fmt.Errorf("thread %d cannot have it", other)
	}
	return nil
}
