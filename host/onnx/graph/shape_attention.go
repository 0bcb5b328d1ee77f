package graph

import "github.com/opgraft/graft/host/onnx/model/onnx"

func attentionRules() map[string]func(*call) {
	return map[string]func(*call){
		"Attention":                                     attentionRule,
		"RotaryEmbedding":                               sameAsFirst,
		"com.microsoft.RotaryEmbedding":                 sameAsFirst,
		"com.microsoft.GemmaRotaryEmbedding":            gemmaRotaryRule,
		"com.microsoft.Attention":                       fusedAttentionRule,
		"com.microsoft.QAttention":                      fusedAttentionRule,
		"com.microsoft.MultiHeadAttention":              multiHeadRule,
		"com.microsoft.DecoderMaskedMultiHeadAttention": multiHeadRule,
		"com.microsoft.GroupQueryAttention":             groupQueryRule,
		"com.microsoft.SparseAttention":                 groupQueryRule,
		"com.microsoft.PackedAttention":                 packedAttentionRule,
		"com.microsoft.PackedMultiHeadAttention":        packedMultiHeadRule,
		"com.microsoft.LongformerAttention":             sameAsFirst,
		"com.microsoft.PagedAttention":                  sameAsFirst,
		"com.microsoft.RelativePositionBias": func(c *call) {
			table := c.in(0)
			c.set(0, shaped(table.DType, DimInt(1), table.Dim(1), c.in(1).one(), c.in(2).one()))
		},
	}
}

// headed is a query, key or value with its heads on an axis of their own:
// (batch, heads, length, size). Three axes hold (batch, length, heads*size).
func headed(f Fact, heads Dim) Fact {
	switch f.Rank {
	case 4:
		return f
	case 3:
		size, _ := f.Dims[2].Div(heads)
		return shaped(f.DType, f.Dims[0], heads, f.Dims[1], size)
	}
	return shaped(f.DType, make([]Dim, 4)...)
}

// attentionRule is ONNX's own operator, of opset 23 on.
func attentionRule(c *call) {
	x := c.in(0)
	heads, groups := DimInt(c.n.Int("q_num_heads", 0)), DimInt(c.n.Int("kv_num_heads", 0))
	q, k, v := headed(x, heads), headed(c.in(1), groups), headed(c.in(2), groups)
	total := k.Dims[2]
	if c.has(4) {
		total = total.Add(c.in(4).Dim(2))
	}
	switch x.Rank {
	case 3:
		c.set(0, shaped(x.DType, x.Dims[0], x.Dims[1], heads.Mul(v.Dims[3])))
	case 4:
		c.set(0, shaped(x.DType, x.Dims[0], x.Dims[1], x.Dims[2], v.Dims[3]))
	default:
		c.set(0, unranked(x.DType))
	}
	c.set(1, shaped(c.in(1).DType, k.Dims[0], k.Dims[1], total, k.Dims[3]))
	c.set(2, shaped(c.in(2).DType, v.Dims[0], v.Dims[1], total, v.Dims[3]))
	c.set(3, shaped(x.DType, q.Dims[0], q.Dims[1], q.Dims[2], total))
}

// fusedAttentionRule is the operator that holds the projections: x is
// (batch, length, width), the weights (width, query + key + value).
func fusedAttentionRule(c *call) {
	x, w := c.in(0), c.in(1)
	past, t := c.in(4), x.DType
	if c.n.Is("com.microsoft.QAttention") {
		past, t = c.in(8), c.in(3).DType
	}
	heads := DimInt(c.n.Int("num_heads", 0))
	width, _ := w.Dim(-1).Div(DimInt(3))
	if sizes, ok := c.n.Ints("qkv_hidden_sizes"); ok && len(sizes) == 3 {
		width = DimInt(sizes[2])
	}
	if x.Rank >= 0 && x.Rank != 3 {
		return
	}
	batch, length := x.Dim(0), x.Dim(1)
	if past.Rank < 0 && c.n.Is("com.microsoft.Attention") {
		c.keyMask(c.in(3), batch, length)
	}
	c.set(0, shaped(t, batch, length, width))
	size, _ := width.Div(heads)
	switch {
	case past.Rank == 5 && c.n.Int("past_present_share_buffer", 0) != 0:
		c.set(1, like(past, onnx.Tensor_UNDEFINED))
	case past.Rank == 5:
		c.set(1, shaped(t, DimInt(2), past.Dims[1], past.Dims[2], past.Dims[3].Add(length), past.Dims[4]))
	default:
		c.set(1, shaped(t, DimInt(2), batch, heads, length, size))
	}
}

// multiHeadRule takes projected queries (batch, length, width) and keys and
// values as wide, packed by head, or with their heads apart.
func multiHeadRule(c *call) {
	q, k, v := c.in(0), c.in(1), c.in(2)
	heads := DimInt(c.n.Int("num_heads", 0))
	pastKey, pastValue, share := c.in(6), c.in(7), false
	if c.n.Is("com.microsoft.DecoderMaskedMultiHeadAttention") {
		pastKey, pastValue = c.in(5), c.in(6)
		share = c.n.Int("past_present_share_buffer", 0) != 0
	}
	var keys, size, width, valueSize Dim // new keys; sizes of a head
	switch {
	case q.Rank == 5: // (batch, length, heads, 3, size)
		keys, size, valueSize = q.Dims[1], q.Dims[4], q.Dims[4]
	case k.Rank == 5: // (batch, keys, heads, 2, size)
		keys, size, valueSize = k.Dims[1], k.Dims[4], k.Dims[4]
	default:
		key, value := headed(k, heads), headed(v, heads)
		keys, size, valueSize = key.Dims[2], key.Dims[3], value.Dims[3]
		if !c.has(2) {
			valueSize = Dim{}
		}
		if !size.Known() && q.Rank == 3 {
			size, _ = q.Dims[2].Div(heads)
		}
	}
	width = heads.Mul(valueSize)
	if q.Rank < 0 {
		return
	}
	batch, length := q.Dim(0), q.Dim(1)
	c.set(0, shaped(q.DType, batch, length, width))
	total := keys
	if pastKey.Rank == 4 {
		total = total.Add(pastKey.Dims[2])
	} else if c.has(6) || c.has(5) && c.n.Is("com.microsoft.DecoderMaskedMultiHeadAttention") {
		total = Dim{}
	}
	if share {
		c.set(1, like(pastKey, q.DType))
		c.set(2, like(pastValue, q.DType))
		c.set(3, shaped(q.DType, batch, heads, length, Dim{}))
		return
	}
	if c.n.Is("com.microsoft.MultiHeadAttention") {
		c.keyMask(c.in(4), batch, total)
	}
	if added := c.in(5); added.Rank == 4 && c.n.Is("com.microsoft.MultiHeadAttention") {
		c.s.suppose(batch, added.Dims[0])
		c.s.suppose(total, added.Dims[3])
	}
	c.set(1, shaped(q.DType, batch, heads, total, size))
	c.set(2, shaped(q.DType, batch, heads, total, valueSize))
	c.set(3, shaped(q.DType, batch, heads, length, total))
}

// keyMask supposes that a mask has the lengths of one of its forms: (batch, keys), (batch, .., keys), or the lengths
// of sequences, (batch), twice as many, or three times as many and two.
func (c *call) keyMask(mask Fact, batch, keys Dim) {
	switch mask.Rank {
	case 1:
		for _, form := range []Dim{batch, batch.Mul(DimInt(2)), batch.Mul(DimInt(3)).Add(DimInt(2))} {
			c.s.suppose(form, mask.Dims[0])
		}
	case 2, 3:
		c.s.suppose(batch, mask.Dims[0])
		c.s.suppose(keys, mask.Dims[mask.Rank-1])
	}
}

// groupQueryRule takes queries (batch, length, heads*size), with keys and
// values after them when those are absent.
func groupQueryRule(c *call) {
	q := c.in(0)
	heads, groups := DimInt(c.n.Int("num_heads", 0)), DimInt(c.n.Int("kv_num_heads", 0))
	if q.Rank != 3 {
		return
	}
	var size Dim
	if c.has(1) {
		size, _ = q.Dims[2].Div(heads)
	} else {
		size, _ = q.Dims[2].Div(heads.Add(groups.Mul(DimInt(2))))
	}
	c.set(0, shaped(q.DType, q.Dims[0], q.Dims[1], heads.Mul(size)))
	// The present holds the past's buffer, or all keys when there are more.
	past := c.in(3)
	total := c.in(6).one()
	if c.n.Is("com.microsoft.SparseAttention") {
		total = Dim{}
	}
	switch {
	case past.Rank == 4 && c.n.Int("sliding_window_cache", 0) != 0: // the newest keys are kept in a buffer of one length
		total = past.Dims[2]
	case past.Rank == 4:
		total = extreme(1)(past.Dims[2], total)
	}
	for i := 1; i < 3; i++ {
		t := q.DType
		if c.has(2 + i) {
			t = c.in(2 + i).DType
		}
		c.set(i, shaped(t, q.Dims[0], groups, total, size))
	}
}

func packedAttentionRule(c *call) {
	x := c.in(0)
	width, _ := c.in(1).Dim(-1).Div(DimInt(3))
	if sizes, ok := c.n.Ints("qkv_hidden_sizes"); ok && len(sizes) == 3 {
		width = DimInt(sizes[2])
	}
	c.set(0, shaped(x.DType, x.Dim(0), width))
}

func packedMultiHeadRule(c *call) {
	q := c.in(0)
	if q.Rank == 4 { // (tokens, heads, 3, size)
		c.set(0, shaped(q.DType, q.Dims[0], q.Dims[1].Mul(q.Dims[3])))
		return
	}
	c.set(0, shaped(q.DType, q.Dim(0), c.in(2).Dim(1)))
}

func gemmaRotaryRule(c *call) {
	q, k := c.in(1), c.in(3)
	c.set(0, like(q, onnx.Tensor_UNDEFINED))
	c.set(1, like(k, onnx.Tensor_UNDEFINED))
}
