package wayback

import (
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

// search writes a graph with the operators of plugins for searches, which no fixture has: scores without repeated
// n-grams, and the best of them. Another operator reads each result.
func search(t *testing.T) (path string) {
	t.Helper()
	value := func(name string, element onnx.Tensor_DataType, dims ...int64) *onnx.ValueInfo {
		shape := &onnx.Shape{}
		for _, n := range dims {
			shape.Dim = append(shape.Dim, &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimValue{DimValue: n}})
		}
		return &onnx.ValueInfo{Name: proto.String(name),
			Type: &onnx.Type{Value: &onnx.Type_TensorType_{TensorType: &onnx.Type_TensorType{
				ElemType: proto.Int32(int32(element)), Shape: shape}}}}
	}
	integer := func(name string, n int64) *onnx.Attribute {
		return &onnx.Attribute{Name: proto.String(name), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(n)}
	}
	node := func(op string, in, out []string, attributes ...*onnx.Attribute) *onnx.Node {
		return &onnx.Node{OpType: proto.String(op), Input: in, Output: out, Attribute: attributes}
	}
	block := node("NGramRepeatBlock", []string{"input_ids", "scores"}, []string{"blocked"}, integer("ngram_size", 2))
	block.Domain = proto.String("com.microsoft")
	const rows, vocabulary, best = 2, 32, 4
	m := &onnx.Model{IrVersion: proto.Int64(10),
		OpsetImport: []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(18)},
			{Domain: proto.String("com.microsoft"), Version: proto.Int64(1)}},
		Graph: &onnx.Graph{Name: proto.String("search"),
			Node: []*onnx.Node{block, node("Add", []string{"blocked", "scores"}, []string{"sum"}),
				node("LogSoftmax", []string{"sum"}, []string{"log"}, integer("axis", -1)),
				node("TopK", []string{"log", "k"}, []string{"values", "indices"}, integer("axis", -1), integer("largest", 1),
					integer("sorted", 1)),
				node("Add", []string{"values", "bias"}, []string{"y"})},
			Initializer: []*onnx.Tensor{{Name: proto.String("k"), DataType: proto.Int32(int32(onnx.Tensor_INT64)),
				Dims: []int64{1}, Int64Data: []int64{best}}},
			Input: []*onnx.ValueInfo{value("input_ids", onnx.Tensor_INT64, rows, 7),
				value("scores", onnx.Tensor_FLOAT, rows, vocabulary),
				value("bias", onnx.Tensor_FLOAT, rows, best)},
			Output: []*onnx.ValueInfo{value("y", onnx.Tensor_FLOAT, rows, best),
				value("indices", onnx.Tensor_INT64, rows, best)}}}
	b := must.Value(proto.Marshal(m))(t)
	path = filepath.Join(t.TempDir(), "search.onnx")
	must.Succeed(t, os.WriteFile(path, b, 0o644))
	return path
}
