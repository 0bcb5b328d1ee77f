package patch_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/patch"
	"github.com/opgraft/graft/host/plan"
)

// whole leads a graph of about n nodes through the whole analysis, and says what that took.
func whole(t *testing.T, drawn func(*drawing, int), n int) (steps, parts int64, err error) {
	t.Helper()
	m := parsed(t, encoded(t, drawn, n))
	a, err := patch.Analyse(unhurried(t), m, manifests(t, "flash-decode", "fused-gelu", "packed-linear"), plan.Options{Force: true})
	if err != nil {
		return 0, 0, err
	}
	if err := a.Apply(unhurried(t)); err != nil {
		return 0, 0, err
	}
	steps, parts = a.Graph.Steps()
	return steps, parts, nil
}

// unhurried is a context in which steps end an analysis, and not time.
func unhurried(t testing.TB) context.Context {
	ctx, done := context.WithTimeout(context.Background(), time.Hour)
	t.Cleanup(done)
	return ctx
}

// TestSteps: what an analysis takes grows as the graph does, whatever the graph is.
func TestSteps(t *testing.T) {
	for _, a := range adversaries {
		t.Run(a.name, func(t *testing.T) {
			one, parts, err := whole(t, a.draw, 600)
			if err != nil {
				t.Fatal(err)
			}
			two, _, err := whole(t, a.draw, 1200)
			if err != nil {
				t.Fatal(err)
			}
			if float64(two) > 2.2*float64(one) {
				t.Errorf("%d steps, of a graph twice as large %d: %.2fx", one, two, float64(two)/float64(one))
			}
			if one > 100*parts {
				t.Errorf("%d steps for %d nodes, inputs and outputs", one, parts)
			}
		})
	}
}

// TestLeftAlone: an analysis ends with its context, and says so.
func TestLeftAlone(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	m := parsed(t, encoded(t, adversaries[0].draw, 10))
	_, err := patch.Analyse(ctx, m, nil, plan.Options{})
	if !errors.Is(err, graph.ErrBounds) || !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
