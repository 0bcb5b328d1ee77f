package prepare_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/fold"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
)

// ending is a context that ends when it is looked at for the last time.
type ending struct {
	context.Context
	looks, last int
}

func (e *ending) Err() error {
	if e.looks++; e.looks > e.last {
		return context.Canceled
	}
	return nil
}

// Deadline is there so that no other context is made of it, which would hide it.
func (e *ending) Deadline() (time.Time, bool) { return time.Now().Add(time.Hour), true }

// TestPreparingIsBounded: wherever preparing is when its time ends, that ends it, with an error that says so. Each walk
// through a graph looks at the context when it begins.
func TestPreparingIsBounded(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	folds := fold.At(t.TempDir(), nil)
	for _, c := range []struct {
		name      string
		attention prepare.Attention
		step      int // looks between two tries
		least     int
	}{
		{"gpt2", prepare.Attention{Self: plan.KeysValues}, 1, 9},
		{"bart", prepare.Attention{Self: plan.KeysValues, Cross: plan.Keys}, 4, 28},
	} {
		folder := small(t, c.name)
		for last := 0; ; last += c.step {
			ctx := &ending{Context: t.Context(), last: last}
			m := must.Value(prepare.Open(t.Context(), folder))(t)
			g, err := m.Make(ctx, prepare.Options{Library: l, Plugins: set, Attention: c.attention, CacheBytes: 64 << 20,
				MaxPositions: 64, Batch: 1, Folds: folds})
			if err == nil {
				g.Close()
				if ctx.looks < c.least {
					t.Errorf("%s: the context was looked at %d times, want %d", c.name, ctx.looks, c.least)
				}
				break
			}
			if !errors.Is(err, graph.ErrBounds) || !errors.Is(err, context.Canceled) {
				t.Fatalf("%s: ended after %d looks: %v; want an error of kind ErrBounds", c.name, last, err)
			}
		}
	}
}
