package prepare_test

import (
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
)

// integersOf are the operators of a decoder's graph that multiply with integers: by name, of linear layers those
// whose weight a file holds as integers.
func integersOf(t *testing.T, l *ort.Library, set *loaded.Set, folder string, without ...string) (list []string,
	err error) {
	t.Helper()
	m, err := prepare.Open(t.Context(), folder)
	if err != nil {
		return nil, err
	}
	g, err := m.Make(t.Context(),
		prepare.Options{Library: l, Plugins: set, Plan: plan.Options{Except: without}, Batch: 1, MaxPositions: 64,
			CacheBytes: 1 << 24})
	if err != nil {
		return nil, err
	}
	defer g.Close()
	for _, n := range g.Decoder.Nodes {
		switch {
		case n.Is("graft.PackedLinear") && g.Decoder.Model.IntegersOf(n.Input(1).Tensor) != nil,
			n.Is("com.microsoft.MatMulNBits", "DequantizeLinear"):
			list = append(list, n.Proto.GetOpType())
		}
	}
	return list, nil
}

func number(name string, v int64) *onnx.Attribute {
	return &onnx.Attribute{Name: proto.String(name), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(v)}
}

// TestIntegersOfOthers: a linear layer whose weight somebody quantised is one of the numbers that the integers stand
// for; where nothing takes it, it is what it was, and so is one that is not understood.
func TestIntegersOfOthers(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	constant := func(g *onnx.Graph, name string, of onnx.Tensor_DataType, bytes int, dims ...int64) string {
		g.Initializer = append(g.Initializer,
			&onnx.Tensor{Name: proto.String(name), DataType: proto.Int32(int32(of)), Dims: dims, RawData: make([]byte, bytes)})
		return name
	}
	// nbits makes a layer [48, 144] a MatMulNBits of blocks of 32.
	nbits := func(g *onnx.Graph, n *onnx.Node) {
		n.OpType, n.Domain = proto.String("MatMulNBits"), proto.String("com.microsoft")
		n.Attribute = []*onnx.Attribute{number("K", 48), number("N", 144), number("bits", 4), number("block_size", 32)}
		n.Input = []string{n.Input[0], constant(g, "integers", onnx.Tensor_UINT8, 144*2*16, 144, 2, 16),
			constant(g, "scales", onnx.Tensor_FLOAT, 4*288, 288), "", "", n.Input[2]}
	}
	// dequantized lets it multiply with int8 that a DequantizeLinear makes float32.
	dequantized := func(g *onnx.Graph, n *onnx.Node) {
		n.Input[1] = "numbers"
		d := &onnx.Node{OpType: proto.String("DequantizeLinear"), Output: []string{"numbers"},
			Attribute: []*onnx.Attribute{number("axis", 1)},
			Input: []string{constant(g, "integers", onnx.Tensor_INT8, 48*144, 48, 144),
				constant(g, "scales", onnx.Tensor_FLOAT, 4*144, 144), constant(g, "zeros", onnx.Tensor_INT8, 144, 144)}}
		g.Node = slices.Insert(g.Node, 0, d)
	}
	for _, c := range []struct {
		name    string
		edit    func(g *onnx.Graph, n *onnx.Node)
		with    string // what multiplies
		without string // where packed-linear is not used
		err     string
	}{
		{name: "MatMulNBits", edit: nbits, with: "PackedLinear", without: "MatMulNBits"},
		{name: "zero points of float32", edit: func(g *onnx.Graph, n *onnx.Node) {
			nbits(g, n)
			n.Input[3] = constant(g, "zeros", onnx.Tensor_FLOAT, 4*288, 288)
		}, with: "PackedLinear", without: "MatMulNBits"},
		{name: "groups in another order", edit: func(g *onnx.Graph, n *onnx.Node) {
			nbits(g, n)
			n.Input[4] = constant(g, "order", onnx.Tensor_INT32, 4*64, 64)
		}, with: "MatMulNBits", without: "MatMulNBits"},
		{name: "weights among the inputs", edit: func(g *onnx.Graph, n *onnx.Node) {
			nbits(g, n)
			g.Input = append(g.Input,
				&onnx.ValueInfo{Name: proto.String("scales"),
					Type: &onnx.Type{Value: &onnx.Type_TensorType_{TensorType: &onnx.Type_TensorType{
						ElemType: proto.Int32(int32(onnx.Tensor_FLOAT)),
						Shape:    &onnx.Shape{Dim: []*onnx.Shape_Dim{{Value: &onnx.Shape_Dim_DimValue{DimValue: 288}}}}}}}})
		}, with: "PackedLinear", without: "MatMulNBits"},
		{name: "sizes that the weight has not", edit: func(g *onnx.Graph, n *onnx.Node) {
			nbits(g, n)
			n.Attribute[3].I = proto.Int64(64)
		}, err: "model.onnx: weight \"integers\" is no weight of integers: found scales of float32 [288]"},
		{name: "DequantizeLinear", edit: dequantized, with: "PackedLinear", without: "DequantizeLinear"},
		{name: "a bias of int32 too", edit: func(g *onnx.Graph, n *onnx.Node) {
			dequantized(g, n)
			n.Input[2] = "offsets"
			d := &onnx.Node{OpType: proto.String("DequantizeLinear"), Output: []string{"offsets"},
				Input: []string{constant(g, "bias", onnx.Tensor_INT32, 4*144, 144),
					constant(g, "by", onnx.Tensor_FLOAT, 4*144, 144)}}
			g.Node = slices.Insert(g.Node, 0, d)
		}, with: "PackedLinear", without: "DequantizeLinear"},
		{name: "a scale for each row of the weight", edit: func(g *onnx.Graph, n *onnx.Node) {
			dequantized(g, n)
			g.Node[0].Attribute[0].I = proto.Int64(0)
			g.Node[0].Input[1], g.Node[0].Input[2] = constant(g, "rows", onnx.Tensor_FLOAT, 4*48, 48),
				constant(g, "zeros of rows", onnx.Tensor_INT8, 48, 48)
		}, with: "DequantizeLinear", without: "DequantizeLinear"},
		{name: "numbers that something else reads", edit: func(g *onnx.Graph, n *onnx.Node) {
			dequantized(g, n)
			g.Node = append(g.Node, &onnx.Node{OpType: proto.String("Identity"), Input: []string{"numbers"},
				Output: []string{"more"}})
			g.Output = append(g.Output,
				&onnx.ValueInfo{Name: proto.String("more"),
					Type: &onnx.Type{Value: &onnx.Type_TensorType_{TensorType: &onnx.Type_TensorType{ElemType: proto.Int32(
						int32(onnx.Tensor_FLOAT))}}}})
		}, with: "DequantizeLinear", without: "DequantizeLinear"},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := small(t, "gpt2")
			edited(t, filepath.Join(folder, "model.onnx"), func(g *onnx.Graph) {
				i := slices.IndexFunc(g.Node, func(n *onnx.Node) bool { return n.GetOpType() == "Gemm" })
				c.edit(g, g.Node[i])
			})
			for without, want := range map[string]string{"": c.with, "packed-linear": c.without} {
				got, err := integersOf(t, l, set, folder, without)
				if c.err != "" {
					must.Fail(t, err, c.err)
					continue
				}
				must.Succeed(t, err)
				must.Equal(t, got, []string{want}, without)
			}
		})
	}
}
