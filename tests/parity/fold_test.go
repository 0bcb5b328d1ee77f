package parity

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
)

// TestFold runs a linear layer whose weight has rank 4 of 64 through the plugin that
// folds it into two, and one of full rank that its fold refuses.
func TestFold(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load([]string{"../../build/examples"}, true))(t)
	for _, test := range []struct {
		name           string
		rank, replaced int
	}{{"low", 4, 1}, {"full", 64, 0}} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "model.onnx")
			must.Succeed(t, os.WriteFile(path, linearLayer(t, test.rank), 0o644))
			r := must.Value(comparison.Answers(context.Background(), l, set, path,
				comparison.Options{A: "none", B: "low-rank", Inputs: inputs.Options{Seed: 1}}))(t)
			if r.B.Replaced != test.replaced || !r.Parity.OK {
				t.Errorf("%d replaced, answers equal: %v (%+v); want %d, true", r.B.Replaced, r.Parity.OK, r.Parity.Outputs,
					test.replaced)
			}
		})
	}
}

// linearLayer is a model y = x W with W (64, 64) of a rank.
func linearLayer(t *testing.T, rank int) []byte {
	const n = 64
	random := rand.New(rand.NewPCG(1, uint64(rank)))
	left, right := make([]float64, n*rank), make([]float64, rank*n)
	for i := range left {
		left[i], right[i] = random.NormFloat64(), random.NormFloat64()
	}
	var raw []byte
	for i := range n {
		for j := range n {
			sum := 0.0
			for k := range rank {
				sum += left[i*rank+k] * right[k*n+j]
			}
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(sum/n)))
		}
	}
	matrix := func(name string) *onnx.ValueInfo {
		return &onnx.ValueInfo{Name: proto.String(name),
			Type: &onnx.Type{Value: &onnx.Type_TensorType_{TensorType: &onnx.Type_TensorType{
				ElemType: proto.Int32(int32(onnx.Tensor_FLOAT)),
				Shape: &onnx.Shape{Dim: []*onnx.Shape_Dim{
					{Value: &onnx.Shape_Dim_DimParam{DimParam: "rows"}},
					{Value: &onnx.Shape_Dim_DimValue{DimValue: n}},
				}},
			}}}}
	}
	b := must.Value(proto.Marshal(&onnx.Model{
		IrVersion:   proto.Int64(8),
		OpsetImport: []*onnx.OperatorSet{{Version: proto.Int64(18)}},
		Graph: &onnx.Graph{
			Name:   proto.String("linear"),
			Input:  []*onnx.ValueInfo{matrix("x")},
			Output: []*onnx.ValueInfo{matrix("y")},
			Initializer: []*onnx.Tensor{{Name: proto.String("w"), DataType: proto.Int32(int32(onnx.Tensor_FLOAT)),
				Dims: []int64{n, n}, RawData: raw}},
			Node: []*onnx.Node{{OpType: proto.String("MatMul"), Input: []string{"x", "w"}, Output: []string{"y"}}},
		},
	}))(t)
	return b
}
