package generate

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/opgraft/graft/host/decode"
	"github.com/opgraft/graft/host/decode/exported"
	"github.com/opgraft/graft/host/decode/search"
	"github.com/opgraft/graft/host/loaded"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/models"
)

// TestFoldersOfGenai: a decoder that the builder of onnxruntime-genai wrote, in float32 and in int4, with the model's config.json beside it,
// generates what ONNX Runtime generates of it.
func TestFoldersOfGenai(t *testing.T) {
	l, err := ort.FindAndOpen("")
	if err != nil {
		t.Fatal(err)
	}
	set, err := loaded.Load(nil, true)
	if err != nil {
		t.Fatal(err)
	}
	for name, holds := range map[string]string{"llama": "float32", "llama-int4": "int4 of the model"} {
		t.Run(name, func(t *testing.T) {
			f, err := models.Lookup("genai", name)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			if err := f.Write(filepath.Join(dir, "model.onnx"), models.DefaultSeed); err != nil {
				t.Fatal(err)
			}
			config, err := f.ConfigJSON()
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644); err != nil {
				t.Fatal(err)
			}
			o := decode.Options{Library: l, Plugins: set, CacheBytes: 64 << 20, Threads: 1}
			x, err := exported.Open(dir, o)
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			g, err := decode.Open(dir, o)
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			if r := g.Weights(); len(r.Linear) == 0 || r.Linear[0].Type != holds {
				t.Errorf("weights are %+v, want %s", r, holds)
			}
			e := &Expected{}
			r := rand.New(rand.NewPCG(3, 4))
			for i := range 24 {
				c := Case{Kind: "greedy", Options: []byte(`{"max_new_tokens": 24}`)}
				if i%3 == 2 {
					c.Kind, c.Options = "beam4", []byte(`{"max_new_tokens": 24, "num_beams": 4}`)
				}
				for range 3 + i {
					c.Prompt = append(c.Prompt, int64(5+r.IntN(g.Config().Vocab-5)))
				}
				e.Cases = append(e.Cases, c)
			}
			with := func(object []byte) (search.Options, error) { return decode.SearchOf(dir, g.Config(), object) }
			want, got := generated(t, x, e, with), generated(t, g, e, with)
			for i := range want {
				if fmt.Sprint(got[i]) != fmt.Sprint(want[i]) {
					t.Errorf("%s, prompt %v:\n%v, want\n%v", e.Cases[i], e.Cases[i].Prompt, got[i], want[i])
				}
			}
		})
	}
}
