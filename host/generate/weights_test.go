package generate_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/generate"
	"github.com/opgraft/graft/host/generate/pipeline"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/session/fold"
	"github.com/opgraft/graft/internal/must"
)

// TestWeightsOfATrainedModel: a trained model of weights in fewer bits mostly pronounces words as it does in float32,
// and about as often as the dictionary does. Its layers are 128 wide and less, so it has few other weights to make up
// for one.
func TestWeightsOfATrainedModel(t *testing.T) {
	words, want := heldOut(t, 120)
	cache := fold.At(t.TempDir(), nil)
	var usual []generate.Result
	right := map[string]int{}
	for _, c := range []struct {
		weights string
		equal   float64 // words that are as in float32, at least
		lost    int     // words that are right there and not here, beyond those that are right here alone, at most
	}{
		{"float32", 1, 0},
		{"int8", 0.95, 5},
		{"int4", 0.75, 15},
		{"int8,activations=float32", 0.95, 5},
		{"int4,logits=int4,group=128", 0.7, 15},
	} {
		if testing.Short() && strings.Contains(c.weights, ",") {
			continue
		}
		o := options(t, 8)
		w := must.Value(prepare.ParseWeights(c.weights))(t)
		o.Weights, o.Quantized = w, cache
		g := opened(t, generate.Open, o)
		search := g.Search()
		search.NumBeams = 2
		got, s := results(t, g, search, words, pipeline.Options{})
		if usual == nil {
			usual = got
		}
		equal := 0
		for i, r := range got {
			if slices.Equal(r.Sequences[0].Tokens, usual[i].Sequences[0].Tokens) {
				equal++
			}
			if strings.TrimSpace(r.Sequences[0].Text) == want[i] {
				right[c.weights]++
			}
		}
		t.Logf("%s: %d of %d words as in float32, %d as in the dictionary", c.weights, equal, len(words), right[c.weights])
		if float64(equal) < c.equal*float64(len(words)) {
			t.Errorf("%s: %d of %d words are as in float32, want at least %g of them", c.weights, equal, len(words), c.equal)
		}
		if lost := right["float32"] - right[c.weights]; lost > c.lost {
			t.Errorf("%s: %d words are right, in float32 %d; want at most %d fewer", c.weights, right[c.weights],
				right["float32"], c.lost)
		}
		must.Equal(t, (s.Weights != nil), w.Quantizes(), c.weights)
	}
	if right["float32"] < len(words)/3 {
		t.Errorf("in float32 %d of %d words are right: the test compares nothing", right["float32"], len(words))
	}
}

// heldOut are words that the model never saw, with their pronunciations.
func heldOut(t *testing.T, n int) (words, sounds []string) {
	t.Helper()
	data := must.Value(os.ReadFile(g2p + "/held_out.txt"))(t)
	for line := range strings.Lines(string(data)) {
		word, sound, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if ok && len(words) < n {
			words, sounds = append(words, word), append(sounds, sound)
		}
	}
	return words, sounds
}
