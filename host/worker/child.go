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

	"github.com/opgraft/graft/host/diagnostic"
	"github.com/opgraft/graft/host/storage"
)

// The kinds of error. A caller tells them apart with errors.Is.
var (
	// ErrStart: the child did not start.
	ErrStart = errors.New("child process did not start")
	// ErrTask: a task returned an error; the child lives on.
	ErrTask = errors.New("task failed")
	// ErrEnded: a crash or an exit ended the child in the middle of a task.
	ErrEnded = errors.New("child process ended")
	// ErrDeadline: a task gave no answer in time; the child was ended.
	ErrDeadline = errors.New("child process gave no answer in time")
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
	folder  *storage.Folder // of its socket
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
		path, err := executable(opts.Subject)
		if err != nil {
			return nil, err
		}
		opts.Executable = path
	}
	// go-plugin leaves its socket's folder behind when the start fails, so that folder lies in one of ours.
	folder, err := storage.Temporary(socketFolder())
	if err != nil {
		return nil, &diagnostic.Error{Kind: ErrStart, Path: opts.Subject, Cause: err, Fix: "set TMPDIR to a writable folder",
			Found: "cannot make a folder for the child's socket: " + err.Error()}
	}
	c := &Child{opts: opts, tail: &tail{}, folder: folder, process: newProcess(exec.Command(opts.Executable, Subcommand))}
	c.client = goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig: handshake,
		Plugins:         goplugin.PluginSet{service: &netService{}},
		RunnerFunc: func(_ hclog.Logger, spec *exec.Cmd, _ string) (runner.Runner, error) {
			c.process.cmd.Env = spec.Env
			return c.process, nil
		},
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: folder.Path},
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
		return nil, &diagnostic.Error{Kind: ErrStart, Path: opts.Subject, Cause: err, Fix: "it must be a graft of this version",
			Found: fmt.Sprintf("cannot start the child process %s %s: %v%s", opts.Executable, Subcommand, err, c.tail.words())}
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
// back as of kind ErrTask; a crash or an exit as of kind ErrEnded, a missed deadline as of kind ErrDeadline, after
// which the child is gone and
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
			return refused(callErr.Error())
		}
	case <-c.process.done:
		c.failed = c.ended(task, returned)
		return c.failed
	case <-deadline.C:
		c.kill(returned)
		c.failed = c.end(ErrDeadline, task, fmt.Sprintf("gave no answer within %v and was ended", c.opts.Deadline),
			"report this to its author, or allow more time when the machine is slow")
		return c.failed
	case <-ctx.Done():
		c.kill(returned)
		c.failed = ctx.Err()
		return c.failed
	}
	if answer.Error != "" {
		return refused(answer.Error)
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
	if status, ok := c.process.state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return c.end(ErrEnded, task, "was ended by "+signalName(status.Signal()), "report this to its author; do not install it")
	}
	return c.end(ErrEnded, task, fmt.Sprintf("ended the process with exit code %d", c.process.state.ExitCode()),
		"report this to its author: a plugin must never end the process")
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
	c.folder.Remove()
}

// end words the end of a child in the middle of a task.
func (c *Child) end(kind error, task, what, fix string) error {
	return &diagnostic.Error{Kind: kind, Path: c.opts.Subject, Fix: fix,
		Found: fmt.Sprintf("it %s in a child process (task %s)%s", what, task, c.tail.words())}
}

// refused is an error that a task returned. Its text names the path itself.
func refused(text string) error { return &diagnostic.Error{Kind: ErrTask, Found: text} }

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
