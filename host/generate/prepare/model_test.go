package prepare_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

var usual = prepare.Expected{Beams: [2]int64{1, 8}, Batch: 16, NewTokens: 64, MaxPositions: 1024, MaxInput: 1024}

// met is one kind of attention with the shapes that it meets.
type met struct {
	Layers plan.Layers
	Range  plan.Range
}

// find opens a folder and says what there is to measure.
func find(folder string) (list []met, err error) {
	m, err := prepare.Open(context.Background(), folder)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	layers, err := m.Layers()
	for _, l := range layers {
		list = append(list, met{l, m.Range(l, usual)})
	}
	return list, err
}

// small makes a small model.
func small(t *testing.T, name string) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), name)
	must.Succeed(t, models.Small(name, folder))
	return folder
}

// Every way of exporting a model has the same layers, which meet the same shapes.
func TestLayers(t *testing.T) {
	beams, batch := [2]int64{1, 8}, [2]int64{1, 16}
	bart := []met{
		{Layers: plan.Layers{Type: "self", Layers: 2, Heads: 4, KVHeads: 4, HeadSize: 12, ValueSize: 12, Width: 48,
			Positions: "learned"},
			Range: plan.Range{Keys: [2]int64{1, 4}, Own: [2]int64{0, 64}, Beams: beams, Batch: batch, Steps: 64}},
		{Layers: plan.Layers{Type: "cross", Layers: 2, Heads: 4, KVHeads: 4, HeadSize: 12, ValueSize: 12, Width: 48,
			Positions: "learned"},
			Range: plan.Range{Keys: [2]int64{16, 128}, Beams: beams, Batch: batch, Steps: 64}},
	}
	gpt2 := []met{
		{Layers: plan.Layers{Type: "self", Layers: 2, Heads: 4, KVHeads: 4, HeadSize: 12, ValueSize: 12, Width: 48,
			Positions: "learned"},
			Range: plan.Range{Keys: [2]int64{16, 128}, Own: [2]int64{0, 64}, Beams: beams, Batch: batch, Steps: 64}},
	}
	for name, want := range map[string][]met{"bart": bart, "bart-merged": bart, "gpt2": gpt2, "gpt2-separate": gpt2,
		"gpt2-merged": gpt2} {
		got, err := find(small(t, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				t.Errorf("%s: %+v, want %+v", name, got, want)
				break
			}
		}
	}
}

func TestRangeOfSound(t *testing.T) {
	got := must.Value(find(small(t, "whisper")))(t)
	for _, s := range got {
		if s.Layers.Type == "cross" && (s.Range.Keys[0] != s.Range.Keys[1] || s.Range.Keys[0] < 16) {
			t.Errorf("an encoder of one length is measured at %v", s.Range.Keys)
		}
	}
	must.Equal(t, len(got), 2)
}

func TestNoModel(t *testing.T) {
	for folder, want := range map[string]string{"nowhere": "needed the folder of a model",
		"../../../models/small": "found no model.onnx"} {
		must.Fail(t, must.Error(find(folder)), want)
	}
}
