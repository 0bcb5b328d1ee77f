package main

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// around are eight times near a number.
func around(x float64) []float64 {
	var list []float64
	for i := range 8 {
		list = append(list, x*(1+0.001*float64(i*5%8)))
	}
	return list
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		what          string
		choice        string
		contest       map[string][]float64
		fastest       string
		right, slower bool
	}{
		{"nothing comes near", "base", map[string][]float64{"base": around(1)}, "base", true, false},
		{"the choice is the fastest", "x", map[string][]float64{"x": around(1), "y": around(1.1), "base": around(1.2)}, "x",
			true, false},
		{"another is", "x", map[string][]float64{"x": around(1), "y": around(0.9), "base": around(1.2)}, "y", false, false},
		{"another is by less than can be told", "x",
			map[string][]float64{"x": around(1), "y": around(0.9999), "base": around(1.2)}, "y", true, false},
		{"the default is", "x", map[string][]float64{"x": around(1), "base": around(0.9)}, "base", false, true},
		{"the default is chosen and is not", "base", map[string][]float64{"base": around(1), "y": around(0.9)}, "y", false,
			false},
	} {
		v := judge(c.choice, "base", c.contest)
		if v.Fastest != c.fastest || v.Right != c.right || v.Slower != c.slower || v.Loss < 1 {
			t.Errorf("%s: %+v", c.what, v)
		}
	}
}

func TestContenders(t *testing.T) {
	times := map[string][]float64{"base": {1, 1.2}, "x": {0.9, 0.8}, "y": {0.7, 2}, "far": {3}}
	for choice, want := range map[string][]string{"base": {"base", "y"}, "x": {"x", "y", "base"},
		"y": {"y", "x", "base"}} {
		if got := contenders(&plannerCell{Timed: choice, Screened: times}, "base"); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", choice, got, want)
		}
	}
	alone := map[string][]float64{"base": {1}, "far": {3}}
	if got := contenders(&plannerCell{Timed: "base", Screened: alone}, "base"); !slices.Equal(got, []string{"base"}) {
		t.Errorf("nothing comes near: %v", got)
	}
}

// The shares of cells that count.
func TestPlannerOutcome(t *testing.T) {
	cell := func(right, slower, alone bool) plannerCell {
		return plannerCell{verdict: verdict{Right: right, Slower: slower, Alone: alone, Loss: 1}}
	}
	r := &plannerReport{Model: "x"}
	for range 19 {
		r.Cells = append(r.Cells, cell(true, false, false))
	}
	r.Cells = append(r.Cells, cell(false, false, false), cell(true, false, true))
	d := &plannerOutcome{Models: []*plannerReport{r}}
	if o := d.outcome(); !o.Met || o.Answers != "wrong: x 0x0x0" {
		t.Errorf("19 of 20: %+v", o)
	}
	r.Cells = append(r.Cells, cell(false, false, false))
	if o := d.outcome(); o.Met {
		t.Errorf("19 of 21: %+v", o)
	}
	r.Cells = append(slices.Repeat([]plannerCell{cell(true, false, false)}, 99), cell(true, true, false))
	if o := d.outcome(); o.Met {
		t.Errorf("slower than the default once: %+v", o)
	}
	r.Cells = []plannerCell{cell(true, false, true)}
	if o := d.outcome(); o.Met {
		t.Errorf("nothing to choose anywhere: %+v", o)
	}
}

// The figure over a few cells of small models, with measurements and a cache of their own.
func TestPlannerOfSmallModels(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache) // after the runtime was found in the user's
	b := &bench{library: l, set: set, rounds: 1}
	for name, sides := range map[string][]string{
		"bart": {"self=keys_values,cross=keys_values", "self=prompt_hidden_states,cross=prompt_hidden_states",
			"self=keys_values,cross=prompt_hidden_states"},
		"gpt2": {"self=keys_values", "self=prompt_hidden_states", "self=keys", "self=hidden_states"},
	} {
		if testing.Short() && name != "gpt2" { // one model; make test-long times both
			continue
		}
		folder := filepath.Join(cache, name)
		must.Succeed(t, models.Small(name, folder))
		r := must.Value(b.plannerModel(context.Background(),
			plannerModel{name, []int64{20, 40}, []int64{1, 3}, []int64{1, 2}, 4, [][3]int64{{20, 3, 1}}}, folder))(t)
		if len(r.Cells) != 6 || len(r.Exported) != 1 || r.Exported[0].Equal != 1 {
			t.Errorf("%s: %d cells, %d comparisons with the exported model", name, len(r.Cells), len(r.Exported))
		}
		for _, want := range sides {
			if !slices.ContainsFunc(r.Sides, func(s plannerSide) bool { return s.Name == want && len(s.Strategies) > 0 }) {
				t.Errorf("%s: no side has %s", name, want)
			}
		}
		for _, c := range r.Cells {
			if c.Alone || len(c.Medians) == 0 || c.Screened[c.Timed] == nil || c.Fastest == "" || c.Beams*c.Batch > 4 {
				t.Errorf("%s: %+v", name, c)
			}
			for side, times := range c.Contest {
				if len(times) < 8 && len(c.Contest) > 1 || slices.Min(times) <= 0 {
					t.Errorf("%s: %s has the times %v", name, side, times)
				}
			}
		}
	}
}
