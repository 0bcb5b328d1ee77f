package graph

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/threads"
)

// ErrBounds is the kind of error of an analysis that was stopped: it took more steps or
// memory than the size of its graph allows, or longer than it was given.
var ErrBounds = errors.New("analysis beyond its bounds")

// What one part of an analysis may take. Exporters' graphs take fewer than 100 steps for each
// node, input and output of a node.
const (
	stepsOfPart = 1000
	stepsOfAny  = 1 << 20 // for a graph of any size
	maxHeld     = 1 << 29 // bytes of lengths and their names
	betweenLook = 1 << 10 // steps between two looks at the context
)

// bounds count what the analysis of a model takes, for all of its graphs.
type bounds struct {
	parts int64 // nodes, and inputs and outputs of nodes
	steps int64
	held  int64
	// While a part of the analysis is bounded:
	ctx  context.Context
	last int64          // the steps after which it is stopped
	look int64          // the steps after which the context is looked at
	time *processorTime // and what its thread may take of a processor; nil for no bound
}

// processorTime is what is left of a thread's time on a processor.
type processorTime struct {
	left    time.Duration
	counted time.Duration // the thread's clock when it was counted last
	parts   int           // that run in each other
}

type processorTimeKey struct{}

// WithProcessorTime bounds what the parts of an analysis that get this context may take together: this much of their
// thread's time on a processor. A busy machine, and a container that gets little of one, do not shorten it. The
// context is for one analysis at a time.
func WithProcessorTime(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, processorTimeKey{}, &processorTime{left: d})
}

// HasLimit reports whether a context ends an analysis by itself: by its deadline or by processor time.
func HasLimit(ctx context.Context) bool {
	_, deadline := ctx.Deadline()
	return deadline || ctx.Value(processorTimeKey{}) != nil
}

// begin gives the bounds a context, until the function that it returns is called.
func (b *bounds) begin(ctx context.Context) (end func()) {
	b.ctx = ctx
	b.time, _ = ctx.Value(processorTimeKey{}).(*processorTime)
	if b.time == nil {
		return func() { b.ctx = nil }
	}
	runtime.LockOSThread()
	if b.time.parts++; b.time.parts == 1 {
		b.time.counted = threads.ProcessorTime()
	}
	return func() {
		b.time.count()
		b.time.parts--
		b.ctx, b.time = nil, nil
		runtime.UnlockOSThread()
	}
}

// count takes the processor time since it was counted last from what is left.
func (t *processorTime) count() {
	now := threads.ProcessorTime()
	t.left -= now - t.counted
	t.counted = now
}

// stopped is what Spend and Hold panic with, and Bounded recovers from.
type stopped struct{ err *diagnostic.Error }

// Bounded runs one part of an analysis of this graph, and of those around and inside it.
// The part is stopped, with an error of kind ErrBounds, when it has taken more steps or memory
// than a graph of this size needs, which is the same each time, and when the context ends, or the processor
// time of [WithProcessorTime] has: then [errors.Is] finds the context's error as well. What it was to make
// must not be used then. A part of another part shares its bounds.
// A panic of the part is an error too.
func (g *Graph) Bounded(ctx context.Context, part func() error) (err error) {
	b := &g.root.bounds
	if b.ctx != nil {
		return part()
	}
	allowed := stepsOfAny + stepsOfPart*b.parts
	b.last, b.look, b.held = b.steps+allowed, b.steps, 0
	end := b.begin(ctx)
	defer func() {
		end()
		switch p := recover().(type) {
		case nil:
		case stopped:
			err = p.err
		default:
			err = diagnostic.Fault("", "analysis", p)
		}
	}()
	g.Spend(1)
	return part()
}

// Spend notes steps of the analysis that runs: nodes or values that it looks at. It does not
// return where Bounded stops the analysis. Outside of Bounded it does nothing.
func (g *Graph) Spend(steps int) {
	b := &g.root.bounds
	if b.ctx == nil {
		return
	}
	if b.steps += int64(steps); b.steps >= b.look {
		b.check()
	}
}

func (b *bounds) check() {
	if b.steps > b.last {
		panic(stopped{&diagnostic.Error{Kind: ErrBounds,
			Found:  fmt.Sprintf("its analysis was stopped after %d steps", b.steps),
			Needed: fmt.Sprintf("at most %d for a graph of %d nodes, inputs and outputs", b.last, b.parts),
			Fix:    "it runs without graft"}})
	}
	if err := b.ended(); err != nil {
		panic(stopped{err})
	}
	b.look = min(b.last, b.steps+betweenLook) + 1
}

// ended is the error of an analysis whose context has ended, or its processor time; nil where it may go on.
func (b *bounds) ended() *diagnostic.Error {
	err := b.ctx.Err()
	if b.time != nil {
		if b.time.count(); b.time.left < 0 {
			err = context.DeadlineExceeded
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return &diagnostic.Error{Kind: ErrBounds, Found: "its analysis took longer than it was given", Cause: err,
			Fix: "it runs without graft; AnalysisTime in a program and --analysis-time of a command give it longer"}
	}
	return &diagnostic.Error{Kind: ErrBounds, Found: "its analysis was ended", Fix: "it runs without graft", Cause: err}
}

// Hold notes memory, in bytes, that what is found of lengths takes, as Spend notes steps.
func (g *Graph) Hold(bytes int) {
	b := &g.root.bounds
	if b.ctx == nil {
		return
	}
	if b.held += int64(bytes); b.held > maxHeld {
		panic(stopped{&diagnostic.Error{Kind: ErrBounds,
			Found: fmt.Sprintf("the lengths of its values take more than %d MiB to follow", maxHeld>>20),
			Fix:   "it runs without graft"}})
	}
}

// Steps is how many steps analyses of this model have taken, and how many parts its graphs
// have: nodes, and inputs and outputs of nodes.
func (g *Graph) Steps() (taken, parts int64) { return g.root.bounds.steps, g.root.bounds.parts }
