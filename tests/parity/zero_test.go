package parity

import (
	"maps"
	"path/filepath"
	"testing"

	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/internal/sample"
	"github.com/opgraft/graft/models"
)

// TestZeroLengths: where ONNX Runtime runs a model with an axis of no elements, the patched model runs
// and agrees. A sample is a third of the fixtures.
func TestZeroLengths(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	ran := 0
	for i, f := range models.Fixtures() {
		if f.Exporter == "full" || !sample.Has(i, 3) {
			continue
		}
		t.Run(f.String(), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "model.onnx")
			must.Succeed(t, f.Write(path, 1))
			for _, zero := range []string{"batch_size", "sequence_length", "past_sequence_length", "encoder_sequence_length"} {
				at := maps.Clone(others)
				maps.Copy(at, points[1])
				at[zero] = 0
				o := comparison.Options{A: "none", B: "none", Force: true,
					Inputs: inputs.Options{Seed: 1, Dims: at, LooseDims: true}}
				if _, err := comparison.Answers(t.Context(), l, set, path, o); err != nil {
					continue // nothing to agree with
				}
				ran++
				o.B = "auto"
				t.Run(zero, func(t *testing.T) { same(t, l, set, path, o) })
			}
		})
	}
	if ran == 0 {
		t.Error("ONNX Runtime ran no model with an axis of no elements")
	}
}
