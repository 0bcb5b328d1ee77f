package comparison

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// TestInterleave: warm-up runs are not timed, the order is A B B A, every time
// is kept.
func TestInterleave(t *testing.T) {
	var order strings.Builder
	at := map[string]float64{}
	side := func(name string) func() (float64, error) {
		return func() (float64, error) {
			order.WriteString(name)
			at[name]++
			if name == "b" && at[name] == 6 {
				return 1e6, nil // an outlier
			}
			return at[name], nil
		}
	}
	times := must.Value(interleave([]func() (float64, error){side("a"), side("b")}, 2, 3))(t)
	a, b := times[0], times[1]
	if got, want := order.String(), "abab"+"abba"+"abba"+"abba"; got != want {
		t.Errorf("order %s, want %s", got, want)
	}
	must.Equal(t, a, []float64{3, 4, 5, 6, 7, 8})
	must.Equal(t, b, []float64{3, 4, 5, 1e6, 7, 8})
}

// TestInterleaveMany: with more sides a round goes there and back.
func TestInterleaveMany(t *testing.T) {
	var order strings.Builder
	var runs []func() (float64, error)
	for i, name := range []string{"a", "b", "c", "d"} {
		runs = append(runs, func() (float64, error) { order.WriteString(name); return float64(i), nil })
	}
	times := must.Value(interleave(runs, 1, 2))(t)
	if got, want := order.String(), "abcd"+"abcddcba"+"abcddcba"; got != want {
		t.Errorf("order %s, want %s", got, want)
	}
	for i, list := range times {
		must.Equal(t, list, slices.Repeat([]float64{float64(i)}, 4), i)
	}
}

// TestInterleaveStops: the first error ends the comparison.
func TestInterleaveStops(t *testing.T) {
	broken := errors.New("broken")
	runs := 0
	good := func() (float64, error) { runs++; return 1, nil }
	bad := func() (float64, error) { return 0, broken }
	for _, warmup := range []int{0, 1} {
		runs = 0
		must.Fail(t, must.Error(interleave([]func() (float64, error){good, bad}, warmup, 5)), broken)
		must.Equal(t, runs, 1, warmup)
	}
}
