package statistics

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Interval is a confidence interval of a median from the order of the values alone: it holds the median with at least
// 95 %. ok is false for fewer than six values, of which no two do.
func Interval(list []float64) (low, high float64, ok bool) {
	n := len(list)
	s := slices.Clone(list)
	slices.Sort(s)
	// The k-th value from both ends leaves the median out with twice the chance of less than k of n throws of a coin.
	k := 0
	whole, _ := math.Lgamma(float64(n + 1))
	for chance := 0.0; k < n/2; k++ {
		some, _ := math.Lgamma(float64(k + 1))
		rest, _ := math.Lgamma(float64(n - k + 1))
		if chance += math.Exp(whole - some - rest - float64(n)*math.Ln2); 2*chance > 1-0.95 {
			break
		}
	}
	if k == 0 {
		return math.NaN(), math.NaN(), false
	}
	return s[k-1], s[n-k], true
}

// ChangeOf says how many times as large the speed-up of B over A is in new runs as in old ones. Each was measured
// beside its own A, so that a slower hour of the machine counts on both. P is the bootstrap's, two-sided.
func ChangeOf(oldA, oldB, newA, newB []float64) Speedup {
	lists := [][]float64{newA, newB, oldA, oldB}
	ratio := func(m [4]float64) float64 { return m[0] / m[1] / (m[2] / m[3]) }
	var medians [4]float64
	s := Speedup{}
	for i, list := range lists {
		medians[i] = Median(list)
		s.Few = s.Few || len(list) < FewRuns
	}
	s.Median = ratio(medians)
	r := rand.New(rand.NewPCG(1, 2))
	ratios, below, above := make([]float64, 2000), 0, 0
	for i := range ratios {
		for j, list := range lists {
			sample := make([]float64, len(list))
			for k := range sample {
				sample[k] = list[r.IntN(len(list))]
			}
			medians[j] = Median(sample)
		}
		switch ratios[i] = ratio(medians); {
		case ratios[i] <= 1:
			below++
			if ratios[i] == 1 {
				above++
			}
		default:
			above++
		}
	}
	s.CI95 = [2]float64{Quantile(ratios, 0.025), Quantile(ratios, 0.975)}
	s.P = min(1, 2*float64(min(below, above)+1)/float64(len(ratios)+1))
	s.Significant = s.P < significance && (s.CI95[0] > 1 || s.CI95[1] < 1)
	return s
}
