package worker

import (
	"context"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
)

// process is a go-plugin runner that starts the child from a thread which outlives it, knows how it ended,
// and ends its whole process group.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr *os.File
	done           chan struct{} // closed when the child is reaped; state is set before

	mutex sync.Mutex
	alive bool
	state *os.ProcessState
}

func newProcess(cmd *exec.Cmd) *process { return &process{cmd: cmd, done: make(chan struct{})} }

// Start starts the child.
func (p *process) Start(context.Context) error {
	stdout, stdoutEnd, err := os.Pipe()
	if err != nil {
		return err
	}
	stderr, stderrEnd, err := os.Pipe()
	if err != nil {
		stdout.Close()
		stdoutEnd.Close()
		return err
	}
	p.stdout, p.stderr = stdout, stderr
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = nil, stdoutEnd, stderrEnd
	p.cmd.SysProcAttr = childAttributes()
	started := make(chan error)
	go func() {
		// The kernel sends the parent-death signal when the thread that made the child ends, so that
		// thread must not end before the child does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		stdoutEnd.Close()
		stderrEnd.Close()
		if err != nil {
			stdout.Close()
			stderr.Close()
			started <- err
			return
		}
		p.mutex.Lock()
		p.alive = true
		p.mutex.Unlock()
		started <- nil
		awaitExit(p.cmd.Process.Pid)
		p.mutex.Lock()
		killGroup(p.cmd.Process.Pid) // children of the child
		p.alive = false
		p.mutex.Unlock()
		_ = p.cmd.Wait() // its result is in ProcessState
		p.state = p.cmd.ProcessState
		close(p.done)
	}()
	return <-started
}

// Wait returns when the child has ended.
func (p *process) Wait(context.Context) error {
	<-p.done
	p.stdout.Close()
	p.stderr.Close()
	return nil
}

// Kill ends the child and all it started.
func (p *process) Kill(context.Context) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.alive {
		killGroup(p.cmd.Process.Pid)
	}
	return nil
}

// Stdout carries the handshake.
func (p *process) Stdout() io.ReadCloser { return p.stdout }

// Stderr carries what the child and native code print.
func (p *process) Stderr() io.ReadCloser { return p.stderr }

// Name is the child's executable.
func (p *process) Name() string { return p.cmd.Path }

// ID is the process number, empty before the start.
func (p *process) ID() string {
	if p.cmd.Process == nil {
		return ""
	}
	return strconv.Itoa(p.cmd.Process.Pid)
}

// Diagnose adds nothing: Start's caller has the child's last words.
func (p *process) Diagnose(context.Context) string { return "" }

// PluginToHost is the identity: both ends share the file system.
func (p *process) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}

// HostToPlugin is the identity.
func (p *process) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}
