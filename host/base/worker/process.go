package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// process is a started child, with its guard where there is one. Nothing here waits for a pipe's other end
// to be closed: what native code left behind may hold it.
type process struct {
	cmd        *exec.Cmd
	namespaces bool
	tail       tail
	requests   *os.File
	answers    *os.File
	output     *os.File
	lifeline   *os.File // nobody writes: the guard ends the child when it is closed
	reports    *os.File // of the guard: how the child ended
	incoming   *json.Decoder
	allowance  io.LimitedReader // what an answer may still take

	printed chan struct{} // closed when no output is read any more
	watched chan struct{} // closed when nobody looks at what it takes any more
	over    chan struct{} // closed when the guard has said how the child ended, or is gone
	ending  status        // set before over is closed
	excess  atomic.Pointer[string]
	once    sync.Once
}

// status is how a child ended.
type status struct {
	Exited bool           `json:"exited"`
	Code   int            `json:"code"`
	Signal syscall.Signal `json:"signal"`
	Excess string         `json:"-"` // what it took too much of
}

// startProcess starts a child, in namespaces of its own where the system allows them.
func startProcess(opts *Options) (*process, error) {
	if opts.Starts {
		opts.without = append(slices.Clip(opts.without), LayerFilter)
	}
	s := setting{Guard: guarded, Memory: opts.Memory, Scratch: opts.Scratch, File: opts.ScratchBytes, Driver: opts.Driver,
		Without: opts.without, Files: len(opts.Files)}
	if attributes, err := namespaces(opts.without); err == nil {
		s.Namespaces, s.Layers = true, []Layer{{Name: LayerNamespaces}}
		p, failed := start(opts, s, attributes)
		if failed == nil {
			return p, nil
		}
		s.Layers = []Layer{{LayerNamespaces, failed.Error()}}
	} else {
		s.Layers = []Layer{{LayerNamespaces, err.Error()}}
	}
	s.Namespaces = false
	return start(opts, s, attributes())
}

func start(opts *Options, s setting, attributes *syscall.SysProcAttr) (_ *process, err error) {
	p := &process{cmd: exec.Command(opts.Executable, Subcommand), namespaces: s.Namespaces, printed: make(chan struct{}),
		watched: make(chan struct{}), over: make(chan struct{})}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
		if err != nil {
			p.close()
		}
	}()
	pipe := func(mine **os.File, reads bool) *os.File {
		r, w, failed := os.Pipe()
		if failed != nil {
			err = failed
			return nil
		}
		if !reads {
			r, w = w, r
		}
		*mine, theirs = r, append(theirs, w)
		return w
	}
	out := pipe(&p.output, true)
	p.cmd.ExtraFiles = []*os.File{pipe(&p.requests, false), pipe(&p.answers, true), pipe(&p.lifeline, false),
		pipe(&p.reports, true)}
	if err != nil {
		return nil, err
	}
	p.cmd.ExtraFiles = append(p.cmd.ExtraFiles, opts.Files...)
	setting, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = out, out, attributes
	p.cmd.Env = slices.Concat(os.Environ(),
		[]string{cookieVariable + "=" + cookie, settingVariable + "=" + string(setting)})
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.allowance.R = p.answers
	p.incoming = json.NewDecoder(&p.allowance)
	go func() {
		defer close(p.printed)
		var to io.Writer = &p.tail
		if opts.Output != nil {
			to = io.MultiWriter(&p.tail, opts.Output)
		}
		_, _ = io.Copy(to, p.output)
	}()
	go func() {
		_ = json.NewDecoder(io.LimitReader(p.reports, 1<<10)).Decode(&p.ending)
		close(p.over)
		_ = p.answers.SetReadDeadline(time.Unix(1, 0)) // what it left behind may hold the other end
	}()
	go p.watch(opts)
	return p, nil
}

// exchange sends a call, if there is one, and waits for what comes back.
func (p *process) exchange(ctx context.Context, deadline time.Time, c *call, reply any) error {
	if err := errors.Join(p.answers.SetReadDeadline(deadline), p.requests.SetWriteDeadline(deadline)); err != nil {
		return err
	}
	now := func() {
		_ = p.requests.SetWriteDeadline(time.Unix(1, 0))
		_ = p.answers.SetReadDeadline(time.Unix(1, 0))
	}
	stop := context.AfterFunc(ctx, now)
	select {
	case <-p.over: // its deadline was set before ours
		now()
	default:
	}
	var err error
	if c != nil {
		err = json.NewEncoder(p.requests).Encode(c)
	}
	if err == nil {
		p.allowance.N = maxAnswer
		err = p.incoming.Decode(reply)
	}
	if err == io.EOF && p.allowance.N <= 0 {
		err = fmt.Errorf("an answer of more than %d MiB", maxAnswer>>20)
	}
	if !stop() {
		return ctx.Err()
	}
	return err
}

// status is how the child ended. One that broke its connection is given a moment to end.
func (p *process) status(cause error) status {
	patience := 2 * time.Second
	if errors.Is(cause, os.ErrDeadlineExceeded) {
		patience = 0
	}
	select {
	case <-p.over:
	case <-time.After(patience):
		select {
		case <-p.over:
		default:
			return status{Excess: p.excessive()}
		}
	}
	s := p.ending
	s.Excess = p.excessive()
	return s
}

func (p *process) excessive() string {
	if what := p.excess.Load(); what != nil {
		return *what
	}
	return ""
}

// watch ends a child that takes what no limit of the system bounds: memory that is shared or a file's, threads, and
// all that it writes together.
func (p *process) watch(opts *Options) {
	defer close(p.watched)
	const often = 50 * time.Millisecond
	ticks := time.NewTicker(often)
	defer ticks.Stop()
	pid := 0
	for {
		select {
		case <-p.over:
			return
		case <-ticks.C:
		}
		if pid == 0 {
			if pid = only(p.cmd.Process.Pid); pid == 0 {
				continue
			}
		}
		memory, shared, threads := usage(pid)
		// What is shared with the child takes memory where nothing maps it, too.
		memory = max(memory, memory-shared+held(opts.Files))
		what := written(opts.Scratch, opts.ScratchBytes)
		switch {
		case what != "":
		case memory > opts.Memory:
			what = fmt.Sprintf("more than %.4g GiB of memory", float64(opts.Memory)/(1<<30))
		case threads > maxThreads:
			what = fmt.Sprintf("more than %d threads", maxThreads)
		default:
			continue
		}
		p.excess.Store(&what)
		kill(pid)
		return
	}
}

// written says in what a scratch folder holds more than a child may write, or "".
func written(folder string, limit int64) string {
	if folder == "" {
		return ""
	}
	f, err := os.Open(folder)
	if err != nil {
		return ""
	}
	defer f.Close()
	entries, _ := f.ReadDir(maxFiles + 1) // what vanishes meanwhile takes nothing
	if len(entries) > maxFiles {
		return fmt.Sprintf("more than %d files", maxFiles)
	}
	var total int64
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			total += info.Size()
		}
	}
	if total > limit {
		return fmt.Sprintf("more than %.4g GiB of files", float64(limit)/(1<<30))
	}
	return ""
}

// maxThreads bounds the threads of a child.
const maxThreads = 4096

// end ends the child and all that it started, and waits until they are gone.
func (p *process) end() {
	p.once.Do(func() {
		if !p.namespaces {
			killTree(p.cmd.Process.Pid)
		}
		kill(-p.cmd.Process.Pid)
		kill(p.cmd.Process.Pid)
		gone := make(chan struct{})
		go func() {
			_ = p.cmd.Wait() // how the guard ended says nothing
			close(gone)
		}()
		wait(gone, 10*time.Second) // what hangs inside the kernel cannot be waited for
		wait(p.over, time.Second)
		wait(p.watched, time.Second)
		_ = p.output.SetReadDeadline(time.Now().Add(2 * time.Second)) // in case something still holds it
		wait(p.printed, 3*time.Second)
		p.close()
	})
}

func wait(done <-chan struct{}, atMost time.Duration) {
	t := time.NewTimer(atMost)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

func (p *process) close() {
	for _, f := range []*os.File{p.requests, p.answers, p.output, p.lifeline, p.reports} {
		if f != nil {
			f.Close()
		}
	}
}
