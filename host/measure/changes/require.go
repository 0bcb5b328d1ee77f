package changes

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/opgraft/graft/host/measure/statistics"
)

// Factor reads how many times as fast something must be: 1.2x or 1.2.
func Factor(text string) (float64, error) {
	x, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(text), "x"), 64)
	if err != nil || !(x > 0) || math.IsInf(x, 0) {
		return 0, fmt.Errorf("found %q, needed a number above 0, as 1.2x or 1.2", text)
	}
	return x, nil
}

// Shortfall is a side of a cell that is not known to be as fast as is required.
type Shortfall struct {
	Cell, Side string
	Speedup    statistics.Speedup
}

// String is the shortfall in words.
func (s Shortfall) String() string {
	line := fmt.Sprintf("%s %.2fx (95 %% %.2fx to %.2fx)", label(s.Cell, s.Side), s.Speedup.Median, s.Speedup.CI95[0],
		s.Speedup.CI95[1])
	if s.Speedup.Few {
		line += " of few runs"
	}
	return line
}

// meets says whether a speed-up is at least a factor: the lower end of its interval counts, so that chance alone does
// not pass, and of few runs, whose interval is narrower than it should be, none does.
func meets(s statistics.Speedup, factor float64) bool { return !s.Few && s.CI95[0] >= factor }

// Short lists the sides of a result that are not known to be as many times as fast as A, in whole runs.
func (m Measured) Short(factor float64) (list []Shortfall) {
	x := m.cells()
	for _, key := range x.keys {
		for _, s := range x.at[key].sides {
			if !isPart(key) && !meets(s.speedup, factor) {
				list = append(list, Shortfall{key, s.name, s.speedup})
			}
		}
	}
	return list
}

// Short lists the sides whose new speed-up over A is not known to be as many times the old one, in whole runs.
func (c *Comparison) Short(factor float64) (list []Shortfall) {
	for _, g := range c.Speedups {
		if !isPart(g.Cell) && !meets(g.Change, factor) {
			list = append(list, Shortfall{g.Cell, g.Side, g.Change})
		}
	}
	return list
}

// Incomparable says why the speed-ups of two results cannot be required of each other; "" where they can.
func (c *Comparison) Incomparable() string {
	switch {
	case otherModel(c.Old.Model, c.New.Model):
		return "the models differ"
	case c.otherTask:
		return "the inputs or the search differ"
	case len(c.OnlyOld) > 0:
		return "it lacks " + strings.Join(c.OnlyOld, ", ")
	case len(c.Speedups) == 0:
		return "no side is in both"
	}
	return ""
}
