// Package linear edits the linear layers of a graph: weights in panels, layers of one input joined, what stands around
// them taken in.
package linear

import (
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plugin/capability"
	"github.com/opgraft/graft/host/rewrite"
)

// Inputs of a linear layer, see capability.LinearPanels.
const (
	weightOperand   = 1
	biasOperand     = 2
	residualOperand = 3
	normOperand     = 4
	afterOperand    = 6
	scaleOperand    = 8 // of weights that are integers
	zeroOperand     = 9
)

// DropReshapes removes Reshapes around linear layers that take rows of any number of
// axes: exporters flatten rows for a linear layer and unfold them after it, and each
// Reshape copies. The graph is one that plugins have taken linear layers of.
func DropReshapes(g *graph.Graph, shapes *graph.Shapes) error {
	for _, n := range g.Nodes {
		if !n.Provides(capability.LinearPanels) || !n.Input(0).Producer.Is("Reshape") {
			continue
		}
		x, y := n.Input(0).Producer.In[0], n.Out[0]
		from, to := shapes.Of(x), shapes.Of(y)
		if from.Rank < 1 || to.Rank < 1 || y.IsOutput || !sameLastDims(shapes.Of(n.Input(0)).Dims, from.Dims, 1) {
			continue
		}
		unfolded := slices.Clone(from.Dims)
		unfolded[from.Rank-1] = to.Dims[to.Rank-1]
		unfolds := len(y.Uses) > 0 && !slices.ContainsFunc(y.Uses, func(u graph.Use) bool {
			return !u.Node.Is("Reshape") || u.Index != 0 || u.Node.Out[0].IsOutput ||
				!rewrite.SameDims(shapes.Of(u.Node.Out[0]).Dims, unfolded)
		})
		if !unfolds {
			continue
		}
		n.SetInput(0, x)
		// What was declared of it is that of flat rows.
		g.Proto.ValueInfo = slices.DeleteFunc(g.Proto.ValueInfo,
			func(v *onnx.ValueInfo) bool { return v.GetName() == y.Name })
		shapes.Know(y, shapes.Of(y.Uses[0].Node.Out[0]))
		rewrite.NewEditor(g, shapes).Declare(y, y.Uses[0].Node.Out[0], true)
		for _, u := range slices.Clone(y.Uses) {
			g.Replace(u.Node.Out[0], y)
		}
	}
	g.Prune()
	return g.Commit()
}

// Fuse lets linear layers with weights in panels begin with a
// normalization, and end with what follows them: an activation, a sum with as
// many rows, such as the residual of a layer, and a layer normalization. Each saves
// a way through memory, and a node.
func Fuse(g *graph.Graph, shapes *graph.Shapes) error {
	for _, n := range slices.Clone(g.Nodes) {
		normalize(n, shapes)
	}
	for _, n := range slices.Clone(g.Nodes) {
		if !inPanels(n) {
			continue
		}
		if gated, err := gate(g, n, shapes); gated || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		if n.Int("parts", 1) == 1 {
			activate(g, n)
			add(g, n, shapes)
			normalizeAfter(g, n, shapes)
			if err := skipNormalize(g, n, shapes); err != nil {
				return err
			}
		}
	}
	g.Prune()
	if err := g.Sort(); err != nil { // what is added may be made later
		return err
	}
	return g.Commit()
}

// activate lets a linear layer end with the function that alone reads it.
func activate(g *graph.Graph, n *graph.Node) {
	last := quick(n)
	name, sole := "gelu_quick", last == nil
	if sole {
		if last = onlyReader(n); last == nil {
			return
		}
		if name = activation(last); name == "" {
			name = biased(n, last)
		}
	}
	if name == "" {
		return
	}
	n.Proto.Attribute = append(n.Proto.Attribute,
		&onnx.Attribute{Name: proto.String("activation"), Type: onnx.Attribute_STRING.Enum(), S: []byte(name)})
	g.Replace(last.Out[0], n.Out[0])
	if sole {
		g.Remove(last)
	}
}

// quick is the last node of y sigmoid(1.702 y), which alone reads a linear layer's y, or nil.
func quick(n *graph.Node) *graph.Node {
	y := n.Out[0]
	if y.IsOutput || len(y.Uses) != 2 {
		return nil
	}
	for i, u := range y.Uses {
		scaled, product := u.Node, y.Uses[1-i].Node
		if !scaled.Is("Mul") || !product.Is("Mul") || scaled == product || scaled.Out[0].IsOutput || product.Out[0].IsOutput {
			continue
		}
		sigmoid := onlyReader(scaled)
		if k, ok := numberBeside(scaled, y); !ok || math.Abs(k-1.702) > 1e-6 || !sigmoid.Is("Sigmoid") ||
			onlyReader(sigmoid) != product {
			continue
		}
		return product
	}
	return nil
}

// numberBeside is the number that a node of two operands has beside one of them.
func numberBeside(n *graph.Node, v *graph.Value) (float64, bool) {
	other := n.In[0]
	if other == v {
		other = n.In[1]
	}
	if other == v || other == nil || other.Tensor == nil {
		return 0, false
	}
	list, err := n.Graph.Numbers(other.Tensor, 1)
	if err != nil || len(list) != 1 || len(other.Tensor.Dims) > 1 {
		return 0, false
	}
	return list[0], true
}

// add lets a linear layer end with a sum with as many rows.
func add(g *graph.Graph, n *graph.Node, shapes *graph.Shapes) {
	next := onlyReader(n)
	if !next.Is("Add") {
		return
	}
	other := next.In[0]
	if other == n.Out[0] {
		other = next.In[1]
	}
	sum := shapes.Of(next.Out[0]).Dims
	if rewrite.IsConstant(other) || other == n.Out[0] || len(sum) == 0 || !rewrite.SameDims(sum, shapes.Of(other).Dims) ||
		!rewrite.SameDims(sum, shapes.Of(n.Out[0]).Dims) {
		return
	}
	setOperand(n, residualOperand, other)
	g.Replace(next.Out[0], n.Out[0])
	g.Remove(next)
}

// normalizeAfter lets a linear layer end with the layer normalization that alone reads it.
func normalizeAfter(g *graph.Graph, n *graph.Node, shapes *graph.Shapes) {
	next := onlyReader(n)
	if next == nil || !normalizesRows(next, shapes) {
		return
	}
	for i, v := range next.In[1:] {
		if v.Tensor.Dims[0] != n.Int("columns", 0) {
			return // one number for all
		}
		setOperand(n, afterOperand+i, v)
	}
	epsilon := next.Float("epsilon", 1e-5)
	n.Proto.Attribute = append(n.Proto.Attribute,
		&onnx.Attribute{Name: proto.String("after_epsilon"), Type: onnx.Attribute_FLOAT.Enum(), F: &epsilon})
	g.Replace(next.Out[0], n.Out[0])
	g.Remove(next)
}

// normalizesRows reports a layer normalization of each row, of constant scale and bias, of which nothing else is read.
func normalizesRows(n *graph.Node, shapes *graph.Shapes) bool {
	if !n.Is("LayerNormalization") || n.Unread() != "" || n.Out[0].IsOutput || len(n.Out[0].Uses) == 0 || len(n.In) < 2 {
		return false
	}
	rank := int64(shapes.Of(n.In[0]).Rank)
	if axis := n.Int("axis", -1); rank < 1 || axis != -1 && axis != rank-1 ||
		shapes.Of(n.In[0]).DType != onnx.Tensor_FLOAT {
		return false
	}
	for _, v := range n.Out[1:] {
		if v != nil && (len(v.Uses) > 0 || v.IsOutput) {
			return false
		}
	}
	for _, v := range n.In[1:] {
		if v == nil || v.Tensor == nil || len(v.Tensor.Dims) != 1 {
			return false
		}
	}
	return true
}

func inPanels(n *graph.Node) bool {
	return n.Provides(capability.LinearPanels) && n.Int("columns", 0) > 0
}

// setOperand lets a node read a value at a position that it may not have yet.
func setOperand(n *graph.Node, at int, v *graph.Value) {
	for len(n.In) <= at {
		n.In = append(n.In, nil)
	}
	n.SetInput(at, v)
}

// onlyReader is the node that alone reads a linear layer, or nil.
func onlyReader(n *graph.Node) *graph.Node {
	if y := n.Out[0]; !y.IsOutput && len(y.Uses) == 1 && !y.Uses[0].Node.Out[0].IsOutput {
		return y.Uses[0].Node
	}
	return nil
}

// activation is what the operator of a linear layer calls a node's function, or "".
func activation(n *graph.Node) string {
	approximate := ""
	if a := n.Attr("approximate"); a != nil {
		approximate = string(a.S)
	}
	switch {
	case n.Unread() != "":
		return ""
	case n.Is("Relu"):
		return "relu"
	case n.Is(fastGelu) && n.Input(1) == nil:
		return "gelu_tanh"
	case n.Is("com.microsoft.QuickGelu") && math.Abs(float64(n.Float("alpha", 1.702))-1.702) <= 1e-6:
		return "gelu_quick"
	case n.Provides(capability.GELU), n.Is("Gelu", "com.microsoft.Gelu"):
		if approximate == "tanh" {
			return "gelu_tanh"
		}
		return "gelu"
	}
	return ""
}

// sameLastDims compares the last lengths of two shapes.
func sameLastDims(a, b []graph.Dim, last int) bool {
	return len(a) >= last && len(b) >= last && rewrite.SameDims(a[len(a)-last:], b[len(b)-last:])
}
