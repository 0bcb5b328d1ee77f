package linear

import (
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// rowNorm is a normalization of each row: (x - mean) / sqrt(variance + epsilon) * scale + shift, or, where it is not
// centred, x / sqrt(mean of x² + epsilon) * scale (Zhang and Sennrich, 2019).
type rowNorm struct {
	x        *graph.Value
	operands []*graph.Value // scale and shift, one number a column
	epsilon  float32
	centred  bool
}

// normalize lets the linear layers that alone read a normalization begin with it: a row is normalized while it is
// read anyway.
func normalize(n *graph.Node, shapes *graph.Shapes) {
	norm := rowNormOf(n, shapes)
	if norm == nil || slices.ContainsFunc(n.Out[0].Uses, func(u graph.Use) bool {
		return !inPanels(u.Node) || u.Index != 0 || u.Node.Input(normOperand) != nil
	}) {
		return
	}
	for _, u := range slices.Clone(n.Out[0].Uses) {
		u.Node.SetInput(0, norm.x)
		for i, v := range norm.operands {
			setOperand(u.Node, normOperand+i, v)
		}
		u.Node.Proto.Attribute = append(u.Node.Proto.Attribute,
			&onnx.Attribute{Name: proto.String("norm_epsilon"), Type: onnx.Attribute_FLOAT.Enum(), F: &norm.epsilon})
		if !norm.centred {
			u.Node.Proto.Attribute = append(u.Node.Proto.Attribute,
				&onnx.Attribute{Name: proto.String("norm_centred"), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(0)})
		}
	}
}

// normAttributes are those of a linear layer that say how it normalizes x, for another in its place.
func normAttributes(n *graph.Node) (list []any) {
	if n.Input(normOperand) == nil {
		return nil
	}
	return []any{"norm_epsilon", float64(n.Float("norm_epsilon", 1e-5)), "norm_centred", n.Int("norm_centred", 1)}
}

// rowNormOf is the normalization that a node ends, or nil.
func rowNormOf(n *graph.Node, shapes *graph.Shapes) *rowNorm {
	if n.Unread() != "" {
		return nil
	}
	if normalizesRows(n, shapes) {
		return &rowNorm{n.In[0], n.In[1:], n.Float("epsilon", 1e-5), true}
	}
	var norm *rowNorm
	switch {
	case n.Is("SimplifiedLayerNormalization", "RMSNormalization"):
		norm = simplified(n, shapes)
	case n.Is("Mul"):
		norm = rootMeanSquare(n, shapes)
	}
	if norm == nil || n.Out[0].IsOutput || len(n.Out[0].Uses) == 0 {
		return nil
	}
	x, scale := shapes.Of(norm.x), norm.operands[0].Tensor
	if x.Rank < 1 || x.DType != onnx.Tensor_FLOAT || scale == nil || len(scale.Dims) != 1 ||
		!x.Dim(-1).Is(scale.Dims[0]) ||
		onnx.Tensor_DataType(scale.GetDataType()) != onnx.Tensor_FLOAT {
		return nil
	}
	return norm
}

// simplified is a normalization by the root mean square in one node.
func simplified(n *graph.Node, shapes *graph.Shapes) *rowNorm {
	x, scale := n.Input(0), n.Input(1)
	if x == nil || scale == nil || slices.ContainsFunc(n.Out[1:], read) {
		return nil
	}
	if axis := n.Int("axis", -1); axis != -1 && axis != int64(shapes.Of(x).Rank-1) {
		return nil
	}
	return &rowNorm{x, []*graph.Value{scale}, n.Float("epsilon", 1e-5), false}
}

// rootMeanSquare is a normalization as exporters write it out, which ends with the product with its scale.
func rootMeanSquare(last *graph.Node, shapes *graph.Shapes) *rowNorm {
	if len(last.In) != 2 {
		return nil
	}
	for i, scale := range last.In {
		if scale == nil || scale.Tensor == nil || last.In[1-i] == nil {
			continue
		}
		normal := asFloats(last.In[1-i], shapes).Producer
		for _, f := range quotients(normal) {
			mean, epsilon, ok := sumWithNumber(f.under)
			if x := asFloats(f.over, shapes); ok && isMeanSquare(mean, x, shapes) {
				return &rowNorm{x, []*graph.Value{scale}, float32(epsilon), false}
			}
		}
	}
	return nil
}

// quotient is over / sqrt(under).
type quotient struct{ over, under *graph.Value }

// quotients are what a node may be as one.
func quotients(n *graph.Node) (list []quotient) {
	if n == nil || len(n.In) != 2 {
		return nil
	}
	if n.Is("Div") {
		if under := power(n.In[1], 0.5); under != nil {
			list = append(list, quotient{n.In[0], under})
		}
	}
	for i, v := range n.In {
		if !n.Is("Mul") {
			break
		}
		if under := power(v, -0.5); under != nil {
			list = append(list, quotient{n.In[1-i], under})
		}
	}
	return list
}

// power is what a value is the power of, or nil.
func power(v *graph.Value, exponent float64) *graph.Value {
	if v == nil {
		return nil
	}
	n := v.Producer
	switch {
	case n == nil || n.Input(0) == nil || n.Input(1) == nil && !n.Is("Sqrt", "Reciprocal"):
		return nil
	case n.Is("Pow"):
		if k, ok := numberBeside(n, n.In[0]); ok && k == exponent {
			return n.In[0]
		}
	case n.Is("Sqrt") && exponent == 0.5:
		return n.In[0]
	case n.Is("Reciprocal") && exponent < 0:
		return power(n.In[0], -exponent)
	case n.Is("Div") && exponent < 0:
		if one, ok := numberBeside(n, n.In[1]); ok && one == 1 {
			return power(n.In[1], -exponent)
		}
	case n.Is("Mul") && exponent == 2 && n.In[0] == n.In[1]:
		return n.In[0]
	}
	return nil
}

// sumWithNumber takes a sum of a value and a number apart.
func sumWithNumber(v *graph.Value) (*graph.Value, float64, bool) {
	if n := v.Producer; n.Is("Add") && len(n.In) == 2 {
		for _, mean := range n.In {
			if epsilon, ok := numberBeside(n, mean); ok && epsilon >= 0 && !math.IsInf(epsilon, 0) {
				return mean, epsilon, true
			}
		}
	}
	return nil, 0, false
}

// isMeanSquare reports the mean of the squares of each row of x.
func isMeanSquare(v, x *graph.Value, shapes *graph.Shapes) bool {
	n := v.Producer
	if !n.Is("ReduceMean") || n.Int("keepdims", 1) != 1 || x == nil {
		return false
	}
	square := power(n.In[0], 2)
	if square == nil || asFloats(square, shapes) != x {
		return false
	}
	axes, listed := n.Ints("axes")
	if in := n.Input(1); in != nil && !listed {
		for _, e := range shapes.Of(in).Elems {
			axis, known := e.Const()
			if !known {
				return false
			}
			axes = append(axes, axis)
		}
	}
	return len(axes) == 1 && (axes[0] == -1 || axes[0] == int64(shapes.Of(x).Rank-1))
}

// asFloats is a value, or what a Cast of float32 to float32 makes it of.
func asFloats(v *graph.Value, shapes *graph.Shapes) *graph.Value {
	for v != nil && v.Producer.Is("Cast") && v.Producer.Int("to", 0) == int64(onnx.Tensor_FLOAT) &&
		shapes.Of(v.Producer.In[0]).DType == onnx.Tensor_FLOAT {
		v = v.Producer.In[0]
	}
	return v
}
