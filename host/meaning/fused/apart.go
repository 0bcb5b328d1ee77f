package fused

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// attention is one that was taken apart: a MultiHeadAttention now.
type attention struct {
	node   string     // its name
	before *onnx.Node // as the model has it
	mask   string     // what hides keys where it stays as it is, a key padding mask; "" for none
	biases [3]string  // what is added to query, key and value; of an Attention, the first to all of them
}

// attention takes the projections of query, key and value out of an Attention, and what its mask adds to scores.
func (t *taker) attention(n *graph.Node) attention {
	x, w, b, mask, added := n.Input(0), n.Input(1), n.Input(2), n.Input(3), n.Input(5)
	widths := sizes(n, t.shapes.Of(w))
	rows := t.op("MatMul", x, w)
	if b != nil {
		rows = t.op("Add", rows, b)
	}
	parts := t.split(rows, widths)
	before := own(n)
	n.Proto.OpType = proto.String("MultiHeadAttention")
	n.Proto.Attribute = slices.DeleteFunc(n.Proto.Attribute, func(a *onnx.Attribute) bool {
		return !slices.Contains([]string{"num_heads", "mask_filter_value", "scale"}, a.GetName())
	})
	a := attention{node: name(t.g, n), before: before}
	n.Out = n.Out[:1] // the others are those of a past
	for i := range n.In {
		n.SetInput(i, nil)
	}
	for i, v := range parts {
		read(n, i, v)
	}
	a.mask = t.hide(n, mask, added, x)
	return a
}

// multiHead takes the biases of the projections out of a MultiHeadAttention, and what its mask adds to scores.
func (t *taker) multiHead(n *graph.Node) attention {
	a := attention{node: name(t.g, n), before: own(n)}
	keys := n.Input(1)
	if bias := n.Input(3); bias != nil {
		raw, err := t.g.Data(bias.Tensor)
		if err != nil {
			t.err = err
			return a
		}
		at := int64(0)
		for i, width := range widths(n, t.shapes) {
			part := t.g.AddInitializer(
				&onnx.Tensor{Name: proto.String(""), Dims: []int64{width}, DataType: proto.Int32(int32(onnx.Tensor_FLOAT)),
					RawData: slices.Clone(raw[4*at : 4*(at+width)])})
			a.biases[i] = part.Name
			n.SetInput(i, t.op("Add", n.In[i], part))
			at += width
		}
		n.SetInput(3, nil)
	}
	if mask := n.Input(4); mask != nil {
		n.SetInput(4, nil)
		a.mask = t.hide(n, mask, n.Input(5), keys)
	}
	shorten(n)
	return a
}

// hide lets a node read what a mask adds to scores, with what is added besides. The result names the mask that the
// operator itself takes in its place.
func (t *taker) hide(n *graph.Node, mask, added, like *graph.Value) string {
	if mask == nil {
		read(n, 5, added)
		shorten(n)
		return ""
	}
	own, term := t.term(mask, like, float64(n.Float("mask_filter_value", -10000)))
	if added != nil {
		term = t.op("Add", added, term)
	}
	if t.err != nil {
		return ""
	}
	read(n, 5, term)
	return own.Name
}

// name is a node's name, which it is given where it has none.
func name(g *graph.Graph, n *graph.Node) string {
	if n.Proto.GetName() == "" {
		n.Proto.Name = proto.String(g.FreshName("graft/" + n.Proto.GetOpType()))
	}
	return n.Proto.GetName()
}

// termKey is a mask and what it adds to the scores of hidden keys.
type termKey struct {
	mask *graph.Value
	fill float64
}

// term is what a mask adds to scores, (B, 1, 1 or S, S), and the mask as a MultiHeadAttention takes it. like is (B,
// S, ..).
func (t *taker) term(mask, like *graph.Value, fill float64) (own, term *graph.Value) {
	s := t.shapes.Of(like)
	own = mask
	axes := []int64{1, 2}
	switch formOf(mask, t.shapes, s.Dim(0), s.Dim(1)) {
	case pairs:
		axes = []int64{1}
	case lengths, spans:
		own = t.visible(mask, like)
	}
	key := termKey{mask, fill}
	if made := t.terms[key]; made != nil {
		return own, made
	}
	seen := t.op("Greater", t.onAxes("Unsqueeze", own, axes), t.whole(0))
	term = t.op("Where", seen, t.number(0), t.number(fill))
	t.terms[key] = term
	return own, term
}

// visible is 1 where a mask of lengths shows a key and 0 where it does not, (B, S) of int32. Of a sequence with a
// negative length, which is an error of the operator, it is -1.
func (t *taker) visible(mask, like *graph.Value) *graph.Value {
	if made := t.keys[mask]; made != nil {
		return made
	}
	s := t.shapes.Of(mask)
	batch, positions := t.shapes.Of(like).Dim(0), t.shapes.Of(like).Dim(1)
	if ids := t.shapes.Of(t.tokens); t.tokens != nil && ids.Dim(0).Equal(batch) && ids.Dim(1).Equal(positions) {
		like = t.tokens // which are there of all rows, whatever becomes of others
	}
	end, start := mask, (*graph.Value)(nil)
	if !s.Dims[0].Equal(batch) {
		each, count := t.counted(like, 0)
		end = t.op("Gather", mask, each)
		if s.Dims[0].Equal(batch.Mul(graph.DimInt(2))) {
			start = t.op("Gather", mask, t.op("Add", each, count))
		}
	}
	at := t.positions(like)
	column := func(v *graph.Value) *graph.Value { return t.onAxes("Unsqueeze", v, []int64{1}) }
	end = column(end)
	seen := t.op("Less", at, end)
	if start != nil {
		seen = t.op("And", seen, t.op("Not", t.op("Less", at, column(start))))
	}
	one, zero, wrong := t.whole(1), t.whole(0), t.whole(-1)
	made := t.op("Where", t.op("Less", end, zero), wrong, t.op("Where", seen, one, zero))
	t.keys[mask] = made
	return made
}

// embedding is an EmbedLayerNormalization that was taken apart: it is told positions, and counts no mask.
type embedding struct {
	node    string
	before  *onnx.Node
	counted string // what it counted; "" where nothing reads that
	places  string // the positions that it is told; "" where it was before
}

// embedding lets an EmbedLayerNormalization be told positions, and takes the counting of its mask out. The mask is
// left with it: one of another shape than the tokens is an error of the operator.
func (t *taker) embedding(n *graph.Node) embedding {
	e := embedding{node: name(t.g, n), before: own(n)}
	ids, mask := n.Input(0), n.Input(7)
	t.tokens = ids
	if n.Input(8) == nil {
		read(n, 8, t.positions(ids))
		e.places = n.In[8].Name
	}
	if mask == nil || t.err != nil || !given(n.Output(1)) {
		return e
	}
	ones := t.cast(t.op("Equal", mask, t.whole(1)), onnx.Tensor_INT32)
	counted := t.onAxes("ReduceSum", ones, []int64{1}, "keepdims", int64(0))
	if t.err != nil {
		return e
	}
	t.shapes.Know(counted, t.shapes.Of(n.Out[1]))
	t.g.Replace(n.Out[1], counted)
	e.counted = counted.Name
	return e
}
