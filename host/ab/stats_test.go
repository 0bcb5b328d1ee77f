package ab

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
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
		if uTest(draw(r, 20, 1), draw(r, 20, 1)) < significance {
			called++
		}
	}
	if share := float64(called) / trials; share < 0.03 || share > 0.07 {
		t.Errorf("%.3f of pairs from one distribution are significant, want about 0.05", share)
	}
}

// draw gives n times as a machine has them: a floor and a long tail.
func draw(r *rand.Rand, n int, scale float64) []float64 {
	list := make([]float64, n)
	for i := range list {
		list[i] = scale * (1 + 0.2*math.Exp(r.NormFloat64()))
	}
	return list
}

func TestQuantile(t *testing.T) {
	list := []float64{40, 10, 30, 20}
	for q, want := range map[float64]float64{0: 10, 0.25: 17.5, 0.5: 25, 0.9: 37, 1: 40} {
		if got := quantile(list, q); math.Abs(got-want) > 1e-12 {
			t.Errorf("quantile %g is %g, want %g", q, got, want)
		}
	}
	if !slices.Equal(list, []float64{40, 10, 30, 20}) {
		t.Errorf("the list was reordered to %v", list)
	}
	if got := quantile([]float64{3}, 0.9); got != 3 {
		t.Errorf("quantile of one is %g, want 3", got)
	}
	if got := median(nil); !math.IsNaN(got) {
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
		a, b := draw(r, 30, truth), draw(r, 30, 1)
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
	a, b := draw(r, 10, 1), draw(r, 10, 1)
	if bootstrap(a, b) != bootstrap(a, b) {
		t.Error("the interval of the same times differs")
	}
	if got := bootstrap([]float64{4, 4}, []float64{2, 2}); got != [2]float64{2, 2} {
		t.Errorf("interval of constant times is %v, want 2 to 2", got)
	}
}

func TestSpeedup(t *testing.T) {
	s := speedup([]float64{20, 21, 22, 20, 21, 22, 21}, []float64{10, 11, 10, 11, 10, 11, 10})
	if s.Median != 2.1 || !s.Significant || s.CI95[0] > 2.1 || s.CI95[1] < 2.1 {
		t.Errorf("%+v, want a significant 2.1", s)
	}
	s = speedup([]float64{1, 2, 3, 4}, []float64{1.5, 2.5, 3.5, 2})
	if s.Significant {
		t.Errorf("%+v is called significant", s)
	}
}

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
	var told []string
	a, b, err := interleave(side("a"), side("b"), Options{Warmup: 2, Rounds: 3, Progress: func(done, total int64) {
		told = append(told, fmt.Sprintf("%d/%d", done, total))
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := order.String(), "abab"+"abba"+"abba"+"abba"; got != want {
		t.Errorf("order %s, want %s", got, want)
	}
	if want := []float64{3, 4, 5, 6, 7, 8}; !slices.Equal(a, want) {
		t.Errorf("times of a %v, want %v", a, want)
	}
	if want := []float64{3, 4, 5, 1e6, 7, 8}; !slices.Equal(b, want) {
		t.Errorf("times of b %v, want %v", b, want)
	}
	if want := []string{"1/3", "2/3", "3/3"}; !slices.Equal(told, want) {
		t.Errorf("progress %v, want %v", told, want)
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
		if _, _, err := interleave(good, bad, Options{Warmup: warmup, Rounds: 5}); !errors.Is(err, broken) {
			t.Errorf("warm-up %d: error %v, want %v", warmup, err, broken)
		}
		if runs != 1 {
			t.Errorf("warm-up %d: %d runs after the error", warmup, runs)
		}
	}
}
