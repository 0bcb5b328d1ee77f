package generate

import (
	"maps"
	"slices"
	"testing"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/fold"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// TestEveryStrategy generates every case with each KV-cache strategy, forced on every layer that can use it: the
// tokens are equal. A layer with another strategy says why, and each strategy is used by some layer.
func TestEveryStrategy(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	folds := fold.At(t.TempDir(), nil)
	attentions := map[string]prepare.Attention{
		// Every third length has keys and values.
		"either": {Cross: plan.PromptHiddenStates, Self: plan.KeysValues,
			Choose: func(positions, _ int) bool { return positions%3 != 0 }},
	}
	for _, s := range plan.StandardStrategies()[1:] {
		attentions[string(s)] = prepare.Attention{Self: s.Within("self"), Cross: s.Within("cross")}
	}
	used := map[plan.Strategy]int{}
	for _, name := range Models() {
		e := must.Value(Load(name))(t)
		for i, f := range models.SmallFolders() {
			if f.Model != e.Model {
				continue
			}
			names := slices.Sorted(maps.Keys(attentions))
			if testing.Short() { // one for each folder, in turn
				names = names[i%len(names):][:1]
			}
			for _, name := range names {
				a := attentions[name]
				t.Run(f.Name+"/"+name, func(t *testing.T) {
					dir := t.TempDir()
					must.Succeed(t, models.Small(f.Name, dir))
					g := must.Value(decode.Open(t.Context(), dir,
						decode.Options{Library: l, Plugins: set, CacheBytes: 256 << 20, Threads: 1, Attention: a, Folds: folds}))(t)
					defer g.Close()
					if name == "either" && !g.Engine().HasEncoder() {
						return
					}
					for _, layer := range g.Engine().Strategies() {
						want := a.Self
						if layer.Type == "cross" {
							want = a.Cross
						}
						used[layer.Strategy]++
						if layer.Strategy == want || layer.Strategy == plan.Keys && want == plan.FirstLayerKeys {
							continue
						}
						if layer.Reason == "" {
							t.Errorf("%s has %s without a reason, %s was asked for", layer.Node, layer.Strategy, want)
						}
						t.Logf("%s has %s: %s", layer.Node, layer.Strategy, layer.Reason)
					}
					compare(t, g, e)
				})
			}
		}
	}
	for _, s := range plan.StandardStrategies() {
		if used[s] == 0 {
			t.Errorf("no layer of any model has %s", s)
		}
	}
}
