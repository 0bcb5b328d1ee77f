package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/rpc"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
)

// DefaultDeadline bounds one task when Options says nothing.
const DefaultDeadline = 30 * time.Second

// startDeadline bounds the child's start, before any native code: generous, for a busy machine.
const startDeadline = 60 * time.Second

// Options say how to run a child.
type Options struct {
	// Subject is what runs in the child, a library's path say: errors begin with it.
	Subject string
	// Deadline bounds each task; 0 is DefaultDeadline.
	Deadline time.Duration
	// Executable is the program to start; empty for the ordinary choice (see the package comment).
	Executable string
}

// Child is a running child process. Methods are safe from several goroutines; tasks run one at a time.
type Child struct {
	opts    Options
	client  *goplugin.Client
	process *process
	session goplugin.ClientProtocol
	calls   *rpc.Client
	tail    *tail
	folder  string // of its socket
	mutex   sync.Mutex
	failed  error // set when the child is gone
}

// Start starts a child. The caller must Close it.
func Start(ctx context.Context, opts Options) (*Child, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if opts.Deadline <= 0 {
		opts.Deadline = DefaultDeadline
	}
	if opts.Executable == "" {
		path, err := executable()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", opts.Subject, err)
		}
		opts.Executable = path
	}
	// go-plugin leaves its socket's folder behind when the start fails, so that folder lies in one of ours.
	folder, err := os.MkdirTemp(socketFolder(), "graft-")
	if err != nil {
		return nil, fmt.Errorf("%s: cannot make a folder for the child's socket: %w; set TMPDIR to a writable folder", opts.Subject, err)
	}
	c := &Child{opts: opts, tail: &tail{}, folder: folder, process: newProcess(exec.Command(opts.Executable, Subcommand))}
	c.client = goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig: handshake,
		Plugins:         goplugin.PluginSet{service: &netService{}},
		RunnerFunc: func(_ hclog.Logger, spec *exec.Cmd, _ string) (runner.Runner, error) {
			c.process.cmd.Env = spec.Env
			return c.process, nil
		},
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: folder},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolNetRPC},
		StartTimeout:     startDeadline,
		Logger:           hclog.NewNullLogger(),
		Stderr:           c.tail,
	})
	// A task's deadline does not cover the start, but a cancelled context does.
	stop := context.AfterFunc(ctx, func() { _ = c.process.Kill(ctx) })
	protocol, err := c.client.Client()
	var raw any
	if err == nil {
		raw, err = protocol.Dispense(service)
	}
	stop()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		c.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%s: cannot start the child process %s %s: %w%s; it must be a graft of this version", opts.Subject,
			opts.Executable, Subcommand, err, c.tail.words())
	}
	c.session, c.calls = protocol, raw.(*rpc.Client)
	return c, nil
}

// socketFolder is the folder for the child's socket, whose whole path must fit into 108 bytes.
func socketFolder() string {
	const room = 64 // our folder, go-plugin's and the socket
	if folder := os.TempDir(); len(folder)+room <= 108 {
		return folder
	}
	return "/tmp"
}

// Run does a task in the child: request and result are encoded as JSON. An error of the task itself comes
// back as *TaskError; a crash, an exit or a missed deadline as *Error, after which the child is gone and
// every further Run returns the same error. A cancelled context ends the child too.
func (c *Child) Run(ctx context.Context, task string, request, result any) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.failed != nil {
		return c.failed
	}
	data, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("cannot encode the request of task %s: %w", task, err)
	}
	deadline := time.NewTimer(c.opts.Deadline)
	defer deadline.Stop()
	var answer Answer
	var callErr error
	returned := make(chan struct{})
	go func() {
		callErr = c.calls.Call("Plugin.Do", Call{Task: task, Request: data}, &answer)
		close(returned)
	}()
	select {
	case <-returned:
		var remote rpc.ServerError
		if callErr != nil && !errors.As(callErr, &remote) {
			c.failed = c.ended(task, returned)
			return c.failed
		}
		if callErr != nil {
			return &TaskError{Subject: c.opts.Subject, Task: task, Text: callErr.Error()}
		}
	case <-c.process.done:
		c.failed = c.ended(task, returned)
		return c.failed
	case <-deadline.C:
		c.kill(returned)
		c.failed = &Error{Subject: c.opts.Subject, Task: task, Deadline: c.opts.Deadline, Output: c.tail.words()}
		return c.failed
	case <-ctx.Done():
		c.kill(returned)
		c.failed = ctx.Err()
		return c.failed
	}
	if answer.Error != "" {
		return &TaskError{Subject: c.opts.Subject, Task: task, Text: answer.Error}
	}
	if err := json.Unmarshal(answer.Result, result); err != nil {
		return fmt.Errorf("cannot read the result of task %s: %w", task, err)
	}
	return nil
}

// ended waits for a child whose connection broke and says how it ended.
func (c *Child) ended(task string, returned <-chan struct{}) error {
	select {
	case <-c.process.done:
	case <-time.After(2 * time.Second): // native code closed the connection and lives on
	}
	c.kill(returned)
	e := &Error{Subject: c.opts.Subject, Task: task, Output: c.tail.words()}
	if status, ok := c.process.state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		e.Signal = signalName(status.Signal())
	} else {
		e.ExitCode = c.process.state.ExitCode()
	}
	return e
}

// kill ends the child in the middle of a call and waits until it is reaped and its last output is read.
func (c *Child) kill(returned <-chan struct{}) {
	_ = c.process.Kill(context.Background())
	<-c.process.done
	// The session logs what it cannot write, so let it notice first that the child is gone.
	select {
	case <-returned:
	case <-time.After(time.Second):
	}
	c.client.Kill() // waits for the end of its output
}

// Close ends the child and waits for it. It may be called more than once.
func (c *Child) Close() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.session != nil && c.failed == nil {
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			_ = c.session.Close()
		}()
		select {
		case <-closed:
		case <-time.After(time.Second):
		}
		c.failed = errors.New("the child process was closed")
	}
	_ = c.process.Kill(context.Background())
	c.client.Kill()
	os.RemoveAll(c.folder)
}

// Pid is the child's process number.
func (c *Child) Pid() int { return c.process.cmd.Process.Pid }

// TaskError is an error that a task returned.
type TaskError struct {
	Subject, Task, Text string
}

// Error is the task's own text: it names the path itself.
func (e *TaskError) Error() string { return e.Text }

// Error is the end of a child in the middle of a task.
type Error struct {
	Subject  string        // what ran in it
	Task     string        // what it was doing
	Signal   string        // the signal that ended it, or
	Deadline time.Duration // the time after which it was ended, or
	ExitCode int           // the code with which it ended itself
	Output   string        // the end of what it printed
}

// Error says what happened, in one sentence, and what to do.
func (e *Error) Error() string {
	var what, fix string
	switch {
	case e.Signal != "":
		what = fmt.Sprintf("it was ended by %s", e.Signal)
		fix = "report this to its author; do not install it"
	case e.Deadline > 0:
		what = fmt.Sprintf("it gave no answer within %v and was ended", e.Deadline)
		fix = "report this to its author, or allow more time when the machine is slow"
	default:
		what = fmt.Sprintf("it ended the process with exit code %d", e.ExitCode)
		fix = "report this to its author: a plugin must never end the process"
	}
	return fmt.Sprintf("%s: %s in a child process (task %s)%s; %s", e.Subject, what, e.Task, e.Output, fix)
}

// tail holds the end of what a child printed.
type tail struct {
	mutex sync.Mutex
	data  []byte
}

// Write retains the last bytes.
func (t *tail) Write(p []byte) (int, error) {
	const limit = 2048
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.data = append(t.data, p...)
	if n := len(t.data); n > limit {
		t.data = append(t.data[:0], t.data[n-limit:]...)
	}
	return len(p), nil
}

// words is ", printing "..."" with the last line that was printed, or nothing.
func (t *tail) words() string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	text := strings.TrimSpace(string(t.data))
	if text == "" {
		return ""
	}
	last := text[strings.LastIndexByte(text, '\n')+1:]
	const limit = 300
	if len(last) > limit {
		last = last[len(last)-limit:]
	}
	return fmt.Sprintf(", printing %q", strings.ToValidUTF8(last, "?"))
}
