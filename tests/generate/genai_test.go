package generate

import (
	"slices"
	"testing"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/exported"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// TestGenaiQuantisedFolders: of models that onnxruntime-genai's builder wrote in four bits, the engine generates the
// tokens that ONNX Runtime generates of the same file, with the file's integers.
func TestGenaiQuantisedFolders(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	folders := models.SmallQuantised()
	if len(folders) < 2 {
		t.Fatalf("%d folders, want at least 2", len(folders))
	}
	for _, f := range folders {
		t.Run(f.Name, func(t *testing.T) {
			dir := t.TempDir()
			must.Succeed(t, models.Small(f.Name, dir))
			e := must.Value(Load(f.Model))(t)
			x := must.Value(exported.Open(t.Context(), dir, decode.Options{Library: l, Plugins: set, Threads: 1}))(t)
			defer x.Close()
			want := generated(t, x, e,
				func(object []byte) (search.Options, error) { return decode.SearchOf(dir, x.Config(), object) })
			g := must.Value(decode.Open(t.Context(), dir, decode.Options{Library: l, Plugins: set,
				CacheBytes: 64 << 20, Threads: 1}))(t)
			defer g.Close()
			if r := g.Weights(); len(r.Linear) == 0 || r.Linear[0].Type != "int4 of the model" {
				t.Errorf("weights are %+v, want int4 of the model", r)
			}
			got := generated(t, g, e, g.SearchWith)
			other := 0 // tokens than in float32
			for i, c := range e.Cases {
				if len(got[i]) != len(want[i]) {
					t.Fatalf("%s: %d sequences, want %d", c, len(got[i]), len(want[i]))
				}
				for j := range want[i] {
					must.Equal(t, got[i][j], want[i][j], c, c.Prompt)
					if !slices.Equal(want[i][j], narrow(c.Sequences[j])) {
						other++
					}
				}
			}
			if other == 0 {
				t.Error("all tokens are those of float32: nothing was quantised")
			}
		})
	}
}
