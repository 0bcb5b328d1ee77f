package plan

import (
	"slices"

	"github.com/opgraft/graft/host/meaning/fused"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// rounds says why a choice is not for an operator that was not asked to: what it computes is rounded to a few bits
// further on. There the last bit of a sum decides between two neighbours, and the answers of the model move by as
// much as its quantisation is coarse.
type rounds struct {
	at map[*graph.Node]*graph.Node // nodes whose results are rounded, and where
}

// reason is why a choice is left, or "". An operator with the bits of the nodes in its place changes nothing there,
// where it is known what ONNX Runtime fuses around it.
func (r *rounds) reason(c *Choice, fusions bool) string {
	if c.Operator.SameBits && fusions {
		return ""
	}
	var n *graph.Node
	if c.Match != nil {
		n = r.first(c.Match.Nodes)
	} else if c.Block != nil {
		_, outs := ends(c.Block)
		var made []*graph.Node
		for _, v := range outs {
			if v != nil && v.Producer != nil {
				made = append(made, v.Producer)
			}
		}
		n = r.first(made)
	}
	if n == nil {
		return ""
	}
	op := n.Op()
	if numbersOf(n) != nil {
		op = fused.NBits // which was taken apart
	}
	return op + " rounds what becomes of its result to a few bits, where other last bits move the model's answers " +
		"within the noise of its " +
		"quantisation; " + c.Operator.Name + " needs that to be accepted (--accept-quantization-noise)"
}

func (r *rounds) first(nodes []*graph.Node) *graph.Node {
	for _, n := range nodes {
		if at := r.at[n]; at != nil {
			return at
		}
	}
	return nil
}

// findRounds looks for what rounds as a model runs, and for all that leads to it.
func findRounds(g *graph.Graph) *rounds {
	r := &rounds{at: map[*graph.Node]*graph.Node{}}
	g.Walk(func(n *graph.Node) {
		if v := rounded(n); v != nil {
			r.above(v, n)
		}
	})
	return r
}

// above marks what a value is computed from. Constants are computed from nothing, and what is read of a shape is not
// its elements.
func (r *rounds) above(v *graph.Value, by *graph.Node) {
	pending := []*graph.Value{v}
	for len(pending) > 0 {
		v := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		n := v.Producer
		if n == nil && v.IsInput {
			n = v.Graph.Owner // a subgraph's input is its owner's, or what its body made the time before
		}
		if n == nil || r.at[n] != nil || n.Is("Shape", "Size") {
			continue
		}
		n.Graph.Spend(1 + len(n.In))
		r.at[n] = by
		for _, in := range n.In {
			if in != nil {
				pending = append(pending, in)
			}
		}
		for _, s := range n.Subgraphs {
			pending = append(pending, s.Outputs...)
		}
	}
}

// rounded is the value of floats that a node rounds, or nil.
func rounded(n *graph.Node) *graph.Value {
	switch {
	case n.Is("DynamicQuantizeLinear", "QuantizeLinear", "Round", "com.microsoft.QuantizeLinear",
		"com.microsoft.DynamicQuantizeMatMul",
		"com.microsoft.DynamicQuantizeLSTM", "com.microsoft.QuantizeBFP"):
		return n.Input(0)
	case n.Is(fused.NBits) && n.Int("accuracy_level", 0) == roundsToInt8:
		return n.Input(0)
	case n.Is("MatMul"):
		if q := numbersOf(n); q != nil && q.RoundsRows() {
			return n.Input(0)
		}
	case n.Is("Cast") && slices.Contains(narrow, onnx.Tensor_DataType(n.Int("to", 0))):
		return n.Input(0)
	}
	return nil
}

// roundsToInt8 is the accuracy level at which MatMulNBits rounds what it multiplies by to eight bits.
const roundsToInt8 = 4

// narrow are the types that are coarser than sums differ by their order.
var narrow = []onnx.Tensor_DataType{onnx.Tensor_INT8, onnx.Tensor_UINT8, onnx.Tensor_INT4, onnx.Tensor_UINT4,
	onnx.Tensor_INT16, onnx.Tensor_UINT16,
	onnx.Tensor_FLOAT8E4M3FN, onnx.Tensor_FLOAT8E4M3FNUZ, onnx.Tensor_FLOAT8E5M2, onnx.Tensor_FLOAT8E5M2FNUZ}
