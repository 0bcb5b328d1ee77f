package generate

import (
	"maps"
	"slices"
	"testing"

	"github.com/opgraft/graft/host/decode"
	"github.com/opgraft/graft/host/decode/prepare"
	"github.com/opgraft/graft/host/fold"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/patch"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/models"
)

// TestEveryWayOfKeeping generates every case with each way of keeping what attention
// reads, forced on every layer that it can serve: the tokens are the same. A layer
// that keeps something else says why, and those that must be served are.
func TestEveryWayOfKeeping(t *testing.T) {
	l, err := ort.FindAndOpen("")
	if err != nil {
		t.Fatal(err)
	}
	set, err := patch.Load(nil, true)
	if err != nil {
		t.Fatal(err)
	}
	folds := fold.At(t.TempDir(), nil)
	ways := map[string]prepare.Attention{
		// Every third length keeps keys and values.
		"either": {Cross: plan.PromptHiddenStates, Self: plan.KeysValues, Choose: func(positions, _ int) bool { return positions%3 != 0 }},
	}
	for _, keep := range plan.AllStrategies()[1:] {
		ways[string(keep)] = prepare.Attention{Self: keep.Within("self"), Cross: keep.Within("cross")}
	}
	served := map[plan.Strategy]int{}
	for _, name := range Models() {
		e, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range models.SmallFolders() {
			if f.Model != e.Model {
				continue
			}
			names := slices.Sorted(maps.Keys(ways))
			if testing.Short() { // one for each folder, in turn
				names = names[i%len(names):][:1]
			}
			for _, way := range names {
				a := ways[way]
				t.Run(f.Name+"/"+way, func(t *testing.T) {
					dir := t.TempDir()
					if err := models.Small(f.Name, dir); err != nil {
						t.Fatal(err)
					}
					g, err := decode.Open(dir, decode.Options{Library: l, Plugins: set, CacheBytes: 256 << 20, Threads: 1, Attention: a, Folds: folds})
					if err != nil {
						t.Fatal(err)
					}
					defer g.Close()
					if way == "either" && !g.Engine().HasEncoder() {
						return
					}
					for _, layer := range g.Engine().Strategies() {
						want := a.Self
						if layer.Type == "cross" {
							want = a.Cross
						}
						served[layer.Strategy]++
						if layer.Strategy == want || layer.Strategy == plan.Keys && want == plan.FirstLayerKeys {
							continue
						}
						if layer.Reason == "" {
							t.Errorf("%s keeps %s without a reason, %s was asked for", layer.Node, layer.Strategy, want)
						}
						t.Logf("%s keeps %s: %s", layer.Node, layer.Strategy, layer.Reason)
					}
					compare(t, g, e)
				})
			}
		}
	}
	for _, keep := range plan.AllStrategies() {
		if served[keep] == 0 {
			t.Errorf("no layer of any model keeps what %s does", keep)
		}
	}
}
