package search

import (
	"github.com/opgraft/graft/internal/must"
	"testing"
)

// TestClosed: when beam search stops, by hand, where equal scores decide.
func TestClosed(t *testing.T) {
	for _, c := range []struct {
		name    string
		stop    EarlyStopping
		penalty float64
		found   []float64 // scores of hypotheses
		best    float32   // sum of the best beam after 4 tokens
		want    bool
	}{
		{"too few", StopFirst, 1, []float64{-1}, -100, false},
		{"enough is enough", StopFirst, 1, []float64{-1, -2}, -1, true},
		{"equal", StopHeuristic, 1, []float64{-1, -2}, -8, true},
		{"better than the worst", StopHeuristic, 1, []float64{-1, -2}, -7.5, false},
		{"equal at the longest", StopNever, 1, []float64{-1, -2}, -16, true},
		{"better at the longest", StopNever, 1, []float64{-1, -2}, -15.5, false},
		{"no length", StopNever, 0, []float64{-1, -2}, -2, true},
		{"longer is worse", StopNever, -1, []float64{-4, -8}, -2, true},
		{"longer is worse, still better", StopNever, -1, []float64{-4, -8}, -1.5, false},
	} {
		s := &State{o: Default(), in: Input{Prompt: make([]int32, 3)}, limit: 3 + 8, beams: 2}
		s.o.EarlyStopping, s.o.LengthPenalty = c.stop, c.penalty
		g := &group{next: []step{{score: c.best}}}
		for _, score := range c.found {
			g.found.insert(s.beams, Hypothesis{Score: score})
		}
		must.Equal(t, s.closed(g, 4), c.want, c.name)
	}
}

// TestInsert: the best stay, best first, and of equals those that were found first.
func TestInsert(t *testing.T) {
	var h hypotheses
	for i, score := range []float64{-3, -1, -3, -2, -1, -4} {
		h.insert(4, Hypothesis{Tokens: []int32{int32(i)}, Score: score})
	}
	var order []int32
	for _, b := range h.best {
		order = append(order, b.Tokens...)
	}
	must.Equal(t, order, []int32{1, 4, 3, 0})
}
