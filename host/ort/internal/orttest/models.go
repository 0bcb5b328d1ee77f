package orttest

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/internal/must"
)

// The models of the tests: y = op(x), and y = x + w with w in various places.

// TensorType is that of a tensor, of lengths and names of axes.
func TensorType(element ort.ElementType, dims ...any) *onnx.Type {
	shape := &onnx.Shape{}
	for _, d := range dims {
		switch d := d.(type) {
		case int:
			shape.Dim = append(shape.Dim, &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimValue{DimValue: int64(d)}})
		case string:
			shape.Dim = append(shape.Dim, &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimParam{DimParam: d}})
		}
	}
	return &onnx.Type{Value: &onnx.Type_TensorType_{TensorType: &onnx.Type_TensorType{
		ElemType: proto.Int32(int32(element)), Shape: shape}}}
}

// Value is an input or output of a graph.
func Value(name string, t *onnx.Type) *onnx.ValueInfo {
	return &onnx.ValueInfo{Name: proto.String(name), Type: t}
}

// Node is one of a graph.
func Node(op string, in, out []string, attributes ...*onnx.Attribute) *onnx.Node {
	return &onnx.Node{OpType: proto.String(op), Input: in, Output: out, Attribute: attributes}
}

// Model is one of a graph.
func Model(g *onnx.Graph) *onnx.Model {
	g.Name = proto.String("test")
	return &onnx.Model{IrVersion: proto.Int64(10), Graph: g,
		OpsetImport: []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(18)}}}
}

// Marshal is a model's bytes.
func Marshal(t testing.TB, m *onnx.Model) []byte {
	t.Helper()
	b := must.Value(proto.Marshal(m))(t)
	return b
}

// Unmarshal reads them.
func Unmarshal(t testing.TB, b []byte) *onnx.Model {
	t.Helper()
	m := &onnx.Model{}
	must.Succeed(t, proto.Unmarshal(b, m))
	return m
}

// Unary is the model y = op(x), x and y of type float32[n].
func Unary(op string) *onnx.Model {
	return Model(&onnx.Graph{
		Node:   []*onnx.Node{Node(op, []string{"x"}, []string{"y"})},
		Input:  []*onnx.ValueInfo{Value("x", TensorType(ort.Float32, "n"))},
		Output: []*onnx.ValueInfo{Value("y", TensorType(ort.Float32, "n"))},
	})
}

// Floats is raw data.
func Floats(v ...float32) []byte {
	var b bytes.Buffer
	_ = binary.Write(&b, binary.NativeEndian, v)
	return b.Bytes()
}

// External is a vector of floats in a file.
func External(name, location string, offset, elements int) *onnx.Tensor {
	entry := func(k, v string) *onnx.Entry { return &onnx.Entry{Key: proto.String(k), Value: proto.String(v)} }
	return &onnx.Tensor{Name: proto.String(name), DataType: proto.Int32(int32(ort.Float32)),
		Dims:         []int64{int64(elements)},
		DataLocation: onnx.Tensor_EXTERNAL.Enum(),
		ExternalData: []*onnx.Entry{entry("location", location), entry("offset", strconv.Itoa(offset)),
			entry("length", strconv.Itoa(4*elements))}}
}

// Sum is the model y = x + w0 + w1 ..., with the given initializers.
func Sum(weights ...*onnx.Tensor) *onnx.Model {
	g := &onnx.Graph{
		Input:       []*onnx.ValueInfo{Value("x", TensorType(ort.Float32, "n"))},
		Output:      []*onnx.ValueInfo{Value("y", TensorType(ort.Float32, "n"))},
		Initializer: weights,
	}
	from := "x"
	for i, w := range weights {
		to := "s" + strconv.Itoa(i)
		if i == len(weights)-1 {
			to = "y"
		}
		g.Node = append(g.Node, Node("Add", []string{from, w.GetName()}, []string{to}))
		from = to
	}
	return Model(g)
}

// Write writes a model to a file.
func Write(t testing.TB, m *onnx.Model) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.onnx")
	must.Succeed(t, os.WriteFile(path, Marshal(t, m), 0o644))
	return path
}

// Identity is the model y = x of one type.
func Identity(element ort.ElementType, dims ...any) *onnx.Model {
	return Model(&onnx.Graph{
		Node:   []*onnx.Node{Node("Identity", []string{"x"}, []string{"y"})},
		Input:  []*onnx.ValueInfo{Value("x", TensorType(element, dims...))},
		Output: []*onnx.ValueInfo{Value("y", TensorType(element, dims...))},
	})
}
