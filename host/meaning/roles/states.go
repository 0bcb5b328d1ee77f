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
	for out, in := range comingBack(g, all, func(in, out *graph.Value) bool {
		return r.inputs[in] == Other && r.fixed(in) && r.alike(in, out)
	}) {
		if in != nil {
			r.inputs[in], r.states[in] = State, out
		}
	}
}

// comingBack are, by output, the inputs among some that come back as it: of the outputs that fit and are made of an
// input, the one that is made of the fewest of them; nil for an output that two inputs may come back as.
func comingBack(g *graph.Graph, all []*graph.Value,
	fits func(in, out *graph.Value) bool) map[*graph.Value]*graph.Value {
	of := madeOf(g, all)
	taken := map[*graph.Value]*graph.Value{}
	for i, in := range all {
		var own *graph.Value
		fewest, ties := len(all)+1, 0
		for _, out := range g.Outputs {
			from := of[out]
			if from == nil || from.Bit(i) == 0 || !fits(in, out) {
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
	return taken
}

// Present is the output as which an input that is a past or a state comes back: what its attention joins it to, or
// what else is made of it first. It is nil where the graph does not tell and no name does.
func (r *Roles) Present(v *graph.Value) *graph.Value {
	if r.presents == nil {
		r.presents = r.findPresents()
	}
	return r.presents[v]
}

func (r *Roles) findPresents() map[*graph.Value]*graph.Value {
	presents, taken := map[*graph.Value]*graph.Value{}, map[*graph.Value]bool{}
	note := func(in, out *graph.Value) {
		if in != nil && out != nil && in.IsInput && out.IsOutput && presents[in] == nil && !taken[out] {
			presents[in], taken[out] = out, true
		}
	}
	for in, out := range r.states {
		note(in, out)
	}
	for _, b := range r.report.Blocks {
		if a := b.Attention; a != nil && a.Past != nil {
			note(r.main.Lookup(a.Past.Key), r.main.Lookup(a.Past.PresentKey))
			note(r.main.Lookup(a.Past.Value), r.main.Lookup(a.Past.PresentValue))
		}
	}
	var all []*graph.Value
	for _, v := range r.main.Inputs {
		if v.Tensor == nil && r.isNumber(v) {
			all = append(all, v)
		}
	}
	for out, in := range comingBack(r.main, all, func(in, out *graph.Value) bool {
		return r.handedOn(in) && presents[in] == nil && !taken[out] && r.grown(in, out)
	}) {
		note(in, out)
	}
	for _, in := range all {
		if presents[in] != nil || !r.handedOn(in) {
			continue
		}
		shared, _ := Cache(in.Name)
		for _, out := range r.main.Outputs {
			if same, _ := Cache(out.Name); same == shared {
				note(in, out)
			}
		}
	}
	return presents
}

// handedOn reports an input that may come back: one of an open size holds nobody knows what.
func (r *Roles) handedOn(in *graph.Value) bool {
	return slices.Contains([]Input{Past, State, Other}, r.inputs[in])
}

// grown reports an output of the type, the rank and the known lengths of an input.
func (r *Roles) grown(in, out *graph.Value) bool {
	a, b := r.shapes.Of(in), r.shapes.Of(out)
	if a.Rank < 2 || a.Rank != b.Rank || a.DType != b.DType {
		return false
	}
	for i := 1; i < a.Rank; i++ {
		x, known := a.Dims[i].Const()
		y, too := b.Dims[i].Const()
		if known && too && x != y {
			return false
		}
	}
	return true
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
