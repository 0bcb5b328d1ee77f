package statistics

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestInterval: the ranks are those of tables of the sign test's intervals, and the interval holds the median as
// often as it says.
func TestInterval(t *testing.T) {
	for n, ranks := range map[int][2]int{6: {1, 6}, 8: {1, 8}, 9: {2, 8}, 10: {2, 9}, 15: {4, 12}, 20: {6, 15},
		30: {10, 21}, 2000: {956, 1045}} {
		var list []float64
		for i := range n {
			list = append(list, float64(n-i))
		}
		if low, high, ok := Interval(list); !ok || low != float64(ranks[0]) || high != float64(ranks[1]) {
			t.Errorf("of %d: %v to %v, %v, want ranks %v", n, low, high, ok, ranks)
		}
	}
	for n := range 6 {
		if _, _, ok := Interval(make([]float64, n)); ok {
			t.Errorf("%d values have an interval", n)
		}
	}
	r, held := rand.New(rand.NewPCG(7, 7)), 0
	const trials = 2000
	for range trials {
		list := make([]float64, 30)
		for i := range list {
			list[i] = math.Exp(r.NormFloat64()) // whose median is 1
		}
		if low, high, _ := Interval(list); low <= 1 && 1 <= high {
			held++
		}
	}
	if share := float64(held) / trials; share < 0.94 || share > 0.975 {
		t.Errorf("%.3f of the intervals hold the median", share)
	}
}

// TestChangeOf: a machine that is slower altogether changes nothing; a side that is changes by as much.
func TestChangeOf(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	times := func(ms float64) (list []float64) {
		for range 30 {
			list = append(list, ms*(1+0.02*r.NormFloat64()))
		}
		return list
	}
	for _, c := range []struct {
		name        string
		a, b, c, d  float64
		want        float64
		significant bool
	}{
		{"nothing", 10, 5, 10, 5, 1, false},
		{"a machine that is half as fast", 10, 5, 20, 10, 1, false},
		{"a side that is a tenth slower", 10, 5, 10, 5.5, 1 / 1.1, true},
		{"a side that is twice as fast, on a slower machine", 10, 5, 13, 3.25, 2, true},
	} {
		s := ChangeOf(times(c.a), times(c.b), times(c.c), times(c.d))
		if math.Abs(s.Median/c.want-1) > 0.03 || s.Significant != c.significant || s.Few || s.CI95[0] > s.Median ||
			s.CI95[1] < s.Median {
			t.Errorf("%s: %+v", c.name, s)
		}
	}
	// By chance, of results in which nothing changed some one in twenty is significant.
	found := 0
	for range 40 {
		if ChangeOf(times(10), times(5), times(10), times(5)).Significant {
			found++
		}
	}
	if found > 7 {
		t.Errorf("%d of 40 results in which nothing changed are significant", found)
	}
}
