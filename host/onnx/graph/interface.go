package graph

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// AddInput gives the graph one more input.
func (g *Graph) AddInput(name string, kind *onnx.Type) (*Value, error) {
	v, err := g.define(name)
	if err != nil {
		return nil, err
	}
	v.Type, v.IsInput = kind, true
	g.Inputs = append(g.Inputs, v)
	g.Proto.Input = append(g.Proto.Input, &onnx.ValueInfo{Name: proto.String(name), Type: kind})
	return v, nil
}

// RemoveInput takes an input away that nothing reads.
func (g *Graph) RemoveInput(v *Value) {
	delete(g.values, v.Name)
	g.Inputs = slices.DeleteFunc(g.Inputs, func(o *Value) bool { return o == v })
	g.Proto.Input = slices.DeleteFunc(g.Proto.Input, func(o *onnx.ValueInfo) bool { return o.GetName() == v.Name })
}

// KeepOutputs takes every other output away; what made it stays until Prune.
func (g *Graph) KeepOutputs(keep ...*Value) {
	outputs := g.Outputs
	g.Outputs = nil
	for _, v := range outputs {
		v.IsOutput = false
		v.handed = slices.DeleteFunc(v.handed, func(at place) bool { return at.graph == g })
	}
	for _, v := range outputs {
		if slices.Contains(keep, v) {
			v.IsOutput = true
			g.handOut(v)
		}
	}
	g.Proto.Output = slices.DeleteFunc(g.Proto.Output, func(o *onnx.ValueInfo) bool {
		return !slices.ContainsFunc(keep, func(v *Value) bool { return v.Name == o.GetName() })
	})
}

// AddOutput hands a value out, under the name it has.
func (g *Graph) AddOutput(v *Value, kind *onnx.Type) {
	v.Type, v.IsOutput = kind, true
	g.handOut(v)
	g.Proto.Output = append(g.Proto.Output, &onnx.ValueInfo{Name: proto.String(v.Name), Type: kind})
}

// SetInputDims declares the lengths of an input anew: numbers and names.
func (g *Graph) SetInputDims(v *Value, dims ...any) error {
	i := slices.IndexFunc(g.Proto.Input, func(o *onnx.ValueInfo) bool { return o.GetName() == v.Name })
	if i < 0 {
		return fmt.Errorf("%s is no input", v.Name)
	}
	v.Type = TensorType(onnx.Tensor_DataType(v.Type.GetTensorType().GetElemType()), dims...)
	g.Proto.Input[i].Type = v.Type
	return nil
}

// ForgetTypes drops what the model declares of values between its inputs and
// outputs, and the lengths of its outputs.
func (g *Graph) ForgetTypes() {
	g.Proto.ValueInfo = nil
	for _, o := range g.Proto.Output {
		if t := o.GetType().GetTensorType(); t != nil {
			o.Type = &onnx.Type{Value: &onnx.Type_TensorType_{TensorType: &onnx.Type_TensorType{ElemType: t.ElemType}}}
		}
	}
}

// TensorType is the type of tensors with these lengths: numbers (int) and names
// (string).
func TensorType(kind onnx.Tensor_DataType, dims ...any) *onnx.Type {
	shape := &onnx.Shape{}
	for _, d := range dims {
		dim := &onnx.Shape_Dim{}
		switch d := d.(type) {
		case int:
			dim.Value = &onnx.Shape_Dim_DimValue{DimValue: int64(d)}
		case string:
			dim.Value = &onnx.Shape_Dim_DimParam{DimParam: d}
		}
		shape.Dim = append(shape.Dim, dim)
	}
	return &onnx.Type{Value: &onnx.Type_TensorType_{TensorType: &onnx.Type_TensorType{ElemType: proto.Int32(int32(kind)),
		Shape: shape}}}
}
