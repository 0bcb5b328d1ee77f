package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// guarded: a child has a guard, a process between it and its parent. The guard is the first process of the
// child's namespace, so that the kernel ends all others with it; where there is no namespace, what the child
// started and left becomes the guard's, and can still be found. It ends with its parent.
const guarded = true

const sigsys = unix.SIGSYS

// attributes start a guard in a session of its own: without a terminal, and apart from Ctrl-C.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// namespaces start a guard in namespaces of its own. Users keep their numbers.
func namespaces(without []string) (*syscall.SysProcAttr, error) {
	if slices.Contains(without, LayerNamespaces) {
		return nil, errors.New("left out")
	}
	a := attributes()
	a.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWNS
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
	if os.Geteuid() != 0 {
		a.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN} // to mount; the child has none
		return a, nil
	}
	// Root reads files of other users only where these have numbers.
	var err error
	if a.UidMappings, err = identity("/proc/self/uid_map"); err == nil {
		a.GidMappings, err = identity("/proc/self/gid_map")
	}
	return a, err
}

// identity maps all users, or groups, of this namespace to themselves.
func identity(path string) ([]syscall.SysProcIDMap, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list []syscall.SysProcIDMap
	for line := range bytes.Lines(data) {
		var first, outside, size int
		if _, err := fmt.Sscan(string(line), &first, &outside, &size); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		list = append(list, syscall.SysProcIDMap{ContainerID: first, HostID: first, Size: size})
	}
	return list, nil
}

// guard puts up the layers that a process gets from its parent, starts the child and waits for it.
func guard(s *setting) error {
	runtime.LockOSThread() // capabilities and Landlock are a thread's; the child gets them from this one
	for f := requestsFile; f <= statusFile; f++ {
		unix.CloseOnExec(f)
	}
	_ = unix.CloseRange(statusFile+1, 1<<30, unix.CLOSE_RANGE_CLOEXEC) // what native code of the parent left open
	goFirst()
	if s.Namespaces {
		s.add(LayerReadOnly, func() error { return readOnly(s.Scratch) })
	} else if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil { // emulators do not know it
		s.Layers = append(s.Layers, Layer{Name: LayerOrphans, Problem: err.Error()})
	}
	s.add(LayerPrivileges, dropPrivileges)
	s.add(LayerLandlock, func() error { return landlock(s.Scratch) })
	child := exec.Command("/proc/self/exe", Subcommand)
	requests, answers := os.NewFile(requestsFile, "requests"), os.NewFile(answersFile, "answers")
	child.ExtraFiles = []*os.File{requests, answers}
	for i := range s.Files {
		child.ExtraFiles = append(child.ExtraFiles, os.NewFile(uintptr(statusFile+1+i), "inherited"))
	}
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	s.Guard = false
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	child.Env = append(os.Environ(), settingVariable+"="+string(data))
	if err := child.Start(); err != nil {
		return err
	}
	requests.Close()
	answers.Close()
	go func() {
		_, _ = os.NewFile(lifelineFile, "lifeline").Read(make([]byte, 1))
		s.leave()
	}()
	_ = child.Wait() // its result is in ProcessState
	state := child.ProcessState.Sys().(syscall.WaitStatus)
	ending := status{Exited: state.Exited(), Code: state.ExitStatus()}
	if state.Signaled() {
		ending.Signal = state.Signal()
	}
	_ = json.NewEncoder(os.NewFile(statusFile, "status")).Encode(ending) // a parent that is gone does not read it
	s.leave()
	return nil
}

// goFirst makes this process, and what it starts, the first to be ended when memory is short.
func goFirst() {
	if fd, err := unix.Open("/proc/self/oom_score_adj", unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
		_, _ = unix.Write(fd, []byte("1000"))
		unix.Close(fd)
	}
}

// leave ends the guard and all that the child started.
func (s *setting) leave() {
	if !s.Namespaces {
		killTree(os.Getpid())
	}
	os.Exit(0)
}

// readOnly makes every mount read-only but that of a scratch folder, and shows no process of others where the system
// allows that.
func readOnly(scratch string) error {
	attr := unix.MountAttr{Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("mount_setattr: %w", err)
	}
	_ = unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "") // containers forbid it
	if scratch != "" {
		if err := unix.Mount(scratch, scratch, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", scratch, err)
		}
	}
	attr = unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("mount_setattr: %w", err)
	}
	if scratch != "" {
		attr = unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY,
			Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC}
		if err := unix.MountSetattr(unix.AT_FDCWD, scratch, 0, &attr); err != nil {
			return fmt.Errorf("mount_setattr %s: %w", scratch, err)
		}
	}
	return nil
}

// dropPrivileges leaves what this thread starts with root's right to read files, if that, and no way to more.
func dropPrivileges() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return nil // the exec leaves none
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if c == unix.CAP_DAC_OVERRIDE || c == unix.CAP_DAC_READ_SEARCH {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && err != unix.EINVAL { // an older kernel lacks it
			return fmt.Errorf("cannot drop capability %d: %w", c, err)
		}
	}
	return nil
}

// hold puts up the layers that the child gives itself, before any native code runs.
func (s *setting) hold() error {
	unix.CloseOnExec(requestsFile)
	unix.CloseOnExec(answersFile)
	// With the kernel's default action a crash ends the child at once and its exit status names the
	// signal. Go's handlers would try to print goroutines from a process whose memory may be damaged.
	for _, signal := range []syscall.Signal{unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGABRT,
		unix.SIGTRAP, unix.SIGSYS, unix.SIGXFSZ} {
		var action [8]uint64 // struct sigaction of zeros: SIG_DFL, no flags, empty mask
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(signal), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
		if errno != 0 {
			return fmt.Errorf("cannot reset the handler of %v: %w", signal, errno)
		}
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("cannot switch core files off: %w", err)
	}
	s.add(LayerLimits, s.limits)
	s.add(LayerFilter, func() error { return filter(s.Driver) })
	return nil
}

// limits bounds memory of its own, open files and their size. The Go runtime, the race detector and GPU drivers
// all reserve far more address space than they use, so that is not bounded, but what is writable.
func (s *setting) limits() error {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(text), "VmData:")
	now, err := strconv.ParseUint(strings.Fields(rest + " 0 ")[0], 10, 64)
	if err != nil {
		return fmt.Errorf("VmData in /proc/self/status: %w", err)
	}
	const files = 1024
	for limit, value := range map[int]uint64{unix.RLIMIT_DATA: now<<10 + uint64(s.Memory), unix.RLIMIT_NOFILE: files,
		unix.RLIMIT_FSIZE: uint64(s.File)} {
		var before unix.Rlimit
		if err := unix.Getrlimit(limit, &before); err != nil {
			return err
		}
		value = min(value, before.Max)
		if err := unix.Setrlimit(limit, &unix.Rlimit{Cur: value, Max: value}); err != nil {
			return err
		}
	}
	return nil
}

// signalName is "SIGSEGV (segmentation fault)".
func signalName(s syscall.Signal) string {
	return fmt.Sprintf("%s (%s)", unix.SignalName(s), s)
}
