package roles

import (
	"math/big"
	"slices"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// State is the output as which an input that is a state comes back; nil of any other input.
func (r *Roles) State(v *graph.Value) *graph.Value { return r.states[v] }

// recurrent finds recurrent states beside tokens: inputs of numbers, of one fixed size for each row, each with the
// first output of that type and shape which is made of it. A later layer's output is made of all that earlier layers
// read, so that of those made of an input its own is the one that is made of the fewest; where two are, neither is.
func (r *Roles) recurrent(g *graph.Graph) {
	if !r.HasInput(Tokens) {
		return
	}
	var all []*graph.Value
	for _, v := range g.Inputs {
		if v.Tensor == nil && r.isNumber(v) {
			all = append(all, v)
		}
	}
	open := slices.ContainsFunc(all, func(v *graph.Value) bool { return r.inputs[v] == Other && r.fixed(v) })
	if !open {
		return
	}
	of := madeOf(g, all)
	taken := map[*graph.Value]*graph.Value{} // by output; nil of one that two inputs may come back as
	for i, in := range all {
		if r.inputs[in] != Other || !r.fixed(in) {
			continue
		}
		var own *graph.Value
		fewest, ties := len(all)+1, 0
		for _, out := range g.Outputs {
			from := of[out]
			if from == nil || from.Bit(i) == 0 || !r.alike(in, out) {
				continue
			}
			switch n := ones(from); {
			case n < fewest:
				own, fewest, ties = out, n, 1
			case n == fewest:
				ties++
			}
		}
		if ties != 1 {
			continue
		}
		if _, twice := taken[own]; twice {
			in = nil
		}
		taken[own] = in
	}
	for out, in := range taken {
		if in != nil {
			r.inputs[in], r.states[in] = State, out
		}
	}
}

// isNumber reports a value of a floating type.
func (r *Roles) isNumber(v *graph.Value) bool {
	switch r.shapes.Of(v).DType {
	case onnx.Tensor_FLOAT, onnx.Tensor_FLOAT16, onnx.Tensor_BFLOAT16, onnx.Tensor_DOUBLE:
		return true
	}
	return false
}

// fixed reports a value whose axes but the first have one length.
func (r *Roles) fixed(v *graph.Value) bool {
	f := r.shapes.Of(v)
	if f.Rank < 2 {
		return false
	}
	if _, one := f.Dims[0].Const(); one && !f.Dims[0].Is(1) {
		return false // no axis of rows
	}
	return !slices.ContainsFunc(f.Dims[1:], func(d graph.Dim) bool { _, ok := d.Const(); return !ok })
}

// alike reports two values of one type and shape.
func (r *Roles) alike(a, b *graph.Value) bool {
	x, y := r.shapes.Of(a), r.shapes.Of(b)
	return x.DType == y.DType && x.Rank == y.Rank && slices.EqualFunc(x.Dims, y.Dims, graph.Dim.Equal)
}

func ones(n *big.Int) (count int) {
	for i := range n.BitLen() {
		count += int(n.Bit(i))
	}
	return count
}

// madeOf says of each value of a graph which of some values it is made of, a bit for each.
func madeOf(g *graph.Graph, list []*graph.Value) map[*graph.Value]*big.Int {
	of := map[*graph.Value]*big.Int{}
	for i, v := range list {
		of[v] = new(big.Int).SetBit(new(big.Int), i, 1)
	}
	var read func(n *graph.Node, into *big.Int)
	read = func(n *graph.Node, into *big.Int) {
		g.Spend(1 + len(n.In))
		for _, v := range n.In {
			if from := of[v]; from != nil {
				into.Or(into, from)
			}
		}
		for _, sub := range n.Subgraphs {
			for _, inner := range sub.Nodes {
				read(inner, into)
			}
		}
	}
	for _, n := range g.Nodes {
		from := new(big.Int)
		if n.Is("Shape", "Size") {
			continue // lengths alone
		}
		if read(n, from); from.Sign() == 0 {
			continue
		}
		for _, v := range n.Out {
			if v != nil {
				g.Hold(reachedBytes + len(list)/8)
				of[v] = from
			}
		}
	}
	return of
}
