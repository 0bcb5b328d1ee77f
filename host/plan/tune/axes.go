package tune

import (
	"fmt"
	"math"
	"slices"

	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plan/tune/probe"
)

// axesOf is the grid over a range: ends and what lies between in equal ratios.
func axesOf(l plan.Layers, r plan.Range) Axes {
	a := Axes{Keys: spread(r.Keys, 3), Own: spread(r.Own, 3), Beams: within(r.Beams, 1, 4, 8),
		Batch: within(r.Batch, 1, 4, 16)}
	if l.Type == "cross" {
		a.Keys, a.Own, a.Beams = spread(r.Keys, 4), []int64{0}, within(r.Beams, 1, 2, 4, 8)
	}
	return a
}

// spread is at most n numbers from one end to the other.
func spread(ends [2]int64, n int) []int64 {
	low, high := max(ends[0], 1), max(ends[1], ends[0])
	list := []int64{ends[0]}
	for i := 1; i < n; i++ {
		x := int64(math.Round(float64(low) * math.Pow(float64(high)/float64(low), float64(i)/float64(n-1))))
		if x > list[len(list)-1] {
			list = append(list, x)
		}
	}
	return list
}

// within is the ends of an interval and the numbers that lie inside of it.
func within(ends [2]int64, inside ...int64) []int64 {
	list := []int64{max(ends[0], 1)}
	for _, x := range append(inside, ends[1]) {
		if x > list[len(list)-1] && x <= ends[1] {
			list = append(list, x)
		}
	}
	return list
}

// largest is the shape that needs the most memory.
func (a *Axes) largest() plan.Shape {
	return plan.Shape{Keys: slices.Max(a.Keys), Own: slices.Max(a.Own), Beams: slices.Max(a.Beams),
		Batch: slices.Max(a.Batch)}
}

// shrink takes the largest batches off a grid until the made-up caches fit.
func shrink(a *Axes, l plan.Layers, candidates []plan.Candidate, layers, limit int64) error {
	for {
		need := int64(0)
		for _, c := range candidates {
			if c.Lacks(l) == "" {
				need += probe.Needs(l, c, layers, a.largest())
			}
		}
		if need <= limit {
			return nil
		}
		if len(a.Batch) == 1 {
			return fmt.Errorf("caches of %s take %d bytes to be measured, %d are free", l, need, limit)
		}
		a.Batch = a.Batch[:len(a.Batch)-1]
	}
}
