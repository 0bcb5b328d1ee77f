package tune

import (
	"math"
	"slices"

	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin"
)

// Report holds what was measured against what was predicted.
type Report struct {
	Layers     plan.Layers        `json:"layers"`
	Candidates []CandidateSummary `json:"candidates"`
	Shapes     []ShapeTimes       `json:"shapes"`
	Skipped    []Skipped          `json:"skipped"`
}

// CandidateSummary is how well one candidate was predicted over all shapes: the
// geometric mean of measured by predicted times, and the least and greatest of them.
type CandidateSummary struct {
	Name     string  `json:"name"`
	Ratio    float64 `json:"measured_by_predicted"`
	Least    float64 `json:"least"`
	Greatest float64 `json:"greatest"`
	Fastest  int     `json:"fastest_at"` // how many of the shapes
	Speedup  float64 `json:"speedup"`    // over the first candidate, geometric mean
}

// ShapeTimes are the times of one shape, in seconds of one step's operators of all
// layers, in the order of the candidates.
type ShapeTimes struct {
	plan.Shape
	Fastest   string    `json:"fastest"`
	Measured  []float64 `json:"measured_s"`
	Predicted []float64 `json:"predicted_s"`
}

// Skipped is a candidate that was not measured.
type Skipped struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Report compares a table with what a predictor says without it.
func (t *Table) Report(p *plan.Predictor, plugins []*plugin.Plugin, implementations plan.Implementations) *Report {
	r := &Report{Layers: t.Layers, Candidates: make([]CandidateSummary, len(t.Rows)), Shapes: []ShapeTimes{},
		Skipped: t.skipped(plugins, implementations)}
	for i := range t.Axes.Size() {
		s := ShapeTimes{Shape: t.Axes.Shape(i)}
		fastest := 0
		for j := range t.Rows {
			row := &t.Rows[j]
			s.Measured = append(s.Measured, row.Seconds[i])
			s.Predicted = append(s.Predicted, p.Operators(t.Layers, row.Candidate(implementations), s.Shape))
			if s.Measured[j] < s.Measured[fastest] {
				fastest = j
			}
		}
		s.Fastest = t.Rows[fastest].Candidate(implementations).String()
		r.Candidates[fastest].Fastest++
		r.Shapes = append(r.Shapes, s)
	}
	for j := range t.Rows {
		c := &r.Candidates[j]
		c.Name, c.Least = t.Rows[j].Candidate(implementations).String(), math.Inf(1)
		off, faster := 0.0, 0.0
		for _, s := range r.Shapes {
			x := s.Measured[j] / s.Predicted[j]
			c.Least, c.Greatest = min(c.Least, x), max(c.Greatest, x)
			off += math.Log(x)
			faster += math.Log(s.Measured[0] / s.Measured[j])
		}
		n := float64(len(r.Shapes))
		c.Ratio, c.Speedup = math.Exp(off/n), math.Exp(faster/n)
	}
	return r
}

// skipped are the candidates without a row.
func (t *Table) skipped(plugins []*plugin.Plugin, implementations plan.Implementations) []Skipped {
	list := []Skipped{}
	for _, c := range candidates(implementations) {
		if slices.ContainsFunc(t.Rows, func(r Row) bool { return r.Strategy == c.Strategy }) {
			continue
		}
		why, name := c.Lacks(t.Layers), implementations.Of(c.Strategy).Plugin
		if why == "" && !slices.ContainsFunc(plugins, func(p *plugin.Plugin) bool { return p.Manifest.Name == name }) {
			why = "no plugin that attends over it is loaded"
		}
		if why == "" {
			why = "it was not asked for"
		}
		list = append(list, Skipped{c.String(), why})
	}
	return list
}
