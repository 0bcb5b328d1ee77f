package tune

import (
	"math"
	"testing"

	"github.com/opgraft/graft/host/plan"
)

func TestReport(t *testing.T) {
	table := made() // the second candidate takes twice as long as the first
	p := plan.NewPredictor(plan.ThisMachine(), nil, plan.Implementations{}, nil)
	for i := range table.Rows {
		table.Rows[i].Seconds[5] = 1 // but for one shape
	}
	table.Rows[1].Seconds[5] = 0.25
	r := table.Report(p, nil, plan.Implementations{})
	if len(r.Shapes) != 24 || r.Candidates[0].Name != "keys_values" || r.Candidates[1].Name != "prompt_hidden_states" {
		t.Fatalf("%+v", r)
	}
	if r.Candidates[0].Fastest != 23 || r.Candidates[1].Fastest != 1 || r.Shapes[5].Fastest != "prompt_hidden_states" ||
		r.Shapes[6].Fastest != "keys_values" {
		t.Errorf("fastest: %+v", r.Candidates)
	}
	if want := math.Exp((23*math.Log(0.5) + math.Log(4)) / 24); math.Abs(r.Candidates[1].Speedup-want) > 1e-9 ||
		r.Candidates[0].Speedup != 1 {
		t.Errorf("speed-ups %g and %g, want 1 and %g", r.Candidates[0].Speedup, r.Candidates[1].Speedup, want)
	}
	s := r.Shapes[9]
	if want := p.Operators(layers, table.Rows[1].Candidate(plan.Implementations{}), s.Shape); s.Predicted[1] != want ||
		s.Measured[1] != table.Rows[1].Seconds[9] {
		t.Errorf("shape %+v, want a prediction of %g", s, want)
	}
	for _, c := range r.Candidates {
		if !(c.Least <= c.Ratio && c.Ratio <= c.Greatest && c.Least > 0) {
			t.Errorf("%+v", c)
		}
	}
	var names []string
	for _, s := range r.Skipped {
		names = append(names, s.Name+": "+s.Reason)
	}
	if len(names) != 3 || names[0] != "keys: no plugin that attends over it is loaded" ||
		names[2] != "first_layer_keys: its layers have inputs of their own" {
		t.Errorf("skipped %q", names)
	}
}
