package padding

import (
	"math"
	"slices"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// lane is what is known of the elements of a value, by whether the token is hidden that they belong to. The token's
// axes are -1 where the elements belong to none; both terms are one then.
type lane struct {
	rank            int
	batch, token    int
	hidden, visible term
	// query is the axis of another token that is visible, whatever the mask says where it is not; -1 for none.
	query int
}

// lane follows a value; nil where it is made from anything but the mask, positions and constants, or is not understood.
func (m *masks) lane(v *graph.Value, way int) *lane {
	if v == nil || way > maxWay {
		return nil
	}
	if l, ok := m.lanes[v]; ok {
		return l
	}
	m.main.Spend(1)
	l := m.makes(v, way)
	if l != nil && l.token < 0 && l.visible.kind == unknown {
		l = m.untold(v, term{kind: opaque, value: v}) // of positions alone, whatever they are
	}
	m.lanes[v] = l
	return l
}

// untold is a value that no token belongs to.
func (m *masks) untold(v *graph.Value, t term) *lane {
	return &lane{m.shapes.Of(v).Rank, -1, -1, t, t, -1}
}

func (m *masks) makes(v *graph.Value, way int) *lane {
	s := m.shapes.Of(v)
	if v == m.root {
		if m.adds {
			return &lane{s.Rank, 0, s.Rank - 1, number(math.Inf(-1)), number(0), -1}
		}
		return &lane{s.Rank, 0, s.Rank - 1, number(0), number(1), -1}
	}
	if v.IsInput || s.Rank < 0 {
		return nil
	}
	if x, ok := even(s); ok {
		return m.untold(v, number(x))
	}
	n := v.Producer
	if v.Tensor != nil || n == nil || n.Is("Shape", "Size") {
		return m.untold(v, term{})
	}
	if len(n.Subgraphs) > 0 || v != n.Output(0) {
		return nil
	}
	if n.Is("ConstantOfShape") {
		x := 0.0
		if a := n.Attr("value"); a != nil {
			if list, err := n.Graph.Numbers(a.GetT(), 1); err == nil && len(list) == 1 {
				x = list[0]
			} else {
				return nil
			}
		}
		return m.untold(v, number(x))
	}
	in := make([]*lane, len(n.In))
	tokens := false
	for i, x := range n.In {
		if x == nil {
			continue
		}
		if in[i] = m.lane(x, way+1); in[i] == nil {
			return nil
		}
		tokens = tokens || in[i].token >= 0
	}
	switch {
	case n.Is("Range") && len(in) == 3 && s.Rank == 1:
		if from, ok := even(m.shapes.Of(n.In[0])); ok {
			if step, ok := even(m.shapes.Of(n.In[2])); ok && step == 1 {
				return m.untold(v, term{kind: count, i: 0, number: from})
			}
		}
	case unaryRules[n.Op()].number != nil:
		op := n.Op()
		if op == "Cast" && n.Int("to", 0) == int64(onnx.Tensor_BOOL) {
			op = toBool
		}
		return in[0].each(func(t term) term { return unary(op, t).of(s.DType) })
	case binaryRules[n.Op()].number != nil && len(in) == 2:
		return together(s.Rank, in, func(t []term) term { return binary(n.Op(), t[0], t[1]).of(s.DType) })
	case n.Is("Where"):
		return together(s.Rank, in, func(t []term) term { return where(t[0], t[1], t[2]) })
	}
	if axes, ok := m.axes(n); ok {
		return in[0].moved(axes, s.Rank)
	}
	if tokens {
		return nil
	}
	return m.untold(v, term{})
}

func (l *lane) each(f func(term) term) *lane {
	return &lane{l.rank, l.batch, l.token, f(l.hidden), f(l.visible), l.query}
}

// moved is a lane whose axes stand elsewhere: axes has where, -1 for one that is gone.
func (l *lane) moved(axes []int, rank int) *lane {
	to := func(axis int) int {
		if axis < 0 || axis >= len(axes) {
			return -1
		}
		return axes[axis]
	}
	out := &lane{rank, to(l.batch), to(l.token), l.hidden.moved(to), l.visible.moved(to), to(l.query)}
	for i, a := range axes {
		if a != i+rank-l.rank { // no broadcast does that
			out.hidden, out.visible = out.hidden.told(), out.visible.told()
		}
	}
	if l.token >= 0 && (out.token < 0 || out.batch < 0) || l.query >= 0 && out.query < 0 {
		return nil
	}
	return out
}

// together is an operator whose inputs are broadcast to each other. Where they have two axes of tokens, the last is
// that of keys, and what is known is that of queries which are visible.
func together(rank int, in []*lane, f func([]term) term) *lane {
	out := &lane{rank: rank, batch: -1, token: -1, query: -1}
	hidden, visible := make([]term, len(in)), make([]term, len(in))
	key := -1
	for _, l := range in {
		if l != nil && l.token >= 0 {
			key = max(key, l.token+rank-l.rank)
		}
	}
	for i, l := range in {
		if l == nil || l.rank > rank {
			return nil
		}
		axes := make([]int, l.rank)
		for a := range axes {
			axes[a] = a + rank - l.rank
		}
		l = l.moved(axes, rank)
		if l == nil {
			return nil
		}
		hidden[i], visible[i] = l.hidden, l.visible
		if l.token < 0 {
			continue
		}
		query := l.query
		if l.token != key {
			if query >= 0 {
				return nil
			}
			query, hidden[i] = l.token, l.visible
		}
		if out.batch >= 0 && out.batch != l.batch || out.query >= 0 && query >= 0 && out.query != query || query > key {
			return nil
		}
		out.token, out.batch, out.query = key, l.batch, max(out.query, query)
	}
	out.hidden, out.visible = f(hidden), f(visible)
	return out
}

// axes says where the axes of a node's first input stand in its output; false for a node that does more than that.
func (m *masks) axes(n *graph.Node) (list []int, ok bool) {
	from, to := m.shapes.Of(n.Input(0)), m.shapes.Of(n.Output(0))
	if from.Rank < 0 || to.Rank < 0 {
		return nil, false
	}
	list = make([]int, from.Rank)
	switch {
	case n.Is("Transpose"):
		perm, given := n.Ints("perm")
		for i := range list {
			if at := slices.Index(perm, int64(i)); given {
				list[i] = at
			} else {
				list[i] = from.Rank - 1 - i
			}
		}
		return list, true
	case n.Is("Expand"):
		for i := range list {
			list[i] = i + to.Rank - from.Rank
		}
		return list, true
	case n.Is("Slice"): // that takes all
		steps := m.shapes.Of(n.Input(4)).Elems
		for i, d := range from.Dims {
			list[i] = i
			if !d.Known() || !d.Equal(to.Dim(i)) {
				return nil, false
			}
		}
		return list, n.Input(4) == nil ||
			!slices.ContainsFunc(steps, func(d graph.Dim) bool { return !d.Is(1) }) && steps != nil
	case n.Is("Reshape", "Unsqueeze", "Squeeze"): // that adds axes of one, or takes them away
		at := 0
		for i, d := range from.Dims {
			list[i] = -1
			if d.Is(1) {
				continue
			}
			for at < to.Rank && to.Dims[at].Is(1) {
				at++
			}
			if at == to.Rank || !d.Known() || !d.Equal(to.Dims[at]) {
				return nil, false
			}
			list[i] = at
			at++
		}
		for ; at < to.Rank; at++ {
			if !to.Dims[at].Is(1) {
				return nil, false
			}
		}
		return list, true
	}
	return nil, false
}

// even is the number that all elements of a small value are.
func even(f graph.Fact) (x float64, ok bool) {
	for i, y := range f.Floats {
		if i > 0 && y != x {
			return 0, false
		}
		x = y
	}
	for i, d := range f.Elems {
		n, known := d.Const()
		if !known || i > 0 && float64(n) != x {
			return 0, false
		}
		x = float64(n)
	}
	return x, len(f.Floats)+len(f.Elems) > 0
}
