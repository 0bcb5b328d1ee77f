package padding

import (
	"path/filepath"
	"testing"

	meaning "github.com/opgraft/graft/host/meaning/padding"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// mixing are the fixtures in which tokens that a mask shows are computed from hidden ones.
var mixing = map[string]bool{"families/bamba": true, "families/falcon-h1": true, "families/longt5-encoder": true,
	"families/vits": true, "families/zamba2": true}

// TestMixesOfFixtures: texts of several lengths run together in all models but these. One more would be slower, one
// less wrong.
func TestMixesOfFixtures(t *testing.T) {
	seen := 0
	for _, f := range models.Fixtures() {
		if f.Exporter == "full" {
			continue
		}
		path := filepath.Join(t.TempDir(), "model.onnx")
		must.Succeed(t, f.Write(path, 1))
		m := must.Value(model.Open(path))(t)
		defer m.Close()
		view := must.Value(patch.View(t.Context(), m, m.Proto()))(t)
		inputs := map[string]*graph.Value{}
		for _, v := range view.Graph.Inputs {
			inputs[v.Name] = v
		}
		tokens, mask := inputs["input_ids"], inputs["attention_mask"]
		if tokens == nil || mask == nil {
			continue
		}
		seen++
		must.Succeed(t, view.Within(t.Context(), func() error {
			why := meaning.Mixes(view.Graph, view.Shapes, view.Report, tokens, mask)
			must.Equal(t, why != "", mixing[f.String()], f, why)
			return nil
		}))
	}
	if seen < 40 {
		t.Errorf("%d models have tokens and a mask, needed are 40 at least", seen)
	}
}
