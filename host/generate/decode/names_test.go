package decode_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/exported"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// renamed calls inputs and outputs of a folder's graphs otherwise: in all of them alike, and those of a cache only
// where all says so.
func renamed(t *testing.T, dir string, all bool) {
	t.Helper()
	names := map[string]string{}
	to := func(name string) string {
		if cache := strings.Contains(name, "key") || strings.Contains(name, "value"); name == "" || cache && !all {
			return name
		}
		if names[name] == "" {
			names[name] = fmt.Sprintf("v%d", len(names))
		}
		return names[name]
	}
	for _, path := range must.Value(filepath.Glob(filepath.Join(dir, "*.onnx")))(t) {
		edit(t, path, func(g *onnx.Graph) {
			own := map[string]string{}
			for _, v := range append(g.Input, g.Output...) {
				own[v.GetName()] = to(v.GetName())
				*v.Name = own[v.GetName()]
			}
			swap := func(list []string) {
				for i, name := range list {
					if to := own[name]; to != "" {
						list[i] = to
					}
				}
			}
			for _, n := range g.Node {
				swap(n.Input)
				swap(n.Output)
			}
			g.ValueInfo = nil
		})
	}
}

// TestNamesOfInputs: what inputs and outputs hold shows in the graph, whatever they are called.
func TestNamesOfInputs(t *testing.T) {
	for _, c := range []struct {
		model string
		all   bool // the caches of two graphs are paired by their names
	}{
		{"gpt2", true}, {"llama-no-positions", true}, {"opt", true}, {"qwen2-exporter", true}, {"bart", false},
		{"t5-tied", false}, {"bart-exporter", false},
	} {
		t.Run(c.model, func(t *testing.T) {
			dir, other := t.TempDir(), t.TempDir()
			must.Succeed(t, models.Small(c.model, dir))
			must.Succeed(t, models.Small(c.model, other))
			renamed(t, other, c.all)
			g := open(t, dir, nil)
			o := g.Search()
			o.NumBeams, o.MaxNewTokens = 3, 12
			inputs := func() []*decode.Input {
				return []*decode.Input{{Tokens: []int32{5, 6, 7, 8, 9}}, {Tokens: []int32{11, 12}}}
			}
			want := run(t, g, o, inputs())
			for i, out := range run(t, open(t, other, nil), o, inputs()) {
				must.Equal(t, out.Hypotheses[0].Tokens, want[i].Hypotheses[0].Tokens, i)
			}
			// The loop over the model as exported goes by names, and says so.
			_, err := exported.Open(t.Context(), other, decode.Options{Library: must.Value(ort.FindAndOpen(""))(t),
				Batch: 1, Threads: 1})
			must.Fail(t, err, "no output logits, needed the names that exporters give")
		})
	}
}
