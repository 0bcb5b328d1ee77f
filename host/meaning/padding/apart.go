package padding

import (
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// apart follows what is computed of rows that are put back in their places, zeros standing for those of hidden
// tokens, up to where rows are taken of it again: attention that stays as the model has it.
type apart struct {
	*rows
	traces map[*graph.Value]*trace
	hides  bool // keys that the mask hides weigh nothing in one of them
}

// trace says which elements of a value are the model's where hidden rows were zeros before it.
type trace struct {
	batch  int   // the axis of sequences
	joined bool  // heads are in it too, after the sequences
	tokens []int // axes of positions: an element is the model's where those are visible of all of them
	zero   bool  // others are zeros: rows as they were put back, laid out anew at most
	low    int   // axis of keys: scores of hidden ones are below all others; -1 for none
	none   int   // axis of keys: hidden ones weigh nothing; -1 for none
}

// follow says which node sees hidden rows of values that are put back, or "".
func (a *apart) follow() string {
	for _, n := range a.main.Nodes {
		if _, ends := a.facts.Ends[n]; ends || a.chosen[n] || a.inner[n] || a.blocks[first(n.Out)] != nil ||
			n.Is("Shape", "Size") {
			continue
		}
		in := make([]*trace, len(n.In))
		var from *graph.Value
		for i, v := range n.In {
			a.main.Spend(1)
			if in[i] = a.of(v); in[i] != nil {
				from = v
			}
		}
		if from == nil {
			continue
		}
		t := a.pass(n, in)
		if t == nil || len(n.Out) != 1 || n.Out[0].IsOutput ||
			slices.ContainsFunc(n.Out[0].Uses, func(u graph.Use) bool { return u.Node.Graph != a.main }) {
			return fmt.Sprintf("rows of hidden tokens reach %s (%s) by %s", n, n.Op(), from.Name)
		}
		a.traces[n.Out[0]] = t
		a.facts.Apart = true
	}
	for u, g := range a.facts.Given {
		t := a.traces[u.Node.In[u.Index]]
		if t != nil && (t.joined || t.batch != g.Batch || len(t.tokens) != 1 || t.tokens[0] != g.Position) {
			return fmt.Sprintf("rows of hidden tokens reach %s (%s) by %s", u.Node, u.Node.Op(), u.Node.In[u.Index].Name)
		}
	}
	if len(a.blocks) == 0 && !a.hides {
		return "what its mask hides, and what it shows, is not known"
	}
	return ""
}

// of is the trace of a value that a node outside reads; nil where all its elements are the model's.
func (a *apart) of(v *graph.Value) *trace {
	if v == nil {
		return nil
	}
	if t := a.traces[v]; t != nil {
		return t
	}
	at, ok := a.facts.Places[v]
	if !ok || !a.late[v] || a.zero(v) {
		return nil
	}
	if at.Flat() {
		return &trace{batch: -1, tokens: []int{at.Position}, low: -1, none: -1}
	}
	return &trace{batch: at.Batch, tokens: []int{at.Position}, zero: true, low: -1, none: -1}
}

// pass is what a node makes; nil where that is not known.
func (a *apart) pass(n *graph.Node, in []*trace) *trace {
	if n.Graph != a.main || len(n.Subgraphs) > 0 ||
		slices.ContainsFunc(in, func(t *trace) bool { return t != nil && t.batch < 0 }) {
		return nil
	}
	switch {
	case n.Is("Where"):
		return a.where(n, in)
	case pointwise[n.Op()], inert(n):
		return a.elements(n, in)
	case n.Is("QuantizeLinear", "DequantizeLinear"):
		return a.round(n, in)
	case n.Is("MatMul"):
		return a.multiply(n, in)
	case n.Is("Softmax"):
		return a.weigh(n, in[0])
	case n.Is("Transpose", "Reshape", "Unsqueeze", "Squeeze"):
		return a.view(n, in[0])
	case n.Is("GatherElements"):
		t, rank := in[0], a.shapes.Of(n.In[0]).Rank
		axis := int(n.Int("axis", 0))
		if axis < 0 {
			axis += rank
		}
		if t == nil || in[1] != nil || slices.Contains(t.tokens, axis) || axis == t.batch ||
			!a.sameBut(n.In[0], n.In[1], axis) {
			return nil
		}
		return &trace{batch: t.batch, joined: t.joined, tokens: t.tokens, low: -1, none: -1}
	}
	return nil
}

// sameBut reports two values of the same lengths but for one axis.
func (a *apart) sameBut(v, w *graph.Value, axis int) bool {
	x, y := a.shapes.Of(v), a.shapes.Of(w)
	if x.Rank < 0 || x.Rank != y.Rank {
		return false
	}
	for i, d := range x.Dims {
		if i != axis && (!d.Known() || !d.Equal(y.Dims[i])) {
			return false
		}
	}
	return true
}

// lifted is a trace in a value of a higher rank to which its own is broadcast.
func (t *trace) lifted(by int) *trace {
	up := *t
	up.batch, up.tokens = t.batch+by, slices.Clone(t.tokens)
	for i := range up.tokens {
		up.tokens[i] += by
	}
	if up.low >= 0 {
		up.low += by
	}
	if up.none >= 0 {
		up.none += by
	}
	return &up
}

// elements passes an operator whose inputs are broadcast to each other.
func (a *apart) elements(n *graph.Node, in []*trace) *trace {
	rank := a.shapes.Of(n.Out[0]).Rank
	var out *trace
	for i, t := range in {
		if t == nil {
			continue
		}
		t = t.lifted(rank - a.shapes.Of(n.In[i]).Rank)
		if out == nil {
			out = t
			continue
		}
		if t.batch != out.batch || t.joined != out.joined {
			return nil
		}
		for _, axis := range t.tokens {
			if !slices.Contains(out.tokens, axis) {
				out.tokens = append(out.tokens, axis)
			}
		}
		out.low, out.none = max(out.low, t.low), max(out.none, t.none)
	}
	switch {
	case n.Is("Cast"):
		switch a.shapes.Of(n.Out[0]).DType {
		case onnx.Tensor_FLOAT, onnx.Tensor_FLOAT16, onnx.Tensor_BFLOAT16, onnx.Tensor_DOUBLE:
		default:
			out.low = -1
		}
		return out
	case n.Is("Identity", "Dropout"):
		return out
	case n.Is("Add"):
		out.none = -1
		for i, v := range n.In {
			l := a.masks.lane(v, 0)
			if in[i] == nil && a.lowers(v, out, rank) {
				out.low = rank - 1
			} else if in[i] == nil && (l == nil || l.token >= 0) || in[1-i] != nil && in[i] != nil {
				out.low = -1 // it may be as high as they are low
			}
		}
	case n.Is("Mul"): // zeros stay
		out.low = -1
	default:
		out.low, out.none = -1, -1
	}
	out.zero = false
	return out
}

// round passes numbers that are rounded, all by one scale, to integers and back. Zeros stay: an integer stands for
// them, and it is the same both ways. Scores do not stay below all others, as integers have a least one.
func (a *apart) round(n *graph.Node, in []*trace) *trace {
	if in[0] == nil || slices.ContainsFunc(in[1:], func(t *trace) bool { return t != nil }) || !a.single(n.Input(1)) {
		return nil
	}
	out := *in[0]
	out.low = -1
	if n.Is("DequantizeLinear") && n.In[0].Producer.Is("QuantizeLinear") && a.sameZero(n, n.In[0].Producer) {
		return &out
	}
	if n.Is("DequantizeLinear") ||
		slices.ContainsFunc(n.Out[0].Uses, func(u graph.Use) bool { return !u.Node.Is("DequantizeLinear") || u.Index != 0 }) {
		out.zero, out.none = false, -1
	}
	return &out
}

// single reports one scale for a whole tensor.
func (a *apart) single(v *graph.Value) bool {
	s := a.shapes.Of(v)
	return s.Rank == 0 || s.Rank == 1 && s.Dims[0].Is(1)
}

// sameZero reports two nodes by which the same integer stands for zero.
func (a *apart) sameZero(n, m *graph.Node) bool {
	zero := func(n *graph.Node) (int64, bool) {
		if n.Input(2) == nil {
			return 0, true
		}
		if n.In[2].Tensor == nil {
			return 0, false
		}
		list, err := a.main.Integers(n.In[2].Tensor, 1)
		if err != nil || len(list) != 1 {
			return 0, false
		}
		return list[0], true
	}
	x, ok := zero(n)
	y, same := zero(m)
	return ok && same && x == y
}

// keys is what a mask is where keys of a trace are hidden, for the queries that are visible.
func (a *apart) keys(v *graph.Value, t *trace, rank int) (hidden term, ok bool) {
	l := a.masks.lane(v, 0)
	lift := rank - a.shapes.Of(v).Rank
	if l == nil || l.token < 0 || t.joined || l.token+lift != rank-1 || l.batch+lift != t.batch ||
		!slices.Contains(t.tokens, rank-1) ||
		l.query >= 0 && !slices.Contains(t.tokens, l.query+lift) {
		return term{}, false
	}
	return l.hidden, true
}

// lowers reports a mask that is added to scores, and is below all of them where a key is hidden.
func (a *apart) lowers(v *graph.Value, t *trace, rank int) bool {
	hidden, ok := a.keys(v, t, rank)
	if !ok {
		return false
	}
	x, ok := hidden.as()
	return ok && x <= lowest
}

// where passes a choice: of a number below all scores, or of 0, where a key is hidden.
func (a *apart) where(n *graph.Node, in []*trace) *trace {
	if in[0] != nil {
		return nil
	}
	out := a.elements(n, in)
	if out == nil {
		return nil
	}
	rank := a.shapes.Of(n.Out[0]).Rank
	for i, other := range []int{2, 1} {
		t := in[i+1]
		x, even := even(a.shapes.Of(n.In[other]))
		if t == nil || in[other] != nil || !even {
			continue
		}
		t = t.lifted(rank - a.shapes.Of(n.In[i+1]).Rank)
		if x == 0 {
			out.none = t.none // what weighs nothing does so still
		}
		hidden, ok := a.keys(n.In[0], out, rank)
		if c, constant := hidden.as(); ok && constant && (c != 0) == (other == 1) {
			if x <= lowest {
				out.low = rank - 1
			}
			if x == 0 {
				out.none = rank - 1
			}
		}
	}
	return out
}

// weigh passes a softmax over keys, of which hidden ones have scores below all others. Their weights are 0 then, in
// the model too.
func (a *apart) weigh(n *graph.Node, t *trace) *trace {
	rank := a.shapes.Of(n.In[0]).Rank
	axis := int(n.Int("axis", -1))
	if axis < 0 {
		axis += rank
	}
	if t == nil || n.Graph.Opset("") < 13 || axis != rank-1 || axis == t.batch {
		return nil
	}
	if !slices.Contains(t.tokens, axis) {
		return &trace{batch: t.batch, joined: t.joined, tokens: t.tokens, low: -1, none: -1}
	}
	if t.low != axis {
		return nil
	}
	a.hides = true
	return &trace{batch: t.batch, joined: t.joined,
		tokens: slices.DeleteFunc(slices.Clone(t.tokens), func(i int) bool { return i == axis }), low: -1, none: axis}
}

// multiply passes a matmul: of rows by columns, of which positions may be axes, or of weights by rows.
func (a *apart) multiply(n *graph.Node, in []*trace) *trace {
	left, right, rank := a.shapes.Of(n.In[0]).Rank, a.shapes.Of(n.In[1]).Rank, a.shapes.Of(n.Out[0]).Rank
	if left < 2 || right < 2 || rank != max(left, right) {
		return nil
	}
	out := &trace{batch: -1, low: -1, none: -1}
	join := func(t *trace) bool {
		if out.batch < 0 {
			out.batch, out.joined = t.batch, t.joined
		}
		return out.batch == t.batch && out.joined == t.joined && t.batch < rank-2
	}
	var x, y *trace
	if in[0] != nil {
		x = in[0].lifted(rank - left)
	}
	if in[1] != nil {
		y = in[1].lifted(rank - right)
	}
	summed := y != nil && slices.Contains(y.tokens, rank-2)
	if summed && (!y.zero || x == nil || x.none != rank-1) {
		return nil
	}
	if x != nil {
		if !join(x) || slices.Contains(x.tokens, rank-1) {
			return nil
		}
		out.tokens = append(out.tokens, x.tokens...)
	}
	if y != nil {
		if !join(y) {
			return nil
		}
		for _, axis := range y.tokens {
			if axis != rank-2 && !slices.Contains(out.tokens, axis) {
				out.tokens = append(out.tokens, axis)
			}
		}
	}
	if len(out.tokens) == 0 { // all are the model's, of hidden queries too; nothing is known to be made so
		return nil
	}
	return out
}

// view passes an operator that lays elements out anew.
func (a *apart) view(n *graph.Node, t *trace) *trace {
	if t == nil {
		return nil
	}
	from, to := a.shapes.Of(n.In[0]), a.shapes.Of(n.Out[0])
	out := &trace{batch: -1, low: -1, none: -1, zero: t.zero}
	place := make([]int, from.Rank) // where an axis went; -1 for nowhere
	if n.Is("Transpose") {
		perm, given := n.Ints("perm")
		for i := range place {
			place[i] = from.Rank - 1 - i
			if given {
				place[i] = slices.Index(perm, int64(i))
			}
		}
		out.joined = t.joined
	} else {
		groups, ok := aligned(from.Dims, to.Dims)
		if !ok {
			return nil
		}
		for i := range place {
			place[i] = -1
		}
		for _, g := range groups {
			src := slices.DeleteFunc(slices.Clone(g.from), func(i int) bool { return from.Dims[i].Is(1) })
			dst := slices.DeleteFunc(slices.Clone(g.to), func(i int) bool { return to.Dims[i].Is(1) })
			heads := func(d graph.Dim) bool { n, ok := d.Const(); return ok && n > 0 }
			switch {
			case len(src) == 1 && len(dst) == 1:
				place[src[0]] = dst[0]
				if src[0] == t.batch {
					out.joined = t.joined
				}
			case len(src) == 2 && len(dst) == 1 && src[0] == t.batch && !t.joined && heads(from.Dims[src[1]]):
				place[src[0]], out.joined = dst[0], true
			case len(src) == 1 && len(dst) == 2 && src[0] == t.batch && t.joined && heads(to.Dims[dst[1]]) &&
				to.Dims[dst[0]].Equal(a.batch):
				place[src[0]] = dst[0]
			case slices.ContainsFunc(src,
				func(i int) bool { return i == t.batch || slices.Contains(t.tokens, i) || i == t.low || i == t.none }):
				return nil
			}
		}
	}
	moved := func(axis int) int {
		if axis < 0 {
			return -1
		}
		return place[axis]
	}
	out.batch, out.low, out.none = place[t.batch], moved(t.low), moved(t.none)
	for _, axis := range t.tokens {
		out.tokens = append(out.tokens, place[axis])
	}
	if out.batch < 0 || slices.Contains(out.tokens, -1) {
		return nil
	}
	return out
}
