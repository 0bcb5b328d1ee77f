package decode

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/opgraft/graft/host/generate/draft"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/search"
)

// ErrClosed reports that the generator was closed.
var ErrClosed = errors.New("the generator was closed")

// calls are those that share a generator's engine. One goroutine, the loop, runs the engine while there
// are any.
type calls struct {
	mu      sync.Mutex
	list    []*call
	joined  int  // calls so far
	looping bool // the loop runs
	loops   sync.WaitGroup
	wake    chan struct{} // holds a value when something changed that the loop may wait for
	closed  bool
	ctx     context.Context // ends when the generator is closed
	stop    context.CancelFunc
	usage   usage
}

// usage is what the engine has used, as of the end of a call.
type usage struct {
	batch       int
	self, cross int64
	skipped     *engine.Skipped
	draft       *DraftReport
}

// call is a Run.
type call struct {
	ctx      context.Context
	cancel   context.CancelCauseFunc
	options  search.Options
	rows     int // of a request, at most
	next     func() (*Input, error)
	done     func(Output) error
	finished chan error // gets what Run returns

	room chan struct{} // a token for each input that was read and not taken

	// Guarded by calls.mu.
	queue    []*Input
	ended    bool          // next has no more
	err      error         // of next
	late     bool          // the loop waited for next in vain
	patience time.Duration // how long it waits the next time

	requests int         // in flight or to be started again; the loop's
	odds     draft.Odds  // of drafts that were looked up; the loop's
	trust    draft.Trust // of those of a draft model; the loop's
}

// ahead is how many inputs of a call are read before there is room for them.
const ahead = 8

// Run generates for every input that next gives, until it gives none, and hands
// each output over when its request ends, in the order of endings. An error of one
// input ends the run: what was handed over before is whole.
//
// Several calls may run at once. Their requests share the engine's steps, each with the options of
// its call; what they generate does not depend on that. A context that ends withdraws the requests of
// its call. An error of the engine ends all calls. next is called by a goroutine of its own, ahead of need, and
// may be in flight when Run returns an error; done is called by another one and must not wait
// for the generator.
func (g *Generator) Run(ctx context.Context, o search.Options, next func() (*Input, error),
	done func(Output) error) error {
	if o.Draft == search.DraftModel && g.helper == nil {
		return ErrNoDraftModel
	}
	if err := takesDrafts(g.engine, o.Draft); err != nil {
		return err
	}
	c := &call{options: o, rows: max(o.NumBeams, o.NumReturnSequences), next: next, done: done,
		finished: make(chan error, 1), room: make(chan struct{}, ahead), patience: patience}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	defer c.cancel(nil)
	if err := g.join(c); err != nil {
		return err
	}
	defer context.AfterFunc(c.ctx, g.signal)()
	go g.read(c)
	return <-c.finished
}

// join adds a call, and starts the loop with the first.
func (g *Generator) join(c *call) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return ErrClosed
	}
	g.list = append(g.list, c)
	g.joined++
	if !g.looping {
		g.looping = true
		l := &loop{Generator: g}
		g.loops.Go(l.run)
	}
	return nil
}

// signal wakes the loop where it waits.
func (g *Generator) signal() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// read reads a call's inputs while there is room.
func (g *Generator) read(c *call) {
	for ended := false; !ended; {
		select {
		case c.room <- struct{}{}:
		case <-c.ctx.Done():
			return
		}
		in, err := c.next()
		ended = in == nil || err != nil
		g.mu.Lock()
		if ended {
			c.ended, c.err = true, err
		} else {
			c.queue = append(c.queue, in)
		}
		c.late = false
		g.mu.Unlock()
		g.signal()
	}
}

// finish ends a call. Its requests must have left the loop.
func (l *loop) finish(c *call, err error) {
	u := l.usage()
	l.mu.Lock()
	l.list = slices.DeleteFunc(l.list, func(other *call) bool { return other == c })
	l.calls.usage = u
	l.mu.Unlock()
	c.finished <- err
}

// usage is what the engine has used so far.
func (l *loop) usage() (u usage) {
	u.batch = l.limit()
	if l.options.Batch == AutoBatch {
		u.batch = l.largest
	}
	_, u.self, _, u.cross = l.engine.Memory()
	u.skipped, u.draft = l.engine.Skipped(), l.helper.report()
	return u
}

// used is the usage as of the end of the last call.
func (g *Generator) used() usage {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls.usage
}

// Close ends all calls with ErrClosed and frees the engine.
func (g *Generator) Close() {
	g.mu.Lock()
	first := !g.closed
	g.closed = true
	for _, c := range g.list {
		c.cancel(ErrClosed)
	}
	g.mu.Unlock()
	if !first {
		return
	}
	g.stop()
	g.loops.Wait()
	g.helper.close()
	g.engine.Close()
	g.closeSelector()
}
