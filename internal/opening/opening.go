// Package opening has what the public packages share: the kinds of their errors, and the plugins that options name.
package opening

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/base/memory/shared"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/session/loaded"
)

// The kinds of errors. Package graft documents them.
var (
	ErrNoRuntime       = errors.New("no usable onnxruntime")
	ErrNoPlugin        = errors.New("no plugin")
	ErrBadPlugin       = errors.New("bad plugin")
	ErrBadModel        = errors.New("bad model")
	ErrOption          = errors.New("bad option")
	ErrNothingReplaced = errors.New("nothing replaced")
	ErrClosed          = errors.New("closed")
	ErrQueueFull       = errors.New("the queue is full")
)

// failure is an error that has a kind. Its text is that of the cause.
type failure struct{ kind, cause error }

func (f *failure) Error() string   { return f.cause.Error() }
func (f *failure) Unwrap() []error { return []error{f.kind, f.cause} }

// Kind pairs an error of the host with the public kind that it has.
type Kind struct{ Host, Public error }

// kinds are those of errors that all public packages may meet.
var kinds = []Kind{
	{ort.ErrNotLoaded, ErrNoRuntime},
	{ort.ErrNotFound, ErrNoRuntime},
	{ort.ErrTooOld, ErrNoRuntime},
	{ort.ErrUnusable, ErrNoRuntime},
	{refusal.ErrNotFound, ErrNoPlugin},
	{refusal.ErrManifest, ErrBadPlugin},
	{refusal.ErrIncompatible, ErrBadPlugin},
	{refusal.ErrVerification, ErrBadPlugin},
}

// Public gives an error its kind: that of its cause where it is known, here or in more, else usual, which may be nil.
func Public(err, usual error, more ...Kind) error {
	if err == nil {
		return nil
	}
	for _, list := range [][]Kind{kinds, more} {
		for _, k := range list {
			if errors.Is(err, k.Host) {
				return &failure{k.Public, err}
			}
		}
	}
	if usual == nil || errors.Is(err, usual) {
		return err
	}
	return &failure{usual, err}
}

// Refuse is an error about an option.
func Refuse(format string, values ...any) error {
	return &failure{ErrOption, fmt.Errorf(format, values...)}
}

// Range refuses a number outside of 0, which stands for the default, to a maximum.
func Range[N int | int64](name string, n, most N) error {
	switch {
	case n < 0:
		return Refuse("%s is %d: at least 1 is needed, or 0 for the default", name, n)
	case n > most:
		return Refuse("%s is %d: at most %d is possible", name, n, most)
	}
	return nil
}

// Common is graft.Common, whose fields are documented there.
type Common[S ~int] struct {
	Plugins          []string
	Except           []string
	Folders          []string
	Lock             string
	AcceptUnverified bool
	Force            bool
	MapWeights       bool
	ShareWeights     S
	Runtime          string
	Threads          int
}

// Check refuses values out of range.
func (c *Common[S]) Check() error {
	if c.ShareWeights < 0 || shared.Wish(c.ShareWeights) > shared.Never {
		return Refuse("ShareWeights is %d, needed is a constant of its type", int(c.ShareWeights))
	}
	return Range("Threads", c.Threads, limit.Threads)
}

// Plan is what planners are told.
func (c *Common[S]) Plan() plan.Options {
	return plan.Options{Plugins: c.Plugins, Except: c.Except, Force: c.Force}
}

// Share is what was asked for about sharing weights with other processes.
func (c *Common[S]) Share() shared.Wish { return shared.Wish(c.ShareWeights) }

// Load finds and loads plugins; those that were asked for by name must be there.
func (c *Common[S]) Load(isolate *loaded.Isolate) (*loaded.Set, error) {
	set, err := loaded.LoadWith(c.Folders, c.AcceptUnverified,
		loaded.Ways{Lock: cmp.Or(c.Lock, os.Getenv(loaded.LockVariable)), Isolate: isolate})
	if err != nil {
		return nil, Public(err, ErrBadPlugin)
	}
	if isolate != nil {
		if err := set.Require(isolate.Names); err != nil {
			return nil, Public(err, ErrNoPlugin)
		}
	}
	return set, Public(set.Require(c.Plugins), ErrNoPlugin)
}

// Library opens the runtime.
func (c *Common[S]) Library() (*ort.Library, error) {
	library, err := ort.FindAndOpen(c.Runtime)
	return library, Public(err, ErrNoRuntime)
}

// Abandon opens something that takes long, and returns when the context ends, which open has end its loads too; what is
// made nevertheless is closed.
func Abandon[T interface{ Close() }](ctx context.Context, open func() (T, error)) (T, error) {
	var none T
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	type result struct {
		made T
		err  error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() { done <- r }()
		defer diagnostic.Recovered("", "opening", &r.err)
		r.made, r.err = open()
	}()
	select {
	case r := <-done:
		if r.err != nil && ctx.Err() != nil {
			return none, context.Cause(ctx) // as below: open ends with the context too
		}
		return r.made, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.err == nil {
				r.made.Close()
			}
		}()
		return none, context.Cause(ctx)
	}
}
