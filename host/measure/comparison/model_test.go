package comparison

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
)

// library opens ONNX Runtime, which the tests need.
func library(t testing.TB) *ort.Library {
	t.Helper()
	l := must.Value(ort.FindAndOpen(""))(t)
	return l
}

// write makes a model file: y of x, both float32 over (rows, width), by nodes "out = Op(in1, in2)".
func write(t testing.TB, nodes ...string) string {
	t.Helper()
	shape := &onnx.Shape{}
	for _, d := range []string{"rows", "width"} {
		shape.Dim = append(shape.Dim, &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimParam{DimParam: d}})
	}
	info := func(name string) []*onnx.ValueInfo {
		return []*onnx.ValueInfo{{Name: proto.String(name), Type: &onnx.Type{Value: &onnx.Type_TensorType_{
			TensorType: &onnx.Type_TensorType{ElemType: proto.Int32(int32(onnx.Tensor_FLOAT)), Shape: shape}}}}}
	}
	g := &onnx.Graph{Name: proto.String("g"), Input: info("x"), Output: info("y")}
	for _, text := range nodes {
		out, rest, _ := strings.Cut(text, " = ")
		op, ins, _ := strings.Cut(strings.TrimSuffix(rest, ")"), "(")
		g.Node = append(g.Node, &onnx.Node{OpType: proto.String(op), Input: strings.Split(ins, ", "), Output: []string{out}})
	}
	data := must.Value(proto.Marshal(
		&onnx.Model{IrVersion: proto.Int64(8), Graph: g,
			OpsetImport: []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(17)}}}))(t)
	path := filepath.Join(t.TempDir(), "model.onnx")
	must.Succeed(t, os.WriteFile(path, data, 0o644))
	return path
}

// adder is y = x + x.
func adder(t testing.TB) string { return write(t, "y = Add(x, x)") }

// tripler is y = x + x + x, for answers that differ from adder's.
func tripler(t testing.TB) string { return write(t, "a = Add(x, x)", "y = Add(a, x)") }

var noPlugins = &loaded.Set{}

// rewritten changes a model file.
func rewritten(t testing.TB, path string, change func(*onnx.Model)) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must.Succeed(t, err)
	m := &onnx.Model{}
	must.Succeed(t, proto.Unmarshal(data, m))
	change(m)
	if data, err = proto.Marshal(m); err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, os.WriteFile(path, data, 0o644))
	return path
}
