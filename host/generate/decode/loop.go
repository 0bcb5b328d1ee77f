package decode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/opgraft/graft/host/generate/cache"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/generate/search"
)

// The loop waits for the next input of a call that has room for it, so that inputs which come one right
// after the other start together: patience at first, half of that after each time in vain, and not at all until the
// call has brought one. Beside other calls it waits briefly.
const (
	patience = 100 * time.Millisecond
	briefly  = 2 * time.Millisecond
)

// loop runs the engine for all calls: it starts requests where there is room, takes all of them one step
// further, and hands over what has ended.
type loop struct {
	*Generator
	active  []*request
	again   []*pending // to be started before what calls bring
	turn    int        // the call whose input is started next
	joined  int        // calls for which the budget was made
	reduced int        // the maximum number of requests in flight since memory ran out; 0: it has not
	largest int        // the maximum that was in flight at once
	budget  int64      // bytes of keys and values; 0 is what the pools hold
	pledged int64      // bytes that the active requests' own positions may come to take
	stepper search.Stepper
	timer   *time.Timer

	feeds    []engine.Feed
	searches []*search.State
}

// pending is an input that is not started.
type pending struct {
	call  *call
	input *Input
}

// run ends when there is no call.
func (l *loop) run() {
	l.timer = time.NewTimer(patience)
	defer l.timer.Stop()
	for l.attend() {
		l.admit()
		if len(l.active) > 0 {
			l.step()
		}
	}
}

// attend ends the calls that are over, waits until there is something to do, and reports whether
// there are calls.
func (l *loop) attend() bool {
	for {
		l.mu.Lock()
		list := slices.Clone(l.list)
		if len(list) == 0 {
			l.looping = false
			l.mu.Unlock()
			return false
		}
		if l.joined != l.calls.joined {
			l.joined = l.calls.joined
			l.budget = l.Generator.budget()
			if len(l.active)+len(l.again) == 0 { // what ran short before may be free again
				l.reduced, l.largest = 0, 0
			}
		}
		work := len(l.active)+len(l.again) > 0
		over := map[*call]error{} // with the error of reading, which a reader may still write
		for _, c := range list {
			if c.ctx.Err() != nil || c.ended && len(c.queue) == 0 && (c.requests == 0 || c.err != nil) {
				over[c] = c.err
			}
			work = work || len(c.queue) > 0
		}
		l.mu.Unlock()
		for c, err := range over {
			if c.ctx.Err() != nil {
				err = context.Cause(c.ctx)
			}
			l.fail(c, err)
		}
		if len(over) > 0 {
			continue // there may be nothing left to do
		}
		if work {
			return true
		}
		<-l.wake
	}
}

// fail takes a call's requests out and ends it; err may be nil.
func (l *loop) fail(c *call, err error) {
	l.active = slices.DeleteFunc(l.active, func(r *request) bool {
		if r.call == c {
			l.release(r)
		}
		return r.call == c
	})
	l.again = slices.DeleteFunc(l.again, func(p *pending) bool { return p.call == c })
	l.finish(c, err)
}

// failAll ends all calls.
func (l *loop) failAll(err error) {
	l.mu.Lock()
	list := slices.Clone(l.list)
	l.mu.Unlock()
	for _, c := range list {
		l.fail(c, err)
	}
}

// limit is the maximum number of requests that may be in flight beside a new one of that many rows.
func (l *loop) limit(rows ...int) int {
	largest := 1
	for _, r := range l.active {
		largest = max(largest, r.call.rows)
	}
	n := prepare.Limit(l.options.Batch, slices.Max(append(rows, largest)))
	if l.reduced > 0 {
		n = min(n, l.reduced)
	}
	return n
}

// admit starts requests while there is room.
func (l *loop) admit() {
	for tokens := 0; tokens < l.options.StepTokens; {
		if len(l.active) > 0 && len(l.active) >= l.limit() {
			return
		}
		p := l.take()
		if p == nil {
			return
		}
		if len(l.active) > 0 && len(l.active) >= l.limit(p.call.rows) {
			l.again = slices.Insert(l.again, 0, p)
			return
		}
		r, err := (*request)(nil), cache.ErrFull
		if l.room() {
			r, err = l.start(p)
		}
		if err != nil && exhausted(err) && len(l.active) > 0 {
			if !errors.Is(err, cache.ErrFull) {
				l.reduced = len(l.active)
			}
			l.again = slices.Insert(l.again, 0, p) // until another request has ended
			return
		}
		switch {
		case err == nil:
			l.active = append(l.active, r)
			l.largest = max(l.largest, len(l.active))
			tokens += len(r.prompt)
		case p.call.ctx.Err() != nil:
			p.call.requests-- // attend ends the call
		case exhausted(err) && !errors.Is(err, cache.ErrFull):
			l.fail(p.call, alone(p.input, err))
		default:
			l.fail(p.call, fmt.Errorf("input %d: %w", p.input.Index, err))
		}
	}
}

// take takes the input that is started next, nil where none is there: one that has to be started again,
// else one of the calls in turn.
func (l *loop) take() *pending {
	if len(l.again) > 0 {
		p := l.again[0]
		l.again = slices.Delete(l.again, 0, 1)
		return p
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		var expected []*call
		wait := time.Duration(0)
		for i := range l.list {
			at := (l.turn + i) % len(l.list)
			c := l.list[at]
			if len(c.queue) > 0 {
				in := c.queue[0]
				c.queue = slices.Delete(c.queue, 0, 1)
				c.requests++
				<-c.room
				l.turn = at + 1
				return &pending{c, in}
			}
			if !c.ended && !c.late && c.ctx.Err() == nil {
				expected, wait = append(expected, c), max(wait, c.patience)
			}
		}
		if len(expected) == 0 {
			return nil
		}
		if len(l.list) > 1 {
			wait = min(wait, briefly)
		}
		l.mu.Unlock()
		l.timer.Reset(wait)
		late := false
		select {
		case <-l.wake:
		case <-l.timer.C:
			late = true
		}
		l.mu.Lock()
		for _, c := range expected {
			if late && len(c.queue) == 0 {
				c.late, c.patience = true, c.patience/2
			}
		}
	}
}

// context is that of a step: of the call that all requests are of, or of the generator.
func (l *loop) context() context.Context {
	one := l.active[0].call
	if slices.ContainsFunc(l.active, func(r *request) bool { return r.call != one }) {
		return l.ctx
	}
	return one.ctx
}

// step takes every request one token further, or through its prompt.
func (l *loop) step() {
	l.feeds, l.searches = l.feeds[:0], l.searches[:0]
	for _, r := range l.active {
		l.feeds, l.searches = append(l.feeds, r.feed()), append(l.searches, r.search)
	}
	ctx := l.context()
	if err := l.extend(ctx); err != nil {
		if ctx.Err() == nil { // attend ends the calls otherwise
			l.failAll(err)
		}
		return
	}
	begun := l.now()
	scores, err := l.advance(ctx, l.feeds)
	if err == nil && !slices.ContainsFunc(l.feeds, func(f engine.Feed) bool { return f.Prompt }) {
		l.price.Note(scores.Rows, l.now().Sub(begun).Seconds())
	}
	switch {
	case err != nil && ctx.Err() != nil: // attend ends the calls
	case err != nil:
		l.retreat(err)
	case scores.Vocab != l.config.Vocab:
		l.failAll(fmt.Errorf("the model gives %d logits a token, its config.json says %d (vocab_size): they are not of "+
			"one model; export it again", scores.Vocab, l.config.Vocab))
	default:
		if err := l.stepper.Step(l.selector, scores.Data, scores.Vocab, l.searches); err != nil {
			l.refused(err)
			return
		}
		l.follow()
	}
}

// refused ends the call whose logits cannot be searched, and starts the requests of others again: their searches are
// in the middle of a step.
func (l *loop) refused(err error) {
	var at *search.StepError
	if !errors.As(err, &at) {
		l.failAll(err)
		return
	}
	bad := l.active[at.Input]
	l.fail(bad.call, fmt.Errorf("input %d, step %d: %w", bad.input.Index, at.Step, at.Err))
	l.restart()
}

// follow moves the cache after the search, and lets go of requests that ended.
func (l *loop) follow() {
	going := l.active[:0]
	failed := map[*call]error{}
	var broken error
	for _, r := range l.active {
		ended, err := r.follow()
		if err != nil {
			broken = errors.Join(broken, err)
		}
		if !ended {
			going = append(going, r)
			continue
		}
		l.release(r)
		r.call.requests--
		if failed[r.call] == nil && broken == nil {
			if err := r.call.done(r.output); err != nil {
				failed[r.call] = err
			}
		}
	}
	clear(l.active[len(going):])
	l.active = going
	if broken != nil {
		l.failAll(broken)
		return
	}
	for c, err := range failed {
		l.fail(c, err)
	}
}
