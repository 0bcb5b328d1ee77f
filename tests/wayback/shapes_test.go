package wayback

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// TestShapesOfFixtures: no operator is left out of a fixture for the shapes of its results.
func TestShapesOfFixtures(t *testing.T) {
	set := must.Value(loaded.Load(nil, true))(t)
	o := set.Plan(plan.Options{Force: true, QuantizationNoise: true})
	folder := t.TempDir()
	placed := 0
	var all, shapes time.Duration
	for _, f := range models.Fixtures() {
		if !slices.Contains(fixtures, f.String()) {
			continue
		}
		path := filepath.Join(folder, "model.onnx")
		must.Succeed(t, f.Write(path, 1))
		m := must.Value(model.Open(path))(t)
		start := time.Now()
		a, err := patch.Analyse(context.Background(), m, set.Manifests(), o)
		if err == nil {
			err = a.Apply(context.Background())
		}
		if err != nil {
			t.Fatal(f, err)
		}
		before := time.Now()
		for key, why := range a.Misshapen() {
			t.Errorf("%s: %s: %s", f, key.Node, why)
		}
		all, shapes = all+time.Since(start), shapes+time.Since(before)
		placed += a.Plan.Replaced()
		m.Close()
	}
	t.Logf("%d blocks; shapes took %v of %v", placed, shapes, all)
}
