// Package statistics says how much faster one list of times is than another, and
// whether chance alone could have done it.
package statistics

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// Speedup is the time of A over the time of B.
type Speedup struct {
	Median float64    `json:"median"` // ratio of the medians
	CI95   [2]float64 `json:"ci95"`   // bootstrap of that ratio
	P      float64    `json:"p"`      // two-sided Mann-Whitney U-test
	// Significant says that P is below 0.05 and that 1 is outside the interval.
	Significant bool `json:"significant"`
	// Few says that a side has fewer than 10 runs: the interval of so few is narrower than it should be.
	Few bool `json:"few_runs"`
}

// FewRuns is the number of a side's runs below which Few is set.
const FewRuns = 10

// significance is the level of the U-test.
const significance = 0.05

// SpeedupOf compares the times of A's and B's runs, in one unit.
func SpeedupOf(a, b []float64) Speedup {
	s := Speedup{Median: Median(a) / Median(b), P: uTest(a, b)}
	s.CI95 = bootstrap(a, b)
	s.Few = min(len(a), len(b)) < FewRuns
	s.Significant = s.P < significance && (s.CI95[0] > 1 || s.CI95[1] < 1)
	return s
}

// Median is the middle of a list; NaN of nothing.
func Median(list []float64) float64 { return Quantile(list, 0.5) }

// Quantile interpolates linearly between the nearest ranks; NaN of nothing.
func Quantile(list []float64, q float64) float64 {
	if len(list) == 0 {
		return math.NaN()
	}
	s := slices.Clone(list)
	slices.Sort(s)
	at := q * float64(len(s)-1)
	i := int(at)
	if i+1 >= len(s) {
		return s[len(s)-1]
	}
	return s[i] + (at-float64(i))*(s[i+1]-s[i])
}

// bootstrap is the percentile interval of Median(a)/Median(b) over 2,000
// resamples, from a fixed seed.
func bootstrap(a, b []float64) [2]float64 {
	r := rand.New(rand.NewPCG(1, 2))
	ratios := make([]float64, 2000)
	ra, rb := make([]float64, len(a)), make([]float64, len(b))
	for i := range ratios {
		for j := range ra {
			ra[j] = a[r.IntN(len(a))]
		}
		for j := range rb {
			rb[j] = b[r.IntN(len(b))]
		}
		ratios[i] = Median(ra) / Median(rb)
	}
	return [2]float64{Quantile(ratios, 0.025), Quantile(ratios, 0.975)}
}

// uTest is the two-sided p-value of the Mann-Whitney U-test in its normal
// approximation with correction for ties and continuity.
func uTest(a, b []float64) float64 {
	type obs struct {
		x    float64
		from int
	}
	var all []obs
	for _, x := range a {
		all = append(all, obs{x, 0})
	}
	for _, x := range b {
		all = append(all, obs{x, 1})
	}
	slices.SortFunc(all, func(p, q obs) int { return cmp.Compare(p.x, q.x) })
	n, n1, n2 := float64(len(all)), float64(len(a)), float64(len(b))
	rankSum, ties := 0.0, 0.0
	for i := 0; i < len(all); {
		j := i
		for j < len(all) && all[j].x == all[i].x {
			j++
		}
		rank := float64(i+j+1) / 2
		for k := i; k < j; k++ {
			if all[k].from == 0 {
				rankSum += rank
			}
		}
		t := float64(j - i)
		ties += t*t*t - t
		i = j
	}
	u := rankSum - n1*(n1+1)/2
	variance := n1 * n2 / 12 * (n + 1 - ties/(n*(n-1)))
	if variance <= 0 {
		return 1
	}
	z := (math.Abs(u-n1*n2/2) - 0.5) / math.Sqrt(variance)
	return min(math.Erfc(max(z, 0)/math.Sqrt2), 1)
}
