package inputs

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/internal/must"
)

// library opens ONNX Runtime, which the tests need.
func library(t testing.TB) *ort.Library {
	t.Helper()
	l := must.Value(ort.FindAndOpen(""))(t)
	return l
}

// value is an input or an output: its name, type and dimensions, numbers or
// names.
type value struct {
	name string
	dims []any
	kind onnx.Tensor_DataType
}

func (f value) info() *onnx.ValueInfo {
	shape := &onnx.Shape{}
	for _, d := range f.dims {
		switch d := d.(type) {
		case int:
			shape.Dim = append(shape.Dim, &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimValue{DimValue: int64(d)}})
		case string:
			shape.Dim = append(shape.Dim, &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimParam{DimParam: d}})
		}
	}
	kind := f.kind
	if kind == 0 {
		kind = onnx.Tensor_FLOAT
	}
	return &onnx.ValueInfo{Name: proto.String(f.name), Type: &onnx.Type{Value: &onnx.Type_TensorType_{
		TensorType: &onnx.Type_TensorType{ElemType: proto.Int32(int32(kind)), Shape: shape}}}}
}

// node reads "out = Op(in1, in2)", with attributes of integers after it: "perm=0,2,1".
func node(text string) *onnx.Node {
	out, rest, _ := strings.Cut(text, " = ")
	op, rest, _ := strings.Cut(rest, "(")
	ins, attributes, _ := strings.Cut(rest, ")")
	n := &onnx.Node{OpType: proto.String(op), Input: strings.Split(ins, ", "), Output: []string{out}}
	for _, field := range strings.Fields(attributes) {
		name, list, _ := strings.Cut(field, "=")
		a := &onnx.Attribute{Name: proto.String(name)}
		for _, s := range strings.Split(list, ",") {
			i, err := strconv.ParseInt(s, 10, 64)
			if err != nil {
				panic(err)
			}
			a.Ints = append(a.Ints, i)
		}
		if a.Type = onnx.Attribute_INTS.Enum(); !strings.Contains(list, ",") {
			a.Type, a.I, a.Ints = onnx.Attribute_INT.Enum(), proto.Int64(a.Ints[0]), nil
		}
		n.Attribute = append(n.Attribute, a)
	}
	return n
}

// table is an initializer of float32 zeros.
func table(name string, dims ...int64) *onnx.Tensor {
	n := int64(4)
	for _, d := range dims {
		n *= d
	}
	return &onnx.Tensor{Name: proto.String(name), DataType: proto.Int32(int32(onnx.Tensor_FLOAT)), Dims: dims,
		RawData: make([]byte, n)}
}

// write makes a model file.
func write(t testing.TB, ins, outs []value, initializers []*onnx.Tensor, nodes ...string) string {
	t.Helper()
	g := &onnx.Graph{Name: proto.String("g"), Initializer: initializers}
	for _, f := range ins {
		g.Input = append(g.Input, f.info())
	}
	for _, f := range outs {
		info := f.info()
		if len(f.dims) == 0 {
			info.GetType().GetTensorType().Shape = nil // of any rank
		}
		g.Output = append(g.Output, info)
	}
	for _, n := range nodes {
		g.Node = append(g.Node, node(n))
	}
	data := must.Value(proto.Marshal(
		&onnx.Model{IrVersion: proto.Int64(8), Graph: g,
			OpsetImport: []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(17)}}}))(t)
	path := filepath.Join(t.TempDir(), "model.onnx")
	must.Succeed(t, os.WriteFile(path, data, 0o644))
	return path
}
