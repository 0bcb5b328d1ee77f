package ort

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

// The models of the tests: y = op(x), and y = x + w with w in various places.

func tensorType(element ElementType, dims ...any) *onnx.Type {
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

func value(name string, t *onnx.Type) *onnx.ValueInfo {
	return &onnx.ValueInfo{Name: proto.String(name), Type: t}
}

func node(op string, in, out []string, attributes ...*onnx.Attribute) *onnx.Node {
	return &onnx.Node{OpType: proto.String(op), Input: in, Output: out, Attribute: attributes}
}

func model(g *onnx.Graph) *onnx.Model {
	g.Name = proto.String("test")
	return &onnx.Model{IrVersion: proto.Int64(10), Graph: g,
		OpsetImport: []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(18)}}}
}

func marshal(t testing.TB, m *onnx.Model) []byte {
	t.Helper()
	b := must.Value(proto.Marshal(m))(t)
	return b
}

func unmarshal(t testing.TB, b []byte) *onnx.Model {
	t.Helper()
	m := &onnx.Model{}
	must.Succeed(t, proto.Unmarshal(b, m))
	return m
}

// unary is the model y = op(x), x and y of type float32[n].
func unary(op string) *onnx.Model {
	return model(&onnx.Graph{
		Node:   []*onnx.Node{node(op, []string{"x"}, []string{"y"})},
		Input:  []*onnx.ValueInfo{value("x", tensorType(Float32, "n"))},
		Output: []*onnx.ValueInfo{value("y", tensorType(Float32, "n"))},
	})
}

func rawFloats(v ...float32) []byte {
	var b bytes.Buffer
	_ = binary.Write(&b, binary.NativeEndian, v)
	return b.Bytes()
}

func external(name, location string, offset, elements int) *onnx.Tensor {
	entry := func(k, v string) *onnx.Entry { return &onnx.Entry{Key: proto.String(k), Value: proto.String(v)} }
	return &onnx.Tensor{Name: proto.String(name), DataType: proto.Int32(int32(Float32)), Dims: []int64{int64(elements)},
		DataLocation: onnx.Tensor_EXTERNAL.Enum(),
		ExternalData: []*onnx.Entry{entry("location", location), entry("offset", strconv.Itoa(offset)),
			entry("length", strconv.Itoa(4*elements))}}
}

// sum is the model y = x + w0 + w1 ..., with the given initializers.
func sum(weights ...*onnx.Tensor) *onnx.Model {
	g := &onnx.Graph{
		Input:       []*onnx.ValueInfo{value("x", tensorType(Float32, "n"))},
		Output:      []*onnx.ValueInfo{value("y", tensorType(Float32, "n"))},
		Initializer: weights,
	}
	from := "x"
	for i, w := range weights {
		to := "s" + strconv.Itoa(i)
		if i == len(weights)-1 {
			to = "y"
		}
		g.Node = append(g.Node, node("Add", []string{from, w.GetName()}, []string{to}))
		from = to
	}
	return model(g)
}

func writeModel(t testing.TB, m *onnx.Model) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.onnx")
	must.Succeed(t, os.WriteFile(path, marshal(t, m), 0o644))
	return path
}
