package fused

import (
	"math"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// Whole says why an operator is not taken apart, or "".
func Whole(n *graph.Node, shapes *graph.Shapes) string {
	switch {
	case n.Graph.Owner != nil:
		return "it is in a branch"
	case n.Graph.Opset("") < minOpset:
		return "its model is of an older version of ONNX's operators"
	}
	if why := n.Unread(); why != "" {
		return why
	}
	switch n.Op() {
	case Embedding:
		return wholeEmbedding(n, shapes)
	case Attention:
		return wholeAttention(n, shapes)
	case MultiHead:
		return wholeMultiHead(n, shapes)
	}
	return "it has no parts"
}

func wholeEmbedding(n *graph.Node, shapes *graph.Shapes) string {
	for _, i := range []int{0, 2, 3, 5, 6} {
		if n.Input(i) == nil {
			return "it is not complete"
		}
	}
	if s := shapes.Of(n.Input(0)); s.Rank != 2 || s.DType != onnx.Tensor_INT32 {
		return "its tokens are not of int32, (batch, positions)"
	}
	if index := n.Output(1); index != nil && (len(index.Uses) > 0 || index.IsOutput) && n.Input(7) == nil {
		return "it counts no mask"
	}
	return ""
}

func wholeAttention(n *graph.Node, shapes *graph.Shapes) string {
	x, w := shapes.Of(n.Input(0)), shapes.Of(n.Input(1))
	switch {
	case n.Input(4) != nil || given(n.Output(1)) || n.Int("past_present_share_buffer", 0) != 0 || len(n.In) > 6:
		return "it has a past"
	case n.Int("unidirectional", 0) != 0:
		return "it is causal"
	case n.Int("do_rotary", 0) != 0:
		return "it turns its queries and keys"
	case x.Rank != 3 || x.DType != onnx.Tensor_FLOAT || w.Rank != 2:
		return "what it projects is not of float32, (batch, positions, width), or its weight is no matrix"
	}
	if sizes(n, w) == nil {
		return "the widths of its projections do not fit its heads"
	}
	return wholeMask(n.Input(3), shapes, x.Dim(0), x.Dim(1))
}

func wholeMultiHead(n *graph.Node, shapes *graph.Shapes) string {
	q, k, v := shapes.Of(n.Input(0)), shapes.Of(n.Input(1)), shapes.Of(n.Input(2))
	if n.Input(3) != nil && widths(n, shapes) == nil {
		return "its bias is no constant for query, key and value, one after the other"
	}
	if n.Input(4) == nil {
		return ""
	}
	switch {
	case q.Rank != 3 || k.Rank != 3 || v.Rank != 3 || q.DType != onnx.Tensor_FLOAT:
		return "what it attends to is not of float32, (batch, positions, width)"
	case n.Input(6) != nil || n.Input(7) != nil || given(n.Output(1)) || given(n.Output(2)):
		return "it has a past"
	case n.Int("unidirectional", 0) != 0:
		return "it is causal"
	}
	return wholeMask(n.Input(4), shapes, k.Dim(0), k.Dim(1))
}

// given says that something reads a value.
func given(v *graph.Value) bool { return v != nil && (len(v.Uses) > 0 || v.IsOutput) }

// sizes are the widths of query, key and value, or nil.
func sizes(n *graph.Node, w graph.Fact) []int64 {
	heads := n.Int("num_heads", 0)
	all, ok := w.Dim(1).Const()
	list, stated := n.Ints("qkv_hidden_sizes")
	if !stated || len(list) == 0 {
		list = []int64{all / 3, all / 3, all / 3}
	}
	if !ok || heads <= 0 || len(list) != 3 || list[0] != list[1] {
		return nil
	}
	sum := int64(0)
	for _, x := range list {
		if x <= 0 || x > math.MaxInt32 || x%heads != 0 {
			return nil
		}
		sum += x
	}
	if sum != all {
		return nil
	}
	return list
}

// widths are those of query, key and value of a MultiHeadAttention whose bias is a constant of as many, or nil.
func widths(n *graph.Node, shapes *graph.Shapes) []int64 {
	bias := n.Input(3)
	if bias.Tensor == nil || len(bias.Tensor.Dims) != 1 ||
		onnx.Tensor_DataType(bias.Tensor.GetDataType()) != onnx.Tensor_FLOAT {
		return nil
	}
	var list []int64
	sum := int64(0)
	for i := range 3 {
		s := shapes.Of(n.Input(i))
		width, ok := s.Dim(-1).Const()
		if s.Rank != 3 || !ok || width <= 0 || width > math.MaxInt32 || s.DType != onnx.Tensor_FLOAT {
			return nil
		}
		list, sum = append(list, width), sum+width
	}
	if sum != bias.Tensor.Dims[0] {
		return nil
	}
	return list
}

// form is what a mask says, by its shape.
type form int

const (
	unknown form = iota
	tokens       // (B, S): above 0 where a key is seen
	pairs        // (B, S, S): the same for each query
	lengths      // (B): how many keys are seen; (3B + 2) begins with these
	spans        // (2B): where those that are seen end, then where they begin
)

func formOf(mask *graph.Value, shapes *graph.Shapes, batch, keys graph.Dim) form {
	s := shapes.Of(mask)
	if s.DType != onnx.Tensor_INT32 || !batch.Known() || !keys.Known() {
		return unknown
	}
	switch {
	case s.Rank == 2 && s.Dims[0].Equal(batch) && s.Dims[1].Equal(keys):
		return tokens
	case s.Rank == 3 && s.Dims[0].Equal(batch) && s.Dims[2].Equal(keys):
		return pairs
	case s.Rank == 1 && s.Dims[0].Equal(batch),
		s.Rank == 1 && s.Dims[0].Equal(batch.Mul(graph.DimInt(3)).Add(graph.DimInt(2))):
		return lengths
	case s.Rank == 1 && s.Dims[0].Equal(batch.Mul(graph.DimInt(2))):
		return spans
	}
	return unknown
}

func wholeMask(mask *graph.Value, shapes *graph.Shapes, batch, keys graph.Dim) string {
	if mask != nil && formOf(mask, shapes, batch, keys) == unknown {
		return "the shape of its mask does not tell which of several forms it has"
	}
	return ""
}
