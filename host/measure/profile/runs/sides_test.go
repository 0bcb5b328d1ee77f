package runs

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
)

// TestTimeSides: the parts of all sides, in the cell in which A takes longest; blocks have the same names on all of
// them.
func TestTimeSides(t *testing.T) {
	folder := must.Value(filepath.Abs(plugins))(t)
	set := must.Value(loaded.Load([]string{folder}, true))(t)
	j := comparison.Job{Model: "../../../../models/tiny-gpt2/model.onnx", Folders: []string{folder},
		Options: comparison.Options{A: "none", B: "flash-decode", Others: []string{"auto"},
			Force: true, Warmup: 1, Rounds: 2, Inputs: inputs.Options{Seed: 1},
			Axes: []comparison.Axis{{Name: "past", Lengths: []int64{3, 9}}}}}
	s := must.Value(comparison.SweepApart(t.Context(), j))(t)
	s.Cells[0].A.MedianMS, s.Cells[1].A.MedianMS = 1, 2
	must.Succeed(t, TimeSides(t.Context(), j, set, s))
	n := s.NodeTimes
	if n == nil || n.Cell != 1 || len(n.Sides) != 2 || n.A.Name != "none" || n.Sides[1].Name != "auto" {
		t.Fatalf("%+v", n)
	}
	attention := func(side comparison.SideTimes) (nodes []string) {
		for _, b := range side.Blocks {
			if b.Kind == "attention" {
				nodes = append(nodes, b.Node)
			}
		}
		slices.Sort(nodes)
		return nodes
	}
	for _, side := range []comparison.SideTimes{n.A, n.Sides[0], n.Sides[1]} {
		has := slices.ContainsFunc(side.Parts,
			func(p comparison.PartTime) bool { return p.Part == "attention" && p.MS > 0 && p.Nodes > 0 })
		if side.Runs != 4 || side.RunMS <= 0 || !has || !slices.Equal(attention(side), attention(n.A)) ||
			len(attention(side)) != 5 {
			t.Errorf("%+v", side)
		}
	}
	s.ModelB = "other.onnx"
	if err := TimeSides(t.Context(), j, set, s); err == nil ||
		!strings.Contains(err.Error(), "found another beside it, other.onnx") || s.NodeTimes != n {
		t.Errorf("two models: %v", err)
	}
}
