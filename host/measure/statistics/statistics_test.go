package statistics

import (
	"github.com/opgraft/graft/internal/must"
	"math"
	"math/rand/v2"
	"testing"
)

// TestUTest: p-values of mannwhitneyu(a, b, method="asymptotic") in SciPy 1.17.1.
func TestUTest(t *testing.T) {
	cases := []struct {
		name string
		a, b []float64
		want float64
	}{
		{"apart", []float64{1, 2, 3, 4, 5, 6, 7, 8}, []float64{9, 10, 11, 12, 13, 14, 15, 16}, 0.000939105699},
		{"woven", []float64{1, 3, 5, 7, 9}, []float64{2, 4, 6, 8, 10}, 0.676103314023},
		{"with ties", []float64{1, 2, 2, 3, 4}, []float64{2, 3, 3, 5, 6, 6}, 0.113049978856},
		{"sides of one", []float64{1}, []float64{2}, 1},
		{"all the same", []float64{4, 4, 4}, []float64{4, 4, 4}, 1},
		{"the same values", []float64{1, 2, 3}, []float64{1, 2, 3}, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for _, got := range []float64{uTest(c.a, c.b), uTest(c.b, c.a)} {
				if math.Abs(got-c.want) > 1e-9 {
					t.Errorf("p = %.12f, want %.12f", got, c.want)
				}
			}
		})
	}
}

// TestUTestLevel: of pairs from one distribution, about one in twenty is called
// significant.
func TestUTestLevel(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	const trials = 2000
	called := 0
	for range trials {
		if uTest(times(r, 20, 1), times(r, 20, 1)) < significance {
			called++
		}
	}
	if share := float64(called) / trials; share < 0.03 || share > 0.07 {
		t.Errorf("%.3f of pairs from one distribution are significant, want about 0.05", share)
	}
}

// times gives n times as a machine has them: a floor and a long tail.
func times(r *rand.Rand, n int, scale float64) []float64 {
	list := make([]float64, n)
	for i := range list {
		list[i] = scale * (1 + 0.2*math.Exp(r.NormFloat64()))
	}
	return list
}

func TestQuantile(t *testing.T) {
	list := []float64{40, 10, 30, 20}
	for q, want := range map[float64]float64{0: 10, 0.25: 17.5, 0.5: 25, 0.9: 37, 1: 40} {
		if got := Quantile(list, q); math.Abs(got-want) > 1e-12 {
			t.Errorf("quantile %g is %g, want %g", q, got, want)
		}
	}
	must.Equal(t, list, []float64{40, 10, 30, 20})
	must.Equal(t, Quantile([]float64{3}, 0.9), 3)
	if got := Median(nil); !math.IsNaN(got) {
		t.Errorf("median of nothing is %g, want NaN", got)
	}
}

// TestBootstrap: the interval holds the true ratio about 95 times in a hundred,
// is ordered, and is the same each time.
func TestBootstrap(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const trials, truth = 100, 1.5
	covered := 0
	for range trials {
		a, b := times(r, 30, truth), times(r, 30, 1)
		ci := bootstrap(a, b)
		if ci[0] > ci[1] {
			t.Fatalf("interval %v is the wrong way round", ci)
		}
		if ci[0] <= truth && truth <= ci[1] {
			covered++
		}
	}
	if covered < 88 {
		t.Errorf("the interval covers the truth in %d of %d trials", covered, trials)
	}
	a, b := times(r, 10, 1), times(r, 10, 1)
	if bootstrap(a, b) != bootstrap(a, b) {
		t.Error("the interval of the same times differs")
	}
	if got := bootstrap([]float64{4, 4}, []float64{2, 2}); got != [2]float64{2, 2} {
		t.Errorf("interval of constant times is %v, want 2 to 2", got)
	}
}

// TestSpeedupOfNothing: of runs of one distribution, however few, hardly any are called significant; never one whose
// interval holds 1; and few runs say that they are few.
func TestSpeedupOfNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for n := 2; n <= 24; n += 2 {
		const trials = 40
		called := 0
		for range trials {
			s := SpeedupOf(times(r, n, 1), times(r, n, 1))
			if s.Significant {
				called++
			}
			if s.Significant && s.CI95[0] <= 1 && s.CI95[1] >= 1 {
				t.Errorf("%d runs each: %+v is called significant", n, s)
			}
			must.Equal(t, s.Few, (n < 10))
		}
		if called > trials/8 {
			t.Errorf("%d runs each: %d of %d are called significant", n, called, trials)
		}
	}
}

func TestSpeedup(t *testing.T) {
	s := SpeedupOf([]float64{20, 21, 22, 20, 21, 22, 21}, []float64{10, 11, 10, 11, 10, 11, 10})
	if s.Median != 2.1 || !s.Significant || s.CI95[0] > 2.1 || s.CI95[1] < 2.1 {
		t.Errorf("%+v, want a significant 2.1", s)
	}
	s = SpeedupOf([]float64{1, 2, 3, 4}, []float64{1.5, 2.5, 3.5, 2})
	if s.Significant {
		t.Errorf("%+v is called significant", s)
	}
	// The U-test tells these apart; a ratio anywhere from below 1 on does not.
	s = SpeedupOf([]float64{1, 1.1, 1.2, 50, 51, 52, 53, 54}, []float64{0.9, 0.95, 0.99, 1, 1.05, 1.3, 1.4, 40})
	if s.P >= significance || s.CI95[0] > 1 || s.Significant {
		t.Errorf("%+v, want it not to be significant", s)
	}
}
