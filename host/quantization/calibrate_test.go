package quantization_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/quantization"
)

// TestCalibrate: with scales that know a text, logits after it are nearer those of the model as exported; other types stay as they are.
func TestCalibrate(t *testing.T) {
	l, set := open(t)
	dir := small(t, "gpt2")
	before := logits(t, dir)
	c := quantization.Calibration{Library: l, Threads: 1, Texts: [][]int32{{5, 17, 9, 44, 61, 8, 70}}}
	lost := map[bool]float64{}
	for _, calibrated := range []bool{false, true} {
		o := quantization.Options{Plugins: set.Plugins, Weights: weightsOf(t, "int4,logits=int8,activations=float32")}
		if calibrated {
			if err := o.Calibrate(t.Context(), filepath.Join(dir, "model.onnx"), c); err != nil {
				t.Fatal(err)
			}
		}
		to := filepath.Join(t.TempDir(), "out")
		if _, err := quantization.Folder(t.Context(), dir, to, o); err != nil {
			t.Fatal(err)
		}
		lost[calibrated] = spread(logits(t, to), before)
	}
	t.Logf("%.3g off the model as exported, calibrated %.3g", lost[false], lost[true])
	if !(lost[true] < lost[false]) {
		t.Errorf("calibrated, logits are %.3g of their spread off the exported model's, without %.3g", lost[true], lost[false])
	}
	o := quantization.Options{Plugins: set.Plugins, Weights: weightsOf(t, "int4")}
	path := filepath.Join(dir, "model.onnx")
	for _, bad := range []struct {
		texts [][]int32
		says  string
	}{{nil, "the texts have no tokens"}, {[][]int32{{-1}}, "token 0 is -1"}} {
		if err := o.Calibrate(t.Context(), path, quantization.Calibration{Library: l, Texts: bad.texts}); err == nil || !strings.Contains(err.Error(), bad.says) {
			t.Errorf("%v: %v, want %q", bad.texts, err, bad.says)
		}
	}
	merged := filepath.Join(small(t, "gpt2-merged"), "decoder_model_merged.onnx")
	if err := o.Calibrate(t.Context(), merged, c); err == nil || !strings.Contains(err.Error(), "layers lie in branches") {
		t.Errorf("a merged decoder: %v", err)
	}
}
