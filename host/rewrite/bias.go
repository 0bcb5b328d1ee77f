package rewrite

import (
	"fmt"
	"math"

	"github.com/opgraft/graft/host/blocks"
	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/model/onnx"
)

// bias is what a block adds to its scores, as the one value that an operator reads,
// broadcastable to (B, H, S, T); nil when it adds nothing. Terms, of which these are the values, are added to
// each other, once for all blocks that have the same.
func (r *rewriter) bias(b *blocks.Block, values []*graph.Value) (sum *graph.Value, err error) {
	g, key := b.Wiring.Graph, fmt.Sprintf("%p %d", b.Wiring.Graph, b.Attention.Heads)
	for i, term := range b.Wiring.Biases {
		v := values[i]
		key += fmt.Sprintf(" %p %g %t %t", v, term.Factor, term.Joined, term.Hides)
		if term.Windows {
			key += fmt.Sprintf(" %p", r.now(b.Wiring.Query))
		}
		if made := r.sums[key]; made != nil {
			sum = made
			continue
		}
		kind := r.shapes.Of(term.Value).DType
		switch {
		case term.Joined:
			v, err = r.reshaped(g, v, []int64{-1, b.Attention.Heads}, []int64{1, 2})
		case term.Windows:
			v, err = r.windows(g, v, r.now(b.Wiring.Query))
		}
		if err == nil && term.Factor != 1 {
			v, err = r.make(g, "Mul", v, g.AddInitializer(graph.Number("graft_factor", kind, term.Factor)))
		}
		if err == nil && term.Hides {
			v, err = r.hides(g, v, kind)
		}
		if err == nil && sum != nil {
			v, err = r.make(g, "Add", sum, v)
		}
		if err != nil {
			return nil, err
		}
		sum, r.sums[key] = v, v
	}
	return sum, nil
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
	return r.reshaped(g, v, []int64{-1}, []int64{2, 3, 4})
}

// reshaped gives a value these first lengths, and then those of some of its axes.
func (r *rewriter) reshaped(g *graph.Graph, v *graph.Value, first, axes []int64) (*graph.Value, error) {
	rest, err := r.lengthsOf(g, v, axes...)
	if err != nil {
		return nil, err
	}
	lead := g.AddInitializer(graph.Int64Tensor("", []int64{int64(len(first))}, first...))
	target, err := r.make(g, "Concat", lead, rest)
	if err != nil {
		return nil, err
	}
	return r.make(g, "Reshape", v, target)
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
	n, err := r.node(g, "", op, in, []string{g.FreshName("graft_bias")}, attributes...)
	if err != nil {
		return nil, err
	}
	return n.Out[0], nil
}
