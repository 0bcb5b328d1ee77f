package comparison

import (
	"slices"
	"testing"

	"github.com/opgraft/graft/host/base/worker"
)

// TestHeld: children that run sessions are held by what holds a plugin's first run; those that start workers by all
// of it but the filter of system calls.
func TestHeld(t *testing.T) {
	first, err := worker.Start(t.Context(), worker.Options{Subject: "first run"})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	for _, starts := range []bool{false, true} {
		child, err := Start(t.Context(),
			worker.Options{Subject: "model", Starts: starts, Scratch: map[bool]string{false: t.TempDir()}[starts]})
		if err != nil {
			t.Fatal(err)
		}
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
