package encoder

import (
	"encoding/json"
	"math"
	"path/filepath"
	"testing"

	"github.com/opgraft/graft/host/encode/batch"
	"github.com/opgraft/graft/host/encode/folder"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/internal/sample"
)

// savedVectors are folders of sparse, multi-vector and static models as a library saves them, with what it makes of
// texts (models/encoders/vectors.py).
type savedVectors struct {
	Texts []string
	Cases []struct {
		Name, Gives, Graph, Prompt, Refused string
		Files                               map[string]string
		Tasks                               map[folder.Task][]struct {
			Width   int
			Indices []int32
			Values  []float32
		}
		Scores []float32
	}
	Blobs map[string]string
}

// TestVectorsOfLibraries: a folder of sparse vectors, of vectors of tokens or of static embeddings gives what the
// library that saved it makes of texts, for every task, alone and with others, with graft's operators and without, or
// it is refused by name.
func TestVectorsOfLibraries(t *testing.T) {
	graphs := map[string]string{"": "", "mlm.onnx": "vectors/mlm.onnx",
		"states.onnx": "folders/states.onnx"}
	for _, file := range must.Value(filepath.Glob(encoders + "/vectors/*.json"))(t) {
		var all savedVectors
		must.Succeed(t, json.Unmarshal([]byte(read(t, file)), &all))
		for i, c := range all.Cases {
			if !sample.Has(i, 2) {
				continue
			}
			t.Run(filepath.Base(file)+"/"+c.Name, func(t *testing.T) {
				dir := unpacked(t, graphs[c.Graph], c.Files, all.Blobs)
				e, err := OpenEmbedder(t.Context(), dir, options(t, i%6 == 0))
				if c.Refused != "" {
					must.Fail(t, err, c.Refused)
					return
				}
				must.Succeed(t, err)
				defer e.Close()
				if len(c.Scores) > 0 {
					compared(t, dir, all.Texts, c.Scores)
				}
				for task, want := range c.Tasks {
					var calls []*batch.Call[Row, Embedding]
					var rows []Row
					for _, s := range all.Texts {
						rows = append(rows, must.Value(e.Row(t.Context(), s, As{Task: task, Prompt: c.Prompt}))(t))
						calls = append(calls, must.Value(e.Start(t.Context(), rows[len(rows)-1], true))(t))
					}
					for i, w := range want {
						for how, got := range map[string]Embedding{"together": must.Value(calls[i].Wait(t.Context()))(t),
							"alone": must.Value(e.Alone(t.Context(), rows[i]))(t)} {
							values := got.Dense
							switch c.Gives {
							case "tokens":
								values = got.Tokens.Values
							case "sparse":
								values = got.Sparse.Weights
								must.Equal(t, got.Sparse.Width, w.Width)
								must.Equal(t, got.Sparse.Indices, w.Indices)
							}
							if !near(values, w.Values) {
								t.Fatalf("%q, %s: %q is %d: %v\nwant %d: %v", task, how, all.Texts[i], len(values), values,
									len(w.Values), w.Values)
							}
						}
					}
				}
			})
		}
	}
}

// compared compares every text as a query with every text as a document.
func compared(t *testing.T, dir string, texts []string, want []float32) {
	t.Helper()
	r := must.Value(OpenRanker(t.Context(), dir, options(t, false)))(t)
	defer r.Close()
	c, ok := r.(*Comparer)
	if !ok {
		return // model2vec's says nothing of it
	}
	for i, query := range texts {
		var made []Embedding
		for _, row := range must.Value(c.Rows(t.Context(), query, texts))(t) {
			made = append(made, must.Value(c.Alone(t.Context(), row))(t))
		}
		got, want := c.Scores(made), want[i*len(texts):(i+1)*len(texts)]
		for k := range got {
			if c.all[0].folder.Similarity == "euclidean" && math.Abs(float64(got[k]-want[k])) < 0.012 {
				got[k] = want[k] // of sparse vectors they make it of squares in float32, which cancel
			}
		}
		if !near(got, want) {
			t.Errorf("%q: %v, want %v", query, got, want)
		}
	}
}
