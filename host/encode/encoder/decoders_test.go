package encoder

import (
	"encoding/json"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// TestDecodersOfSentenceTransformers: folders of Qwen3-Embedding and EmbeddingGemma, with the graphs that are exported of
// them, give the vectors of sentence-transformers with each of their prompts, alone and with others, with graft's
// operators and without (models/encoders/decoders.py).
func TestDecodersOfSentenceTransformers(t *testing.T) {
	var all struct {
		Texts []string
		Cases []struct {
			Name, Graph string
			Files       map[string]string
			Values      map[string][][]float32
		}
		Blobs map[string]string
	}
	must.Succeed(t, json.Unmarshal([]byte(read(t, encoders+"/decoders/expected.json")), &all))
	for _, c := range all.Cases {
		dir := unpacked(t, "decoders/"+c.Graph, c.Files, all.Blobs)
		for _, plugins := range []bool{false, true} {
			e := must.Value(OpenEmbedder(t.Context(), dir, options(t, plugins)))(t)
			for prompt, want := range c.Values {
				for i, got := range embed(t, e, prompt, all.Texts) {
					alone := embed(t, e, prompt, all.Texts[i:i+1])[0]
					if !near(got, want[i]) || !near(alone, want[i]) {
						t.Errorf("%s, %q, plugins %v: %q is %v together, %v alone, want %v", c.Name, prompt, plugins, all.Texts[i],
							got, alone, want[i])
					}
				}
			}
			e.Close()
		}
	}
}
