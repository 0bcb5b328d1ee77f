package probe

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/opgraft/graft/host/base/threads"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/discovery"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
	"github.com/opgraft/graft/internal/must"
)

// open opens a plugin as it was built: from GRAFT_PLUGIN_PATH, else from build/plugins.
func open(t *testing.T, name string) *plugin.Plugin {
	t.Helper()
	if os.Getenv("GRAFT_PLUGIN_PATH") == "" {
		folder := must.Value(filepath.Abs("../../../../build/plugins"))(t)
		t.Setenv("GRAFT_PLUGIN_PATH", folder)
	}
	found, err := discovery.Find(discovery.Options{}).ByName(name)
	if err != nil {
		t.Fatalf("%v: run make plugins", err)
	}
	p := must.Value(plugin.Open(found.Folder, plugin.OpenOptions{AcceptUnverified: true}))(t)
	return p
}

// known are the operators of the plugins of this tree.
func known(t *testing.T) plan.Implementations {
	t.Helper()
	var list []*manifest.Manifest
	for _, name := range []string{"flash-decode", "el-attention", "slim-attention"} {
		m := must.Value(manifest.Read(filepath.Join("../../../../plugins", name)))(t)
		list = append(list, m)
	}
	return plan.Implementations{}.Among(list)
}

// Everything stored is the same number, so that what comes out is known: that number
// for values, and sums of products of it with itself for values made of rows.
func TestStepsAttend(t *testing.T) {
	cross := plan.Layers{Type: "cross", Layers: 3, Heads: 4, KVHeads: 4, HeadSize: 8, ValueSize: 8, Width: 32}
	self := cross
	self.Type = "self"
	grouped := self
	grouped.KVHeads = 2
	wide := self
	wide.Width = 24
	shapes := []plan.Shape{{Keys: 40, Beams: 1, Batch: 1}, {Keys: 17, Own: 5, Beams: 4, Batch: 3},
		{Keys: 3, Own: 20, Beams: 1, Batch: 2}, {Keys: 40, Own: 20, Beams: 4, Batch: 3}}
	values := func(plan.Shape) float64 { return float64(filling) }
	made := func(width int64) func(plan.Shape) float64 {
		return func(plan.Shape) float64 { return float64(width) * float64(filling) * float64(filling) }
	}
	// Scores are so small that all positions weigh the same.
	mixed := func(s plan.Shape) float64 {
		return (float64(s.Keys)*made(32)(s) + float64(s.Own)*values(s)) / float64(s.Keys+s.Own)
	}
	half := func(plan.Shape) float64 { return 32 * float64(filling) } // rows of ones
	for _, c := range []struct {
		layers    plan.Layers
		candidate plan.Candidate
		want      func(plan.Shape) float64
	}{
		{cross, plan.Candidate{Strategy: plan.KeysValues}, values},
		{self, plan.Candidate{Strategy: plan.KeysValues}, values},
		{grouped, plan.Candidate{Strategy: plan.KeysValues}, values},
		{cross, plan.Candidate{Strategy: plan.PromptHiddenStates}, made(32)},
		{self, plan.Candidate{Strategy: plan.PromptHiddenStates}, mixed},
		{grouped, plan.Candidate{Strategy: plan.PromptHiddenStates}, mixed},
		{cross, plan.Candidate{Strategy: plan.PromptHiddenStates, Storage: plan.Float16}, half},
		{self, plan.Candidate{Strategy: plan.KeysValues, Storage: plan.Float16}, func(plan.Shape) float64 { return 1 }},
		{grouped, plan.Candidate{Strategy: plan.KeysValues, Storage: plan.BFloat16},
			func(plan.Shape) float64 { return 0.0078125 }},
		{cross, plan.Candidate{Strategy: plan.Keys}, made(32)},
		{self, plan.Candidate{Strategy: plan.Keys}, made(32)},
		{wide, plan.Candidate{Strategy: plan.Keys, Storage: plan.BFloat16},
			func(plan.Shape) float64 { return 32 * 0.0078125 * float64(filling) }},
		{wide, plan.Candidate{Strategy: plan.HiddenStates}, made(24)},
		{grouped, plan.Candidate{Strategy: plan.HiddenStates}, made(32)},
		{cross, plan.Candidate{Strategy: plan.FirstLayerKeys}, made(32)},
	} {
		run(t, c.layers, c.candidate, shapes, c.want)
	}
}

func run(t *testing.T, l plan.Layers, c plan.Candidate, shapes []plan.Shape, expected func(plan.Shape) float64) {
	t.Helper()
	crew := threads.NewPool(2)
	defer crew.Close()
	x := must.Value(New(open(t, known(t).Of(c.Strategy).Plugin), known(t), l, c, 2,
		shapes[len(shapes)-1], crew))(t)
	defer x.Close()
	for _, s := range shapes {
		step, err := x.Step(s)
		if err != nil {
			t.Fatalf("%s, %s, %+v: %v", l, c, s, err)
		}
		must.Equal(t, step.Layers(), 2)
		want := expected(s)
		for i := range step.Layers() {
			output := tensor.Elems[float32](step.outputs[0])
			clear(output)
			took, err := step.Run(i)
			if err != nil || took <= 0 {
				t.Fatalf("%s, %s, %+v, layer %d: %v, took %v", l, c, s, i, err, took)
			}
			must.Equal(t, int64(len(output)), s.Batch*s.Beams*l.Heads*l.ValueSize, len(output))
			for j, y := range output {
				if math.Abs(float64(y)/want-1) > 1e-3 {
					t.Fatalf("%s, %s, %+v, layer %d: number %d is %g, want %g", l, c, s, i, j, y, want)
				}
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	l := plan.Layers{Type: "self", Layers: 2, Heads: 4, KVHeads: 4, HeadSize: 8, ValueSize: 8, Width: 32}
	c := plan.Candidate{Strategy: plan.KeysValues}
	p := open(t, "flash-decode")
	x := must.Value(New(p, known(t), l, c, 2, plan.Shape{Keys: 16, Beams: 1, Batch: 1}, nil))(t)
	defer x.Close()
	for _, s := range []struct {
		shape plan.Shape
		want  string
	}{
		{plan.Shape{Keys: 17, Beams: 1, Batch: 1}, "needs more memory than was made for the largest"},
		{plan.Shape{Keys: 1, Beams: 1}, "has nothing to attend to"},
		{plan.Shape{Beams: 1, Batch: 1}, "has nothing to attend to"},
	} {
		must.Fail(t, must.Error(x.Step(s.shape)), s.want)
	}
	l.KVHeads = 2
	for want, c := range map[string]plan.Candidate{
		"4 query heads share 2 heads of keys": {Strategy: plan.Keys}, "nothing to run": {Strategy: plan.Exported},
		`found no operator "ELAttention"`: {Strategy: plan.PromptHiddenStates},
	} {
		must.Fail(t, must.Error(New(p, known(t), l, c, 2, plan.Shape{Keys: 16, Beams: 1, Batch: 1}, nil)), want)
	}
}
