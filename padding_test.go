package graft_test

import (
	"path/filepath"
	"slices"
	"testing"

	onnx "github.com/yalue/onnxruntime_go"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// TestIgnorePadding: hidden rows are those of the model by default, and zeros with one, be it said for all
// sessions or for one; visible rows stay.
func TestIgnorePadding(t *testing.T) {
	environment(t)
	f := must.Value(models.Lookup("optimum", "bert"))(t)
	path := filepath.Join(t.TempDir(), "model.onnx")
	must.Succeed(t, f.Write(path, 1))
	const batch, positions, width = 2, 4, 64
	mask := []int64{1, 1, 0, 0, 1, 1, 1, 0}
	run := func(t *testing.T, entry string) []float32 {
		options := must.Value(onnx.NewSessionOptions())(t)
		defer options.Destroy()
		if entry != "" {
			must.Succeed(t, options.AddSessionConfigEntry(graft.ConfigPadding, entry))
		}
		s := must.Value(onnx.NewDynamicAdvancedSession(path, []string{"input_ids", "attention_mask", "token_type_ids"},
			[]string{"last_hidden_state"}, options))(t)
		defer s.Destroy()
		var in []onnx.Value
		for _, data := range [][]int64{{5, 6, 7, 8, 9, 10, 11, 12}, mask, make([]int64, batch*positions)} {
			v := must.Value(onnx.NewTensor(onnx.NewShape(batch, positions), data))(t)
			defer v.Destroy()
			in = append(in, v)
		}
		out := []onnx.Value{nil}
		must.Succeed(t, s.Run(in, out))
		defer out[0].Destroy()
		return slices.Clone(out[0].(*onnx.Tensor[float32]).GetData())
	}
	unpatched := run(t, "")
	for _, c := range []struct {
		name   string
		option graft.Options
		entry  string
		zeros  bool
	}{
		{"no word", graft.Options{}, "", false},
		{"ignored", graft.Options{Padding: graft.IgnorePadding}, "", true},
		{"ignored in this session", graft.Options{}, "ignore", true},
		{"not in this session", graft.Options{Padding: graft.IgnorePadding}, "exact", false},
		{"all tokens", graft.Options{Padding: graft.KeepPadding}, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.option.Common = graft.Common{Folders: built(t, "remove-padding"), AcceptUnverified: true}
			c.option.Strict = true
			must.Succeed(t, graft.EnableWith(c.option))
			defer graft.Disable()
			got := run(t, c.entry)
			for i, seen := range mask {
				row, want := got[i*width:(i+1)*width], unpatched[i*width:(i+1)*width]
				if seen == 0 && c.zeros {
					want = make([]float32, width)
				}
				for d := range row {
					if diff := float64(row[d] - want[d]); diff > 1e-5 || diff < -1e-5 {
						t.Fatalf("token %d: %g, want %g", i, row[d], want[d])
					}
				}
			}
		})
	}
}
