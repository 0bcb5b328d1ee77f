package plan

import (
	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/onnx/graph"
)

// Region lists the nodes that a choice is about: those that vanish when an operator takes them.
func (c *Choice) Region() []*graph.Node {
	if c.Match != nil {
		return c.Match.Gone()
	}
	if c.Block == nil || c.Block.Wiring == nil {
		return nil
	}
	region := blocks.Region(ends(c.Block))
	if len(region) == 0 && c.Block.Wiring.Anchor != nil {
		region = []*graph.Node{c.Block.Wiring.Anchor}
	}
	return region
}

// Operations counts those of a node, a multiplication with its addition as two: of matmuls, convolutions, and of
// attention, for which blocks has the block that a node is the anchor of. Others count nothing; unknown is unknown.
func Operations(n *graph.Node, shapes *graph.Shapes, block *blocks.Block) graph.Dim {
	switch {
	case blocks.IsAttentionOperator(n):
		if block == nil || block.Attention == nil {
			return graph.Dim{}
		}
		work := attentionWork(block)
		if packed := packedProjections(n, shapes); packed.Known() {
			work = work.Add(packed)
		}
		return work
	case isMatMul(n):
		return (&estimator{shapes: shapes}).flops(n)
	case n.Is("Conv"):
		return convolution(n, shapes)
	}
	return graph.DimInt(0)
}

// packedProjections counts the operations of the projections inside an attention operator; unknown where it has none.
func packedProjections(n *graph.Node, shapes *graph.Shapes) graph.Dim {
	if weight := n.Input(1); n.Op() == "com.microsoft.Attention" && weight != nil && weight.Tensor != nil &&
		len(weight.Tensor.Dims) == 2 {
		return shapes.Of(n.Input(0)).Count().Mul(graph.DimInt(2 * weight.Tensor.Dims[1]))
	}
	return graph.Dim{}
}

// convolution counts the operations of a convolution.
func convolution(n *graph.Node, shapes *graph.Shapes) graph.Dim {
	kernel := n.Input(1)
	if kernel == nil || kernel.Tensor == nil || len(kernel.Tensor.Dims) < 2 {
		return graph.DimInt(0)
	}
	each := int64(2)
	for _, d := range kernel.Tensor.Dims[1:] {
		each *= d
	}
	return shapes.Of(n.Output(0)).Count().Mul(graph.DimInt(each))
}
