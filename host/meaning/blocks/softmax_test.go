package blocks_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/internal/must"
)

// operands are query, key and value that stand apart, four heads of sixteen.
const operands = `
in q f32[b, 4, s, 16]
in k f32[b, 4, t, 16]
in v f32[b, 4, t, 16]
out y f32[b, 4, s, 16]
kt = Transpose(k) perm=0,1,3,2
`

// find writes a graph with one softmax or attention operator and recognises it.
func find(t *testing.T, text string) *blocks.Block {
	t.Helper()
	g, s := blockstest.Graph(t, text)
	r := blocks.Find(g, s)
	if len(r.Unrecognised) > 0 || len(r.Blocks) != 1 {
		t.Fatalf("%d blocks, unrecognised %v", len(r.Blocks), r.Unrecognised)
	}
	return r.Blocks[0]
}

func TestFactsOfGraphs(t *testing.T) {
	for _, c := range []struct {
		name, text string
		check      func(b *blocks.Block) bool
	}{
		{"scale by division", operands + `
			a = MatMul(q, kt)
			c = Div(a, 4.0)
			p = Softmax(c)
			y = MatMul(p, v)`,
			func(b *blocks.Block) bool {
				return b.Attention.Scale == 0.25 && b.Attention.Type == "cross" && b.Attention.Mask == nil
			}},
		{"scale computed when the graph runs", operands + `
			shape = Shape(q) start=3 end=4
			width = Cast(shape) to=1
			root = Sqrt(width)
			one = Div(1.0, root)
			half = Sqrt(one)
			q2 = Mul(q, half)
			k2 = Mul(kt, half)
			a = MatMul(q2, k2)
			p = Softmax(a)
			y = MatMul(p, v)`,
			func(b *blocks.Block) bool { return b.Attention.Scale == 0.25 && b.Wiring.Query.Name == "q" }},
		{"soft cap", operands + `
			a = MatMul(q, kt)
			c = Mul(a, 0.25)
			d = Div(c, 50.0)
			e = Tanh(d)
			f = Mul(50.0, e)
			p = Softmax(f)
			y = MatMul(p, v)`,
			func(b *blocks.Block) bool { return b.Attention.Softcap == 50 && near(b.Attention.Scale, 0.25) }},
		{"soft cap with its scale inside", operands + `
			a = MatMul(q, kt)
			d = Mul(a, 0.005)
			e = Tanh(d)
			f = Mul(e, 50.0)
			p = Softmax(f)
			y = MatMul(p, v)`,
			func(b *blocks.Block) bool { return b.Attention.Softcap == 50 && near(b.Attention.Scale, 0.25) }},
		{"sinks", operands + `
			in bias f32[b, 1, s, t]
			const sinks f32[1, 4, 1, 1]
			b1 = Shape(q) start=0 end=1
			s1 = Shape(q) start=2 end=3
			shape = Concat(b1, [1], s1, [1]) axis=0
			wide = Expand(sinks, shape)
			a = MatMul(q, kt)
			c = Mul(a, 0.25)
			d = Add(c, bias)
			e = Concat(d, wide) axis=-1
			m = ReduceMax(e, [-1]) keepdims=1
			f = Sub(e, m)
			p = Softmax(f)
			seen = Slice(p, [0], [-1], [3], [1])
			y = MatMul(seen, v)`,
			func(b *blocks.Block) bool {
				w := b.Wiring
				return b.Attention.Sinks && w.Sinks.Name == "sinks" && w.Biases[0].Value.Name == "bias" &&
					b.Attention.Scale == 0.25 && b.Facts()["sinks"] == true
			}},
		{"sinks of a step of one text", `
			in q f32[1, 4, 1, 16]
			in k f32[1, 4, t, 16]
			in v f32[1, 4, t, 16]
			out y f32[1, 4, 1, 16]
			const sinks f32[4]
			kt = Transpose(k) perm=0,1,3,2
			four = Reshape(sinks, [1,4,1,1])
			a = MatMul(q, kt)
			c = Concat(a, four) axis=3
			p = Softmax(c)
			seen = Slice(p, [0], [-1], [-1])
			y = MatMul(seen, v)`,
			func(b *blocks.Block) bool { return b.Wiring.Sinks.Name == "four" && b.Attention.Mask == nil }},
		{"boolean mask", operands + `
			in seen bool[b, 1, s, t]
			a = MatMul(q, kt)
			m = Where(seen, a, -1e9)
			p = Softmax(m)
			y = MatMul(p, v)`,
			func(b *blocks.Block) bool {
				m := b.Attention.Mask
				return m.Kinds[0] == "boolean" && *m.Fill == -1e9 && m.Sources[0] == "seen" && !b.Wiring.BoolMaskInverted &&
					!m.PerHead
			}},
		{"boolean mask inverted", operands + `
			in hidden bool[b, 1, s, t]
			a = MatMul(q, kt)
			m = Where(hidden, -1e9, a)
			p = Softmax(m)
			y = MatMul(p, v)`,
			func(b *blocks.Block) bool { return b.Wiring.BoolMaskInverted && b.Wiring.BoolMask.Name == "hidden" }},
		{"boolean mask inverted by a node", operands + `
			in hidden bool[b, 1, s, t]
			seen = Not(hidden)
			a = MatMul(q, kt)
			m = Where(seen, a, -inf)
			p = Softmax(m)
			y = MatMul(p, v)`,
			func(b *blocks.Block) bool {
				return b.Wiring.BoolMaskInverted && b.Wiring.BoolMask.Name == "hidden" && b.Attention.Mask.Fill == nil
			}},
		{"mask then bias", operands + `
			in seen bool[b, 1, s, t]
			in bias f32[4, s, t]
			a = MatMul(q, kt)
			m = Where(seen, a, -1e9)
			c = Add(bias, m)
			p = Softmax(c)
			y = MatMul(p, v)`,
			func(b *blocks.Block) bool { return !b.Wiring.MaskAfterBias && len(b.Attention.Mask.Kinds) == 2 }},
		{"bias then mask", operands + `
			in seen bool[b, 1, s, t]
			in bias f32[b, 4, s, t]
			a = MatMul(q, kt)
			c = Add(bias, a)
			m = Where(seen, c, -1e9)
			p = Softmax(m)
			y = MatMul(p, v)`,
			func(b *blocks.Block) bool { return b.Wiring.MaskAfterBias && b.Attention.Mask.PerHead }},
		{"rows without keys cleared", operands + `
			in bias f32[b, 1, s, t]
			a = MatMul(q, kt)
			c = Add(bias, a)
			p = Softmax(c)
			n = IsNaN(p)
			n2 = Not(n)
			z = Where(n2, p, 0.0)
			y = MatMul(z, v)`,
			func(b *blocks.Block) bool { return b.Attention.Mask.Zero && b.Wiring.Scores == nil }},
		{"causal by comparison", operands + causal + `
			m = Where(seen, a, -1e9)
			p = Softmax(m)
			y = MatMul(p, v)`,
			func(b *blocks.Block) bool { return b.Attention.Causal && b.Attention.Window == 0 }},
		{"sliding window written as mask", operands + causal + `
			start = Sub(row, [128])
			near = Greater(keys, start)
			both = And(seen, near)
			m = Where(both, a, -1e9)
			p = Softmax(m)
			y = MatMul(p, v)`,
			func(b *blocks.Block) bool {
				return b.Attention.Causal && b.Attention.Window == 128 && b.Wiring.Window == 0
			}},
		{"sliding window hidden", operands + causal + `
			start = Sub(row, [128])
			far = GreaterOrEqual(start, keys)
			near = Not(far)
			both = And(near, seen)
			m = Where(both, a, -1e9)
			p = Softmax(m)
			y = MatMul(p, v)`,
			func(b *blocks.Block) bool { return b.Attention.Causal && b.Attention.Window == 128 }},
		{"triangular table", operands + `
			const table bool[1, 1, 32, 32]
			end = Shape(k) start=2 end=3
			part = Slice(table, [0], end, [3])
			a = MatMul(q, kt)
			m = Where(part, a, -1e9)
			p = Softmax(m)
			y = MatMul(p, v)`,
			func(b *blocks.Block) bool { return b.Attention.Causal }},
		{"slopes for each head", operands + `
			const slopes f32[4, 1, 1]
			n = Shape(k) start=2 end=3
			n0 = Squeeze(n, [0])
			zero = Cast(0.0) to=7
			one = Cast(1.0) to=7
			at = Range(zero, n0, one)
			far = Cast(at) to=1
			bias = Mul(slopes, far)
			a = MatMul(q, kt)
			c = Add(bias, a)
			p = Softmax(c)
			y = MatMul(p, v)`,
			func(b *blocks.Block) bool {
				return b.Attention.Mask.Bias == "alibi" && b.Attention.Positions == "relative"
			}},
		{"probabilities are read", operands + `
			out p f32[b, 4, s, t]
			a = MatMul(q, kt)
			p = Softmax(a)
			y = MatMul(p, v)`,
			func(b *blocks.Block) bool { return b.Attention.Scores && b.Wiring.Scores.Name == "p" }},
		{"halves of values for all heads of keys", `
			in q f32[b, 4, s, 16]
			in k f32[b, 2, t, 16]
			in v f32[b, 2, t, 16]
			out y f32[b, 4, s, 16]
			out z f32[b, 4, s, 16]
			ku = Unsqueeze(k, [2])
			ke = Expand(ku, [1,1,2,1,1])
			kr = Reshape(ke, [0,4,-1,16])
			kt = Transpose(kr) perm=0,1,3,2
			one, other = Split(v) axis=1 num_outputs=2
			one2 = Tile(one, [1,2,1,1])
			other2 = Tile(other, [1,2,1,1])
			oneu = Unsqueeze(one2, [2])
			onee = Expand(oneu, [1,1,2,1,1])
			oner = Reshape(onee, [0,4,-1,16])
			otheru = Unsqueeze(other2, [2])
			othere = Expand(otheru, [1,1,2,1,1])
			otherr = Reshape(othere, [0,4,-1,16])
			a = MatMul(q, kt)
			p = Softmax(a)
			y = MatMul(p, oner)
			z = MatMul(p, otherr)`,
			func(b *blocks.Block) bool {
				w := b.Wiring
				return b.Attention.KVHeads == 2 && w.Key.Name == "k" && w.Value.Name == "one2" && w.Scores.Name == "p"
			}},
		{"keys of a cache that values have not", `
			in q f32[b, 4, s, 16]
			in past f32[b, 4, r, 16]
			in k f32[b, 4, s, 16]
			in v f32[b, 4, r+s, 16]
			out y f32[b, 4, s, 16]
			new = Neg(k)
			whole = Concat(past, new) axis=2
			kt = Transpose(whole) perm=0,1,3,2
			a = MatMul(q, kt)
			p = Softmax(a)
			y = MatMul(p, v)`,
			func(b *blocks.Block) bool { return b.Attention.Type == "self" && b.Wiring.Key.Name == "whole" }},
		{"probabilities turned", `
			in q f32[b, 4, s, 8]
			in k f32[b, 4, 8, t]
			in v f32[b, 4, 16, t]
			out y f32[b, 4, 16, s]
			a = MatMul(q, k)
			p = Softmax(a)
			pt = Transpose(p) perm=0,1,3,2
			y = MatMul(v, pt)`,
			func(b *blocks.Block) bool {
				w := b.Wiring
				return w.Value.Name == "v" && w.ValueLayout == "bhds" && w.OutputLayout == "bhds" && b.Attention.HeadSize == 8 &&
					b.Attention.ValueSize == 16 && w.Turns()
			}},
		{"probabilities turned by their matmul, values by a node", `
			in q f32[b, 4, s, 8]
			in k f32[b, 4, 8, t]
			in v f32[b, 4, t, 16]
			out y f32[b, 4, s, 16]
			a = MatMul(q, k)
			p = Softmax(a)
			vt = Transpose(v) perm=0,1,3,2
			o = com.microsoft.FusedMatMul(vt, p) transB=1
			y = Transpose(o) perm=0,1,3,2`,
			func(b *blocks.Block) bool {
				return b.Wiring.Value.Name == "v" && b.Wiring.Output.Name == "y" && !b.Wiring.Turns()
			}},
		{"fused matmuls", `
			in q f32[b, 4, s, 16]
			in k f32[b, 4, t, 16]
			in v f32[b, 4, t, 16]
			out y f32[b, 4, s, 16]
			a = com.microsoft.FusedMatMul(q, k) alpha=0.25 transB=1
			p = Softmax(a)
			y = com.microsoft.FusedMatMul(p, v)`,
			func(b *blocks.Block) bool { return b.Attention.Scale == 0.25 && b.Wiring.KeyLayout == "bhsd" }},
		{"less the greatest score of each query", operands + `
			a = MatMul(q, kt)
			c = Div(a, 128.0)
			m = ReduceMax(c, [-1]) keepdims=0
			mu = Unsqueeze(m, [-1])
			d = Sub(c, mu)
			e = Mul(d, 32.0)
			p = Softmax(e)
			y = MatMul(p, v)`,
			func(b *blocks.Block) bool { return b.Attention.Scale == 0.25 && b.Wiring.Key.Name == "k" }},
		{"keys of a prefix and others", `
			in q f32[b, 4, t, 16]
			in k f32[b, 4, t, 16]
			in v f32[b, 4, t, 16]
			out y f32[b, 4, t, 16]
			prefix = Slice(k, [0], [3], [2])
			others = Slice(k, [3], [100000], [2])
			turned = Neg(others)
			whole = Concat(prefix, turned) axis=2
			kt = Transpose(whole) perm=0,1,3,2
			a = MatMul(q, kt)
			p = Softmax(a)
			y = MatMul(p, v)`,
			func(b *blocks.Block) bool { return b.Wiring.PastKey == nil && b.Wiring.Key.Name == "whole" }},
		{"one head for all queries", `
			in q f32[b, 4, s, 16]
			in k f32[b, 1, t, 16]
			in v f32[b, 1, t, 8]
			out y f32[b, 4, s, 8]
			kt = Transpose(k) perm=0,1,3,2
			a = MatMul(q, kt)
			p = Softmax(a)
			y = MatMul(p, v)`,
			func(b *blocks.Block) bool {
				return b.Attention.Heads == 4 && b.Attention.KVHeads == 1 && b.Attention.ValueSize == 8
			}},
		{"one head repeated", `
			in q f32[b, 4, s, 16]
			in k f32[b, 1, t, 16]
			in v f32[b, 1, t, 16]
			out y f32[b, 4, s, 16]
			kr = Tile(k, [1,4,1,1])
			kt = Transpose(kr) perm=0,1,3,2
			vr = Concat(v, v, v, v) axis=1
			a = MatMul(q, kt)
			p = Softmax(a)
			y = MatMul(p, vr)`,
			func(b *blocks.Block) bool { return b.Attention.KVHeads == 1 && b.Wiring.Key.Name == "k" }},
		{"heads that repeat side by side", `
			in q f32[b, 4, s, 16]
			in k f32[b, 2, t, 16]
			in v f32[b, 2, t, 16]
			out y f32[b, 4, s, 16]
			ku = Unsqueeze(k, [2])
			ke = Tile(ku, [1,1,2,1,1])
			kr = Reshape(ke, [0,4,-1,16])
			kt = Transpose(kr) perm=0,1,3,2
			vu = Unsqueeze(v, [2])
			ve = Concat(vu, vu) axis=2
			vr = Reshape(ve, [0,4,-1,16])
			a = MatMul(q, kt)
			p = Softmax(a)
			y = MatMul(p, vr)`,
			func(b *blocks.Block) bool { return b.Attention.KVHeads == 2 && b.Wiring.Value.Name == "v" }},
		{"batch and heads in one axis", `
			in x f32[b, s, 64]
			out y f32[b, s, 64]
			const wq f32[64, 64]
			const wk f32[64, 64]
			const wv f32[64, 64]
			in bias f32[b, 1, s, s]
			q0 = MatMul(x, wq)
			k0 = MatMul(x, wk)
			v0 = MatMul(x, wv)
			q1 = Reshape(q0, [0,0,4,16])
			k1 = Reshape(k0, [0,0,4,16])
			v1 = Reshape(v0, [0,0,4,16])
			q2 = Transpose(q1) perm=0,2,1,3
			k2 = Transpose(k1) perm=0,2,1,3
			v2 = Transpose(v1) perm=0,2,1,3
			n = Shape(x) start=1 end=2
			flat = Concat([-1], n, [16]) axis=0
			q3 = Reshape(q2, flat)
			k3 = Reshape(k2, flat)
			v3 = Reshape(v2, flat)
			kt = Transpose(k3) perm=0,2,1
			a = MatMul(q3, kt)
			four = Concat([-1,4], n, n) axis=0
			a4 = Reshape(a, four)
			c4 = Add(a4, bias)
			three = Concat([-1], n, n) axis=0
			c = Reshape(c4, three)
			p = Softmax(c)
			o = MatMul(p, v3)
			heads = Concat([-1,4], n, [16]) axis=0
			o4 = Reshape(o, heads)
			o1 = Transpose(o4) perm=0,2,1,3
			y = Reshape(o1, [0,0,64])`,
			func(b *blocks.Block) bool {
				a, w := b.Attention, b.Wiring
				return a.Heads == 4 && a.Type == "self" && w.Biases[0].Value.Name == "bias" && w.Query.Name == "q0" &&
					w.Output.Name == "y" && w.OutputRank == 3
			}},
		{"scale after mask", operands + `
			in bias f32[b, 1, s, t]
			a = MatMul(q, kt)
			h = Mul(a, 0.5)
			c = Add(h, bias)
			d = Mul(c, 0.25)
			p = Softmax(d)
			y = MatMul(p, v)`,
			func(b *blocks.Block) bool {
				w := b.Wiring
				return w.Scale == 0.125 && len(w.Biases) == 1 && w.Biases[0].Value.Name == "bias" && w.Biases[0].Factor == 0.25
			}},
		{"scale after boolean mask", operands + `
			in seen bool[b, 1, s, t]
			a = MatMul(q, kt)
			c = Where(seen, a, -10000.0)
			d = Mul(c, 0.25)
			p = Softmax(d)
			y = MatMul(p, v)`,
			func(b *blocks.Block) bool { return b.Wiring.Scale == 0.25 && b.Wiring.Fill == -2500 }},
		{"two additive masks", operands + `
			in bias f32[b, 1, s, t]
			in more f32[b, 1, s, t]
			a = MatMul(q, kt)
			c = Add(a, bias)
			d = Add(more, c)
			p = Softmax(d)
			y = MatMul(p, v)`,
			func(b *blocks.Block) bool {
				w := b.Wiring
				return len(w.Biases) == 2 && w.Biases[0].Value.Name == "more" && w.Biases[1].Value.Name == "bias" &&
					slices.Equal(b.Attention.Mask.Kinds, []string{"additive"})
			}},
		{"bias over batch and heads in one axis", `
			in q f32[n, s, 16]
			in k f32[n, t, 16]
			in v f32[n, t, 16]
			in bias f32[n, 1, t]
			out y f32[n, s, 16]
			kt = Transpose(k) perm=0,2,1
			a = MatMul(q, kt)
			c = Add(a, bias)
			p = Softmax(c)
			y = MatMul(p, v)`,
			func(b *blocks.Block) bool { return len(b.Wiring.Biases) == 1 && b.Wiring.Biases[0].Joined }},
		{"batch and heads that stay in one axis", `
			in q f32[n, s, 16]
			in k f32[n, t, 16]
			in v f32[n, t, 16]
			out y f32[n, s, 16]
			kt = Transpose(k) perm=0,2,1
			a = MatMul(q, kt)
			p = Softmax(a)
			y = MatMul(p, v)`,
			func(b *blocks.Block) bool { return b.Attention.Heads == 1 && b.Attention.KVHeads == 1 }},
		{"past in another layout", `
			in q f32[b, s, 4, 16]
			in k f32[b, s, 4, 16]
			in v f32[b, s, 4, 16]
			in past_key f32[b, p, 4, 16]
			in past_value f32[b, p, 4, 16]
			out y f32[b, 4, s, 16]
			out present_key f32[b, p + s, 4, 16]
			out present_value f32[b, p + s, 4, 16]
			present_key = Concat(past_key, k) axis=1
			present_value = Concat(past_value, v) axis=1
			qt = Transpose(q) perm=0,2,1,3
			kt = Transpose(present_key) perm=0,2,3,1
			vt = Transpose(present_value) perm=0,2,1,3
			a = MatMul(qt, kt)
			w = Softmax(a)
			y = MatMul(w, vt)`,
			func(b *blocks.Block) bool {
				return b.Attention.PastLayout == "bshd" && b.Attention.Past.PresentKey == "present_key" &&
					b.Wiring.AllKeys.String() == "k.1 + p"
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if b := find(t, c.text); !c.check(b) {
				t.Errorf("facts %+v\nmask %+v\nwiring %+v", *b.Attention, b.Attention.Mask, *b.Wiring)
			}
		})
	}
}

func near(a, b float64) bool { return a > b*(1-1e-5) && a < b*(1+1e-5) }

// causal compares counted positions of keys and queries, and multiplies.
const causal = `
			n = Shape(k) start=2 end=3
			n0 = Squeeze(n, [0])
			zero = Cast(0.0) to=7
			one = Cast(1.0) to=7
			keys = Range(zero, n0, one)
			m0 = Shape(q) start=2 end=3
			m1 = Squeeze(m0, [0])
			queries = Range(zero, m1, one)
			row = Unsqueeze(queries, [1])
			seen = LessOrEqual(keys, row)
			a = MatMul(q, kt)`

// What nothing reads may lead back to the value that it comes from: it is gone around once.
func TestAWayInACircle(t *testing.T) {
	var circle strings.Builder
	for i := range 12 {
		fmt.Fprintf(&circle, "\nt%d = Unsqueeze(t%d, [0])", i+1, i)
	}
	circle.WriteString("\nt13 = Squeeze(t12, [0,1,2,3,4,5,6,7,8,9,10,11])")
	for name, text := range map[string]string{"of a result": `
		out p f32[batch, 8, seq, seq]
		p = Softmax(a)
		t0 = MatMul(p, v)`, "of probabilities": `
		t0 = Softmax(a)`} {
		t.Run(name, func(t *testing.T) {
			g, s := blockstest.Graph(t, `
				in q f32[batch, 8, seq, 64]
				in k f32[batch, 8, seq, 64]
				in v f32[batch, 8, seq, 64]
				kt = Transpose(k) perm=0,1,3,2
				a = MatMul(q, kt)`+text+circle.String())
			must.Succeed(t, g.Bounded(context.Background(), func() error { blocks.Find(g, s); return nil }))
		})
	}
}
