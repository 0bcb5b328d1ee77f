package linear

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/rewrite"
)

// ONNX Runtime's own operators add a bias that an exporter's graph adds in a node of its own: BiasGelu and FastGelu
// before they activate, SkipLayerNormalization beside a residual.

const (
	biasGelu = "com.microsoft.BiasGelu"
	fastGelu = "com.microsoft.FastGelu"
	skip     = "com.microsoft.SkipLayerNormalization"
)

// biased is what the operator of a linear layer calls the function of a node that adds a bias before it, which the
// layer adds from now on; "" for another node.
func biased(n, next *graph.Node) string {
	name := map[string]string{biasGelu: "gelu", fastGelu: "gelu_tanh"}[next.Op()]
	bias := next.Input(1)
	if name == "" || next.Unread() != "" || next.Input(0) != n.Out[0] || bias == nil || !canAdd(n, bias) {
		return ""
	}
	setOperand(n, biasOperand, bias)
	return name
}

// canAdd reports a bias for each column of a linear layer that has none.
func canAdd(n *graph.Node, bias *graph.Value) bool {
	return n.Input(biasOperand) == nil && bias.Tensor != nil &&
		slices.Equal(bias.Tensor.Dims, []int64{n.Int("columns", 0)}) &&
		onnx.Tensor_DataType(bias.Tensor.GetDataType()) == onnx.Tensor_FLOAT
}

// Inputs and outputs of skip.
const (
	skipScale = 2
	skipShift = 3
	skipBias  = 4
	skipSum   = 3
)

// skipNormalize lets a linear layer end with the sum and the layer normalization that alone read it. Where something
// reads the sum as well, the layer ends with that, and the normalization is a node of its own.
func skipNormalize(g *graph.Graph, n *graph.Node, shapes *graph.Shapes) error {
	next := soleReader(n)
	if !next.Is(skip) || next.Unread() != "" ||
		n.Input(residualOperand) != nil || n.Input(afterOperand) != nil || len(next.In) < 3 {
		return nil
	}
	y := n.Out[0]
	other := next.In[0]
	if other == y {
		other = next.In[1]
	}
	dims := shapes.Of(y).Dims
	if other == nil || other == y || rewrite.IsConstant(other) || shapes.Of(y).DType != onnx.Tensor_FLOAT ||
		len(dims) == 0 ||
		!rewrite.SameDims(dims, shapes.Of(other).Dims) {
		return nil
	}
	for _, v := range []*graph.Value{next.Input(skipScale), next.Input(skipShift)} {
		if v != nil && (v.Tensor == nil || !slices.Equal(v.Tensor.Dims, []int64{n.Int("columns", 0)})) ||
			v == nil && next.Input(skipScale) == nil {
			return nil
		}
	}
	for i := 1; i < len(next.Out) && i < skipSum; i++ {
		if read(next.Out[i]) {
			return nil
		}
	}
	sum, normal := next.Output(skipSum), next.Out[0]
	bias := next.Input(skipBias)
	if read(sum) && g.Opset("") < 17 || bias != nil && !canAdd(n, bias) {
		return nil
	}
	if bias != nil {
		setOperand(n, biasOperand, bias)
	}
	setOperand(n, residualOperand, other)
	scale, shift, epsilon := next.Input(skipScale), next.Input(skipShift), next.Float("epsilon", 1e-12)
	if !read(sum) {
		setOperand(n, afterOperand, scale)
		if shift != nil {
			setOperand(n, afterOperand+1, shift)
		}
		n.Proto.Attribute = append(n.Proto.Attribute,
			&onnx.Attribute{Name: proto.String("after_epsilon"), Type: onnx.Attribute_FLOAT.Enum(), F: &epsilon})
		g.Replace(normal, y)
		g.Remove(next)
		return nil
	}
	r := rewrite.NewEditor(g, shapes)
	in := []*graph.Value{y, scale}
	if shift != nil {
		in = append(in, shift)
	}
	apart, err := r.AddNode(g, "", "LayerNormalization", in, []string{g.FreshName("graft_normal")}, "axis", int64(-1),
		"epsilon", float64(epsilon))
	if err != nil {
		return err
	}
	shapes.Know(apart.Out[0], shapes.Of(normal))
	r.Declare(apart.Out[0], normal, true)
	g.Replace(normal, apart.Out[0])
	for _, u := range slices.Clone(y.Uses) {
		if u.Node == next {
			next.SetInput(u.Index, nil)
		}
	}
	g.Replace(sum, y)
	g.Remove(next)
	return nil
}

// read says that something reads a value.
func read(v *graph.Value) bool { return v != nil && (len(v.Uses) > 0 || v.IsOutput) }

// soleReader is the node that alone reads a linear layer, once; nil where there is none.
func soleReader(n *graph.Node) *graph.Node {
	if y := n.Out[0]; !y.IsOutput && len(y.Uses) == 1 {
		return y.Uses[0].Node
	}
	return nil
}
