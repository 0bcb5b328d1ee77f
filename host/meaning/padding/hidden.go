package padding

import (
	"slices"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// held is what stands where a token is hidden, along an axis of tokens.
type held uint8

const (
	zeros  held = 1 << iota // which add nothing to a sum
	lows                    // numbers below all others, which a maximum and a softmax leave out
	highs                   // numbers above all others
	marked                  // what the mask says there
)

// state is what is known of a value.
type state struct {
	axes   map[int]held // axes that tokens stand in
	data   bool         // made from tokens
	mask   bool         // made from the mask, or from a comparison of tokens, and from none of their rows
	length bool         // counted of all tokens, hidden ones too
	// shown says that all elements which belong to a hidden token are one number, and those of visible ones another.
	shown           bool
	hidden, visible float64
}

// of is the state of a value.
func (m *mixing) of(v *graph.Value) state {
	if v == nil {
		return state{}
	}
	if s, ok := m.states[v]; ok {
		return s
	}
	s := state{axes: m.counted(v), data: v.IsInput && v.Tensor == nil}
	if v == m.mask {
		s.data, s.mask, s.shown, s.visible = false, true, true, 1
		for axis := range s.axes {
			s.axes[axis] = marked
		}
	}
	s = m.settle(v, s)
	m.states[v] = s
	return s
}

// counted are the axes of a value whose lengths depend on the number of tokens.
func (m *mixing) counted(v *graph.Value) map[int]held {
	axes := map[int]held{}
	for i, d := range m.shapes.Of(v).Dims {
		if m.counts(d) {
			axes[i] = 0
		}
	}
	return axes
}

// settle takes what is known of the numbers of a value that no token's row is in.
func (m *mixing) settle(v *graph.Value, s state) state {
	if s.data || v == nil {
		return s
	}
	f := m.shapes.Of(v)
	if f.Floats != nil || f.Elems != nil && !slices.ContainsFunc(f.Elems, m.counts) {
		s.length = false
	} else if slices.ContainsFunc(f.Elems, m.counts) && f.DType != onnx.Tensor_BOOL {
		s.length = true
	}
	l := m.masks.lane(v, 0)
	for axis, h := range s.axes {
		if h&marked != 0 {
			h = marked | zeros | lows | highs // unless more is known
			if s.shown {
				h = marked | numbered(s.hidden)
			}
		}
		if l != nil && l.token == axis {
			h = marked
			if x, ok := l.hidden.inside(); ok {
				h |= numbered(x) & numbered(l.hidden.outside())
			}
		}
		if l != nil && l.token < 0 && l.visible.kind == band && l.visible.j == axis && l.visible.right <= 0 {
			h |= numbered(l.visible.no)
		}
		s.axes[axis] = h
	}
	return s
}

// numbered is what a number is.
func numbered(x float64) held {
	switch {
	case x == 0:
		return zeros
	case x <= lowest:
		return lows
	case x >= -lowest:
		return highs
	}
	return 0
}

// numbers follows what a value made from the mask is where a token is hidden, and where one is visible.
func (m *mixing) numbers(n *graph.Node, out state) state {
	out.shown = false
	if out.data || !out.mask {
		return out
	}
	var in []state
	var from []*graph.Value
	for _, v := range n.In {
		s := m.of(v)
		if x, ok := even(m.shapes.Of(v)); ok {
			s.shown, s.hidden, s.visible = true, x, x
		} else if s.mask {
			from = append(from, v)
		}
		in = append(in, s)
	}
	of := func(choose func(state) float64) (x float64, ok bool) {
		terms := make([]term, len(in))
		for i, s := range in {
			if !s.shown {
				return 0, false
			}
			terms[i] = number(choose(s))
		}
		op := n.Op()
		if op == "Cast" && n.Int("to", 0) == int64(onnx.Tensor_BOOL) {
			op = toBool
		}
		var t term
		switch {
		case unaryRules[op].number != nil && len(terms) == 1:
			t = unary(op, terms[0])
		case binaryRules[op].number != nil && len(terms) == 2:
			t = binary(op, terms[0], terms[1])
		case op == "Where" && len(terms) == 3:
			t = where(terms[0], terms[1], terms[2])
		}
		return t.of(m.shapes.Of(n.Out[0]).DType).as()
	}
	switch {
	case len(from) == 1 && from[0] == n.In[0] && (n.Is("Transpose", "Reshape", "Unsqueeze", "Squeeze", "Flatten",
		"Expand", "Tile", "Slice", "Gather", "Concat") || n.Is("Einsum") && len(n.In) == 1):
		out.shown, out.hidden, out.visible = in[0].shown, in[0].hidden, in[0].visible
	case !slices.ContainsFunc(from, func(v *graph.Value) bool { return !m.alongside(v, from[0]) }):
		var ok bool
		if out.hidden, ok = of(func(s state) float64 { return s.hidden }); ok {
			out.visible, out.shown = of(func(s state) float64 { return s.visible })
		}
	}
	return out
}

// alongside reports values that are broadcast to each other with the same axes of tokens.
func (m *mixing) alongside(v, w *graph.Value) bool {
	a, b := m.of(v), m.of(w)
	lift := m.shapes.Of(v).Rank - m.shapes.Of(w).Rank
	for axis := range a.axes {
		if _, ok := b.axes[axis-lift]; !ok {
			return false
		}
	}
	return len(a.axes) == len(b.axes)
}

// operand is what an input holds along an axis of the output that it is broadcast to.
func (m *mixing) operand(v *graph.Value, axis, rank int) held {
	f := m.shapes.Of(v)
	if x, ok := even(f); ok {
		return numbered(x)
	}
	return m.of(v).axes[axis-rank+f.Rank]
}

// still are operators of one input that give 0 of 0.
var still = set("Relu", "Gelu", "Tanh", "Erf", "Abs", "Neg", "Sqrt", "Sign", "Floor", "Ceil", "Round", "LeakyRelu",
	"Elu", "Selu", "Celu", "Mish", "Swish", "Softsign", "Sin", "HardSwish", "PRelu", "Pow", "Div", "ThresholdedRelu",
	"com.microsoft.Gelu", "com.microsoft.QuickGelu", "Asin", "Atan", "Sinh", "Asinh", "Atanh", "Tan", "BitShift")

// same are operators that give what they read.
var same = set("Cast", "CastLike", "Identity", "Dropout", "QuantizeLinear", "DequantizeLinear", "Clip", "Trilu",
	"DynamicQuantizeLinear")

// vanishing are operators that give 0 of numbers below all others.
var vanishing = set("Exp", "Sigmoid", "Softplus", "HardSigmoid")

// alone are more operators that compute each element, or each row, by itself.
var alone = set("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cosh", "Sinh", "Tan", "CastLike", "Trilu",
	"ThresholdedRelu", "Shrink", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "Dropout",
	"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "BatchNormalization", "RotaryEmbedding",
	"com.microsoft.RotaryEmbedding", "com.microsoft.BiasAdd", "com.microsoft.BiasSplitGelu",
	"com.microsoft.BiasDropout", "com.microsoft.SkipLayerNormalization",
	"com.microsoft.SkipSimplifiedLayerNormalization", "com.microsoft.EmbedLayerNormalization",
	"com.microsoft.QLinearAdd", "com.microsoft.QLinearMul", "com.microsoft.QLinearSigmoid",
	"com.microsoft.QLinearLeakyRelu", "com.microsoft.GatedRelativePositionBias", "com.microsoft.RelativePositionBias",
	"GatherElements", "GatherND", "ScatterElements", "ScatterND", "Scatter", "OneHot", "Expand", "Tile", "If",
	"ReverseSequence", "com.microsoft.GatherBlockQuantized")

func set(list ...string) map[string]bool {
	s := map[string]bool{}
	for _, x := range list {
		s[x] = true
	}
	return s
}

// broadcast is what an operator makes whose inputs are broadcast to each other.
func (m *mixing) broadcast(n *graph.Node, out state) state {
	rank := m.shapes.Of(n.Out[0]).Rank
	for _, v := range n.In {
		for axis := range m.of(v).axes {
			if to := axis + rank - m.shapes.Of(v).Rank; to >= 0 && v != nil && !m.shapes.Of(n.Out[0]).Dim(to).Is(1) {
				out.axes[to] |= 0
			}
		}
	}
	for axis := range out.axes {
		each, any := ^held(0), held(0)
		first := m.operand(n.Input(0), axis, rank)
		for _, v := range n.In {
			if v != nil {
				h := m.operand(v, axis, rank)
				each, any = each&h, any|h
			}
		}
		var h held
		switch op := n.Op(); {
		case !out.data:
			h = any & marked
		case op == "Mul":
			h = any & (zeros | lows)
		case op == "Add", op == "Sum", op == "Min":
			h = any&lows | each&zeros
		case op == "Sub":
			h = (first|m.risen(n, axis, rank))&lows | each&zeros
		case op == "Max":
			h = each
		case op == "Where":
			h = m.chosen(n, axis, rank)
		case same[op]:
			h = first
		case vanishing[op]:
			if first&lows != 0 {
				h = zeros
			}
		case still[op]:
			h = first & zeros
			if op == "Div" {
				h = first
			}
		}
		out.axes[axis] = h &^ marked
		if !out.data {
			out.axes[axis] = h
		}
	}
	return out
}

// risen is lows where a Sub takes away numbers above all others.
func (m *mixing) risen(n *graph.Node, axis, rank int) held {
	if m.operand(n.Input(1), axis, rank)&highs != 0 {
		return lows
	}
	return 0
}

// chosen is what a Where gives where a token is hidden.
func (m *mixing) chosen(n *graph.Node, axis, rank int) held {
	yes, no := m.operand(n.In[1], axis, rank), m.operand(n.In[2], axis, rank)
	at := axis - rank + m.shapes.Of(n.In[0]).Rank
	if l := m.masks.lane(n.In[0], 0); l != nil && !m.of(n.In[0]).data {
		hidden := l.hidden
		if l.token < 0 && l.visible.kind == band && l.visible.j == at && l.visible.right <= 0 {
			hidden = number(l.visible.no)
		} else if l.token != at {
			return yes & no
		}
		if x, ok := hidden.as(); ok && x != 0 {
			return yes
		} else if ok {
			return no
		}
		return yes & no
	}
	if m.of(n.In[0]).axes[at]&marked != 0 {
		if c := m.of(n.In[0]); c.shown && c.hidden != 0 {
			return yes
		} else if c.shown {
			return no
		}
		return zeros | lows
	}
	return yes & no
}

// laid is what an operator makes that lays elements out anew: each axis goes on in those of the output that hold its
// elements.
func (m *mixing) laid(n *graph.Node, out state) state {
	in := m.of(n.In[0])
	from, to := m.shapes.Of(n.In[0]), m.shapes.Of(n.Out[0])
	if n.Is("Transpose") {
		perm, given := n.Ints("perm")
		for axis, h := range in.axes {
			at := from.Rank - 1 - axis
			if given {
				at = slices.Index(perm, int64(axis))
			}
			out.axes[at] |= h
		}
		return out
	}
	if n.Is("Slice") {
		for axis, h := range in.axes {
			out.axes[axis] = h
		}
		return out
	}
	groups, ok := aligned(from.Dims, to.Dims)
	if !ok { // by lengths that are not told from each other
		groups = []group{{all(from.Rank), all(to.Rank)}}
	}
	for _, g := range groups {
		last, h := -1, held(0)
		for k, axis := range g.from {
			if x, token := in.axes[axis]; token {
				last, h = k, h|x
			}
		}
		if last < 0 {
			continue
		}
		for _, axis := range m.parts(g, last, from.Dims, to.Dims, ok) {
			out.axes[axis] |= h
		}
	}
	return out
}

// parts are the axes of a group in which tokens stand: those that are counted by them, and pieces of fixed length that
// a sequence is cut into. What stands after the tokens are features of each.
func (m *mixing) parts(g group, last int, from, to []graph.Dim, told bool) (list []int) {
	whole := slices.ContainsFunc(g.to, func(i int) bool { return to[i].Equal(m.positions) })
	features := int64(1)
	for _, axis := range g.from[last+1:] {
		n, _ := from[axis].Const()
		features *= max(n, 1)
	}
	for k := len(g.to) - 1; k >= 0; k-- {
		d := to[g.to[k]]
		n, constant := d.Const()
		switch {
		case m.counts(d):
			list = append(list, g.to[k])
		case constant && n > 0 && features%n == 0:
			features /= n
		case constant && !whole, !constant && !told && !slices.ContainsFunc(from, d.Equal):
			list = append(list, g.to[k])
		}
	}
	return list
}

func all(rank int) (axes []int) {
	for i := range rank {
		axes = append(axes, i)
	}
	return axes
}
