package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// least is what "not slower" means where two medians of a noisy machine meet.
const least = 0.98

// prefill compares attention of many queries, alone in a graph, with ONNX
// Runtime's: with its matmuls and softmax where tensors are laid out by head
// already, and with its fused MultiHeadAttention. Neither baseline has a mask,
// a cache or a transpose to save.
func prefill() figure {
	const what = "attention alone, many queries, 12 heads, no mask, against ONNX Runtime's matmuls and its " +
		"MultiHeadAttention"
	return figure{"prefill", what, fmt.Sprintf("each at least %.2fx", least),
		func(ctx context.Context, b *bench) (*outcome, error) {
			temp, err := storage.Temporary("")
			if err != nil {
				return nil, err
			}
			defer temp.Remove()
			dir := temp.Path
			out := &outcome{Met: true, Answers: "answers equal"}
			var got []string
			results := map[string]*comparison.Result{}
			for _, kind := range []string{"matmuls", "mha"} {
				for _, shape := range [][2]int64{{128, 64}, {256, 64}, {512, 64}, {1024, 64}, {128, 128}, {256, 128}} {
					name := fmt.Sprintf("%s %dx%d", kind, shape[0], shape[1])
					path := filepath.Join(dir, kind+".onnx")
					if err := storage.Write(path, attentionModel(kind == "mha", shape[0], shape[1]), storage.Shared); err != nil {
						return nil, err
					}
					r, err := comparison.Run(ctx, b.library, b.set, path,
						comparison.Options{A: "none", B: "auto", Force: true, Inputs: inputs.Options{Seed: 1}, Rounds: 4 * b.rounds,
							Warmup: 5})
					if err != nil {
						return nil, fmt.Errorf("%s: %w", name, err)
					}
					if r.B.Replaced != 1 {
						return nil, fmt.Errorf("%s: %d blocks were replaced, needed is 1", name, r.B.Replaced)
					}
					r.Model, results[name] = name, r
					got = append(got, fmt.Sprintf("%s %.2fx", name, r.Speedup.Median))
					out.Met = out.Met && r.Speedup.Median >= least && r.Parity.OK
					if !r.Parity.OK {
						out.Answers = "answers DIFFER"
					}
				}
			}
			out.Got, out.Detail = strings.Join(got, ", "), results
			return out, nil
		}}
}

// attentionModel is one attention of `length` queries over as many keys with 12
// heads of `size`, batch 1: MatMul, Softmax and MatMul on (batch, heads,
// positions, size), or com.microsoft MultiHeadAttention on (batch, positions,
// heads*size).
func attentionModel(fused bool, length, size int64) []byte {
	const heads = 12
	dims := []int64{1, heads, length, size}
	if fused {
		dims = []int64{1, length, heads * size}
	}
	g := &onnx.Graph{Name: proto.String("attention")}
	for _, name := range []string{"query", "key", "value"} {
		g.Input = append(g.Input, floats(name, dims))
	}
	g.Output = append(g.Output, floats("output", dims))
	if fused {
		g.Node = []*onnx.Node{{OpType: proto.String("MultiHeadAttention"), Domain: proto.String("com.microsoft"),
			Input: []string{"query", "key", "value"}, Output: []string{"output"},
			Attribute: []*onnx.Attribute{{Name: proto.String("num_heads"), Type: onnx.Attribute_INT.Enum(),
				I: proto.Int64(heads)}}}}
	} else {
		scale := float32(1 / 8.0)
		g.Initializer = []*onnx.Tensor{{Name: proto.String("scale"), DataType: proto.Int32(int32(onnx.Tensor_FLOAT)),
			FloatData: []float32{scale}}}
		g.Node = []*onnx.Node{
			{OpType: proto.String("Transpose"), Input: []string{"key"}, Output: []string{"turned"},
				Attribute: []*onnx.Attribute{{Name: proto.String("perm"), Type: onnx.Attribute_INTS.Enum(),
					Ints: []int64{0, 1, 3, 2}}}},
			{OpType: proto.String("MatMul"), Input: []string{"query", "turned"}, Output: []string{"matmul"}},
			{OpType: proto.String("Mul"), Input: []string{"matmul", "scale"}, Output: []string{"scores"}},
			{OpType: proto.String("Softmax"), Input: []string{"scores"}, Output: []string{"weights"},
				Attribute: []*onnx.Attribute{{Name: proto.String("axis"), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(-1)}}},
			{OpType: proto.String("MatMul"), Input: []string{"weights", "value"}, Output: []string{"output"}},
		}
	}
	b, err := proto.Marshal(&onnx.Model{IrVersion: proto.Int64(8), Graph: g, OpsetImport: []*onnx.OperatorSet{
		{Domain: proto.String(""), Version: proto.Int64(18)},
		{Domain: proto.String("com.microsoft"), Version: proto.Int64(1)}}})
	if err != nil {
		panic(err) // the structs above are what the schema allows
	}
	return b
}

// floats declares a tensor of float32.
func floats(name string, dims []int64) *onnx.ValueInfo {
	shape := &onnx.Shape{}
	for _, d := range dims {
		shape.Dim = append(shape.Dim, &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimValue{DimValue: d}})
	}
	return &onnx.ValueInfo{Name: proto.String(name), Type: &onnx.Type{Value: &onnx.Type_TensorType_{
		TensorType: &onnx.Type_TensorType{ElemType: proto.Int32(int32(onnx.Tensor_FLOAT)), Shape: shape}}}}
}
