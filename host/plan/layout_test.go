package plan_test

import (
	"testing"

	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/internal/must"
)

// declaring is a manifest with a strategy of its own.
func declaring(c manifest.KVCache) []*manifest.Manifest {
	return []*manifest.Manifest{{Name: "new",
		Operators: []manifest.Operator{{Name: "Attend", KVCache: &c, Cost: manifest.Cost{Bandwidth: 0.5, FLOPS: 0.1}}}}}
}

// A strategy that no code knows is planned with what its manifest says of it.
func TestStrategyOfAManifest(t *testing.T) {
	manifests := declaring(manifest.KVCache{Strategy: "quarters", Inputs: "keys_values",
		Slot: "kv_heads * (head_size + value_size) / 4 + 2", Store: "Put"})
	known := plan.Implementations{}.Among(manifests)
	if list := known.Strategies(); len(list) != 6 || list[0] != plan.KeysValues || list[5] != "quarters" {
		t.Fatalf("strategies %v", list)
	}
	c := known.Candidate("quarters", "")
	if c.Inputs() != plan.KeysValues || !c.Layout().Exact ||
		known.Of("quarters") != (plan.Implementation{Plugin: "new", Operator: "Attend"}) {
		t.Errorf("%s has the inputs of %s and is run by %+v", c, c.Inputs(), known.Of("quarters"))
	}
	if store, ok := known.Store("quarters"); !ok || store != (plan.Implementation{Plugin: "new", Operator: "Put"}) {
		t.Errorf("stored by %+v, %v", store, ok)
	}
	s := plan.Shape{Keys: 32, Own: 8, Beams: 4, Batch: 1} // 64 slots
	numbers := codeLlama.KVHeads*(codeLlama.HeadSize+codeLlama.ValueSize)/4 + 2
	if got, want := c.Bytes(codeLlama, s), codeLlama.Layers*64*4*numbers; got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
	p := plan.NewPredictor(machine, manifests, known, nil)
	quick, usual := p.Predict(codeLlama, c, s).Model, p.Predict(codeLlama, flash, s).Model
	must.Equal(t, p.Predict(codeLlama, plan.Candidate{Strategy: "quarters"}, s).Bytes, 0)
	if quick >= usual {
		t.Errorf("%g s, keys and values %g s: a quarter is read at half the bandwidth", quick, usual)
	}
	must.Equal(t, testing.AllocsPerRun(100, func() { p.Predict(codeLlama, c, s) }), 0)
}

// A strategy that no loaded plugin declares runs nothing.
func TestStrategyThatIsNotDeclared(t *testing.T) {
	c := plan.Implementations{}.Candidate("quarters", "")
	must.Equal(t, c.Lacks(llama), "no plugin that is loaded declares it")
}
