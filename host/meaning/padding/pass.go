package padding

import (
	"slices"

	"github.com/opgraft/graft/host/onnx/graph"
)

// pointwise are operators that compute each element of a result from the elements at its place in what they read.
var pointwise = map[string]bool{
	"Add": true, "Sub": true, "Mul": true, "Div": true, "Pow": true, "Mod": true, "Min": true, "Max": true, "Sum": true,
	"Mean": true, "PRelu": true,
	"And": true, "Or": true, "Xor": true, "Not": true, "Equal": true, "Less": true, "LessOrEqual": true, "Greater": true,
	"GreaterOrEqual": true,
	"Where":          true, "Abs": true, "Neg": true, "Sign": true, "Floor": true, "Ceil": true, "Round": true,
	"Reciprocal": true,
	"Sqrt":       true, "Exp": true,
	"Log": true, "Sin": true, "Cos": true, "Erf": true, "Tanh": true, "Sigmoid": true, "HardSigmoid": true,
	"HardSwish": true, "Softplus": true,
	"Softsign": true, "Relu": true, "LeakyRelu": true, "Elu": true, "Selu": true, "Celu": true, "Mish": true, "Gelu": true,
	"Clip":  true,
	"IsNaN": true, "IsInf": true, "Cast": true, "Identity": true, "Swish": true,
	"com.microsoft.Gelu": true, "com.microsoft.FastGelu": true, "com.microsoft.QuickGelu": true,
	"com.microsoft.BiasGelu": true,
}

// rules say for each operator how rows pass a node; nil where the node does not keep them apart.
var rules = map[string]func(*rows, *graph.Node) *passage{
	"MatMul": (*rows).multiply, "MatMulInteger": (*rows).multiply, "Gemm": (*rows).gemm,
	"LayerNormalization": (*rows).normalize, "SimplifiedLayerNormalization": (*rows).normalize,
	"RMSNormalization":                               (*rows).normalize,
	"com.microsoft.SkipLayerNormalization":           (*rows).elements,
	"com.microsoft.SkipSimplifiedLayerNormalization": (*rows).elements,
	"com.microsoft.EmbedLayerNormalization":          (*rows).embed,
	"Softmax":                                        (*rows).softmax, "LogSoftmax": (*rows).softmax,
	"ReduceMean": (*rows).reduce, "ReduceSum": (*rows).reduce, "ReduceMax": (*rows).reduce,
	"ReduceMin": (*rows).reduce, "ReduceL2": (*rows).reduce, "ReduceSumSquare": (*rows).reduce,
	"DynamicQuantizeLinear": (*rows).quantizeByRange,
	"QuantizeLinear":        (*rows).quantize, "DequantizeLinear": (*rows).quantize,
	"Split": (*rows).split, "Slice": (*rows).slice, "Concat": (*rows).concat, "Gather": (*rows).gather,
	"Transpose": (*rows).view, "Flatten": (*rows).view,
	"Reshape": (*rows).viewOrScale, "Unsqueeze": (*rows).viewOrScale, "Squeeze": (*rows).viewOrScale,
	"Dropout": (*rows).dropout,
}

func init() {
	for op := range pointwise {
		rules[op] = (*rows).elementsOrScale
	}
}

// pass says how rows pass a node; nil where it does not keep them apart.
func (r *rows) pass(n *graph.Node) *passage {
	rule := rules[n.Op()]
	if rule == nil || n.Output(0) == nil || len(n.Subgraphs) > 0 || n.Input(0) == nil ||
		n.Unread() != "" {
		return nil
	}
	p := rule(r, n)
	if p == nil {
		return nil
	}
	for i, v := range n.In {
		if r.scales[v] && !slices.Contains(p.rows, i) {
			p.needs = append(p.needs, i)
		}
	}
	if len(p.from()) == 0 || !r.outputsLie(n, p) {
		return nil
	}
	return p
}

// outputsLie reports that the outputs of a node that something reads have rows where a passage says, or none.
func (r *rows) outputsLie(n *graph.Node, p *passage) bool {
	for i, v := range n.Out {
		at, rows := p.out[i]
		switch {
		case v == nil:
		case rows:
			if !r.lies(v, at) {
				return false
			}
		case p.mixes && i > 0, len(p.rows) == 0: // numbers taken over all rows
		case len(v.Uses) > 0 || v.IsOutput:
			return false
		}
	}
	return true
}

func (r *rows) elementsOrScale(n *graph.Node) *passage {
	if p := r.elements(n); p != nil {
		return p
	}
	return r.scale(n)
}

func (r *rows) viewOrScale(n *graph.Node) *passage {
	if p := r.view(n); p != nil {
		return p
	}
	return r.scale(n)
}

func (r *rows) gemm(n *graph.Node) *passage {
	at, ok := r.at(n.In[0])
	if !ok || !at.Flat() || at.Position != 0 || n.Int("transA", 0) != 0 {
		return nil
	}
	return r.alone(n, at)
}

func (r *rows) normalize(n *graph.Node) *passage {
	at, ok := r.at(n.In[0])
	if !ok || !r.before(n.In[0], at, n.Int("axis", -1)) {
		return nil
	}
	return r.alone(n, at)
}

func (r *rows) softmax(n *graph.Node) *passage {
	at, ok := r.at(n.In[0])
	if !ok || n.Graph.Opset("") < 13 || !r.axisApart(n.In[0], at, n.Int("axis", -1)) {
		return nil
	}
	return r.alone(n, at)
}

// quantizeByRange passes rows to integers; of all rows there is one scale, and one zero point.
func (r *rows) quantizeByRange(n *graph.Node) *passage {
	at, ok := r.at(n.In[0])
	if !ok {
		return nil
	}
	return &passage{out: map[int]Place{0: at}, rows: []int{0}, mixes: true}
}

func (r *rows) quantize(n *graph.Node) *passage {
	at, ok := r.at(n.In[0])
	if !ok || n.Int("block_size", 0) != 0 {
		return nil
	}
	if r.shapes.Of(n.Input(1)).Rank != 0 && !r.axisApart(n.In[0], at, n.Int("axis", 1)) {
		return nil
	}
	return r.alone(n, at)
}

func (r *rows) split(n *graph.Node) *passage {
	at, ok := r.at(n.In[0])
	if !ok || !r.axisApart(n.In[0], at, n.Int("axis", 0)) {
		return nil
	}
	return r.alone(n, at)
}

// dropout passes rows where nothing is dropped.
func (r *rows) dropout(n *graph.Node) *passage {
	if len(n.Out) > 1 || !inert(n) {
		return nil
	}
	return r.elements(n)
}

// inert reports a Dropout that drops nothing.
func inert(n *graph.Node) bool {
	training, known := n.Input(2).Ints()
	return n.Is("Dropout") && (n.Input(2) == nil || known && len(training) == 1 && training[0] == 0)
}

// scale passes numbers that were taken over all rows, and what is computed of them.
func (r *rows) scale(n *graph.Node) *passage {
	if !slices.ContainsFunc(n.In, func(v *graph.Value) bool { return r.scales[v] }) ||
		slices.ContainsFunc(n.In, func(v *graph.Value) bool { return v != nil && !r.apartFrom(v) }) {
		return nil
	}
	return &passage{}
}

// alone is a node whose first input has rows, and whose others are the same for all of them.
func (r *rows) alone(n *graph.Node, out Place) *passage {
	for _, v := range n.In[1:] {
		if v != nil && !r.apartFrom(v) {
			return nil
		}
	}
	p := &passage{out: map[int]Place{}, rows: []int{0}}
	for i := range n.Out {
		p.out[i] = out
	}
	return p
}

// apartFrom reports a value that knows nothing of sequences and positions.
func (r *rows) apartFrom(v *graph.Value) bool {
	s := r.shapes.Of(v)
	return s.Rank >= 0 && !slices.ContainsFunc(s.Dims,
		func(d graph.Dim) bool { return !d.Known() || has(d, r.batch, r.positions) })
}

// before reports an axis from which on all axes come after those of rows.
func (r *rows) before(v *graph.Value, at Place, axis int64) bool {
	rank := int64(r.shapes.Of(v).Rank)
	if axis < 0 {
		axis += rank
	}
	return int64(at.Batch) < axis && int64(at.Position) < axis && axis < rank
}

// axisApart reports an axis that is none of rows.
func (r *rows) axisApart(v *graph.Value, at Place, axis int64) bool {
	rank := int64(r.shapes.Of(v).Rank)
	if axis < 0 {
		axis += rank
	}
	return axis >= 0 && axis < rank && axis != int64(at.Batch) && axis != int64(at.Position)
}

// elements passes rows through an operator whose inputs are broadcast to each other.
func (r *rows) elements(n *graph.Node) *passage {
	rank := r.shapes.Of(n.Out[0]).Rank
	p := &passage{out: map[int]Place{}, given: map[int]Given{}}
	var at Place
	for i, v := range n.In {
		if v == nil {
			continue
		}
		own, ok := r.at(v)
		if !ok {
			continue
		}
		lift := rank - r.shapes.Of(v).Rank
		own.Position += lift
		if !own.Flat() {
			own.Batch += lift
		}
		if len(p.rows) > 0 && own != at {
			return nil
		}
		at = own
		p.rows = append(p.rows, i)
	}
	if len(p.rows) == 0 {
		return nil
	}
	for i, v := range n.In {
		if v == nil || slices.Contains(p.rows, i) {
			continue
		}
		g, needed, ok := r.spread(v, at, rank)
		if !ok {
			return nil
		}
		if needed {
			p.given[i] = g
		}
	}
	for i := range n.Out {
		p.out[i] = at
	}
	return p
}

// spread says how rows are taken of a value that is broadcast to rows at a place of a rank: for a value that is the
// same for all, that is not needed.
func (r *rows) spread(v *graph.Value, at Place, rank int) (g Given, needed, ok bool) {
	s := r.shapes.Of(v)
	if s.Rank < 0 || s.Rank > rank {
		return g, false, false
	}
	lift := rank - s.Rank
	g = Given{Place: Place{-1, -1}}
	for i, d := range s.Dims {
		switch {
		case d.Is(1):
		case i+lift == at.Position && !at.Flat() && d.Equal(r.positions):
			g.Position, needed = i, true
		case i+lift == at.Batch && d.Equal(r.batch):
			g.Batch, needed = i, true
		case i+lift == at.Position || i+lift == at.Batch || !d.Known() || has(d, r.batch, r.positions):
			return g, false, false
		}
	}
	if g.Batch >= 0 && (g.Position >= 0 || at.Position-lift < 0) {
		return g, false, false // both would have a place, and one sequence alone needs an axis for its positions
	}
	if g.Batch >= 0 {
		g.Position = at.Position - lift // which has a length of 1 there
		g.Flat = false
	}
	return g, needed, true
}

// multiply passes rows through a matmul by what is the same for all of them, or by what has a matrix for each.
func (r *rows) multiply(n *graph.Node) *passage {
	a, b := n.Input(0), n.Input(1)
	at, ok := r.at(a)
	if !ok || b == nil {
		return nil
	}
	left, right, out := r.shapes.Of(a), r.shapes.Of(b), r.shapes.Of(n.Out[0])
	if out.Rank != left.Rank || at.Position == left.Rank-1 || at.Batch == left.Rank-1 || right.Rank < 2 ||
		right.Rank > left.Rank {
		return nil
	}
	if other, ok := r.at(b); ok {
		if other != at || right.Rank != left.Rank || at.Position >= left.Rank-2 || at.Batch >= left.Rank-2 ||
			!n.Is("MatMul") {
			return nil
		}
		return &passage{out: map[int]Place{0: at}, rows: []int{0, 1}}
	}
	return r.alone(n, at)
}

// numbers are the elements of a constant list: an input or, in older versions, an attribute.
func (r *rows) numbers(n *graph.Node, input int, attribute string) (list []int64, given, ok bool) {
	if attribute != "" {
		if list, given = n.Ints(attribute); given {
			return list, true, true
		}
	}
	v := n.Input(input)
	if v == nil {
		return nil, false, true
	}
	elems := r.shapes.Of(v).Elems
	if elems == nil {
		return nil, true, false
	}
	for _, d := range elems {
		x, constant := d.Const()
		if !constant {
			return nil, true, false
		}
		list = append(list, x)
	}
	return list, true, true
}

func (r *rows) reduce(n *graph.Node) *passage {
	at, ok := r.at(n.In[0])
	axes, given, known := r.numbers(n, 1, "axes")
	if !ok || !given || !known || len(axes) == 0 {
		return nil
	}
	rank := int64(r.shapes.Of(n.In[0]).Rank)
	out := at
	for _, a := range axes {
		if !r.axisApart(n.In[0], at, a) {
			return nil
		}
		if a < 0 {
			a += rank
		}
		if n.Int("keepdims", 1) == 0 {
			if a < int64(at.Position) {
				out.Position--
			}
			if a < int64(at.Batch) {
				out.Batch--
			}
		}
	}
	return &passage{out: map[int]Place{0: out}, rows: []int{0}}
}

func (r *rows) slice(n *graph.Node) *passage {
	at, ok := r.at(n.In[0])
	axes, given, known := r.numbers(n, 3, "axes")
	if !ok || !given || !known || slices.ContainsFunc(axes, func(a int64) bool { return !r.axisApart(n.In[0], at, a) }) {
		return nil
	}
	for i := range n.In {
		if _, _, known := r.numbers(n, i, ""); i > 0 && !known {
			return nil
		}
	}
	return r.alone(n, at)
}

func (r *rows) concat(n *graph.Node) *passage {
	p := &passage{out: map[int]Place{}}
	for i, v := range n.In {
		at, ok := r.at(v)
		if !ok || i > 0 && at != p.out[0] || !r.axisApart(v, at, n.Int("axis", 0)) {
			return nil
		}
		p.out[0] = at
		p.rows = append(p.rows, i)
	}
	return p
}

// gather passes rows of indices into a table, or rows of which elements are taken.
func (r *rows) gather(n *graph.Node) *passage {
	data, index := n.Input(0), n.Input(1)
	axis := int(n.Int("axis", 0))
	d, i := r.shapes.Of(data), r.shapes.Of(index)
	if d.Rank < 0 || i.Rank < 0 || index == nil {
		return nil
	}
	if axis < 0 {
		axis += d.Rank
	}
	if at, ok := r.at(index); ok && r.apartFrom(data) {
		at.Position += axis
		if !at.Flat() {
			at.Batch += axis
		}
		return &passage{out: map[int]Place{0: at}, rows: []int{1}}
	}
	at, ok := r.at(data)
	if !ok || !r.apartFrom(index) || !r.axisApart(data, at, int64(axis)) {
		return nil
	}
	if at.Position > axis {
		at.Position += i.Rank - 1
	}
	if at.Batch > axis {
		at.Batch += i.Rank - 1
	}
	return &passage{out: map[int]Place{0: at}, rows: []int{0}}
}

// view passes rows through an operator that only lays elements out anew.
func (r *rows) view(n *graph.Node) *passage {
	at, ok := r.at(n.In[0])
	if !ok {
		return nil
	}
	from, to := r.shapes.Of(n.In[0]), r.shapes.Of(n.Out[0])
	out := Place{-1, -1}
	if n.Is("Transpose") {
		perm, given := n.Ints("perm")
		for i := range from.Rank {
			in := from.Rank - 1 - i
			if given && i < len(perm) {
				in = int(perm[i])
			}
			if in == at.Position {
				out.Position = i
			}
			if in == at.Batch {
				out.Batch = i
			}
		}
		return &passage{out: map[int]Place{0: out}, rows: []int{0}}
	}
	groups, ok := aligned(from.Dims, to.Dims)
	if _, given, known := r.numbers(n, 1, "axes"); !ok || n.Is("Squeeze", "Unsqueeze") && (!given || !known) {
		return nil
	}
	only := func(list []int, dims []graph.Dim) []int { // axes that count rows
		return slices.DeleteFunc(slices.Clone(list), func(i int) bool { return !has(dims[i], r.batch, r.positions) })
	}
	for _, g := range groups {
		in, made := only(g.from, from.Dims), only(g.to, to.Dims)
		switch {
		case len(in) == 0 && len(made) == 0:
		case len(in) != 0 && !r.alike(g, in, made, from.Dims, to.Dims):
			return nil
		case len(in) == 1 && len(made) == 1 && in[0] == at.Position:
			out.Position = made[0]
		case len(in) == 1 && len(made) == 1 && in[0] == at.Batch:
			out.Batch = made[0]
		case len(in) == 2 && in[0] == at.Batch && in[1] == at.Position && len(made) == 1:
			out = Place{-1, made[0]}
		case len(in) == 1 && at.Flat() && len(made) == 2:
			out = Place{made[0], made[1]}
		case len(in) == 2 && in[0] == at.Batch && in[1] == at.Position && len(made) == 2:
			out = Place{made[0], made[1]}
		default:
			return nil
		}
	}
	if n.Is("Reshape") && !r.fixed(to, out) {
		return nil
	}
	return &passage{out: map[int]Place{0: out}, rows: []int{0}}
}

// fixed reports that all lengths but those of rows are numbers.
func (r *rows) fixed(f graph.Fact, at Place) bool {
	for i, d := range f.Dims {
		if n, constant := d.Const(); i != at.Batch && i != at.Position && (!constant || n <= 0) {
			return false
		}
	}
	return true
}

// alike reports a group that holds rows and nothing else.
func (r *rows) alike(g group, in, made []int, from, to []graph.Dim) bool {
	ones := func(list, of []int, dims []graph.Dim) bool {
		return !slices.ContainsFunc(of, func(i int) bool { return !slices.Contains(list, i) && !dims[i].Is(1) })
	}
	return ones(in, g.from, from) && ones(made, g.to, to)
}

// group is axes of one shape that hold the elements of axes of another.
type group struct{ from, to []int }

// aligned cuts two shapes of the same elements into the shortest groups of axes.
func aligned(from, to []graph.Dim) (list []group, ok bool) {
	i, j := 0, 0
	for i < len(from) || j < len(to) {
		var g group
		a, b := graph.DimInt(1), graph.DimInt(1)
		take := func(left bool) bool {
			if left && i < len(from) {
				a = a.Mul(from[i])
				g.from = append(g.from, i)
				i++
				return true
			}
			if !left && j < len(to) {
				b = b.Mul(to[j])
				g.to = append(g.to, j)
				j++
				return true
			}
			return false
		}
		if i < len(from) && from[i].Is(1) {
			take(true)
		} else if j < len(to) && to[j].Is(1) {
			take(false)
		} else if !take(true) || !take(false) {
			return nil, false
		}
		for !a.Equal(b) {
			if !a.Known() || !b.Known() {
				return nil, false
			}
			// The side whose product divides the other's lacks axes.
			if _, more := b.Div(a); more {
				if !take(true) {
					return nil, false
				}
			} else if _, more := a.Div(b); more {
				if !take(false) {
					return nil, false
				}
			} else if !take(true) && !take(false) {
				return nil, false
			}
		}
		list = append(list, g)
	}
	return list, true
}
