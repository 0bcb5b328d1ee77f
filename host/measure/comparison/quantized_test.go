package comparison

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/internal/must"
)

// eightBits is optimum/bert, as `go run ./models/build optimum/bert DIR` writes it, after onnxruntime 1.31.1's
// quantize_dynamic(weight_type=QInt8): every linear layer rounds what it multiplies.
func eightBits(t *testing.T) string {
	t.Helper()
	f := must.Value(os.Open("testdata/bert-int8.onnx.gz"))(t)
	defer f.Close()
	z := must.Value(gzip.NewReader(f))(t)
	data := must.Value(io.ReadAll(z))(t)
	path := filepath.Join(t.TempDir(), "model.onnx")
	must.Succeed(t, os.WriteFile(path, data, 0o644))
	return path
}

// TestInt8: answers of a model that rounds as it runs are the same to the bit, as nothing stands before its rounding
// but what has ONNX Runtime's bits. Where other bits are accepted, four operators more stand there, and answers move
// within the noise of the quantisation.
func TestInt8(t *testing.T) {
	path := eightBits(t)
	for _, dims := range []map[string]int64{{"batch_size": 1, "sequence_length": 7},
		{"batch_size": 3, "sequence_length": 40}} {
		exact := 0
		for _, accepted := range []bool{false, true} {
			r := must.Value(Answers(t.Context(), library(t), plugins(t), path,
				Options{A: "none", B: "auto", Force: true, QuantizationNoise: accepted,
					Inputs: inputs.Options{Seed: 1, Dims: dims}}))(t)
			out := r.Parity.Outputs[0]
			others := slices.ContainsFunc(r.B.Plugins, func(name string) bool { return name != "quantized-linear" })
			if !accepted {
				exact = r.B.Replaced
			}
			if !accepted && (others || r.B.Blocks < exact+4 || out.MaxAbsolute != 0 || out.Disagree != 0) {
				t.Errorf("%v: %d of %d replaced by %v, at most %g apart", dims, r.B.Replaced, r.B.Blocks, r.B.Plugins,
					out.MaxAbsolute)
			}
			if accepted && (r.B.Replaced != exact+4 || out.Problem != "" || out.Cosine == nil || *out.Cosine < 0.98) {
				t.Errorf("%v, accepted: %d of %d replaced, %+v", dims, r.B.Replaced, r.B.Blocks, out)
			}
		}
	}
}
