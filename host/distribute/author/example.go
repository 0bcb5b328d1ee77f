package author

import (
	"encoding/binary"
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// example adds the model that the plugins of a kind gain something on.
func example(kind string, files map[string][]byte) error {
	var g graph
	switch kind {
	case "pattern":
		g.activation()
	case "attention":
		g.attention()
	case "fold":
		g.chain()
	default:
		return nil
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(&onnx.Model{
		IrVersion: proto.Int64(8), ProducerName: proto.String("graft"),
		OpsetImport: []*onnx.OperatorSet{{Version: proto.Int64(17)}}, Graph: &g.Graph,
	})
	files[Example] = data
	return err
}

// graph is one that is being written.
type graph struct{ onnx.Graph }

// activation is three layers of a matmul and Mish (Misra, 2019), which exporters write as three nodes: many elements,
// and little to do for each.
func (g *graph) activation() {
	const width = 256
	g.begin("activation", "x", []any{"batch", "sequence", width}, []any{"batch", "sequence", width})
	at := "x"
	for i := range 3 {
		name := func(what string) string { return fmt.Sprintf("%s_%d", what, i) }
		g.constant(name("weight"), []int64{width, width}, 1/math.Sqrt(width), uint64(i))
		g.node("MatMul", []string{at, name("weight")}, name("linear"))
		g.node("Softplus", []string{name("linear")}, name("softplus"))
		g.node("Tanh", []string{name("softplus")}, name("tanh"))
		if at = name("mish"); i == 2 {
			at = "y"
		}
		g.node("Mul", []string{name("linear"), name("tanh")}, at)
	}
}

// attention is one query for each of eight heads over a long sequence of the keys of two, as in a step of a decoder
// with grouped heads. Exporters write every key once for each head that reads it.
func (g *graph) attention() {
	const heads, kvHeads, sequence, size = 8, 2, 4096, 64
	g.begin("attention", "query", []any{1, heads, 1, size}, []any{1, heads, 1, size})
	g.integers("axis", 2)
	g.integers("expanded", 1, kvHeads, heads/kvHeads, sequence, size)
	g.integers("shape", 1, heads, sequence, size)
	for _, name := range []string{"key", "value"} {
		g.Input = append(g.Input, value(name, []any{1, kvHeads, sequence, size}))
		g.node("Unsqueeze", []string{name, "axis"}, name+"_grouped")
		g.node("Expand", []string{name + "_grouped", "expanded"}, name+"_expanded")
		g.node("Reshape", []string{name + "_expanded", "shape"}, name+"_of_heads")
	}
	g.Initializer = append(g.Initializer,
		&onnx.Tensor{Name: proto.String("scale"), DataType: proto.Int32(int32(onnx.Tensor_FLOAT)),
			FloatData: []float32{1 / 8.0}})
	g.node("Transpose", []string{"key_of_heads"}, "transposed",
		&onnx.Attribute{Name: proto.String("perm"), Type: onnx.Attribute_INTS.Enum(), Ints: []int64{0, 1, 3, 2}})
	g.node("MatMul", []string{"query", "transposed"}, "product")
	g.node("Mul", []string{"product", "scale"}, "scores")
	g.node("Softmax", []string{"scores"}, "probabilities",
		&onnx.Attribute{Name: proto.String("axis"), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(-1)})
	g.node("MatMul", []string{"probabilities", "value_of_heads"}, "y")
}

// chain is a projection through a wide middle with nothing in it, which is one small matrix.
func (g *graph) chain() {
	const outer, inner = 128, 1024
	g.begin("chain", "x", []any{"batch", "sequence", outer}, []any{"batch", "sequence", outer})
	g.constant("up", []int64{outer, inner}, 1/math.Sqrt(outer), 1)
	g.constant("down", []int64{inner, outer}, 1/math.Sqrt(inner), 2)
	g.node("MatMul", []string{"x", "up"}, "middle")
	g.node("MatMul", []string{"middle", "down"}, "y")
}

func (g *graph) begin(name, input string, in, out []any) {
	g.Name = proto.String(name)
	g.Input = append(g.Input, value(input, in))
	g.Output = append(g.Output, value("y", out))
}

func (g *graph) node(op string, in []string, out string, attributes ...*onnx.Attribute) {
	g.Node = append(g.Node, &onnx.Node{Name: proto.String(out), OpType: proto.String(op), Input: in, Output: []string{out},
		Attribute: attributes})
}

// integers adds a list of whole numbers.
func (g *graph) integers(name string, list ...int64) {
	g.Initializer = append(g.Initializer,
		&onnx.Tensor{Name: proto.String(name), DataType: proto.Int32(int32(onnx.Tensor_INT64)),
			Dims: []int64{int64(len(list))}, Int64Data: list})
}

// constant adds a matrix of numbers spread evenly with a deviation of `size`, the same ones for a seed on every
// machine.
func (g *graph) constant(name string, shape []int64, size float64, seed uint64) {
	data := make([]byte, 0, 4*shape[0]*shape[1])
	state := seed*0x9e3779b97f4a7c15 + 1
	for range shape[0] * shape[1] {
		state = state*6364136223846793005 + 1442695040888963407 // Knuth's linear congruential generator
		x := (float64(state>>40)/(1<<23) - 1) * size * math.Sqrt(3)
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(x)))
	}
	g.Initializer = append(g.Initializer,
		&onnx.Tensor{Name: proto.String(name), DataType: proto.Int32(int32(onnx.Tensor_FLOAT)), Dims: shape, RawData: data})
}

// value is a float32 tensor's name and shape: numbers, and names of lengths.
func value(name string, shape []any) *onnx.ValueInfo {
	dims := &onnx.Shape{}
	for _, d := range shape {
		switch d := d.(type) {
		case int:
			dims.Dim = append(dims.Dim, &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimValue{DimValue: int64(d)}})
		case string:
			dims.Dim = append(dims.Dim, &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimParam{DimParam: d}})
		}
	}
	return &onnx.ValueInfo{Name: proto.String(name),
		Type: &onnx.Type{Value: &onnx.Type_TensorType_{TensorType: &onnx.Type_TensorType{
			ElemType: proto.Int32(int32(onnx.Tensor_FLOAT)), Shape: dims}}}}
}
