package changes

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/internal/must"
)

// TestCompare: what changed is found, and is significant or not.
func TestCompare(t *testing.T) {
	base := func() Measured { return measured(result(side{"none", 10}, side{"auto", 5})) }
	for _, c := range []struct {
		name    string
		to      func(r *Measured)
		times   string // of each side: the change in per cent, or ~
		gains   string
		changed []string
		notes   []string
		only    string
	}{
		{name: "nothing", to: func(*Measured) {}, times: "none ~ auto ~", gains: "auto ~"},
		{name: "a side that is slower", to: func(r *Measured) { *r = measured(result(side{"none", 10}, side{"auto", 6})) },
			times: "none ~ auto +20", gains: "auto -17"},
		{name: "a machine that is slower for an hour",
			to: func(r *Measured) { *r = measured(result(side{"none", 20}, side{"auto", 10})) }, times: "none +100 auto +100",
			gains: "auto ~"},
		{name: "another model", to: func(r *Measured) { r.Result.Model = "other.onnx" }, times: "none ~ auto ~",
			gains: "auto ~", changed: []string{"model"}, notes: []string{"the models differ"}},
		{name: "a model of the same name elsewhere", to: func(r *Measured) { r.Result.Model = "/elsewhere/model.onnx" },
			times: "none ~ auto ~", gains: "auto ~", changed: []string{"model"}},
		{name: "another machine", to: func(r *Measured) { r.Result.Environment.CPU = "another" }, times: "none ~ auto ~",
			gains: "auto ~", changed: []string{"machine"}, notes: []string{"the machines differ"}},
		{name: "other instruction sets", to: func(r *Measured) { r.Result.Environment.ISA = []string{"avx2", "avx512"} },
			times: "none ~ auto ~", gains: "auto ~", changed: []string{"machine"}, notes: []string{"the machines differ"}},
		{name: "other software", to: func(r *Measured) { r.Result.Environment.ONNXRuntime = "1.31.0" },
			times: "none ~ auto ~", gains: "auto ~", changed: []string{"onnxruntime"}},
		{name: "another plan", to: func(r *Measured) {
			r.Result.Sides[0].Plan = []comparison.Choice{{Node: "Softmax_0", Reason: "left"},
				{Node: "Gelu_1", Plugin: "fused-gelu", Operator: "FusedGelu"}}
		}, times: "none ~ auto ~", gains: "auto ~", changed: []string{"plan of auto, Softmax_0", "plan of auto, Gelu_1"}},
		{name: "other inputs", to: func(r *Measured) { r.Result.Cells[0].Inputs[0].Shape = []int64{2, 8} },
			times: "none ~ auto ~", gains: "auto ~", changed: []string{"input x"}},
		{name: "memory that is slower", to: func(r *Measured) { r.Result.Environment.MemoryBandwidthGB = 20 },
			times: "none ~ auto ~", gains: "auto ~", changed: []string{"memory bandwidth"}},
		{name: "another side", to: func(r *Measured) { *r = measured(result(side{"none", 10}, side{"flash-decode", 5})) },
			times: "none ~", only: "[auto] [flash-decode]"},
		{name: "another first side", to: func(r *Measured) { *r = measured(result(side{"low-rank", 10}, side{"auto", 5})) },
			times: "auto ~", only: "[a: none] [a: low-rank]"},
		{name: "other sizes", to: func(r *Measured) { r.Result.Cells[0].Lengths["batch"] = 8 },
			only: "[auto] [batch=8 auto]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, to := base(), base()
			c.to(&to)
			r := must.Value(Compare(from, to))(t)
			var times, gains, changed, notes []string
			said := func(side string, x float64, significant bool) string {
				if !significant {
					return side + " ~"
				}
				return fmt.Sprintf("%s %+.0f", side, 100*x)
			}
			for _, x := range r.Times {
				times = append(times, said(x.Side, x.Delta, x.Significant))
				if x.Old.LowMS == nil || !(*x.Old.LowMS <= x.Old.MedianMS && x.Old.MedianMS <= *x.Old.HighMS) || x.Old.Runs != 30 {
					t.Errorf("%+v", x.Old)
				}
			}
			for _, x := range r.Speedups {
				gains = append(gains, said(x.Side, x.Change.Median-1, x.Change.Significant))
			}
			for _, x := range r.Changed {
				changed = append(changed, x.What)
				if x.Old == x.New || x.Old == "" {
					t.Errorf("%+v", x)
				}
			}
			for i, x := range r.Notes {
				if i < len(c.notes) && strings.HasPrefix(x, c.notes[i]) {
					notes = append(notes, c.notes[i])
				} else {
					notes = append(notes, x)
				}
			}
			only := ""
			if len(r.OnlyOld)+len(r.OnlyNew) > 0 {
				only = fmt.Sprint(r.OnlyOld, " ", r.OnlyNew)
			}
			if strings.Join(times, " ") != c.times || strings.Join(gains, " ") != c.gains || !slices.Equal(changed, c.changed) ||
				!slices.Equal(notes, c.notes) || only != c.only {
				t.Errorf("times %q, gains %q, changed %q, notes %q, only %q", times, gains, changed, notes, only)
			}
		})
	}
}

// TestRequire: the lower end of the interval counts, few runs never do, and what is not there is no success.
func TestRequire(t *testing.T) {
	twice := result(side{"none", 10}, side{"auto", 5})
	few := result(side{"none", 10}, side{"auto", 5})
	few.Cells[0].Sides[0].Speedup.Few = true
	least := twice.Cells[0].Sides[0].Speedup.CI95[0]
	for _, c := range []struct {
		of     *comparison.Swept
		factor float64
		short  int
	}{{twice, 1.5, 0}, {twice, least, 0}, {twice, math.Nextafter(least, 3), 1}, {twice, 2.1, 1}, {few, 1.5, 1},
		{result(side{"none", 10}, side{"auto", 5}, side{"slow", 20}), 1.2, 1}} {
		must.Equal(t, len((Measured{Result: c.of}).Short(c.factor)), c.short, c.factor)
	}
	from, other := measured(twice), measured(result(side{"none", 10}, side{"auto", 5}))
	other.Result.Model = "other.onnx"
	for _, c := range []struct {
		name   string
		to     Measured
		factor float64
		short  int
		not    string
	}{
		{"as before", measured(result(side{"none", 10}, side{"auto", 5})), 0.95, 0, ""},
		{"slower", measured(result(side{"none", 10}, side{"auto", 6})), 0.95, 1, ""},
		{"slower, as is everything", measured(result(side{"none", 13}, side{"auto", 6.5})), 0.95, 0, ""},
		{"faster, and not as fast as required", measured(result(side{"none", 10}, side{"auto", 4.5})), 1.2, 1, ""},
		{"without the side", measured(result(side{"none", 10}, side{"other", 5})), 0.95, 0, "it lacks auto"},
		{"with another first side", measured(result(side{"auto", 10}, side{"auto", 5})), 0.95, 0, "it lacks a: none"},
		{"of another model", other, 0.95, 0,
			"the models differ"},
	} {
		r := must.Value(Compare(from, c.to))(t)
		if got := r.Short(c.factor); len(got) != c.short || r.Incomparable() != c.not {
			t.Errorf("%s: %v, %q", c.name, got, r.Incomparable())
		}
	}
	for text, want := range map[string]float64{"1.2x": 1.2, "1.2": 1.2, " 2x ": 2, "0.95": 0.95, "x": 0, "": 0, "0": 0,
		"-1x": 0, "NaN": 0, "inf": 0, "1.2xx": 0, "1,2": 0} {
		if got, err := Factor(text); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
