package session_test

import (
	"fmt"
	"testing"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// TestTrim: free memory of the C library's heaps goes back to the system when a session of large weights is no more,
// and when one was made beside another that has the same panels.
func TestTrim(t *testing.T) {
	trims := 0
	counting := purego.NewCallback(func(uintptr) uintptr { trims++; return 0 })
	t.Cleanup(session.ReplaceTrim(counting))
	const large = session.TrimAbove/(4*square*square) + 1 // matrices
	var names []string
	for i := range large {
		names = append(names, fmt.Sprint("w", i))
	}
	for _, c := range []struct {
		name  string
		names []string
		want  []int // trims so far: one made, another made, one released, both released
	}{
		{"large", names, []int{0, 1, 2, 3}},
		{"small", names[:1], []int{0, 0, 0, 0}},
	} {
		trims = 0
		var got []int
		var list []*session.Session
		for range 2 {
			var weights []session.Weight
			for _, name := range c.names {
				weights = append(weights, matrix(t, name, 0))
			}
			s, _ := packedSession(t, product(c.names...), weights...)
			list, got = append(list, s), append(got, trims)
		}
		for _, s := range list {
			s.Close()
			got = append(got, trims)
		}
		must.Equal(t, got, c.want, c.name)
	}
}
