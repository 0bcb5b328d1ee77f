package plan

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

// TestOperands plans ONNX's Attention over operands that ONNX allows and an
// operator does not take.
func TestOperands(t *testing.T) {
	const half, float, boolean = onnx.Tensor_FLOAT16, onnx.Tensor_FLOAT, onnx.Tensor_BOOL
	for _, c := range []struct {
		name               string
		query, value, mask onnx.Tensor_DataType
		maskDims           []int64
		want               string
	}{
		{"one type", half, half, half, []int64{4, 6}, ""},
		{"boolean mask", float, float, boolean, []int64{2, 1, 4, 6}, ""},
		{"shorter mask", float, float, float, []int64{4, 5}, ""},
		{"value of another type", float, half, boolean, []int64{4, 6},
			"its query is of type float32, its value of float16; an operator takes one type"},
		{"mask of another type", half, half, float, []int64{4, 6},
			"its query is of type float16, its bias of float32; an operator takes one type"},
		{"mask of one column", float, float, float, []int64{4, 1},
			"its bias has one column, which ONNX's Attention does not repeat"},
	} {
		value := func(name string, e onnx.Tensor_DataType, dims ...int64) *onnx.ValueInfo {
			shape := &onnx.Shape{}
			for _, d := range dims {
				shape.Dim = append(shape.Dim, &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimValue{DimValue: d}})
			}
			return &onnx.ValueInfo{Name: proto.String(name), Type: &onnx.Type{Value: &onnx.Type_TensorType_{
				TensorType: &onnx.Type_TensorType{ElemType: proto.Int32(int32(e)), Shape: shape}}}}
		}
		data := must.Value(proto.Marshal(&onnx.Model{
			IrVersion: proto.Int64(11), OpsetImport: []*onnx.OperatorSet{{Version: proto.Int64(24)}},
			Graph: &onnx.Graph{
				Name: proto.String("attention"),
				Node: []*onnx.Node{{OpType: proto.String("Attention"), Input: []string{"q", "k", "v", "m"}, Output: []string{"y"}}},
				Input: []*onnx.ValueInfo{value("q", c.query, 2, 3, 4, 8), value("k", c.query, 2, 3, 6, 8),
					value("v", c.value, 2, 3, 6, 8), value("m", c.mask, c.maskDims...)},
				Output: []*onnx.ValueInfo{value("y", c.query, 2, 3, 4, 8)},
			}}))(t)
		m := must.Value(model.Parse(data, ""))(t)
		g := must.Value(graph.New(m.Proto(), m))(t)
		shapes := graph.Infer(g)
		report := blocks.Find(g, shapes)
		if len(report.Blocks) != 1 {
			t.Errorf("%s: %d blocks, %v", c.name, len(report.Blocks), report.Unrecognised)
			continue
		}
		must.Equal(t, operands(shapes, report.Blocks[0]), c.want, c.name)
	}
}
