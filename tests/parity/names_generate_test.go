package parity

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// TestGenerationWithLyingNames: whatever a folder's graphs call their lengths, the engine
// opens it and gives the tokens that it gives under honest names.
func TestGenerationWithLyingNames(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	for _, name := range []string{"gpt2", "bart", "t5", "llama"} {
		t.Run(name, func(t *testing.T) {
			honest := filepath.Join(t.TempDir(), name)
			must.Succeed(t, models.Small(name, honest))
			want := generated(t, l, set, honest)
			for lie, rename := range lies {
				t.Run(lie, func(t *testing.T) {
					dir := filepath.Join(t.TempDir(), name)
					must.Succeed(t, os.CopyFS(dir, os.DirFS(honest)))
					graphs, err := filepath.Glob(filepath.Join(dir, "*.onnx"))
					if err != nil || len(graphs) == 0 {
						t.Fatalf("%s holds no graph: %v", dir, err)
					}
					for _, path := range graphs {
						renameAxes(t, path, path, rename)
					}
					for i, tokens := range generated(t, l, set, dir) {
						must.Equal(t, tokens, want[i])
					}
				})
			}
		})
	}
}

// generated are the best sequences of a few inputs.
func generated(t *testing.T, l *ort.Library, set *loaded.Set, dir string) [][]int32 {
	t.Helper()
	g := must.Value(decode.Open(t.Context(), dir, decode.Options{Library: l, Plugins: set, CacheBytes: 64 << 20}))(t)
	defer g.Close()
	o := g.Search()
	o.NumBeams, o.MaxNewTokens = 2, 8
	inputs := []*decode.Input{{Tokens: []int32{5, 6, 7, 8, 9}}, {Tokens: []int32{11, 12}},
		{Tokens: []int32{9, 30, 7, 21, 14, 6, 40}}}
	list := make([][]int32, len(inputs))
	next := 0
	must.Succeed(t, g.Run(t.Context(), o, func() (*decode.Input, error) {
		if next == len(inputs) {
			return nil, nil
		}
		in := inputs[next]
		in.Index = uint64(next)
		next++
		return in, nil
	}, func(out decode.Output) error {
		list[out.Index] = best(out.Hypotheses)
		return nil
	}))
	return list
}

func best(list []search.Hypothesis) []int32 {
	if len(list) == 0 {
		return nil
	}
	return list[0].Tokens
}
