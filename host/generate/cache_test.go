package generate_test

import (
	"slices"
	"testing"

	"github.com/opgraft/graft/host/generate"
	"github.com/opgraft/graft/host/generate/pipeline"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/plan"
)

// TestCacheOfATrainedModel: over a cache in fewer bits a trained model mostly pronounces words as it does over
// float32, and the cache takes the bytes of the type.
func TestCacheOfATrainedModel(t *testing.T) {
	words, _ := heldOut(t, 120)
	longest := []string{slices.MaxFunc(words, func(a, b string) int { return len(a) - len(b) })}
	var usual []generate.Result
	var whole *generate.Summary
	for _, c := range []struct {
		storage plan.Storage
		equal   float64 // words that are as over float32, at least
		bytes   float64 // of the cache, as a share of those of float32, at most
	}{
		{plan.Float32, 1, 1},
		{plan.Float16, 0.99, 0.5},
		{plan.BFloat16, 0.95, 0.5},
		{plan.Int8, 0.95, 0.38},
	} {
		o := options(t, 8)
		o.Attention = prepare.Attention{Self: plan.KeysValues, Cross: plan.KeysValues, Storage: c.storage}
		g := opened(t, generate.Open, o)
		search := g.Search()
		search.NumBeams = 2
		// alone, since which rows share a batch is a matter of time
		_, s := results(t, g, search, longest, pipeline.Options{})
		got, _ := results(t, g, search, words, pipeline.Options{})
		if usual == nil {
			usual, whole = got, s
		}
		equal := 0
		for i, r := range got {
			if slices.Equal(r.Sequences[0].Tokens, usual[i].Sequences[0].Tokens) {
				equal++
			}
		}
		share := float64(s.SelfCacheBytes+s.CrossCacheBytes) / float64(whole.SelfCacheBytes+whole.CrossCacheBytes)
		t.Logf("%s: %d of %d words as over float32, %.3f of its bytes", c.storage, equal, len(words), share)
		if float64(equal) < c.equal*float64(len(words)) {
			t.Errorf("%s: %d of %d words are as over float32, want at least %g of them", c.storage, equal, len(words), c.equal)
		}
		if share > c.bytes*1.05 {
			t.Errorf("%s: the caches take %.3f of the bytes of float32, want at most %g", c.storage, share, c.bytes)
		}
		if want := c.storage; s.Cache != want && !(want == plan.Float32 && s.Cache == "") {
			t.Errorf("%s: the summary says %q of the cache", c.storage, s.Cache)
		}
	}
}
