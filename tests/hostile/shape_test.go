package hostile

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

// TestResultOfWrongShape: ONNX Runtime only warns of an output of the model that has a wrong shape. An operator that
// gives one is not placed, whether the model says its lengths or not, and inspect agrees.
func TestResultOfWrongShape(t *testing.T) {
	static, dynamic := simple("Ceil"), simple("Ceil")
	for _, v := range []*onnx.ValueInfo{dynamic.Graph.Input[0], dynamic.Graph.Output[0]} {
		v.Type.GetTensorType().Shape.Dim[0].Value = &onnx.Shape_Dim_DimParam{DimParam: "n"}
	}
	dynamic.Graph.Initializer[0].Dims, dynamic.Graph.Initializer[0].RawData = []int64{1}, make([]byte, 4)
	undeclared := proto.CloneOf(dynamic)
	undeclared.Graph.Output[0].Type.GetTensorType().Shape = nil
	for name, m := range map[string]*onnx.Model{"static": static, "dynamic": dynamic, "undeclared": undeclared} {
		t.Run(name, func(t *testing.T) {
			path := write(t, filepath.Join(t.TempDir(), "model.onnx"), encode(t, m))
			log := enable(t, graft.Options{})
			must.Equal(t, must.Value(run(t, path))(t), []float32{1, -2, 3, -4})
			const want = "Widen gives a result of length 5 along axis 0 where the model has one of length 4"
			warned := slices.ContainsFunc(log.take(t), func(l line) bool { return l.Level == "WARN" && l.Reason == want })
			if !warned {
				t.Error("no warning")
			}
			code, stdout, stderr := command(t, trapped(), "inspect", path, "--force")
			if code != 0 || !strings.Contains(stdout, "0 would be replaced") ||
				!strings.Contains(stdout, "left unchanged: "+want) {
				t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
			}
		})
	}
}
