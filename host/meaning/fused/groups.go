package fused

import (
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// GroupQuery is attention of groups of query heads, with its own past, mask and rotary embedding inside.
const GroupQuery = "com.microsoft.GroupQueryAttention"

// positionIDs is the input that positions are read from, as exporters name it.
const positionIDs = "position_ids"

// Inputs of GroupQueryAttention.
const (
	groupQueries = iota // (B, S, width), which holds keys and values too where those are not given
	groupKeys
	groupValues
	groupPastKeys // (B, KV, P, size)
	groupPastValues
	groupLengths // of each row's keys, less 1
	groupLongest
	groupCos // (positions, turned / 2)
	groupSin
	groupPositions // (B, S)
	groupBias      // (1 or B, 1 or heads, S, P + S)
	groupSinks
)

// TakeGroupsApart writes each GroupQueryAttention as what it computes of rows that have no padding: parts of a packed
// projection, RotaryEmbedding by the input position_ids, which is added where the model has none, keys and values
// after those of the past, repeated for their groups, and a softmax over the keys that are not after a query and
// within its window. Of rows with padding these are other answers: the operator takes lengths of rows from their
// mask. It reports whether any was written so; those that are not, WholeGroup tells of.
func TakeGroupsApart(g *graph.Graph, shapes *graph.Shapes) (bool, error) {
	t := &groups{taker: &taker{g: g, shapes: shapes, terms: map[termKey]*graph.Value{},
		keys: map[*graph.Value]*graph.Value{}}, masks: map[groupMask]*graph.Value{}}
	any := false
	for _, n := range slices.Clone(g.Nodes) {
		g.Spend(1)
		if n.Op() != GroupQuery || WholeGroup(n, shapes) != "" {
			continue
		}
		t.take(n)
		if t.err != nil {
			return false, fmt.Errorf("%s: %w", n.Path(), t.err)
		}
		any = true
	}
	if !any {
		return false, nil
	}
	g.Prune()
	if err := g.Sort(); err != nil {
		return false, err
	}
	return true, g.Commit()
}

// WholeGroup says why a GroupQueryAttention is not taken apart, or "".
func WholeGroup(n *graph.Node, shapes *graph.Shapes) string {
	x, past := shapes.Of(n.Input(groupQueries)), shapes.Of(n.Input(groupPastKeys))
	if why := n.Unread(); why != "" {
		return why
	}
	switch {
	case n.Graph.Owner != nil:
		return "it is in a branch"
	case n.Graph.Opset("") < 13:
		return "its model is of an older version of ONNX's operators"
	case x.Rank != 3 || x.DType != onnx.Tensor_FLOAT:
		return "its queries are not of float32, (batch, positions, width)"
	case groupsOf(n, shapes) == nil:
		return "the widths of its queries, keys and values do not fit its heads"
	case n.Input(groupPastKeys) == nil || n.Input(groupPastValues) == nil || past.Rank != 4 ||
		past.DType != onnx.Tensor_FLOAT:
		return "it has no past of float32, (batch, heads, positions, size)"
	case n.Input(groupSinks) != nil && !sinksOf(n, shapes):
		return "its sinks are no constant of float32, one a query head"
	case given(n.Output(3)):
		return "its scores are read"
	case n.Int("sliding_window_cache", 0) != 0 && n.Int("local_window_size", -1) < 1:
		return "its past is that of a window, of which no length is given"
	}
	if n.Int("do_rotary", 0) != 0 {
		cos, sin := shapes.Of(n.Input(groupCos)), shapes.Of(n.Input(groupSin))
		half, ok := cos.Dim(-1).Const()
		if cos.Rank != 2 || sin.Rank != 2 || !ok || half < 1 || 2*half > groupsOf(n, shapes).size || !sin.Dim(-1).Is(half) ||
			cos.DType != onnx.Tensor_FLOAT {
			return "its tables of angles are not of float32, (positions, at most half a head)"
		}
	}
	return ""
}

// heads are those of a GroupQueryAttention.
type heads struct{ queries, groups, size int64 }

// groupsOf are the heads, or nil where they do not fit what is read.
func groupsOf(n *graph.Node, shapes *graph.Shapes) *heads {
	h := &heads{queries: n.Int("num_heads", 0), groups: n.Int("kv_num_heads", 0)}
	width, ok := shapes.Of(n.Input(groupQueries)).Dim(-1).Const()
	if !ok || h.queries < 1 || h.groups < 1 || h.queries > math.MaxInt32 || h.queries%h.groups != 0 || width < 1 ||
		(n.Input(groupKeys) == nil) != (n.Input(groupValues) == nil) {
		return nil
	}
	of := h.queries
	if n.Input(groupKeys) == nil {
		of += 2 * h.groups
	}
	if h.size = width / of; h.size < 1 || width%of != 0 {
		return nil
	}
	for _, i := range []int{groupKeys, groupValues} {
		if v := n.Input(i); v != nil && (shapes.Of(v).Rank != 3 || !shapes.Of(v).Dim(-1).Is(h.groups*h.size)) {
			return nil
		}
	}
	return h
}

// groups takes GroupQueryAttention apart.
type groups struct {
	*taker
	masks    map[groupMask]*graph.Value
	position *graph.Value // the input
}

// groupMask tells masks apart: layers of one length of past and one window share one.
type groupMask struct {
	past   string // its length
	window int64
}

func (t *groups) take(n *graph.Node) {
	h := groupsOf(n, t.shapes)
	rows := []*graph.Value{n.Input(groupQueries), n.Input(groupKeys), n.Input(groupValues)}
	if rows[1] == nil {
		rows = slices.Clone(t.split(rows[0], []int64{h.queries * h.size, h.groups * h.size, h.groups * h.size}))
	}
	if n.Int("do_rotary", 0) != 0 {
		for i, of := range []int64{h.queries, h.groups} {
			rows[i] = t.turn(n, rows[i], of, h.size)
		}
	}
	var sides [3]*graph.Value // (B, heads, S, size)
	for i, of := range []int64{h.queries, h.groups, h.groups} {
		sides[i] = t.permute(t.op("Reshape", rows[i], t.longs(0, 0, of, h.size)), 0, 2, 1, 3)
	}
	for i, past := range []int{groupPastKeys, groupPastValues} {
		all := t.node("Concat", []*graph.Value{n.Input(past), sides[1+i]}, 1, "axis", int64(2))[0]
		if t.err != nil {
			return
		}
		if present := n.Output(1 + i); present != nil {
			t.g.Replace(present, all)
		}
		sides[1+i] = t.repeat(all, h)
	}
	scale := float64(n.Float("scale", 0))
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(h.size))
	}
	scores := t.op("Mul", t.op("MatMul", sides[0], t.permute(sides[1], 0, 1, 3, 2)), t.number(scale))
	if c := float64(n.Float("softcap", 0)); c > 0 {
		scores = t.op("Mul", t.op("Tanh", t.op("Div", scores, t.number(c))), t.number(c))
	}
	if bias := n.Input(groupBias); bias != nil {
		scores = t.op("Add", scores, bias)
	}
	scores = t.op("Where", t.mask(n), scores, t.number(math.Inf(-1)))
	sinks := t.sinks(n, h)
	if sinks != nil {
		scores = t.node("Concat", []*graph.Value{scores, sinks}, 1, "axis", int64(-1))[0]
	}
	seen := t.node("Softmax", []*graph.Value{scores}, 1, "axis", int64(-1))[0]
	if sinks != nil {
		seen = t.op("Slice", seen, t.longs(0), t.longs(-1), t.longs(3))
	}
	seen = t.op("MatMul", seen, sides[2])
	out := t.op("Reshape", t.permute(seen, 0, 2, 1, 3), t.longs(0, 0, h.queries*h.size))
	if t.err == nil {
		t.g.Replace(n.Out[0], out)
		t.g.Remove(n)
	}
}

// sinksOf reports sinks of a node that are as they must be.
func sinksOf(n *graph.Node, shapes *graph.Shapes) bool {
	v := n.Input(groupSinks)
	s := shapes.Of(v)
	return v.Tensor != nil && s.Rank == 1 && s.Dims[0].Is(n.Int("num_heads", 0)) && s.DType == onnx.Tensor_FLOAT
}

// sinks are scores (B, heads, S, 1) that have no value, or nil: the input's, or zeros.
func (t *groups) sinks(n *graph.Node, h *heads) *graph.Value {
	of := n.Input(groupSinks)
	if of == nil {
		if n.Int("smooth_softmax", 0) != 1 { // ONNX Runtime saves -1 for none
			return nil
		}
		of = t.g.AddInitializer(graph.FloatTensor("", []int64{h.queries}, make([]float32, h.queries)...))
	}
	shape := t.op("Shape", n.Input(groupQueries))
	part := func(axis int64) *graph.Value { return t.op("Slice", shape, t.longs(axis), t.longs(axis+1)) }
	return t.op("Expand", t.op("Reshape", of, t.longs(1, h.queries, 1, 1)),
		t.node("Concat", []*graph.Value{part(0), t.longs(1), part(1), t.longs(1)}, 1, "axis", int64(0))[0])
}

func (t *groups) permute(v *graph.Value, by ...int64) *graph.Value {
	return t.node("Transpose", []*graph.Value{v}, 1, "perm", by)[0]
}

// turn applies the rotary embedding of a node to rows (B, S, heads * size).
func (t *groups) turn(n *graph.Node, rows *graph.Value, of, size int64) *graph.Value {
	at := n.Input(groupPositions)
	if at == nil {
		at = t.positions(n)
	}
	attributes := []any{"interleaved", n.Int("rotary_interleaved", 0)}
	if half, _ := t.shapes.Of(n.Input(groupCos)).Dim(-1).Const(); 2*half != size {
		attributes = append(attributes, "num_heads", of, "rotary_embedding_dim", 2*half)
	}
	if t.err != nil {
		return nil
	}
	turned := t.node("RotaryEmbedding", []*graph.Value{rows, at, t.angles(n.Input(groupCos), at),
		t.angles(n.Input(groupSin), at)}, 1, attributes...)[0]
	if t.err == nil {
		turned.Producer.Proto.Domain = proto.String("com.microsoft")
	}
	return turned
}

// angles is the table that positions are looked up in. Exporters lengthen the angles of a step's own tokens to as many
// rows as there are keys, since the operator asks for so many; where the graph shows that positions count the tokens
// (0, 1, ..), it is those angles alone: rows of a batch share no length of the past.
func (t *groups) angles(table, at *graph.Value) *graph.Value {
	longer := table.Producer
	if !longer.Is("Concat") || longer.Int("axis", -1) != 0 || !at.Producer.Is("Reshape") {
		return table
	}
	own, tokens := t.shapes.Of(longer.Input(0)).Dim(0), t.shapes.Of(at).Count()
	if !own.Equal(tokens) && !t.shapes.Claimed(own).Equal(t.shapes.Claimed(tokens)) {
		return table
	}
	counted := at.Producer.Input(0).Producer
	if !counted.Is("Range") || !t.is(counted.Input(0), 0) || !t.is(counted.Input(2), 1) {
		return table
	}
	return longer.Input(0)
}

// is says that a value is one number.
func (t *groups) is(v *graph.Value, number int64) bool {
	elements := t.shapes.Of(v).Elems
	return len(elements) == 1 && elements[0].Is(number)
}

// positions is the model's input of positions, (B, S) of int64.
func (t *groups) positions(n *graph.Node) *graph.Value {
	if t.position != nil || t.err != nil {
		return t.position
	}
	if t.position = t.g.Lookup(positionIDs); t.position == nil {
		rows := t.shapes.Of(n.Input(groupQueries)) // whose lengths are those of the tokens
		t.position, t.err = t.g.AddInput(positionIDs,
			graph.TensorType(onnx.Tensor_INT64, rows.Dim(0).String(), rows.Dim(1).String()))
	} else if s := t.shapes.Of(t.position); !t.position.IsInput || s.Rank != 2 || s.DType != onnx.Tensor_INT64 {
		t.err = fmt.Errorf("%s is no input of positions of each token, (batch, positions) of int64, which its rotary "+
			"embedding is to read", positionIDs)
	}
	return t.position
}

// repeat lets each head of keys or values, (B, KV, T, size), stand once for each query head that reads it.
func (t *groups) repeat(v *graph.Value, h *heads) *graph.Value {
	if h.queries == h.groups {
		return v
	}
	apart := t.node("Unsqueeze", []*graph.Value{v, t.longs(2)}, 1)[0]
	return t.op("Reshape", t.op("Expand", apart, t.longs(1, 1, h.queries/h.groups, 1, 1)),
		t.longs(0, h.queries, -1, h.size))
}

// mask is true where a query sees a key, (S, P + S).
func (t *groups) mask(n *graph.Node) *graph.Value {
	past := n.Input(groupPastKeys)
	window := n.Int("local_window_size", -1)
	length := t.shapes.Of(past).Dim(2)
	key := groupMask{past.Name, window}
	if length.Known() {
		key.past = length.String()
	}
	if made := t.masks[key]; made != nil || t.err != nil {
		return made
	}
	number := func(x int64) *graph.Value { return t.g.AddInitializer(graph.Int64Tensor("", nil, x)) }
	before := t.node("Gather", []*graph.Value{t.op("Shape", past), number(2)}, 1, "axis", int64(0))[0]
	_, count := t.counted(n.Input(groupQueries), 1)
	end := t.op("Add", before, count)
	queries := t.onAxes("Unsqueeze", t.op("Range", before, end, number(1)), []int64{1})
	keys := t.onAxes("Unsqueeze", t.op("Range", number(0), end, number(1)), []int64{0})
	seen := t.op("LessOrEqual", keys, queries)
	if window > 0 { // so many keys, the query's own included
		seen = t.op("And", seen, t.op("Greater", keys, t.op("Sub", queries, number(window))))
	}
	t.masks[key] = seen
	return seen
}
