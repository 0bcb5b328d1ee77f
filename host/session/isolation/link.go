package isolation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// slots is how many calls a worker does at once. Further ones wait.
const slots = 64

// maxWindow is the memory of a call, and least what a process must allow for one.
const (
	maxWindow   = 1 << 30
	leastWindow = 1 << 20
	maxConstant = 64 << 30
	// largeCall is from where the memory of a call goes back to the system after it.
	largeCall = 256 << 20
)

// A link is one worker with its memory. When the worker ends, so does the link.
type link struct {
	child  *worker.Child
	data   *region
	window int64
	info   *plugin.Info

	path     string // of the library
	deadline time.Duration

	mu      sync.Mutex
	made    map[uint64]bool // kernels that the worker has
	served  [slots]bool     // windows that a thread answers
	free    []int           // windows that no call has, the last used last
	turn    chan struct{}   // one for each window that no call has
	state   [slots]uint32   // of each window
	cause   error           // set once dead is
	given   bool            // the memory was given back
	dead    atomic.Bool
	closing atomic.Bool
	worked  atomic.Bool // a call was answered

	users sync.WaitGroup
	ended func(*link, error) // told once, when the worker ended and nobody had told it to
}

// newLink starts a worker, which loads the library.
func newLink(o openRequest, constants *region, opts worker.Options, ended func(*link, error)) (_ *link, err error) {
	l := &link{path: opts.Subject, deadline: opts.Deadline, made: map[uint64]bool{}, turn: make(chan struct{}, slots),
		ended: ended}
	for l.window = maxWindow; ; l.window /= 4 { // a limit of the process's may allow less
		if l.data, err = newRegion("graft-isolation", slots*l.window, false); err == nil || l.window <= leastWindow {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			l.data.close()
		}
	}()
	for i := range slots {
		l.free = append(l.free, slots-1-i)
		l.turn <- struct{}{}
	}
	o.Protocol, o.Window, o.Constant = protocol, l.window, int64(len(constants.bytes))
	opts.Files = []*os.File{l.data.file, constants.file}
	ctx := context.Background()
	if l.child, err = worker.Start(ctx, opts); err != nil {
		return nil, err
	}
	var a openAnswer
	if err = l.child.Run(ctx, taskOpen, o, &a); err == nil && (a.Protocol != protocol || a.Info == nil) {
		err = fmt.Errorf("the worker speaks protocol %d, needed %d; use the graft of the same version", a.Protocol, protocol)
	}
	if err != nil {
		l.child.Kill()
		return nil, err
	}
	l.info = a.Info
	go func() {
		<-l.child.Ended()
		if !l.closing.Load() {
			l.fail(l.child.Fate())
		}
		l.child.Close()
	}()
	return l, nil
}

// fail ends a link of which the worker ended, hangs or answers what it may not. It returns the first cause.
func (l *link) fail(cause error) error {
	l.mu.Lock()
	first := !l.dead.Load()
	if first {
		l.cause = cause
		l.dead.Store(true)
	}
	cause = l.cause
	for i := 0; i < slots && first && !l.given; i++ {
		h := headerAt(l.at(i))
		atomic.StoreUint32(&h.state, lost)
		wake(&h.state)
	}
	l.mu.Unlock()
	if !first {
		return cause
	}
	go l.child.Kill()
	l.ended(l, cause)
	return cause
}

// over reports that the worker has ended, which fail may not have been told yet.
func (l *link) over() bool {
	select {
	case <-l.child.Ended():
		return true
	default:
		return false
	}
}

// close ends the worker and, when no call has any of it, gives the memory back.
func (l *link) close() {
	l.closing.Store(true)
	go func() {
		l.child.Close()
		l.users.Wait()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.given = true
		l.data.close()
	}()
}

func (l *link) at(slot int) []byte { return l.data.bytes[int64(slot)*l.window:][:l.window] }

// run does a task of the worker's. What ends the worker ends the link.
func (l *link) run(task string, request, result any) error {
	err := l.child.Run(context.Background(), task, request, result)
	if err != nil && !errors.Is(err, worker.ErrTask) {
		return ended(l.fail(err))
	}
	return err
}

// take gives a window to a call, within the deadline.
func (l *link) take() (slot int, err error) {
	select {
	case <-l.turn:
	default:
		t := time.NewTimer(l.deadline)
		defer t.Stop()
		select {
		case <-l.turn:
		case <-t.C:
			return 0, ended(fmt.Errorf("none of %d calls at once ended within %v", slots, l.deadline))
		}
	}
	l.mu.Lock()
	slot = l.free[len(l.free)-1]
	l.free = l.free[:len(l.free)-1]
	served := l.served[slot]
	l.mu.Unlock()
	if !served {
		if err := l.run(taskServe, slot, &nothing{}); err != nil {
			l.leave(slot, 0)
			return 0, err
		}
		l.mu.Lock()
		l.served[slot] = true
		l.mu.Unlock()
	}
	return slot, nil
}

// leave gives a window back of which a call used so many bytes.
func (l *link) leave(slot int, used int64) {
	if used > largeCall {
		l.data.give(l.at(slot)[dataStart:aligned(used)])
	}
	l.mu.Lock()
	l.free = append(l.free, slot)
	l.mu.Unlock()
	l.turn <- struct{}{}
}

// ring has the worker do the call of a window, and waits for its answer.
func (l *link) ring(slot int, h *header) error {
	before := l.state[slot] // the slot is this call's
	call := before + 1
	if call == lost {
		call = 1
	}
	l.state[slot] = call + 1
	if l.dead.Load() || !atomic.CompareAndSwapUint32(&h.state, before, call) {
		return ended(l.fail(l.wrote("it wrote to memory of its next call")))
	}
	wake(&h.state)
	for begin := time.Now(); ; {
		switch state := atomic.LoadUint32(&h.state); {
		case l.dead.Load():
			return ended(l.fail(nil))
		case state == call+1:
			l.worked.Store(true)
			return nil
		case state != call:
			return ended(l.fail(l.wrote("it answered another call")))
		}
		left := l.deadline - time.Since(begin)
		if left <= 0 {
			return ended(l.fail(&diagnostic.Error{Kind: errHang, Path: l.path,
				Found: fmt.Sprintf("a call of it gave no answer within %v, and its worker was ended", l.deadline),
				Fix:   "report this to its author, or allow more time when the machine is slow"}))
		}
		await(&h.state, call, min(left, time.Second/4))
	}
}

// errHang is the kind of a call without an answer.
var errHang = errors.New("a call gave no answer in time")

// wrote is an answer that no worker may give.
func (l *link) wrote(what string) error {
	return &diagnostic.Error{Kind: refusal.ErrKernel, Path: l.path, Found: what + ", and its worker was ended",
		Fix: "report this to its author"}
}
