package graph

import (
	"context"
	"errors"
	"fmt"

	"github.com/opgraft/graft/host/base/diagnostic"
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
	last int64 // the steps after which it is stopped
	look int64 // the steps after which the context is looked at
}

// stopped is what Spend and Hold panic with, and Bounded recovers from.
type stopped struct{ err *diagnostic.Error }

// Bounded runs one part of an analysis of this graph, and of those around and inside it.
// The part is stopped, with an error of kind ErrBounds, when it has taken more steps or memory
// than a graph of this size needs, which is the same each time, and when the context ends: then
// [errors.Is] finds the context's error as well. What it was to make must not be used then. A part of
// another part shares its bounds.
func (g *Graph) Bounded(ctx context.Context, part func() error) (err error) {
	b := &g.root.bounds
	if b.ctx != nil {
		return part()
	}
	allowed := stepsOfAny + stepsOfPart*b.parts
	b.ctx, b.last, b.look, b.held = ctx, b.steps+allowed, b.steps, 0
	defer func() {
		b.ctx = nil
		switch p := recover().(type) {
		case nil:
		case stopped:
			err = p.err
		default:
			panic(p)
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
	if b.ctx.Err() != nil {
		panic(stopped{b.late()})
	}
	b.look = min(b.last, b.steps+betweenLook) + 1
}

// late is the error of a context that ended.
func (b *bounds) late() *diagnostic.Error {
	err := b.ctx.Err()
	found := "its analysis was ended"
	if errors.Is(err, context.DeadlineExceeded) {
		found = "its analysis took longer than it was given"
	}
	return &diagnostic.Error{Kind: ErrBounds, Found: found, Fix: "it runs without graft", Cause: err}
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
