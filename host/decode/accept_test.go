package decode

import (
	"errors"
	"testing"

	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/rewrite"
)

// What the planner chose must hold in every layer; what was named, or keeps little, may
// be stood in for.
func TestAccept(t *testing.T) {
	flash, keys := plan.Candidate{Keep: plan.KeepKeysAndValues}, plan.Candidate{Keep: plan.KeepKeys}
	served := []rewrite.Served{{Node: "a", Type: "self", Keep: plan.KeepKeys}, {Node: "b", Type: "self", Keep: plan.KeepInputs, Reason: "slim-keys: singular"}}
	for _, c := range []struct {
		what      string
		attention Attention
		chosen    plan.Candidate
		served    []rewrite.Served
		again     bool
	}{
		{"a layer has another", Attention{}, keys, served, true},
		{"all layers have it", Attention{}, keys, served[:1], false},
		{"the default", Attention{}, flash, served, false},
		{"named", Attention{Self: plan.KeepKeys}, keys, served, false},
		{"for memory", Attention{Prefer: plan.PreferMemory}, keys, served, false},
	} {
		g := &Generator{options: Options{Attention: c.attention}, choices: []plan.CacheChoice{{
			Kind: plan.Kind{Layers: plan.Layers{Type: "self"}}, Candidate: c.chosen, Options: []plan.Option{{Candidate: flash}, {Candidate: keys}}}}}
		err := g.accept(c.served)
		if errors.Is(err, errAgain) != c.again || !c.again && err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		if got := g.refused["self"][keys]; c.again != (got == "b: slim-keys: singular") {
			t.Errorf("%s: refused because %q", c.what, got)
		}
	}
}
