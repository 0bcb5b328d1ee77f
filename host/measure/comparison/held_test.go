package comparison

import (
	"slices"
	"testing"

	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/internal/must"
)

// TestHeld: children that run sessions are held by what holds a plugin's first run; those that start workers by all
// of it but the filter of system calls.
func TestHeld(t *testing.T) {
	first := must.Value(worker.Start(t.Context(), worker.Options{Subject: "first run"}))(t)
	defer first.Close()
	for _, starts := range []bool{false, true} {
		child := must.Value(Start(t.Context(),
			worker.Options{Subject: "model", Starts: starts, Scratch: map[bool]string{false: t.TempDir()}[starts]}))(t)
		defer child.Close()
		want := slices.Clone(first.Layers())
		for i := range want {
			if starts && want[i].Name == worker.LayerFilter {
				want[i].Problem = "left out"
			}
		}
		if !slices.Equal(child.Layers(), want) {
			t.Errorf("one that starts workers: %t: %s; want %s", starts, worker.Held(child.Layers()), worker.Held(want))
		}
	}
}
