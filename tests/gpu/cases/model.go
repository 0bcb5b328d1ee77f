package main

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/signature"
	"github.com/opgraft/graft/host/plugin/tensor"
)

var elements = map[tensor.DType]onnx.Tensor_DataType{
	tensor.Float32: onnx.Tensor_FLOAT, tensor.Float16: onnx.Tensor_FLOAT16, tensor.BFloat16: onnx.Tensor_BFLOAT16,
	tensor.Float64: onnx.Tensor_DOUBLE, tensor.Bool: onnx.Tensor_BOOL,
	tensor.Int8: onnx.Tensor_INT8, tensor.Int16: onnx.Tensor_INT16, tensor.Int32: onnx.Tensor_INT32,
	tensor.Int64: onnx.Tensor_INT64,
	tensor.Uint8: onnx.Tensor_UINT8, tensor.Uint16: onnx.Tensor_UINT16, tensor.Uint32: onnx.Tensor_UINT32,
	tensor.Uint64: onnx.Tensor_UINT64,
}

// build makes a model of one node of the operator. Its own inputs and outputs are float32 where they are
// floating-point, as numpy has no bfloat16; casts stand between them and the node.
func build(c *manifest.Case, op *signature.Operator, inputs []*tensor.Tensor, types []tensor.DType,
	outputs []*tensor.Tensor, t tensor.DType) ([]byte, error) {
	g := &onnx.Graph{Name: proto.String(c.Operator)}
	node := &onnx.Node{OpType: proto.String(c.Operator), Domain: proto.String("graft")}
	for _, a := range c.Attributes {
		made, err := attribute(a)
		if err != nil {
			return nil, err
		}
		node.Attribute = append(node.Attribute, made)
	}
	for i, x := range inputs {
		if x == nil {
			node.Input = append(node.Input, "")
			continue
		}
		name := fmt.Sprintf("x%d", i)
		g.Input = append(g.Input, value(name, x))
		if types[i] != x.DType {
			g.Node = append(g.Node, cast(name, name+"_narrow", types[i]))
			name += "_narrow"
		}
		node.Input = append(node.Input, name)
	}
	g.Node = append(g.Node, node)
	for i, y := range outputs {
		if y == nil {
			node.Output = append(node.Output, "")
			continue
		}
		name := fmt.Sprintf("y%d", i)
		g.Output = append(g.Output, value(name, y))
		if isFloat(y.DType) && t != tensor.Float32 {
			g.Node = append(g.Node, cast(name+"_narrow", name, tensor.Float32))
			name += "_narrow"
		}
		node.Output = append(node.Output, name)
	}
	return proto.Marshal(&onnx.Model{
		IrVersion:    proto.Int64(8),
		ProducerName: proto.String("graft"),
		Graph:        g,
		OpsetImport: []*onnx.OperatorSet{
			{Domain: proto.String(""), Version: proto.Int64(17)},
			{Domain: proto.String("graft"), Version: proto.Int64(int64(max(op.SinceVersion, 1)))},
		},
	})
}

func cast(from, to string, t tensor.DType) *onnx.Node {
	return &onnx.Node{OpType: proto.String("Cast"), Input: []string{from}, Output: []string{to},
		Attribute: []*onnx.Attribute{{Name: proto.String("to"), Type: onnx.Attribute_INT.Enum(),
			I: proto.Int64(int64(elements[t]))}}}
}

func value(name string, x *tensor.Tensor) *onnx.ValueInfo {
	shape := &onnx.Shape{}
	for _, d := range x.Shape {
		shape.Dim = append(shape.Dim, &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimValue{DimValue: d}})
	}
	return &onnx.ValueInfo{Name: proto.String(name), Type: &onnx.Type{Value: &onnx.Type_TensorType_{
		TensorType: &onnx.Type_TensorType{ElemType: proto.Int32(int32(elements[x.DType])), Shape: shape}}}}
}

func attribute(from manifest.Attribute) (*onnx.Attribute, error) {
	a := &onnx.Attribute{Name: proto.String(from.Name)}
	switch v := from.Value.(type) {
	case int64:
		a.Type, a.I = onnx.Attribute_INT.Enum(), proto.Int64(v)
	case float64:
		a.Type, a.F = onnx.Attribute_FLOAT.Enum(), proto.Float32(float32(v))
	case string:
		a.Type, a.S = onnx.Attribute_STRING.Enum(), []byte(v)
	case []int64:
		a.Type, a.Ints = onnx.Attribute_INTS.Enum(), v
	case []float64:
		a.Type = onnx.Attribute_FLOATS.Enum()
		for _, x := range v {
			a.Floats = append(a.Floats, float32(x))
		}
	default:
		return nil, fmt.Errorf("attribute %s is a %T, which no operator here has", from.Name, from.Value)
	}
	return a, nil
}
