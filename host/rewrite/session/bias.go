package session

import (
	"fmt"
	"math"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// bias is what a block adds to its scores, as the one value that an operator reads,
// broadcastable to (B, H, S, T); nil when it adds nothing. Terms, of which these are the values, are added to
// each other and raised to their floor, once for all blocks that have the same.
func (r *rewriter) bias(b *blocks.Block, values []*graph.Value) (sum *graph.Value, err error) {
	g, wide := b.Wiring.Graph, b.Wiring.Wide
	key := fmt.Sprintf("%p %d %t", g, b.Attention.Heads, wide)
	for i, term := range b.Wiring.Biases {
		v := values[i]
		key += fmt.Sprintf(" %p %g %t %t %t", v, term.Factor, term.Joined, term.Hides, term.Later)
		if term.Windows {
			key += fmt.Sprintf(" %p", r.Current(b.Wiring.Query))
		}
		if made := r.sums[key]; made != nil {
			sum = made
			continue
		}
		kind := r.shapes.Of(term.Value).DType
		if wide {
			if v, err = r.cast(g, v, onnx.Tensor_FLOAT); err != nil {
				return nil, err
			}
			kind = onnx.Tensor_FLOAT
		}
		switch {
		case term.Joined:
			v, err = r.parted(g, v, b.Attention.Heads)
		case term.Windows:
			v, err = r.windows(g, v, r.Current(b.Wiring.Query))
		}
		if err == nil && term.Factor != 1 {
			v, err = r.make(g, "Mul", v, g.AddInitializer(graph.Number("graft_factor", kind, term.Factor)))
		}
		if err == nil && term.Hides {
			v, err = r.hides(g, v, kind)
		}
		if err == nil && term.Later {
			v, err = r.later(g, v, kind)
		}
		if err == nil && sum != nil {
			v, err = r.make(g, "Add", sum, v)
		}
		if err != nil {
			return nil, err
		}
		sum, r.sums[key] = v, v
	}
	if floor := b.Wiring.Floor; sum != nil && floor != 0 {
		key += fmt.Sprintf(" floor %g", floor)
		if r.sums[key] == nil {
			if r.sums[key], err = r.make(g, "Max", sum,
				g.AddInitializer(graph.Number("graft_floor", onnx.Tensor_FLOAT, floor))); err != nil {
				return nil, err
			}
		}
		sum = r.sums[key]
	}
	if !wide {
		return sum, nil
	}
	key += " raised"
	if r.sums[key] == nil {
		if r.sums[key], err = r.raised(g, sum); err != nil {
			return nil, err
		}
	}
	return r.sums[key], nil
}

// raised is a bias of float32 in float16, from each row of which its greatest number is taken where that is below 0:
// a softmax does not see that, and float16 has digits for what is left.
func (r *rewriter) raised(g *graph.Graph, v *graph.Value) (*graph.Value, error) {
	in, attributes := []*graph.Value{v}, []any{"keepdims", 1, "axes", []int64{-1}}
	if g.Opset("") >= 18 {
		in, attributes = append(in, g.AddInitializer(graph.Int64Tensor("", []int64{1}, -1))), attributes[:2]
	}
	top, err := r.AddNode(g, "", "ReduceMax", in, []string{g.FreshName("graft_bias")}, attributes...)
	if err != nil {
		return nil, err
	}
	number := func(x float64) *graph.Value {
		return g.AddInitializer(graph.Number("graft_limit", onnx.Tensor_FLOAT, x))
	}
	below, err := r.make(g, "Clip", top.Out[0], number(-math.MaxFloat32), number(0))
	if err != nil {
		return nil, err
	}
	if v, err = r.make(g, "Sub", v, below); err != nil {
		return nil, err
	}
	return r.cast(g, v, onnx.Tensor_FLOAT16)
}

func (r *rewriter) cast(g *graph.Graph, v *graph.Value, to onnx.Tensor_DataType) (*graph.Value, error) {
	n, err := r.AddNode(g, "", "Cast", []*graph.Value{v}, []string{g.FreshName("graft_bias")}, "to", int64(to))
	if err != nil {
		return nil, err
	}
	return n.Out[0], nil
}

// hides puts minus infinity in place of the lowest number of a type.
func (r *rewriter) hides(g *graph.Graph, v *graph.Value, kind onnx.Tensor_DataType) (*graph.Value, error) {
	lowest := -math.MaxFloat32
	if kind == onnx.Tensor_FLOAT16 {
		lowest = -65504
	}
	hidden, err := r.make(g, "LessOrEqual", v, g.AddInitializer(graph.Number("graft_lowest", kind, lowest)))
	if err != nil {
		return nil, err
	}
	return r.make(g, "Where", hidden, g.AddInitializer(graph.Number("graft_hidden", kind, math.Inf(-1))), v)
}

// later adds the lowest number to scores (B, H, S, T) where a key comes after its query, the last of which is at the
// last key.
func (r *rewriter) later(g *graph.Graph, v *graph.Value, kind onnx.Tensor_DataType) (*graph.Value, error) {
	zero, one := g.AddInitializer(graph.Int64Tensor("", nil, 0)), g.AddInitializer(graph.Int64Tensor("", nil, 1))
	shape, err := r.make(g, "Shape", v)
	made := func(op string, in ...*graph.Value) (out *graph.Value) {
		if err == nil {
			out, err = r.make(g, op, in...)
		}
		return out
	}
	length := func(axis int64) *graph.Value {
		return made("Gather", shape, g.AddInitializer(graph.Int64Tensor("", nil, axis)))
	}
	keys := length(3)
	queries := made("Range", made("Sub", keys, length(2)), keys, one)
	column := made("Reshape", queries, g.AddInitializer(graph.Int64Tensor("", []int64{2}, -1, 1)))
	after := made("Greater", made("Range", zero, keys, one), column)
	low := made("Where", after, g.AddInitializer(graph.Number("graft_lowest", kind, -math.MaxFloat32)),
		g.AddInitializer(graph.Number("graft_zero", kind, 0)))
	return made("Add", v, low), err
}

// windows repeats a mask (1, W, ..) over the windows of one image for each image of a query's batch.
func (r *rewriter) windows(g *graph.Graph, v, query *graph.Value) (*graph.Value, error) {
	batch, err := r.lengthsOf(g, query, 0)
	if err != nil {
		return nil, err
	}
	windows, err := r.lengthsOf(g, v, 1)
	if err != nil {
		return nil, err
	}
	images, err := r.make(g, "Div", batch, windows)
	if err != nil {
		return nil, err
	}
	times, err := r.make(g, "Concat", images, g.AddInitializer(graph.Int64Tensor("", []int64{4}, 1, 1, 1, 1)))
	if err != nil {
		return nil, err
	}
	if v, err = r.make(g, "Tile", v, times); err != nil {
		return nil, err
	}
	rest, err := r.lengthsOf(g, v, 2, 3, 4)
	if err != nil {
		return nil, err
	}
	target, err := r.make(g, "Concat", g.AddInitializer(graph.Int64Tensor("", []int64{1}, -1)), rest)
	if err != nil {
		return nil, err
	}
	return r.make(g, "Reshape", v, target)
}

// parted is a value (B*H, S, T) as (B, H, S, T). Any length but H may be zero, which a Reshape takes only where it
// copies it (0) from the axis at the same place, so there is one more axis before. No Concat makes the lengths: ONNX
// Runtime makes constants of those, and the one that it leaves open (-1) cannot stand beside a zero.
func (r *rewriter) parted(g *graph.Graph, v *graph.Value, heads int64) (*graph.Value, error) {
	both, err := r.lengthsOf(g, v, 0)
	made := func(op string, in *graph.Value, numbers ...int64) (out *graph.Value) {
		if err == nil {
			out, err = r.make(g, op, in, g.AddInitializer(graph.Int64Tensor("", []int64{int64(len(numbers))}, numbers...)))
		}
		return out
	}
	target := made("Add", made("Mul", made("Div", both, heads), 1, 0, 0, 0), 0, heads, 0, 0)
	if err != nil {
		return nil, err
	}
	in, attributes := []*graph.Value{v}, []any{"axes", []int64{1}}
	if g.Opset("") >= 13 {
		in, attributes = append(in, g.AddInitializer(graph.Int64Tensor("", []int64{1}, 1))), nil
	}
	apart, err := r.AddNode(g, "", "Unsqueeze", in, []string{g.FreshName("graft_bias")}, attributes...)
	if err != nil {
		return nil, err
	}
	return r.make(g, "Reshape", apart.Out[0], target)
}

// lengthsOf are the lengths of some axes of a value, as a list.
func (r *rewriter) lengthsOf(g *graph.Graph, v *graph.Value, axes ...int64) (*graph.Value, error) {
	shape, err := r.make(g, "Shape", v)
	if err != nil {
		return nil, err
	}
	return r.make(g, "Gather", shape, g.AddInitializer(graph.Int64Tensor("", []int64{int64(len(axes))}, axes...)))
}

// make adds a node of ONNX with one output; lists are joined along their only axis.
func (r *rewriter) make(g *graph.Graph, op string, in ...*graph.Value) (*graph.Value, error) {
	var attributes []any
	if op == "Concat" {
		attributes = []any{"axis", 0}
	}
	n, err := r.AddNode(g, "", op, in, []string{g.FreshName("graft_bias")}, attributes...)
	if err != nil {
		return nil, err
	}
	return n.Out[0], nil
}
