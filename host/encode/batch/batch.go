// Package batch gathers single inputs of many callers into batches.
//
// Callers submit one item each and get one result each. What waits while a batch runs becomes the next one, of rows
// of similar length, so that little is padded. The item that waited longest is always in the next batch. An item
// that makes its batch fail is found by halves, and fails alone.
package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// Kinds of errors of a batcher itself.
var (
	ErrClosed = errors.New("the batcher was closed")
	ErrFull   = errors.New("the queue is full")
)

// Run computes a batch: one result an item, in their order. ctx ends when no caller waits for any of them any more.
type Run[T, R any] func(ctx context.Context, items []T) ([]R, error)

// What counts where an option is 0.
const (
	DefaultTokens = 4096
	DefaultQueue  = 4096
	DefaultRuns   = 1
)

// Options say how items are gathered. The zero value runs one batch at a time, of what waits.
type Options[T any] struct {
	// Length is the number of tokens of an item; nil for 1 each.
	Length func(T) int
	// MaxTokens bounds a batch: rows times the longest, or with Unpadded the sum of the lengths. An item that is longer
	// by itself is a batch by itself.
	MaxTokens int
	// MaxDelay is how long an item may wait for others while nothing runs; 0 for not at all.
	MaxDelay time.Duration
	// MaxQueue is the number of items that may wait.
	MaxQueue int
	// Runs is the number of batches that run at once.
	Runs int
	// Unpadded says that rows cost what they hold, so that items of any lengths go into a batch, as they came.
	Unpadded bool
}

// Batcher is safe for concurrent use.
type Batcher[T, R any] struct {
	options Options[T]
	run     Run[T, R]
	room    chan struct{} // holds one for every item that waits
	closing chan struct{}
	runs    sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	waiting []*Call[T, R] // the oldest first
	tokens  int           // of those that wait
	running int
	timer   *time.Timer // set while an item waits for others
	metrics Metrics
	cost    cost
}

// New makes a batcher. It has no goroutine of its own: there is one for each batch, while it runs.
func New[T, R any](run Run[T, R], o Options[T]) *Batcher[T, R] {
	if o.Length == nil {
		o.Length = func(T) int { return 1 }
	}
	for value, standard := range map[*int]int{&o.MaxTokens: DefaultTokens, &o.MaxQueue: DefaultQueue,
		&o.Runs: DefaultRuns} {
		if *value <= 0 {
			*value = standard
		}
	}
	return &Batcher[T, R]{options: o, run: run, room: make(chan struct{}, o.MaxQueue), closing: make(chan struct{})}
}

// MaxQueue is the number of items that may wait.
func (b *Batcher[T, R]) MaxQueue() int { return b.options.MaxQueue }

// Call is an item on its way.
type Call[T, R any] struct {
	batcher *Batcher[T, R]
	item    T
	length  int
	since   time.Time
	done    chan struct{} // closed when result and err are there

	// Of the batcher, under its mutex.
	batch *running // nil while it waits
	over  bool     // it has a result, or nobody wants one
	// Written before done is closed.
	result R
	err    error
}

// running is a batch that runs.
type running struct {
	cancel context.CancelFunc
	wanted int // items whose callers wait
}

// Submit computes an item and returns its result. A context that ends makes it return at once: an item that waits is
// taken out of the queue, and the result of one that runs is dropped. With as many items waiting as may, it is
// [ErrFull]. After Close, and for an item that waited then, it is [ErrClosed].
func (b *Batcher[T, R]) Submit(ctx context.Context, item T) (R, error) {
	c, err := b.Start(ctx, item, false)
	if err != nil {
		var none R
		return none, err
	}
	return c.Wait(ctx)
}

// Start is Submit without waiting for the result: Wait gives it, and must be called. With room set it waits for room in
// a full queue, until ctx ends.
func (b *Batcher[T, R]) Start(ctx context.Context, item T, room bool) (*Call[T, R], error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c := &Call[T, R]{batcher: b, item: item, length: max(1, b.options.Length(item)), done: make(chan struct{})}
	select {
	case <-b.closing: // of a full queue too this is what is said
		return nil, b.closedError()
	default:
	}
	select {
	case b.room <- struct{}{}:
	default:
		if !room {
			b.mu.Lock()
			b.metrics.Refused++
			b.mu.Unlock()
			return nil, &diagnostic.Error{Kind: ErrFull,
				Found: fmt.Sprintf("the queue of the batcher is full: %d inputs wait", b.options.MaxQueue),
				Fix:   "try again later, have fewer callers, or let more wait (MaxQueue)"}
		}
		select {
		case b.room <- struct{}{}:
		case <-b.closing:
			return nil, b.closedError()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		<-b.room
		return nil, b.closedError()
	}
	c.since = time.Now()
	b.waiting = append(b.waiting, c)
	b.tokens += c.length
	b.metrics.Items++
	b.dispatch()
	return c, nil
}

func (b *Batcher[T, R]) closedError() error {
	return &diagnostic.Error{Kind: ErrClosed, Found: "the batcher was closed before this input was computed"}
}

// Wait returns the result when it is there, or the context's error as soon as that ends.
func (c *Call[T, R]) Wait(ctx context.Context) (R, error) {
	select {
	case <-c.done:
		return c.result, c.err
	default:
	}
	select {
	case <-c.done:
		return c.result, c.err
	case <-ctx.Done():
		c.abandon()
		var none R
		return none, context.Cause(ctx)
	}
}

// abandon says that nobody waits for the result.
func (c *Call[T, R]) abandon() {
	b := c.batcher
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.over {
		return
	}
	c.over = true
	b.metrics.Cancelled++
	if c.batch != nil {
		if c.batch.wanted--; c.batch.wanted == 0 {
			c.batch.cancel()
		}
		return
	}
	i := slices.Index(b.waiting, c)
	b.waiting = slices.Delete(b.waiting, i, i+1)
	b.tokens -= c.length
	<-b.room
}

// dispatch starts what can be started. The mutex is held.
func (b *Batcher[T, R]) dispatch() {
	for len(b.waiting) > 0 && b.running < b.options.Runs && !b.closed {
		if wait := b.options.MaxDelay - time.Since(b.waiting[0].since); wait > 0 && b.tokens < b.options.MaxTokens {
			b.wakeAfter(wait)
			return
		}
		batch := b.take()
		ctx, cancel := context.WithCancel(context.Background())
		r := &running{cancel: cancel, wanted: len(batch)}
		now := time.Now()
		for _, c := range batch {
			c.batch = r
			b.metrics.waited(now.Sub(c.since))
		}
		b.running++
		b.runs.Go(func() {
			defer cancel()
			defer b.ended(batch)
			b.compute(ctx, batch)
		})
	}
}

// ended starts what waited for the end of a batch.
func (b *Batcher[T, R]) ended(batch []*Call[T, R]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	// who has nothing yet
	b.finish(batch, nil, &diagnostic.Error{Found: "the run of a batch ended its goroutine", Needed: "that it returns"})
	b.running--
	b.dispatch()
}

// wakeAfter looks again when the oldest item has waited long enough.
func (b *Batcher[T, R]) wakeAfter(d time.Duration) {
	if b.timer == nil {
		b.timer = time.AfterFunc(d, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.dispatch()
		})
		return
	}
	b.timer.Reset(d)
}

// Close ends the batcher: items that wait fail with [ErrClosed], those that run get their results. It returns when
// nothing runs any more. A run must not call it.
func (b *Batcher[T, R]) Close() {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.closing)
		if b.timer != nil {
			b.timer.Stop()
		}
		for _, c := range b.waiting {
			c.over, c.err = true, b.closedError()
			b.metrics.Refused++
			close(c.done)
			<-b.room
		}
		b.waiting, b.tokens = nil, 0
	}
	b.mu.Unlock()
	b.runs.Wait()
}
