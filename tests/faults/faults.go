//go:build linux && (amd64 || arm64)

// Package faults makes one system call of a program fail, or ends the program there: the nth of those that touch files
// below chosen folders, in any of its threads and child processes. The kernel asks for each of them (seccomp's user
// notification), which needs neither rights nor ptrace, and sees what Go, the C library and native code call.
package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Fault is what happens at a call.
type Fault struct {
	At   int  // which call, from 1 on; 0 for none
	Kill bool // the process that makes it is ended; else it returns an error that it may return
}

// Run is how a program ran.
type Run struct {
	Calls  int    // that touched files
	Trace  []Call // these, in order; none where the kernel does not ask about them
	Hit    string // the call at which the fault was, "" where there were fewer
	Code   int    // exit code; -1 when a signal ended it
	Stdout string
	Stderr string
}

// Call is a call of the system; of a renaming, the path is the new one.
type Call struct{ Name, Path string }

// kinds are the calls that are looked at, the argument that is a descriptor or (from 10 on, less 10) a path, and how
// they fail.
var kinds = map[int]struct {
	name  string
	arg   int
	errno syscall.Errno
}{
	unix.SYS_OPENAT: {"openat", 11, unix.EIO}, unix.SYS_READ: {"read", 0, unix.EIO},
	unix.SYS_PREAD64: {"pread", 0, unix.EIO},
	unix.SYS_WRITE:   {"write", 0, unix.ENOSPC}, unix.SYS_PWRITE64: {"pwrite", 0, unix.ENOSPC},
	unix.SYS_WRITEV: {"writev", 0, unix.ENOSPC},
	unix.SYS_FSYNC:  {"fsync", 0, unix.EIO}, unix.SYS_FDATASYNC: {"fdatasync", 0, unix.EIO},
	unix.SYS_FTRUNCATE: {"ftruncate", 0, unix.EIO},
	unix.SYS_RENAMEAT:  {"renameat", 13, unix.ENOSPC}, unix.SYS_RENAMEAT2: {"renameat2", 13, unix.EIO},
	unix.SYS_MMAP:  {"mmap", 4, unix.ENOMEM},
	unix.SYS_CLOSE: {"close", 0, unix.EIO}, unix.SYS_MKDIRAT: {"mkdirat", 11, unix.ENOSPC},
	unix.SYS_UNLINKAT: {"unlinkat", 11, unix.EIO},
	unix.SYS_FCHMOD:   {"fchmod", 0, unix.EIO}, unix.SYS_FCHMODAT: {"fchmodat", 11, unix.EIO},
	unix.SYS_FLOCK:      {"flock", 0, unix.ENOLCK},
	unix.SYS_GETDENTS64: {"getdents", 0, unix.EIO}, unix.SYS_FSTAT: {"fstat", 0, unix.EIO},
	unix.SYS_COPY_FILE_RANGE: {"copy_file_range", 0, unix.EIO},
	unix.SYS_SENDFILE:        {"sendfile", 0, unix.EIO}, unix.SYS_SYMLINKAT: {"symlinkat", 12, unix.ENOSPC},
	unix.SYS_READLINKAT: {"readlinkat", 11, unix.EIO},
}

// descriptor is the environment variable that names the socket over which a program gives its calls to its parent.
const descriptor = "GRAFT_TEST_FAULTS"

// Main does not come back in a process that Start started: it becomes the program. Tests call it first in TestMain.
func Main() {
	fd, err := strconv.Atoi(os.Getenv(descriptor))
	if err != nil {
		return
	}
	os.Unsetenv(descriptor)
	runtime.LockOSThread() // a filter is a thread's, and the thread that becomes the program has it
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(125)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		fail(err)
	}
	program := filter()
	said := []byte{'y'}
	room := unix.UnixRights(0)
	message := unix.Msghdr{Iov: &unix.Iovec{Base: &said[0], Len: 1}, Iovlen: 1, Control: &room[0]}
	message.SetControllen(len(room))
	handed := (*int32)(unsafe.Pointer(&room[unix.CmsgLen(0)]))
	// Signals that a call waits out do not make it be asked about twice, where the kernel can do that.
	for _, more := range []uintptr{unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, 0} {
		errno := listen(uintptr(fd), unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|more, program, &message, handed)
		if errno == 0 {
			unix.Close(fd)
			fail(syscall.Exec(os.Args[1], os.Args[1:], os.Environ()))
		}
	}
	_ = unix.Sendmsg(fd, []byte{'n'}, nil, nil, 0)
	os.Exit(125)
}

// filter is the program by which the kernel asks about kinds.
func filter() *unix.SockFprog {
	const nr = 0 // offset in seccomp_data
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: nr}}
	for number := range kinds {
		filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: uint32(number)},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	return &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
}

// listen makes the kernel ask about the calls of this thread, and of all that it will start; hands the descriptor from
// which the questions are read over in message; and waits until somebody reads them. Until then no asked call of this
// thread comes back, not even one of Go's for memory or for another thread: nothing here leaves it to Go's scheduler,
// and neither of the two other calls is asked about.
//
//go:nosplit
//go:norace
func listen(socket, flags uintptr, program *unix.SockFprog, message *unix.Msghdr, handed *int32) syscall.Errno {
	fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags,
		uintptr(unsafe.Pointer(program)))
	if errno != 0 {
		return errno
	}
	*handed = int32(fd)
	unix.RawSyscall(unix.SYS_SENDMSG, socket, uintptr(unsafe.Pointer(message)), 0)
	var heard byte
	unix.RawSyscall6(unix.SYS_RECVFROM, socket, uintptr(unsafe.Pointer(&heard)), 1, 0, 0, 0)
	return 0
}

// errUnsupported says that the kernel asks nobody: it is too old, or a sandbox forbids it.
var errUnsupported = errors.New("seccomp's user notification is not to be had here")

// Start runs a command with a fault among its calls on files below folders. The executable that calls it calls Main
// first. Where the kernel does not ask about calls, the command is ended at moments in place of them.
func Start(ctx context.Context, command *exec.Cmd, below []string, fault Fault) (*Run, error) {
	same := exec.Command(command.Path, command.Args[1:]...)
	same.Dir, same.Env = command.Dir, slices.Clip(command.Env)
	run, err := asked(ctx, command, below, fault)
	if errors.Is(err, errUnsupported) {
		return bare(ctx, same, below, fault)
	}
	return run, err
}

// moment is what lies between two moments at which bare ends a program.
const moment = 20 * time.Millisecond

// bare ends a program at the nth moment, whatever the fault is to be.
func bare(ctx context.Context, command *exec.Cmd, _ []string, fault Fault) (*Run, error) {
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr, command.WaitDelay = &stdout, &stderr, 10*time.Second
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	begun := time.Now()
	if err := command.Start(); err != nil {
		return nil, err
	}
	end := func() { _ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	defer context.AfterFunc(ctx, end)()
	if fault.At > 0 {
		defer time.AfterFunc(time.Duration(fault.At)*moment, end).Stop()
	}
	_ = command.Wait()
	run := &Run{Calls: int(time.Since(begun) / moment), Code: command.ProcessState.ExitCode(), Stdout: stdout.String(),
		Stderr: stderr.String()}
	if run.Code < 0 {
		run.Hit = fmt.Sprintf("%d ms", time.Duration(fault.At)*moment/time.Millisecond)
	}
	return run, ctx.Err()
}

// asked is Start where the kernel asks.
func asked(ctx context.Context, command *exec.Cmd, below []string, fault Fault) (*Run, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	theirs := os.NewFile(uintptr(pair[1]), "socket")
	defer unix.Close(pair[0])
	var stdout, stderr bytes.Buffer
	command.Args = append([]string{os.Args[0], command.Path}, command.Args[1:]...)
	command.Path, command.Stdout, command.Stderr = os.Args[0], &stdout, &stderr
	command.ExtraFiles = []*os.File{theirs}
	command.Env = append(command.Env, descriptor+"=3", "GODEBUG=asyncpreemptoff=1")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.WaitDelay = 10 * time.Second
	if err := command.Start(); err != nil {
		theirs.Close()
		return nil, err
	}
	theirs.Close()
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) })
	defer stop()
	listener, err := receive(pair[0])
	if err != nil {
		_ = command.Process.Kill()
		_ = command.Wait()
		if errors.Is(err, errUnsupported) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %s", errors.Join(err, ctx.Err()), stderr.String())
	}
	s := &supervisor{listener: listener, below: below, fault: fault, run: &Run{}, end: make(chan struct{})}
	done := make(chan struct{})
	go func() { defer close(done); s.serve() }()
	if _, err := unix.Write(pair[0], []byte{1}); err != nil {
		return nil, err
	}
	err = command.Wait()
	close(s.end)
	<-done
	unix.Close(listener)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return nil, err
	}
	if ctx.Err() != nil {
		return s.run, fmt.Errorf("%w after %d calls, at %s: %s", ctx.Err(), s.run.Calls, s.run.Hit, stderr.String())
	}
	s.run.Code, s.run.Stdout, s.run.Stderr = command.ProcessState.ExitCode(), stdout.String(), stderr.String()
	return s.run, nil
}

// receive takes the descriptor from which the kernel's questions are read.
func receive(socket int) (int, error) {
	said, room := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	n, size, _, _, err := unix.Recvmsg(socket, said, room, unix.MSG_CMSG_CLOEXEC)
	switch {
	case err != nil:
		return 0, err
	case n != 1:
		return 0, errors.New("the program ended before its beginning")
	case said[0] != 'y':
		return 0, errUnsupported
	}
	messages, err := unix.ParseSocketControlMessage(room[:size])
	if err != nil || len(messages) != 1 {
		return 0, fmt.Errorf("found %d messages, %w", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return 0, err
	}
	return fds[0], nil
}

// supervisor answers the kernel.
type supervisor struct {
	listener int
	below    []string
	fault    Fault
	run      *Run
	end      chan struct{}
}

// question and answer are the kernel's seccomp_notif and seccomp_notif_resp.
type question struct {
	id    uint64
	pid   uint32
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

type answer struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// addition is seccomp_notif_addfd.
type addition struct {
	id                      uint64
	flags, from, to, toBits uint32
}

const (
	goOn     = 1          // SECCOMP_USER_NOTIF_FLAG_CONTINUE
	addIoctl = 0x40182103 // SECCOMP_IOCTL_NOTIF_ADDFD
)

func (s *supervisor) serve() {
	null, err := os.Open(os.DevNull)
	if err != nil {
		panic(err)
	}
	defer null.Close()
	for {
		ready := []unix.PollFd{{Fd: int32(s.listener), Events: unix.POLLIN}}
		n, err := unix.Poll(ready, 50)
		if n == 0 {
			select {
			case <-s.end: // what the program left running is asked about no longer
				return
			default:
				continue
			}
		}
		if err != nil && err != unix.EINTR || n > 0 && ready[0].Revents&unix.POLLIN == 0 {
			return
		}
		var q question
		if n <= 0 || s.ioctl(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&q)) != nil {
			continue
		}
		a := answer{id: q.id, flags: goOn}
		kind := kinds[int(q.nr)]
		if path, ours := s.subject(&q, kind.arg); ours {
			s.run.Trace = append(s.run.Trace, Call{kind.name, path})
			if s.run.Calls++; s.run.Calls == s.fault.At {
				s.run.Hit = fmt.Sprintf("call %d, %s of %s", s.run.Calls, kind.name, path)
				if s.fault.Kill {
					_ = unix.Kill(int(q.pid), unix.SIGKILL)
					continue
				}
				if int(q.nr) == unix.SYS_CLOSE { // a close that fails closes: another file takes its place
					add := addition{q.id, unix.SECCOMP_ADDFD_FLAG_SETFD, uint32(null.Fd()), uint32(q.args[0]), 0}
					_ = s.ioctl(addIoctl, unsafe.Pointer(&add))
				}
				a.flags, a.errno = 0, -int32(kind.errno)
			}
		}
		_ = s.ioctl(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&a)) // fails when the process is gone
	}
}

func (s *supervisor) ioctl(request uintptr, argument unsafe.Pointer) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s.listener), request, uintptr(argument))
		if errno == 0 {
			return nil
		}
		if errno != unix.EINTR {
			return errno
		}
	}
}

// subject is the path that a call is about, and whether it lies below one of the folders.
func (s *supervisor) subject(q *question, arg int) (path string, ours bool) {
	if arg < 10 {
		path, _ = os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", q.pid, int32(q.args[arg])))
	} else {
		path = s.text(q, q.args[arg-10])
		if !filepath.IsAbs(path) {
			folder := "cwd"
			if at := int32(q.args[arg-11]); at >= 0 {
				folder = fmt.Sprintf("fd/%d", at)
			}
			above, _ := os.Readlink(fmt.Sprintf("/proc/%d/%s", q.pid, folder))
			path = filepath.Join(above, path)
		}
	}
	for _, b := range s.below {
		if path == b || strings.HasPrefix(path, b+"/") {
			return path, true
		}
	}
	return path, false
}

// text reads a string of the program's memory.
func (s *supervisor) text(q *question, address uint64) string {
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", q.pid))
	if err != nil {
		return ""
	}
	defer memory.Close()
	data := make([]byte, 4096)
	n, _ := memory.ReadAt(data[:4096-address%4096], int64(address))
	if n == 4096-int(address%4096) && bytes.IndexByte(data[:n], 0) < 0 {
		more, _ := memory.ReadAt(data[n:], int64(address)+int64(n))
		n += more
	}
	text, _, _ := bytes.Cut(data[:n], []byte{0})
	return string(text)
}
