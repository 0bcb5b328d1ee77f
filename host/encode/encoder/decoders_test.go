package encoder

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// TestDecodersOfSentenceTransformers: folders of Qwen3-Embedding and EmbeddingGemma, with the graphs that are exported
// of them, give the vectors of sentence-transformers with each of their prompts, alone and with others, with graft's
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

// TestBGEM3: a graph with the outputs of BGE-M3 gives its three results, alone and with others.
func TestBGEM3(t *testing.T) {
	var all struct {
		Texts []string
		M3    struct {
			Files map[string]string
			Rows  []struct {
				Dense  []float32
				Sparse map[string]float32
				Tokens [][]float32
			}
		}
		Blobs map[string]string
	}
	must.Succeed(t, json.Unmarshal([]byte(read(t, encoders+"/decoders/expected.json")), &all))
	dir := unpacked(t, "decoders/m3.onnx", all.M3.Files, all.Blobs)
	for _, plugins := range []bool{false, true} {
		e := must.Value(OpenEmbedder(t.Context(), dir, options(t, plugins)))(t)
		must.Equal(t, e.Gives(), Gives{Dense: true, Sparse: true, Tokens: true})
		var rows []Row
		for _, s := range all.Texts {
			rows = append(rows, must.Value(e.Row(t.Context(), s, As{}))(t))
		}
		together := must.Value(e.run(t.Context(), rows))(t)
		for i, want := range all.M3.Rows {
			for _, got := range []Embedding{together[i], must.Value(e.Alone(t.Context(), rows[i]))(t)} {
				sparse := make([]float32, len(got.Sparse.Indices))
				for k, id := range got.Sparse.Indices {
					sparse[k] = want.Sparse[strconv.Itoa(int(id))]
				}
				tokens := got.Tokens.List()
				ok := near(got.Dense, want.Dense) && len(sparse) == len(want.Sparse) && near(got.Sparse.Weights, sparse) &&
					len(tokens) == len(want.Tokens) && got.Sparse.Width == 21
				for k := range tokens {
					ok = ok && near(tokens[k], want.Tokens[k])
				}
				if !ok {
					t.Errorf("%q: %+v\nwant %+v", all.Texts[i], got, want)
				}
			}
		}
		e.Close()
	}
	o := options(t, false)
	o.Pooling = []string{"mean"}
	must.Fail(t, must.Error(OpenEmbedder(t.Context(), dir, o)),
		"the output dense_vecs, a vector that the graph has pooled")
}
