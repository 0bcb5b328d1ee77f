package padding

import (
	"maps"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// contraction is a sum of products of two values over an axis of each.
type contraction struct {
	a, b     *graph.Value
	ta, tb   bool // the last two axes change places
	constant bool // b is a weight, laid out in a way of its own
}

// product says which values a node multiplies as matrices.
func product(n *graph.Node) (c contraction, ok bool) {
	switch n.Op() {
	case "MatMul", "MatMulInteger", "com.microsoft.MatMulIntegerToFloat", "com.microsoft.DynamicQuantizeMatMul":
		return contraction{a: n.Input(0), b: n.Input(1)}, true
	case "Gemm", "com.microsoft.FusedGemm", "com.microsoft.FusedMatMul", "com.microsoft.FusedMatMulActivation":
		return contraction{a: n.Input(0), b: n.Input(1), ta: n.Int("transA", 0) != 0, tb: n.Int("transB", 0) != 0},
			n.Int("transBatchA", 0) == 0 && n.Int("transBatchB", 0) == 0
	case "QLinearMatMul", "com.microsoft.QGemm":
		return contraction{a: n.Input(0), b: n.Input(3), ta: n.Int("transA", 0) != 0, tb: n.Int("transB", 0) != 0}, true
	case "com.microsoft.MatMulNBits", "com.microsoft.MatMulBnb4", "com.microsoft.MatMulFpQ4", "com.microsoft.GemmFastGelu":
		return contraction{a: n.Input(0), constant: true}, true
	}
	return c, false
}

// multiply is what a product makes; how says how it reads hidden tokens, or "".
func (m *mixing) multiply(n *graph.Node, c contraction, out state) (_ state, how string) {
	a, b, rank := m.of(c.a), m.of(c.b), m.shapes.Of(n.Out[0]).Rank
	ra, rb := m.shapes.Of(c.a).Rank, m.shapes.Of(c.b).Rank
	row, inner := ra-2, ra-1
	if c.ta {
		row, inner = inner, row
	}
	other, column := rb-2, rb-1
	if c.tb {
		other, column = column, other
	}
	if c.constant {
		other, column = -1, -1
	} else if rb == 1 {
		other, column = 0, -1
	}
	x, one := a.axes[inner]
	y, two := b.axes[other]
	if (one || two) && (x|y)&zeros == 0 {
		return out, readsAll
	}
	keep := kept(out)
	place := func(s state, axis, to int) {
		if h, ok := s.axes[axis]; ok && axis >= 0 && to >= 0 {
			out.axes[to] |= h & keep
		}
	}
	for axis := 0; axis < ra-2; axis++ {
		place(a, axis, axis+rank-ra)
	}
	for axis := 0; axis < rb-2; axis++ {
		place(b, axis, axis+rank-rb)
	}
	rowAt := rank - 2
	if rb == 1 && !c.constant {
		rowAt = rank - 1
	}
	place(a, row, rowAt)
	place(b, column, rank-1)
	return out, ""
}

// kept is what stays of what stands where a token is hidden when it is multiplied.
func kept(out state) held {
	if out.data {
		return zeros
	}
	return ^held(0)
}

// einsum is what an Einsum makes.
func (m *mixing) einsum(n *graph.Node, out state) (_ state, how string) {
	text := ""
	if a := n.Attr("equation"); a != nil {
		text = strings.ReplaceAll(string(a.GetS()), " ", "")
	}
	left, right, given := strings.Cut(text, "->")
	terms := strings.Split(left, ",")
	if !given || strings.Contains(text, ".") || len(terms) != len(n.In) {
		return out, unknownWay
	}
	for letter := range maps.Keys(letters(left)) {
		token, h := false, held(0)
		for i, t := range terms {
			if at := strings.IndexRune(t, letter); at >= 0 {
				x, ok := m.of(n.In[i]).axes[at]
				token, h = token || ok, h|x
			}
		}
		at := strings.IndexRune(right, letter)
		switch {
		case !token:
		case at >= 0:
			out.axes[at] |= h & kept(out)
		case h&zeros == 0:
			return out, readsAll
		}
	}
	return out, ""
}

func letters(s string) map[rune]bool {
	list := map[rune]bool{}
	for _, r := range s {
		if r != ',' {
			list[r] = true
		}
	}
	return list
}

// over says how an operator that makes one number of many reads hidden tokens, or "".
func (m *mixing) over(n *graph.Node, axes []int, spared held) string {
	s := m.of(n.In[0])
	for _, axis := range axes {
		if h, token := s.axes[axis]; token && h&spared == 0 {
			return readsAll
		}
	}
	return ""
}

// What nodes do.
const (
	readsAll   = "reads all tokens"
	unknownWay = "is not known to keep tokens apart"
	fromEnd    = "counts tokens from the end"
	byLength   = "reckons with the padded length"
)

// spared are what the operators that reduce an axis leave out.
var spared = map[string]held{"ReduceSum": zeros, "ReduceSumSquare": zeros, "ReduceL1": zeros, "ReduceL2": zeros,
	"ReduceMax": lows, "ReduceLogSumExp": lows, "ReduceMean": 0, "ReduceMin": 0, "ReduceProd": 0, "ReduceLogSum": zeros,
	"ArgMax": lows, "ArgMin": 0, "TopK": lows, "Hardmax": lows, "Softmax": lows, "LogSoftmax": lows,
	"LpNormalization": zeros, "com.microsoft.BiasSoftmax": lows, "com.microsoft.QLinearSoftmax": lows,
	"GlobalAveragePool": 0, "GlobalLpPool": zeros, "GlobalMaxPool": lows, "InstanceNormalization": 0,
	"GroupNormalization": 0, "com.microsoft.GroupNorm": 0, "com.microsoft.SkipGroupNorm": 0,
	"MeanVarianceNormalization": 0, "LayerNormalization": 0, "RMSNormalization": 0, "SimplifiedLayerNormalization": 0}

// reduced are the axes that such an operator takes together.
func (m *mixing) reduced(n *graph.Node) (list []int) {
	rank := m.shapes.Of(n.In[0]).Rank
	from := func(axis int) {
		for i := axis; i < rank; i++ {
			list = append(list, i)
		}
	}
	switch op := n.Op(); {
	case strings.HasSuffix(op, "LayerNormalization"), op == "RMSNormalization":
		from(along(n.Int("axis", -1), rank))
	case op == "Softmax" || op == "LogSoftmax" || op == "Hardmax":
		if n.Graph.Opset("") < 13 {
			from(along(n.Int("axis", 1), rank))
		} else {
			list = []int{along(n.Int("axis", -1), rank)}
		}
	case strings.HasPrefix(op, "Arg"):
		list = []int{along(n.Int("axis", 0), rank)}
	case op == "TopK", op == "LpNormalization", strings.HasSuffix(op, "Softmax"):
		list = []int{along(n.Int("axis", -1), rank)}
	case strings.HasPrefix(op, "Global"), op == "InstanceNormalization":
		from(2)
	case strings.HasPrefix(op, "Reduce"):
		axes, given := n.Ints("axes")
		if v := n.Input(1); !given && v != nil {
			axes, given = m.whole(v)
			if !given { // which axes is not known
				from(0)
				return list
			}
		}
		if len(axes) == 0 && n.Int("noop_with_empty_axes", 0) == 0 {
			from(0)
		}
		for _, axis := range axes {
			list = append(list, along(axis, rank))
		}
	default: // over a sequence's positions and features, or more
		from(1)
	}
	return list
}

// along is an axis counted from the front.
func along(axis int64, rank int) int {
	if axis < 0 {
		axis += int64(rank)
	}
	return int(axis)
}

// whole are the elements of a list of integers that is known.
func (m *mixing) whole(v *graph.Value) (list []int64, ok bool) {
	elems := m.shapes.Of(v).Elems
	for _, d := range elems {
		x, constant := d.Const()
		if !constant {
			return nil, false
		}
		list = append(list, x)
	}
	return list, elems != nil
}

// gathers is what a Gather makes.
func (m *mixing) gathers(n *graph.Node, out state) (_ state, how string) {
	data, index := m.of(n.In[0]), m.of(n.In[1])
	rank, width := m.shapes.Of(n.In[0]).Rank, m.shapes.Of(n.In[1]).Rank
	axis := along(n.Int("axis", 0), rank)
	_, of := data.axes[axis]
	if m.real(n.In[0]) && (of || !data.data) {
		if index.length {
			return out, fromEnd
		}
		if list, ok := m.whole(n.In[1]); of && ok && slices.Min(append(list, 0)) < 0 {
			return out, fromEnd
		}
	}
	for at, h := range data.axes {
		switch {
		case at < axis:
			out.axes[at] |= h
		case at > axis:
			out.axes[at+width-1] |= h
		}
	}
	for at := range index.axes {
		out.axes[at+axis] |= 0
	}
	return out, ""
}

// sliced says how a Slice of rows finds them, or "".
func (m *mixing) sliced(n *graph.Node) string {
	axes, known := m.whole(n.Input(3))
	if n.Input(3) == nil {
		known = true
		for i := range m.shapes.Of(n.Input(1)).Elems {
			axes = append(axes, int64(i))
		}
	}
	in := m.of(n.In[0])
	starts, steps := m.shapes.Of(n.Input(1)).Elems, m.shapes.Of(n.Input(4)).Elems
	for k, axis := range axes {
		if axis < 0 {
			axis += int64(m.shapes.Of(n.In[0]).Rank)
		}
		if _, token := in.axes[int(axis)]; !token {
			continue
		}
		if k < len(starts) {
			if x, ok := starts[k].Const(); ok && x < 0 || m.counts(starts[k]) {
				return fromEnd
			}
		}
		if k < len(steps) {
			if x, ok := steps[k].Const(); ok && x < 0 {
				return fromEnd
			}
		}
	}
	if !known && len(in.axes) > 0 {
		return unknownWay
	}
	return ""
}

// takesAll reports a Slice that leaves nothing out, wherever it counts from.
func (m *mixing) takesAll(n *graph.Node) bool {
	return slices.EqualFunc(m.shapes.Of(n.In[0]).Dims, m.shapes.Of(n.Out[0]).Dims, graph.Dim.Equal)
}

// attends says how attention that stands as one operator, and is not a block, reads hidden tokens, or "".
func (m *mixing) attends(n *graph.Node) string {
	if n.Int("unidirectional", 0) != 0 || n.Int("is_causal", 0) != 0 || n.Is("com.microsoft.GroupQueryAttention") ||
		slices.ContainsFunc(n.In, func(v *graph.Value) bool { return m.of(v).mask }) {
		return ""
	}
	return "sees hidden keys"
}

// node follows a node, and says how it reads hidden tokens, or "".
func (m *mixing) node(n *graph.Node) (how string) {
	out := state{axes: map[int]held{}}
	for _, v := range n.In {
		s := m.of(v)
		out.data, out.mask, out.length = out.data || s.data, out.mask || s.mask, out.length || s.length
	}
	if n.Is("Shape", "Size") {
		out.data, out.mask = false, false
	}
	real := n.Input(0) != nil && slices.ContainsFunc(n.In, m.rows)
	made := n.Output(0) != nil
	if made {
		out.axes = m.counted(n.Out[0])
	}
	if out.data && !real && made && m.shapes.Of(n.Out[0]).DType == onnx.Tensor_BOOL {
		out.data, out.mask = false, true // a mask of tokens that differ from the one of padding
		for axis := range out.axes {
			out.axes[axis] = marked
		}
	} else if made && (real || !out.data) {
		out, how = m.pass(n, out, real)
	}
	if out.length && made {
		f := m.shapes.Of(n.Out[0])
		one := !slices.ContainsFunc(f.Dims, func(d graph.Dim) bool { return !d.Is(1) })
		out.length = f.DType != onnx.Tensor_BOOL && (!m.real(n.Out[0]) || one) && !out.data
		switch {
		case n.Is("Range"):
			out.length = m.of(n.Input(0)).length || m.of(n.Input(2)).length
		case n.Is("Slice"):
			out.length = m.of(n.Input(0)).length || m.of(n.Input(1)).length && !m.takesAll(n)
		case n.Is("ConstantOfShape"), !m.of(n.Input(0)).length &&
			n.Is("Expand", "Reshape", "Tile", "Pad", "Split", "TopK", "OneHot", "CumSum", "Trilu"):
			out.length = false // which says no more than how many there are
		}
	}
	for _, v := range n.Out {
		if v == nil {
			continue
		}
		s := out
		if v == n.Out[0] {
			s = m.numbers(n, s)
		} else {
			s.shown = false
		}
		if v != n.Out[0] && (n.Is("TopK", "DynamicQuantizeLinear") || m.shapes.Of(v).Rank != m.shapes.Of(n.Out[0]).Rank) {
			s.axes = m.counted(v)
		}
		s.axes = maps.Clone(s.axes)
		m.states[v] = m.settle(v, s)
	}
	return how
}

// rows reports numbers that are made from tokens.
func (m *mixing) rows(v *graph.Value) bool { return v != nil && m.real(v) && m.of(v).data }

// reduces says how an operator that makes numbers of many reads hidden tokens, or "". The softmax of a block has a mask
// of its own.
func (m *mixing) reduces(n *graph.Node, out state) (how string) {
	axes := m.reduced(n)
	if m.blocks[n.Path()] == nil {
		how = m.over(n, axes, spared[n.Op()])
	}
	if n.Is("com.microsoft.BiasSoftmax") && m.operand(n.Input(1), axes[0], m.shapes.Of(n.Out[0]).Rank)&lows != 0 {
		how = ""
	}
	for _, axis := range axes {
		if _, token := out.axes[axis]; token && strings.HasSuffix(n.Op(), "Softmax") {
			out.axes[axis] = zeros
		}
	}
	return how
}

// pass is what a node makes of numbers; how says how it reads hidden tokens, or "".
func (m *mixing) pass(n *graph.Node, out state, real bool) (_ state, how string) {
	in := func(v *graph.Value) bool { return len(m.of(v).axes) > 0 }
	if c, ok := product(n); ok {
		out, how = m.multiply(n, c, out)
	} else if _, ok := spared[n.Op()]; ok {
		how = m.reduces(n, out)
	} else {
		switch op := n.Op(); {
		case blocks.IsAttentionOperator(n):
			if m.blocks[n.Path()] == nil {
				how = m.attends(n)
			}
		case pointwise[op], same[op], still[op]:
			if real && m.real(n.Out[0]) && slices.ContainsFunc(n.In, func(v *graph.Value) bool { return m.of(v).length }) {
				how = byLength
			}
			out = m.broadcast(n, out)
		case alone[op]:
			out = m.broadcast(n, out)
		case op == "Transpose", op == "Reshape", op == "Unsqueeze", op == "Squeeze", op == "Flatten":
			out = m.laid(n, out)
		case op == "Slice":
			how = m.sliced(n)
			out = m.laid(n, out)
		case op == "Einsum":
			out, how = m.einsum(n, out)
		case op == "Gather":
			out, how = m.gathers(n, out)
		case op == "CumSum", op == "CumProd":
			if axes, ok := m.whole(n.Input(1)); n.Int("reverse", 0) != 0 && ok && len(axes) == 1 {
				how = m.over(n, []int{along(axes[0], m.shapes.Of(n.In[0]).Rank)}, zeros)
			} else if !ok || len(axes) != 1 {
				how = unknownWay
			}
		case op == "Resize", op == "Upsample":
			for axis := range m.of(n.In[0]).axes {
				if !m.shapes.Of(n.In[0]).Dim(axis).Equal(m.shapes.Of(n.Out[0]).Dim(axis)) {
					how = "stretches all tokens"
				}
			}
		case op == "Concat", op == "Pad", op == "Split":
			out = m.broadcast(n, out)
		case op == "Shape", op == "Size", op == "ConstantOfShape", op == "Range", op == "Constant":
		case op == "DFT", op == "STFT", windows[op], Neighbours(n) != "": // Mixes says how
		case real && slices.ContainsFunc(n.In, in):
			how = unknownWay
		}
	}
	if !out.data && !real {
		if out.mask {
			for axis := range out.axes {
				for _, v := range n.In {
					if m.of(v).mask {
						out.axes[axis] |= marked
					}
				}
			}
		}
		if !n.Is("Gather") {
			how = ""
		}
	}
	return out, how
}
