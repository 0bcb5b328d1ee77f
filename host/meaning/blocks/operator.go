package blocks

import (
	"errors"
	"fmt"
	"math"

	"github.com/opgraft/graft/host/meaning/fused"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// IsAttentionOperator reports an operator that is attention by definition.
func IsAttentionOperator(n *graph.Node) bool {
	return n.Is("Attention", "com.microsoft.Attention", "com.microsoft.MultiHeadAttention",
		"com.microsoft.GroupQueryAttention", "com.microsoft.DecoderMaskedMultiHeadAttention",
		"com.microsoft.PackedAttention", "com.microsoft.PackedMultiHeadAttention",
		"com.microsoft.QAttention", "com.microsoft.DecoderAttention", "com.microsoft.LongformerAttention",
		"com.microsoft.SparseAttention", "com.microsoft.PagedAttention", "com.microsoft.DecoderMaskedSelfAttention")
}

// operator states the facts of attention that stands as one operator.
func (f *finder) operator(n *graph.Node) (*Block, error) {
	b := &Block{Kind: "attention", Node: n.Path(),
		Attention: &Attention{Form: n.Op()},
		Wiring:    &Wiring{Graph: n.Graph, Anchor: n, Fill: math.Inf(-1), ScoresMode: 3}}
	switch n.Op() {
	case "Attention":
		return b, f.onnxAttention(b, n)
	case "com.microsoft.MultiHeadAttention":
		return b, f.multiHead(b, n)
	case "com.microsoft.Attention":
		return b, f.packedAttention(b, n)
	case "com.microsoft.GroupQueryAttention":
		return b, f.groupQuery(b, n)
	}
	return nil, fmt.Errorf("%s is an operator whose facts are not read", n.Op())
}

// heads labels an operand of an attention operator: rank 4 is (batch, heads,
// positions, size), rank 3 (batch, positions, heads times size).
func (f *finder) heads(v *graph.Value, heads int64, what string) (view, error) {
	s := f.shapes.Of(v)
	switch {
	case s.Rank == 4:
		return view{v, apart(s.Dims[0], s.Dims[1], s.Dims[2], s.Dims[3]), 1}, nil
	case s.Rank == 3 && heads > 0:
		width, ok := s.Dims[2].Const()
		if !ok || width%heads != 0 {
			return view{}, fmt.Errorf("the width %s of its %s is no constant multiple of %d heads", s.Dims[2], what, heads)
		}
		return view{v, folded(s.Dims[0], graph.DimInt(heads), s.Dims[1], graph.DimInt(width/heads)), 1}, nil
	}
	return view{}, fmt.Errorf("its %s has rank %d", what, s.Rank)
}

// apart are the axes of (batch, heads, positions, size).
func apart(b, h, s, d graph.Dim) [][]axis {
	return [][]axis{{{role: "b", size: b}}, {{role: "h", size: h}}, {{role: "s", size: s}}, {{role: "d", size: d}}}
}

// folded are the axes of (batch, positions, heads times size).
func folded(b, h, s, d graph.Dim) [][]axis {
	return [][]axis{{{role: "b", size: b}}, {{role: "s", size: s}}, {{role: "h", size: h}, {role: "d", size: d}}}
}

// onnxAttention reads ONNX's own Attention (opset 23 and later).
func (f *finder) onnxAttention(b *Block, n *graph.Node) error {
	a, w := b.Attention, b.Wiring
	qHeads, kvHeads := n.Int("q_num_heads", 0), n.Int("kv_num_heads", 0)
	q, err := f.heads(n.Input(0), qHeads, "query")
	if err != nil {
		return err
	}
	k, err := f.heads(n.Input(1), kvHeads, "key")
	if err != nil {
		return err
	}
	v, err := f.heads(n.Input(2), kvHeads, "value")
	if err != nil {
		return err
	}
	out := view{value: n.Output(0), scale: 1}
	size, _ := v.size("d")
	batch, _ := q.size("b")
	heads, _ := q.size("h")
	queries, _ := q.size("s")
	if len(q.dims) == 4 {
		out.dims = apart(batch, heads, queries, size)
	} else {
		out.dims = folded(batch, heads, queries, size)
	}
	scale := 1.0
	if s := n.Attr("scale"); s != nil {
		scale = float64(s.GetF())
	} else if d, ok := q.size("d"); ok {
		if width, ok := d.Const(); ok && width > 0 {
			scale = 1 / math.Sqrt(float64(width))
		}
	}
	a.Softcap = float64(n.Float("softcap", 0))
	w.Causal = n.Int("is_causal", 0) != 0
	if w.Lengths = n.Input(6); w.Lengths != nil && w.Causal {
		// its last query is the last of these keys, where one without them counts from the first
		return errors.New("it is causal over as many keys as its nonpad_kv_seqlen says, counted from their end")
	}
	// A row without visible keys is zeros here, where a softmax of its own
	// would give NaN.
	w.ZeroRows = true
	if mask := n.Input(3); mask != nil {
		s := f.shapes.Of(mask)
		switch s.DType {
		case onnx.Tensor_BOOL:
			w.BoolMask = mask
		case onnx.Tensor_FLOAT, onnx.Tensor_FLOAT16:
			// ONNX Runtime takes a row of the lowest number for one without visible keys.
			w.Biases = []Bias{{Value: mask, Factor: 1, Hides: true}}
			if s.DType == onnx.Tensor_FLOAT16 && !f.hidesBy(mask, -65504) {
				b.Obstacle = "it rounds the sum of scores and mask to float16, after which nothing is left of a row that the " +
					"mask lowers by much"
			}
		default:
			return fmt.Errorf("its mask is of type %s", s.DType)
		}
		if s.Rank < 1 || s.Rank > 4 {
			return fmt.Errorf("its mask has rank %d", s.Rank)
		}
	}
	if o := n.Output(3); o != nil {
		w.Scores, w.ScoresMode, a.Scores = o, int(n.Int("qk_matmul_output_mode", 0)), true
	}
	past := n.Input(4)
	present := n.Output(1)
	if past == nil && present == nil {
		return f.finish(b, q, k, v, out, scale)
	}
	return f.insidePast(b, n, q, k, v, out, scale, past, n.Input(5), present, n.Output(2))
}

// insidePast finishes a block whose operator joins past and new by itself.
func (f *finder) insidePast(b *Block, n *graph.Node, q, k, v, out view, scale float64, pastKey, pastValue, presentKey,
	presentValue *graph.Value) error {
	if err := f.finish(b, q, k, v, out, scale); err != nil {
		return err
	}
	a, w := b.Attention, b.Wiring
	if w.PastKey != nil {
		return errors.New("its keys are joined with a past before the operator and again inside it")
	}
	w.PastKey, w.PastValue, w.PresentKey, w.PresentValue = pastKey, pastValue, presentKey, presentValue
	if pastKey == nil {
		f.describe(b)
		return nil
	}
	a.PastLayout = "bhsd"
	ps := f.shapes.Of(pastKey)
	if ps.Rank != 4 {
		return fmt.Errorf("its past has rank %d where 4 is known how to read", ps.Rank)
	}
	w.PastKeys = ps.Dims[2]
	w.AllKeys = w.PastKeys.Add(w.NewKeys)
	f.describe(b)
	return nil
}

// multiHead reads ONNX Runtime's MultiHeadAttention.
func (f *finder) multiHead(b *Block, n *graph.Node) error {
	w := b.Wiring
	heads := n.Int("num_heads", 0)
	if n.Input(1) == nil || n.Input(2) == nil {
		return errors.New("its query, key and value are packed in an order of ONNX Runtime's own")
	}
	if n.Input(3) != nil {
		b.Obstacle = "it adds the biases of its projections inside the operator"
		defer func() { f.innerBias(b, n.Input(3)) }()
	}
	for i := 8; i < len(n.In); i++ {
		if n.In[i] != nil {
			return fmt.Errorf("it reads %s for sharing caches between beams", n.In[i].Name)
		}
	}
	q, err := f.heads(n.Input(0), heads, "query")
	if err != nil {
		return err
	}
	k, err := f.heads(n.Input(1), heads, "key")
	if err != nil {
		return err
	}
	v, err := f.heads(n.Input(2), heads, "value")
	if err != nil {
		return err
	}
	if n.Output(3) != nil {
		return errors.New("its raw scores are read")
	}
	size, _ := v.size("d")
	batch, _ := q.size("b")
	queries, _ := q.size("s")
	out := view{n.Output(0), folded(batch, graph.DimInt(heads), queries, size), 1}
	if keys, _ := k.size("s"); n.Int("unidirectional", 0) != 0 && !keys.Equal(queries) {
		b.Obstacle = "it is causal over other keys than those of its queries, of which ONNX Runtime lets its last query " +
			"see all"
	}
	scale := float64(n.Float("scale", 0))
	if d, ok := q.size("d"); ok && scale == 0 {
		if width, ok := d.Const(); ok && width > 0 {
			scale = 1 / math.Sqrt(float64(width))
		}
	}
	w.Causal = n.Int("unidirectional", 0) != 0
	w.Biases = bias(n.Input(5))
	if mask := n.Input(5); mask != nil && w.Causal && !(f.hidesBy(mask, math.Inf(-1)) && f.ancestry(mask).triangular) {
		// Where the mask hides all that comes before a query, what comes after it may be no lower.
		w.Biases[0].Later = true
		if f.shapes.Of(n.Input(5)).DType != onnx.Tensor_FLOAT {
			b.Obstacle = "it hides later keys by a number that its mask's type has not"
		}
	}
	if pad := n.Input(4); pad != nil {
		s := f.shapes.Of(pad)
		if s.Rank != 1 {
			return fmt.Errorf("its key padding mask has rank %d; lengths (rank 1) are read", s.Rank)
		}
		// ONNX Runtime lowers the scores of such keys by a number, so that a
		// row without any has its softmax all the same; it also takes the
		// form of three entries a row.
		w.Lengths = pad
		b.Obstacle = "its key padding mask lowers scores by a number, where an operator hides keys"
	}
	if n.Input(6) == nil && n.Output(1) == nil {
		return f.finish(b, q, k, v, out, scale)
	}
	return f.insidePast(b, n, q, k, v, out, scale, n.Input(6), n.Input(7), n.Output(1), n.Output(2))
}

// innerBias names the bias that the operator adds to query, key and value, one
// after the other in one vector.
func (f *finder) innerBias(b *Block, bias *graph.Value) {
	bias = f.first(bias)
	a := b.Attention
	if a.Projections == nil || bias.Tensor == nil {
		return
	}
	at := int64(0)
	for _, side := range []struct {
		l     *Linear
		width int64
	}{{a.Projections.Query, a.Heads * a.HeadSize}, {a.Projections.Key, a.KVHeads * a.HeadSize},
		{a.Projections.Value, a.KVHeads * a.ValueSize}} {
		if side.l != nil && side.l.Bias == "" {
			side.l.Bias, side.l.BiasOffset = bias.Name, at
		}
		at += side.width
	}
}

// packedAttention states the facts of ONNX Runtime's Attention, whose
// projections lie inside the operator.
func (f *finder) packedAttention(b *Block, n *graph.Node) error {
	a, w := b.Attention, b.Wiring
	m := n.Input(1)
	if m = f.first(m); m == nil || m.Tensor == nil || len(m.Tensor.Dims) != 2 {
		return errors.New("its packed projection is no constant matrix")
	}
	heads := n.Int("num_heads", 0)
	sizes, ok := n.Ints("qkv_hidden_sizes")
	if !ok || len(sizes) != 3 {
		third := m.Tensor.Dims[1] / 3
		sizes = []int64{third, third, third}
	}
	if heads <= 0 || sizes[0]%heads != 0 || sizes[2]%heads != 0 {
		return fmt.Errorf("its widths %v are no multiples of %d heads", sizes, heads)
	}
	a.Type, a.Heads, a.KVHeads = "self", heads, heads
	a.HeadSize, a.ValueSize = sizes[0]/heads, sizes[2]/heads
	a.Scale = float64(n.Float("scale", 0))
	if a.Scale == 0 {
		a.Scale = 1 / math.Sqrt(float64(a.HeadSize))
	}
	w.Causal = n.Int("unidirectional", 0) != 0
	w.Query, w.Output = n.Input(0), n.Output(0)
	w.Biases = bias(n.Input(5))
	f.operatorFacts(b)
	if mask := n.Input(3); mask != nil {
		if a.Mask == nil {
			a.Mask = &Mask{Sources: []string{}}
		}
		a.Mask.Kinds = append(a.Mask.Kinds, "padding")
		a.Mask.Sources = sorted(append(a.Mask.Sources, f.ancestry(mask).inputs...))
	}
	bias := ""
	if c := f.in(n, 2); c != nil {
		bias = c.Name
	}
	linear := func(offset, width int64) *Linear {
		l := &Linear{Weight: m.Name, Bias: bias, Inputs: m.Tensor.Dims[0], Width: width, From: n.Input(0), Factor: 1,
			BiasFactor: 1}
		l.move(offset)
		return l
	}
	a.Projections = &Projections{Query: linear(0, sizes[0]), Key: linear(sizes[0], sizes[1]),
		Value: linear(sizes[0]+sizes[1], sizes[2])}
	a.Projections.Output = f.consumer(n.Output(0))
	if past := n.Input(4); past != nil {
		a.Past = &Past{Key: f.inputName(past), Value: f.inputName(past), PresentKey: f.outputName(n.Output(1)),
			PresentValue: f.outputName(n.Output(1))}
		a.PastLayout = "2bhsd"
	}
	b.Obstacle = "its projections lie inside the operator and would have to be taken out first"
	if why := fused.Whole(n, f.shapes); why != "" {
		b.Obstacle = "its projections lie inside the operator, which is not taken apart: " + why
	}
	return nil
}

// groupQuery states the facts of ONNX Runtime's GroupQueryAttention.
func (f *finder) groupQuery(b *Block, n *graph.Node) error {
	a, w := b.Attention, b.Wiring
	a.Heads, a.KVHeads = n.Int("num_heads", 0), n.Int("kv_num_heads", 0)
	s := f.shapes.Of(n.Input(0))
	if s.Rank < 1 || a.Heads <= 0 || a.KVHeads <= 0 {
		return errors.New("its heads are not known")
	}
	width, ok := s.Dims[s.Rank-1].Const()
	if !ok {
		return fmt.Errorf("the width of its query is no constant (%s)", s.Dims[s.Rank-1])
	}
	if n.Input(1) == nil {
		a.HeadSize = width / (a.Heads + 2*a.KVHeads)
	} else {
		a.HeadSize = width / a.Heads
	}
	a.ValueSize = a.HeadSize
	a.Type = "self"
	a.Scale = float64(n.Float("scale", 0))
	if a.Scale == 0 {
		a.Scale = 1 / math.Sqrt(float64(a.HeadSize))
	}
	a.Softcap = float64(n.Float("softcap", 0))
	if win := n.Int("local_window_size", -1); win > 0 {
		a.Window, w.Window = win, win
	}
	w.Causal = true
	w.Query, w.Key, w.Value, w.Output = n.Input(0), n.Input(1), n.Input(2), n.Output(0)
	w.PastKey, w.PastValue, w.PresentKey, w.PresentValue = n.Input(3), n.Input(4), n.Output(1), n.Output(2)
	a.PastLayout = "bhsd"
	if n.Int("do_rotary", 0) != 0 {
		w.Rotary = &Rotary{Style: "half", Cos: f.in(n, 7), Sin: f.in(n, 8), Rows: f.in(n, 9)}
		if n.Int("rotary_interleaved", 0) != 0 {
			w.Rotary.Style = "interleaved"
		}
		if half, ok := f.shapes.Of(w.Rotary.Cos).Dim(-1).Const(); ok {
			w.Rotary.Size = 2 * half
		}
	}
	f.operatorFacts(b)
	if lengths := n.Input(5); lengths != nil {
		a.Mask = &Mask{Kinds: []string{"lengths"}, Sources: sorted(f.ancestry(lengths).inputs)}
	}
	queries := a.Heads
	if w.Key == nil {
		queries += 2 * a.KVHeads
	}
	p := &Projections{
		Query:  f.linear(f.at(f.unrotate(w.Query), "bshd", queries, a.HeadSize)),
		Key:    f.linear(f.at(f.unrotate(w.Key), "bshd", a.KVHeads, a.HeadSize)),
		Value:  f.linear(f.at(w.Value, "bshd", a.KVHeads, a.ValueSize)),
		Output: f.consumer(n.Output(0)),
	}
	if w.Key == nil && p.Query != nil {
		q, k := a.Heads*a.HeadSize, a.KVHeads*a.HeadSize
		p.Query.Width, p.Key, p.Value = q, new(Linear), new(Linear)
		*p.Key, *p.Value = *p.Query, *p.Query
		p.Key.Width, p.Value.Width = k, k
		p.Key.move(q)
		p.Value.move(q + k)
	}
	if a.Projections = p; *p == (Projections{}) {
		a.Projections = nil
	}
	b.Obstacle = "ONNX Runtime's GroupQueryAttention already reads its cache in place"
	if why := fused.WholeGroup(n, f.shapes); why != "" {
		b.Obstacle += ", and is not taken apart for an engine: " + why
	}
	return nil
}

// operatorFacts states type, past, positions and mask for an operator whose
// projections are read apart.
func (f *finder) operatorFacts(b *Block) {
	a, w := b.Attention, b.Wiring
	kind := a.Type
	w.Scale = a.Scale
	key := w.Key
	if key == nil {
		w.Packed = true
	}
	f.describe(b)
	w.Packed = false
	a.Type = kind
}
