package padding

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/internal/sample"
	"github.com/opgraft/graft/models"
)

// TestNothingToEncode: batches of no sequences, and sequences of no tokens, get what ONNX Runtime gives.
func TestNothingToEncode(t *testing.T) {
	b := open(t)
	runs := 0
	_, all := sample.Number()
	for i, f := range models.Fixtures() {
		if f.Exporter == "full" || !sample.Has(i, 3) {
			continue
		}
		t.Run(f.String(), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "model.onnx")
			must.Succeed(t, f.Write(path, 1))
			m := must.Value(model.Open(path))(t)
			defer m.Close()
			plain := must.Value(session.Open(b.library, path, session.Options{Unpatched: true}))(t)
			defer plain.Close()
			for _, mode := range []plan.Padding{plan.ExactPadding, plan.IgnorePadding} {
				s, computed := b.patched(t, path, mode)
				defer s.Close()
				for _, size := range [][2]int64{{0, 7}, {2, 0}, {0, 0}} {
					where := fmt.Sprintf("%s (%s rows), %d x %d", mode, computed, size[0], size[1])
					fed, err := inputs.Of(b.library, m,
						inputs.Options{Seed: 1, Lengths: map[roles.Length]int64{roles.Batch: size[0], roles.New: size[1],
							roles.Encoder: size[1]}})
					must.Succeed(t, err, where)
					want, err := plain.Run(t.Context(), fed.Values)
					if err != nil {
						continue
					}
					runs++
					got, err := s.Run(t.Context(), fed.Values)
					if err != nil {
						t.Errorf("%s: %v", where, err)
						continue
					}
					for i, o := range plain.Outputs() {
						w, g := want[i].Shape(), got[i].Shape()
						if size == [2]int64{0, 0} && len(w) > 0 && w[0] == 1 && len(g) == len(w) && g[0] == 0 {
							w[0] = 0 // ONNX Runtime's MatMul of no sequences of no tokens gives one sequence
						}
						must.Equal(t, w, g, where, o.Name)
					}
				}
			}
		})
	}
	if least := 20; runs < least || all && runs < 4*least {
		t.Errorf("ONNX Runtime ran %d of them, needed are %d at least of a third", runs, least)
	}
}
