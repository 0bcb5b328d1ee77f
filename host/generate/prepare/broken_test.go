package prepare

import (
	"testing"

	"github.com/opgraft/graft/host/plan"
)

// What the planner chose must hold in every layer; what was named, or takes little, may
// be stood in for.
func TestBroken(t *testing.T) {
	flash, keys := plan.Candidate{Strategy: plan.KeysValues}, plan.Candidate{Strategy: plan.Keys}
	layers := []plan.LayerStrategy{{Node: "a", Type: "self", Strategy: plan.Keys},
		{Node: "b", Type: "self", Strategy: plan.HiddenStates, Reason: "keys: singular"}}
	for _, c := range []struct {
		what      string
		attention Attention
		chosen    plan.Candidate
		layers    []plan.LayerStrategy
		again     bool
	}{
		{"a layer has another", Attention{}, keys, layers, true},
		{"all layers have it", Attention{}, keys, layers[:1], false},
		{"the default", Attention{}, flash, layers, false},
		{"named", Attention{Self: plan.Keys}, keys, layers, false},
		{"for memory", Attention{Prefer: plan.PreferMemory}, keys, layers, false},
	} {
		choices := []plan.CacheChoice{{Kind: plan.Kind{Layers: plan.Layers{Type: "self"}}, Candidate: c.chosen,
			Options: []plan.Option{{Candidate: flash}, {Candidate: keys}}}}
		i, ruledOut, why := broken(choices, c.attention, c.layers)
		switch {
		case !c.again && i >= 0:
			t.Errorf("%s: %s is ruled out: %s", c.what, ruledOut, why)
		case c.again && (i != 0 || ruledOut != keys || why != "b: keys: singular"):
			t.Errorf("%s: choice %d, %s because %q", c.what, i, ruledOut, why)
		}
	}
}
