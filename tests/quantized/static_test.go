package quantized

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/internal/must"
)

// TestStatic: encoders of which the matmuls are rounded by scales of calibration run without padding where that is
// asked for, as scales of calibration know nothing of it; visible rows are ONNX Runtime's within what rounding moves.
// Where sums of scores and masks are rounded too, a hidden key weighs something, and every token is computed.
func TestStatic(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	for _, m := range quantized(t, "--static") {
		name := strings.TrimSuffix(filepath.Base(m.path), ".onnx")
		t.Run(name, func(t *testing.T) {
			for mode, want := range map[plan.Padding]plan.Rows{plan.ExactPadding: plan.AllRows,
				plan.IgnorePadding: plan.VisibleRows} {
				if strings.HasSuffix(name, "-all") {
					want = plan.AllRows
				}
				must.Equal(t, analysed(t, set, m.path, mode).Plan.Rows(), want, mode)
			}
			if strings.HasSuffix(name, "-all") {
				return
			}
			for seed := range uint64(4) {
				r := must.Value(comparison.Answers(t.Context(), l, set, m.path,
					comparison.Options{A: "none", B: "auto", Padding: plan.IgnorePadding, Unoptimized: true,
						Inputs: inputs.Options{Seed: seed, Dims: map[string]int64{"batch_size": 6, "sequence_length": 23}}}))(t)
				if !slices.ContainsFunc(r.Inputs, func(in inputs.Info) bool { return in.Padding != nil && *in.Padding > 0 }) {
					t.Fatal("nothing is padded")
				}
				if slices.ContainsFunc(r.Parity.Outputs, func(o comparison.OutputParity) bool { return !o.OK }) {
					t.Errorf("seed %d: %+v", seed, r.Parity.Outputs)
				}
			}
		})
	}
}

func analysed(t *testing.T, set *loaded.Set, path string, mode plan.Padding) *patch.Analysis {
	t.Helper()
	m := must.Value(model.Open(path))(t)
	defer m.Close()
	a := must.Value(patch.Analyse(t.Context(), m, set.Manifests(), set.Plan(plan.Options{Padding: mode})))(t)
	return a
}
