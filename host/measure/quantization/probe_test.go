package quantization

import (
	"math"
	"testing"

	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/capability"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// TestProbe: what a probe measures of a few weights is what an engine gives with them: of an encoder-decoder in one
// file and of a decoder, with zero points and without. After it the weights are those of the model again.
func TestProbe(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	by, _, err := plugin.Provider(set.Plugins, capability.PackPanels, nil)
	must.Succeed(t, err)
	gpt2 := t.TempDir()
	must.Succeed(t, models.Small("gpt2", gpt2))
	for _, c := range []struct{ folder, weights string }{
		{gpt2, "int4,logits=int4,activations=float32"},
		{"../../../models/g2p", "int4,activations=float32,zero-points=true"},
	} {
		w, err := prepare.ParseWeights(c.weights)
		must.Succeed(t, err)
		files := must.Value(modeldir.Find(c.folder))(t)
		s := &chooser{usual: w, o: Options{Plugins: set.Plugins, Weights: w, Threads: 1}, last: map[prepare.Weight]bool{}}
		must.Succeed(t, s.find(t.Context(), files, 5))
		texts := [][]int32{{5, 17, 9, 44, 22, 8, 30, 2}, {7, 6, 21, 18, 4}}
		if s.measure, err = newMeasure(t.Context(), c.folder, MeasureOptions{Library: l, Plugins: set, Threads: 1},
			Bound{Texts: texts, Tokens: 16}); err != nil {
			t.Fatal(err)
		}
		main := files.Decoder
		if files.First != "" {
			main = files.First
		}
		p := must.Value(newProbe(t.Context(), l, by, files.Encoder, main, s.parts, s.vocab, s.o))(t)
		for i, u := range s.units {
			if !p.covers(u, s.numbers) {
				t.Fatalf("%s: set %d is not in the graphs: %v", c.folder, i, u.weights)
			}
			got := must.Value(p.of(t.Context(), s.sums(u)))(t)
			want := must.Value(s.alone(t.Context(), u))(t)
			t.Logf("%s, set %d: %.6g, with an engine %.6g", c.folder, i, got, want)
			if !(want > 0) || math.Abs(got-want) > 0.01*want+1e-7 {
				t.Errorf("%s, set %d: the divergence is %g, with an engine %g", c.folder, i, got, want)
			}
		}
		if nothing, err := p.of(t.Context(), nil); err != nil || !(math.Abs(nothing) < 1e-9) {
			t.Errorf("%s: as exported again, the divergence is %g, %v", c.folder, nothing, err)
		}
		p.close()
	}
}
