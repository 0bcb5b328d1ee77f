package plan_test

import (
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// TestExpectationOfUnknownLengths: lengths that nobody knows, as those of windows that are cut out of images, are no
// reason to expect more of an operator than where they are known.
func TestExpectationOfUnknownLengths(t *testing.T) {
	fast := attention(t, "fast", "Fast", "dtype: float32", 1)
	expected := func(name string) (list []float64) {
		f := must.Value(models.Lookup("families", name))(t)
		b := must.Value(f.Bytes(1))(t)
		m := must.Value(model.Parse(b, ""))(t)
		defer m.Close()
		g := must.Value(graph.New(m.Proto(), m))(t)
		s := graph.Infer(g)
		for _, c := range plan.Make(g, s, blocks.Find(g, s), []*manifest.Manifest{fast}, plan.Options{Force: true}).Choices {
			if c.Block != nil && c.Block.Attention != nil {
				list = append(list, c.Expected.Speedup)
			}
		}
		return list
	}
	for _, name := range []string{"swin", "swinv2", "donut-swin", "beit", "vit"} {
		for i, x := range expected(name) {
			t.Logf("%s: %.2fx", name, x)
			if x > 10 {
				t.Errorf("%s: block %d is expected to be %.1f times as fast", name, i, x)
			}
		}
	}
}
