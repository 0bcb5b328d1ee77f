package blocks_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/meaning/roles"
)

// projected are query, key and value of four heads of sixteen, from linear layers.
const projected = `
in x f32[b, s, 64]
in ids i64[b, s]
const wq f32[64, 64]
const wk f32[64, 64]
const wv f32[64, 64]
const cos_table f32[128, 8]
const sin_table f32[128, 8]
in cos f32[b, 1, s, 16]
in sin f32[b, 1, s, 16]
out y f32[b, 4, s, 16]
ql = MatMul(x, wq)
qr = Reshape(ql, [0,0,4,16])
q = Transpose(qr) perm=0,2,1,3
kl = MatMul(x, wk)
kr = Reshape(kl, [0,0,4,16])
k = Transpose(kr) perm=0,2,1,3
vl = MatMul(x, wv)
vr = Reshape(vl, [0,0,4,16])
v = Transpose(vr) perm=0,2,1,3
`

// attended takes qt and kt, query and key as they were turned.
const attended = `
kk = Transpose(kt) perm=0,1,3,2
a = MatMul(qt, kk)
p = Softmax(a)
y = MatMul(p, v)
`

// both writes text twice, with # for q and for k.
func both(text string) string {
	return strings.ReplaceAll(text, "#", "q") + strings.ReplaceAll(text, "#", "k")
}

func TestRotaryEmbeddings(t *testing.T) {
	for _, c := range []struct {
		name, text string
		style      string // "" where query and key are not told apart from their embedding
		size       int64
		doubled    bool
		rows       string
		positions  string
	}{
		{"halves", both(`
			#1 = Slice(#, [0], [8], [3])
			#2 = Slice(#, [8], [100], [-1])
			#n = Neg(#2)
			#c = Concat(#n, #1) axis=-1
			#s = Mul(#c, sin)
			#p = Mul(#, cos)
			#t = Add(#p, #s)`), "half", 16, true, "", "rotary"},
		{"halves of a split", both(`
			#1, #2 = Split(#) axis=3 num_outputs=2
			#n = Neg(#2)
			#c = Concat(#n, #1) axis=3
			#s = Mul(sin, #c)
			#p = Mul(cos, #)
			#t = Add(#s, #p)`), "half", 16, true, "", "rotary"},
		{"turned the other way", both(`
			#1, #2 = Split(#) axis=3 num_outputs=2
			#n = Neg(#1)
			#c = Concat(#2, #n) axis=3
			#s = Mul(#c, sin)
			#p = Mul(#, cos)
			#t = Add(#p, #s)`), "", 0, false, "", "none"},
		{"the first half negated in place", both(`
			#1, #2 = Split(#) axis=3 num_outputs=2
			#n = Neg(#1)
			#c = Concat(#n, #2) axis=3
			#s = Mul(#c, sin)
			#p = Mul(#, cos)
			#t = Add(#p, #s)`), "", 0, false, "", "none"},
		{"neighbours", both(`
			#1 = Slice(#, [0], [16], [3], [2])
			#2 = Slice(#, [1], [16], [3], [2])
			#n = Neg(#2)
			#a = Unsqueeze(#n, [-1])
			#b = Unsqueeze(#1, [-1])
			#c = Concat(#a, #b) axis=-1
			#f = Reshape(#c, [0,4,-1,16])
			#s = Mul(#f, sin)
			#p = Mul(#, cos)
			#t = Add(#p, #s)`), "interleaved", 16, true, "", "rotary"},
		{"neighbours in the wrong order", both(`
			#1 = Slice(#, [0], [16], [3], [2])
			#2 = Slice(#, [1], [16], [3], [2])
			#n = Neg(#1)
			#a = Unsqueeze(#n, [-1])
			#b = Unsqueeze(#2, [-1])
			#c = Concat(#a, #b) axis=-1
			#f = Reshape(#c, [0,4,-1,16])
			#s = Mul(#f, sin)
			#p = Mul(#, cos)
			#t = Add(#p, #s)`), "", 0, false, "", "none"},
		{"the first eight features", `
			in part_cos f32[b, 1, s, 8]
			in part_sin f32[b, 1, s, 8]` + both(`
			#a = Slice(#, [0], [8], [3])
			#rest = Slice(#, [8], [16], [3])
			#1, #2 = Split(#a) axis=3 num_outputs=2
			#n = Neg(#2)
			#c = Concat(#n, #1) axis=3
			#s = Mul(#c, part_sin)
			#p = Mul(#a, part_cos)
			#d = Add(#p, #s)
			#t = Concat(#d, #rest) axis=3`), "half", 8, true, "", "rotary"},
		{"other features beside the first eight", `
			in part_cos f32[b, 1, s, 8]
			in part_sin f32[b, 1, s, 8]` + both(`
			#a = Slice(#, [0], [8], [3])
			#rest = Slice(#, [0], [8], [3])
			#1, #2 = Split(#a) axis=3 num_outputs=2
			#n = Neg(#2)
			#c = Concat(#n, #1) axis=3
			#s = Mul(#c, part_sin)
			#p = Mul(#a, part_cos)
			#d = Add(#p, #s)
			#t = Concat(#d, #rest) axis=3`), "", 0, false, "", "none"},
		{"ONNX's operator", both(`
			#t = RotaryEmbedding(#, cos_table, sin_table, ids)`), "half", 16, false, "ids", "rotary"},
		{"ONNX's operator, interleaved", both(`
			#t = RotaryEmbedding(#, cos_table, sin_table, ids) interleaved=1`), "interleaved", 16, false, "ids", "rotary"},
		{"ONNX Runtime's operator", both(`
			#t = com.microsoft.RotaryEmbedding(#, ids, cos_table, sin_table)`), "half", 16, false, "ids", "rotary"},
		{"angles computed twice", `
			in angles f32[b, 1, s, 16]` + both(`
			#cos = Cos(angles)
			#sin = Sin(angles)
			#1, #2 = Split(#) axis=3 num_outputs=2
			#n = Neg(#2)
			#c = Concat(#n, #1) axis=3
			#s = Mul(#c, #sin)
			#p = Mul(#, #cos)
			#t = Add(#p, #s)`), "half", 16, true, "", "rotary"},
		{"angles of their own", both(`
			in #cos f32[b, 1, s, 16]
			in #sin f32[b, 1, s, 16]
			#1, #2 = Split(#) axis=3 num_outputs=2
			#n = Neg(#2)
			#c = Concat(#n, #1) axis=3
			#s = Mul(#c, #sin)
			#p = Mul(#, #cos)
			#t = Add(#p, #s)`), "", 0, false, "", "rotary"},
		{"only the query", `
			qt = RotaryEmbedding(q, cos_table, sin_table, ids)
			kt = Identity(k)`, "", 0, false, "", "rotary"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := find(t, projected+c.text+attended)
			a, w := b.Attention, b.Wiring
			if a.Positions != c.positions || a.Rotary != w.Rotary {
				t.Errorf("positions %q, want %q; rotary %+v and %+v", a.Positions, c.positions, a.Rotary, w.Rotary)
			}
			if c.style == "" {
				if w.Rotary != nil {
					t.Fatalf("a rotary embedding %+v was found", *w.Rotary)
				}
				if w.RawKey != nil && w.RawKey != w.Key {
					t.Errorf("%s is said to be the key before its embedding", w.RawKey.Name)
				}
				return
			}
			r := w.Rotary
			if r == nil {
				t.Fatal("no rotary embedding was found")
			}
			rows := ""
			if r.Rows != nil {
				rows = r.Rows.Name
			}
			if r.Style != c.style || r.Size != c.size || r.Doubled != c.doubled || rows != c.rows {
				t.Errorf("found %+v, rows %q", *r, rows)
			}
			if w.RawQuery.Name != "ql" || w.RawKey.Name != "kl" || w.RawQueryLayout != "bshd" || w.RawKeyLayout != "bshd" {
				t.Errorf("before it are %s (%s) and %s (%s)", w.RawQuery.Name, w.RawQueryLayout, w.RawKey.Name, w.RawKeyLayout)
			}
			if w.Input == nil || w.Input.Name != "x" {
				t.Errorf("they come from %v", w.Input)
			}
		})
	}
}

func TestAngles(t *testing.T) {
	half := &blocks.Rotary{Style: "half", Size: 4, Doubled: true}
	pairs := &blocks.Rotary{Style: "interleaved", Size: 4, Doubled: true}
	rotary := &blocks.Rotary{Style: "half", Size: 4}
	for _, c := range []struct {
		name  string
		r     *blocks.Rotary
		shape []int64
		data  []float32
		want  []float32
		err   string
	}{
		{"halves", half, []int64{1, 1, 2, 4}, []float32{1, 2, 1, 2, 3, 4, 3, 4}, []float32{1, 2, 3, 4}, ""},
		{"neighbours", pairs, []int64{1, 2, 1, 4}, []float32{1, 1, 2, 2, 3, 3, 4, 4}, []float32{1, 2, 3, 4}, ""},
		{"once", rotary, []int64{2, 2}, []float32{1, 2, 3, 4}, []float32{1, 2, 3, 4}, ""},
		{"not doubled after all", half, []int64{1, 4}, []float32{1, 2, 1, 3}, nil,
			"features 1 and 3 of token 0 are turned by different angles (2 and 3)"},
		{"several rows", half, []int64{2, 2, 4}, make([]float32, 16), nil,
			"have the shape [2 2 4]: need one axis of tokens before the last"},
		{"another width", half, []int64{2, 2}, make([]float32, 4), nil, "have the shape [2 2]: need 4 in the last axis"},
		{"too few", rotary, []int64{3, 2}, make([]float32, 4), nil, "have 4 elements, their shape [3 2] needs 6"},
	} {
		got, err := c.r.Angles(c.shape, c.data)
		if c.err == "" && (err != nil || !slices.Equal(got, c.want)) {
			t.Errorf("%s: got %v, %v", c.name, got, err)
		}
		if c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: got error %v, want %q", c.name, err, c.err)
		}
	}
}

// TestProjectionsAreOfHeads writes linear layers whose columns are no heads side by side.
func TestProjectionsAreOfHeads(t *testing.T) {
	const tail = `
		qh = Transpose(q) perm=0,2,1,3
		kh = Transpose(k) perm=0,2,3,1
		vh = Transpose(v) perm=0,2,1,3
		a = MatMul(qh, kh)
		p = Softmax(a)
		y = MatMul(p, vh)
		in x f32[b, s, 64]
		out y f32[b, 4, s, 16]`
	for _, c := range []struct {
		name, text string
		known      bool
	}{
		{"side by side", `
			const w f32[64, 192]
			l = MatMul(x, w)
			ql, kl, vl = Split(l, [64,64,64]) axis=2
			q = Reshape(ql, [0,0,4,16])
			k = Reshape(kl, [0,0,4,16])
			v = Reshape(vl, [0,0,4,16])`, true},
		{"in turn for each head", `
			const w f32[64, 192]
			l = MatMul(x, w)
			r = Reshape(l, [0,0,4,48])
			q, k, v = Split(r, [16,16,16]) axis=3`, false},
		{"features before heads", `
			const wq f32[64, 64]
			const wk f32[64, 64]
			const wv f32[64, 64]
			ql = MatMul(x, wq)
			kl = MatMul(x, wk)
			vl = MatMul(x, wv)
			qr = Reshape(ql, [0,0,16,4])
			kr = Reshape(kl, [0,0,16,4])
			vr = Reshape(vl, [0,0,16,4])
			q = Transpose(qr) perm=0,1,3,2
			k = Transpose(kr) perm=0,1,3,2
			v = Transpose(vr) perm=0,1,3,2`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := find(t, c.text+tail)
			p := b.Attention.Projections
			known := p != nil && p.Query != nil && p.Key != nil && p.Value != nil
			if known != c.known || (b.Wiring.Input != nil) != c.known {
				t.Errorf("projections %+v, input %v", p, b.Wiring.Input)
			}
		})
	}
}

// TestOrigin pairs cross attention whose keys come in with the decoder that makes them.
func TestOrigin(t *testing.T) {
	const without = `
		in x f32[b, s, 64]
		in e f32[b, n, 64]
		const wq f32[64, 64]
		const wk f32[64, 64]
		const wv f32[64, 64]
		out y f32[b, 4, s, 16]
		out present.0.encoder.key f32[b, 4, n, 16]
		out present.0.encoder.value f32[b, 4, n, 16]
		ql = MatMul(x, wq)
		qr = Reshape(ql, [0,0,4,16])
		q = Transpose(qr) perm=0,2,1,3
		kl = MatMul(e, wk)
		kr = Reshape(kl, [0,0,4,16])
		present.0.encoder.key = Transpose(kr) perm=0,2,1,3
		kt = Transpose(kr) perm=0,2,3,1
		vl = MatMul(e, wv)
		vr = Reshape(vl, [0,0,4,16])
		present.0.encoder.value = Transpose(vr) perm=0,2,1,3
		a = MatMul(q, kt)
		p = Softmax(a)
		y = MatMul(p, present.0.encoder.value)`
	past := func(layer string) *blocks.Report {
		return &blocks.Report{Blocks: []*blocks.Block{find(t, strings.ReplaceAll(`
			in q f32[b, 4, s, 16]
			in past_key_values.#.encoder.key f32[b, 4, n, 16]
			in past_key_values.#.encoder.value f32[b, 4, n, 16]
			out y f32[b, 4, s, 16]
			kt = Transpose(past_key_values.#.encoder.key) perm=0,1,3,2
			a = MatMul(q, kt)
			p = Softmax(a)
			y = MatMul(p, past_key_values.#.encoder.value)`, "#", layer))}}
	}
	g, s := blockstest.Graph(t, without)
	r := blocks.Find(g, s)
	if len(r.Blocks) != 1 {
		t.Fatalf("unrecognised: %v", r.Unrecognised)
	}
	with := past("0")
	o := roles.Origin(with.Blocks[0], with, r)
	if o == nil || o.Attention.Projections.Key.Weight != "wk" || o.Attention.Projections.Value.Weight != "wv" ||
		o.Wiring.Input.Name != "e" {
		t.Errorf("the first layer's is %+v", o)
	}
	with.Blocks = append(with.Blocks, past("1").Blocks...)
	if o := roles.Origin(with.Blocks[1], with, r); o != nil {
		t.Errorf("the second layer's is %s, of a decoder of one", o.Node)
	}
	if o := roles.Origin(r.Blocks[0], with, r); o != nil {
		t.Errorf("a block that makes its own keys has them from %s", o.Node)
	}
}
