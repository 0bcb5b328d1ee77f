package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/memory"
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

// maxAnswer bounds what a child may answer to one task, in bytes.
const maxAnswer = 64 << 20

// maxMemory bounds what a child may take when Options says nothing, in bytes: half of a machine's memory
// is less on most.
const maxMemory = 32 << 30

// maxFile bounds a file that a child writes, and its scratch folder when Options says nothing, in bytes.
const maxFile = 1 << 30

// maxFiles bounds the files of a scratch folder.
const maxFiles = 256

// Options say how to run a child.
type Options struct {
	// Subject is what runs in the child, a library's path say: errors begin with it.
	Subject string
	// Deadline bounds each task; 0 is DefaultDeadline.
	Deadline time.Duration
	// Memory bounds what the child may take, in bytes; 0 is half of the machine's memory, at most 32 GiB.
	Memory int64
	// Scratch is an empty folder of this user's, by its absolute path, in which the child may make and write files; ""
	// for none. Nothing outside of it is written, and nothing in it is removed, run or made but files.
	Scratch string
	// ScratchBytes bounds what lies in Scratch, in bytes; 0 is 1 GiB. What takes more is ended.
	ScratchBytes int64
	// Driver is set where the child uses a device's driver. Drivers may try to start helpers, so that this is an
	// error and does not end the child, and they listen on Unix sockets.
	Driver bool
	// Starts is set where the child starts workers of its own, which end with it: then no filter of system calls holds it.
	Starts bool
	// Own is set where the subject is the work of who runs it: an error then says how to find the fault, and not whom to
	// tell.
	Own bool
	// Output gets what the child prints too; nil for silence. One that does not return holds the child up.
	Output io.Writer
	// Executable is the program to start; empty for the ordinary choice (see the package comment).
	Executable string
	// Files are handed to the child, which gets them by Inherited. They stay open here. Only where there are guards.
	Files []*os.File

	without []string // layers that tests leave out
}

// Child is a running child process. Methods are safe from several goroutines; tasks run one at a time.
type Child struct {
	opts    Options
	process *process
	layers  []Layer
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
	if opts.Memory <= 0 {
		opts.Memory = min(memory.Half(), maxMemory)
	}
	if opts.ScratchBytes <= 0 {
		opts.ScratchBytes = maxFile
	}
	if opts.Executable == "" {
		path, err := executable(opts.Subject)
		if err != nil {
			return nil, err
		}
		opts.Executable = path
	}
	c := &Child{opts: opts}
	var err error
	if c.process, err = startProcess(&opts); err == nil {
		var h hello
		err = c.process.exchange(ctx, time.Now().Add(startDeadline), nil, &h)
		c.layers = h.Layers
	}
	if err == nil {
		return c, nil
	}
	words := ""
	if c.process != nil {
		c.Close()
		words = c.process.tail.words()
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, &diagnostic.Error{Kind: ErrStart, Path: opts.Subject, Cause: err,
		Fix:   "it must be a graft of this version",
		Found: fmt.Sprintf("cannot start the child process %s %s: %v%s", opts.Executable, Subcommand, err, words)}
}

// Layers are the ways in which the child is held, with those that do not hold on this system.
func (c *Child) Layers() []Layer { return c.layers }

// Doing is a request that says what it is for, such as case "far out"; errors of its task name that.
type Doing interface{ Doing() string }

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
	var a answer
	err = c.process.exchange(ctx, time.Now().Add(c.opts.Deadline), &call{task, data}, &a)
	switch {
	case err != nil:
		what := "task " + task
		if d, ok := request.(Doing); ok {
			what = d.Doing()
		}
		c.failed = c.ended(ctx, what, err)
		return c.failed
	case a.Error != "":
		return refused(a.Error)
	}
	if err := json.Unmarshal(a.Result, result); err != nil {
		return fmt.Errorf("cannot read the result of task %s: %w", task, err)
	}
	return nil
}

// ended ends a child that did not answer and says why it did not.
func (c *Child) ended(ctx context.Context, doing string, cause error) error {
	status := c.process.status(cause)
	c.process.end()
	report, exited, late := "report this to its author; do not install it",
		"report this to its author: a plugin must never end the process",
		"report this to its author, or allow more time when the machine is slow"
	if c.opts.Own {
		report, exited, late = "look for the fault there; a debugger or -fsanitize=address,undefined finds most",
			"no function of a plugin may end the process", "look for what does not end, or allow more with --deadline"
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case status.Excess != "":
		return c.end(ErrEnded, doing, "took "+status.Excess+" and was ended", report)
	case status.Signal == syscall.Signal(sigsys):
		return c.end(ErrEnded, doing, "was ended by "+signalName(status.Signal)+", as it asked the system for another "+
			"process, a signal to one, or what only an administrator may do", report)
	case status.Signal != 0:
		return c.end(ErrEnded, doing, "was ended by "+signalName(status.Signal), report)
	case status.Exited:
		return c.end(ErrEnded, doing, fmt.Sprintf("ended the process with exit code %d", status.Code),
			exited)
	case errors.Is(cause, os.ErrDeadlineExceeded):
		return c.end(ErrDeadline, doing, fmt.Sprintf("gave no answer within %v and was ended", c.opts.Deadline),
			late)
	}
	return c.end(ErrEnded, doing, fmt.Sprintf("broke the connection (%v) and was ended", cause), report)
}

// Ended is closed when the child is gone.
func (c *Child) Ended() <-chan struct{} { return c.process.over }

// Fate says how a child ended that nobody told to end, or ends one that only seemed to have. A task in flight fails
// first.
func (c *Child) Fate() error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.failed == nil {
		c.failed = c.ended(context.Background(), "a call", io.ErrUnexpectedEOF)
	}
	return c.failed
}

// Kill ends the child, also in the middle of a task, which fails then.
func (c *Child) Kill() { c.process.end() }

// Close ends the child and waits for it. It may be called more than once.
func (c *Child) Close() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.failed == nil {
		c.failed = errors.New("the child process was closed")
	}
	c.process.end()
}

// end words the end of a child in the middle of what it did.
func (c *Child) end(kind error, doing, what, fix string) error {
	return &diagnostic.Error{Kind: kind, Path: c.opts.Subject, Fix: fix,
		Found: fmt.Sprintf("it %s in a child process (%s)%s", what, doing, c.process.tail.words())}
}

// refused is an error that a task returned. Its text names the path itself.
func refused(text string) error { return &diagnostic.Error{Kind: ErrTask, Found: text} }
