package generate

import (
	"slices"
	"testing"

	"github.com/opgraft/graft/host/generate"
	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/exported"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// TestSoundsOfAnyLength generates from samples of sound: of as few as a model reads, and of so many that the mask of
// the encoder's positions, which Moonshine's decoder makes of one over samples, has more than one element for each
// 384 positions.
func TestSoundsOfAnyLength(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	dir := t.TempDir()
	must.Succeed(t, models.Small("moonshine", dir))
	o := decode.Options{Library: l, Plugins: set, CacheBytes: 64 << 20, Threads: 1, Batch: 2}
	g := must.Value(decode.Open(t.Context(), dir, o))(t)
	defer g.Close()
	x := must.Value(exported.Open(t.Context(), dir, o))(t)
	defer x.Close()
	var want [][]int32
	lengths := []int64{modeldir.MinSamples, 8000, 8001, 8001, 160_000, 385 * 384, 3000}
	for _, device := range []generate.Device{x, g} {
		search := must.Value(decode.SearchOf(dir, device.Config(), []byte(`{"num_beams": 2, "max_new_tokens": 12}`)))(t)
		got, i := make([][]int32, len(lengths)), -1
		must.Succeed(t, device.Run(t.Context(), search, func() (*decode.Input, error) {
			if i++; i >= len(lengths) {
				return nil, nil
			}
			n := lengths[i]
			return &decode.Input{Index: uint64(i),
				Features: &engine.Features{Values: models.Normal(uint64(i), "sound", int(n)), Shape: []int64{1, n}}}, nil
		}, func(out decode.Output) error {
			got[out.Index] = out.Hypotheses[0].Tokens
			return nil
		}))
		if want == nil {
			want = got
		}
		for i := range got {
			if !slices.Equal(got[i], want[i]) || len(got[i]) == 0 {
				t.Errorf("%d samples: %v, ONNX Runtime alone gives %v", lengths[i], got[i], want[i])
			}
		}
	}
	if slices.Equal(want[1], want[4]) && slices.Equal(want[1], want[5]) {
		t.Errorf("all sounds give %v", want[1])
	}
}
