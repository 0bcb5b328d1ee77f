package encoder

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/encode/batch"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/internal/sample"
)

// saved are folders as a version of sentence-transformers saves them, with its vectors and scores
// (models/encoders/folders.py).
type saved struct {
	Texts []string
	Pairs [][2]string
	Cases []struct {
		Name, Graph, Prompt, Refused string
		Files                        map[string]string
		Rerank                       bool
		Values                       [][]float32
	}
	Blobs map[string]string
}

// TestFoldersOfSentenceTransformers: a folder that a version of sentence-transformers saved gives that version's
// vectors and scores, alone and with others, or it is refused by name.
func TestFoldersOfSentenceTransformers(t *testing.T) {
	list := must.Value(filepath.Glob(encoders + "/folders/*.json"))(t)
	must.Equal(t, len(list), 5)
	for _, file := range list {
		var all saved
		must.Succeed(t, json.Unmarshal([]byte(read(t, file)), &all))
		equal, refused := 0, 0
		for i, c := range all.Cases {
			if !sample.Has(i, 2) {
				continue
			}
			right := t.Run(filepath.Base(file)+"/"+c.Name, func(t *testing.T) {
				dir := unpacked(t, "folders/"+c.Graph, c.Files, all.Blobs)
				together, alone, err := all.values(t, dir, c.Prompt, c.Rerank)
				switch {
				case c.Refused != "" && (err == nil || !strings.Contains(err.Error(), c.Refused)):
					t.Errorf("found %v, want a refusal with %q", err, c.Refused)
				case c.Refused != "":
				case err != nil:
					t.Error(err)
				default:
					for i, want := range c.Values {
						for how, got := range map[string][]float32{"alone": alone[i], "with others": together[i]} {
							if !near(got, want) && (c.Rerank || cosine(got, want) < 0.9999999) {
								t.Errorf("%s, %d: %v\nwant %v", how, i, got, want)
							}
						}
					}
				}
			})
			switch {
			case right && c.Refused != "":
				refused++
			case right:
				equal++
			}
		}
		t.Logf("%s: of %d folders %d equal, %d refused by name", filepath.Base(file), len(all.Cases), equal, refused)
		if len(all.Cases) < 60 {
			t.Error("less than 60 combinations")
		}
	}
}

// unpacked is a folder of files, which are keys of their content, and a graph.
func unpacked(t *testing.T, graph string, files, blobs map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, key := range files {
		data := []byte(blobs[key])
		if text, ok := strings.CutPrefix(blobs[key], "base64:"); ok {
			data = must.Value(base64.StdEncoding.DecodeString(text))(t)
		}
		path := filepath.Join(dir, name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Succeed(t, os.WriteFile(path, data, 0o644))
	}
	if graph != "" {
		data := []byte(read(t, filepath.Join(encoders, graph)))
		must.Succeed(t, os.WriteFile(filepath.Join(dir, "model.onnx"), data, 0o644))
	}
	return dir
}

// values are vectors of all texts, or scores of all pairs, in batches together and each by itself.
func (s *saved) values(t *testing.T, dir, prompt string, rerank bool) (together, alone [][]float32, err error) {
	if !rerank {
		e, err := OpenEmbedder(t.Context(), dir, options(t, false))
		if err != nil {
			return nil, nil, err
		}
		defer e.Close()
		together = embed(t, e, prompt, s.Texts)
		for _, text := range s.Texts {
			alone = append(alone, embed(t, e, prompt, []string{text})...)
		}
		return together, alone, nil
	}
	r, err := OpenReranker(t.Context(), dir, options(t, false))
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	score := func(pairs [][2]string) (out [][]float32) {
		var calls []*batch.Call[Row, float32]
		for _, p := range pairs {
			calls = append(calls, must.Value(r.Start(t.Context(), must.Value(r.Row(t.Context(), p[0], p[1]))(t), true))(t))
		}
		for _, c := range calls {
			out = append(out, []float32{must.Value(c.Wait(t.Context()))(t)})
		}
		return out
	}
	together = score(s.Pairs)
	for _, p := range s.Pairs {
		alone = append(alone, score([][2]string{p})...)
	}
	return together, alone, nil
}

func cosine(a, b []float32) float64 {
	if len(a) != len(b) {
		return 0
	}
	var ab, aa, bb float64
	for i := range a {
		ab += float64(a[i]) * float64(b[i])
		aa += float64(a[i]) * float64(a[i])
		bb += float64(b[i]) * float64(b[i])
	}
	return ab / math.Sqrt(aa*bb)
}
