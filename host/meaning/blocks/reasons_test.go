package blocks_test

import (
	"strings"
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
)

// TestReasons writes softmaxes that are no attention, or none that is understood.
func TestReasons(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"classification", `
			in x f32[b, 64]
			out y f32[b, 10]
			const w f32[64, 10]
			a = MatMul(x, w)
			y = Softmax(a)`, "rank 2 where attention's matmuls have 3 or 4"},
		{"sampling", `
			in x f32[b, s, 64]
			out y f32[b, s, 300]
			const w f32[64, 300]
			a = MatMul(x, w)
			y = Softmax(a)`, "a matmul with a constant and not of query and key"},
		{"router of experts", `
			in x f32[b, s, 64]
			out y f32[b, s, 2]
			const w f32[64, 8]
			a = MatMul(x, w)
			p = Softmax(a)
			y, i = TopK(p, [2])`, "a matmul with a constant and not of query and key"},
		{"another axis", `
			in x f32[b, 4, s]
			out y f32[b, 4, s]
			y = Softmax(x) axis=1`, "does not run over the last axis"},
		{"a maximum over queries", `
			in q f32[b, 4, s, 16]
			in k f32[b, 4, t, 16]
			in v f32[b, 4, t, 16]
			out y f32[b, 4, s, 16]
			kt = Transpose(k) perm=0,1,3,2
			a = MatMul(q, kt)
			m = ReduceMax(a, [2]) keepdims=1
			c = Sub(a, m)
			p = Softmax(c)
			y = MatMul(p, v)`, "its scores come from Sub"},
		{"sinks of each query", operands + `
			in sinks f32[b, 4, s, 1]
			a = MatMul(q, kt)
			c = Concat(a, sinks) axis=-1
			p = Softmax(c)
			seen = Slice(p, [0], [-1], [3])
			y = MatMul(seen, v)`, "which is no constant of a number for each head"},
		{"sinks that the caller gives", operands + `
			in sinks f32[1, 4, 1, 1]
			a = MatMul(q, kt)
			b1 = Shape(q) start=0 end=1
			s1 = Shape(q) start=2 end=3
			shape = Concat(b1, [1], s1, [1]) axis=0
			wide = Expand(sinks, shape)
			c = Concat(a, wide) axis=-1
			p = Softmax(c)
			seen = Slice(p, [0], [-1], [3])
			y = MatMul(seen, v)`, "which is no constant of a number for each head"},
		{"one sink for all heads", operands + `
			const sinks f32[1, 1, 1, 1]
			a = MatMul(q, kt)
			b1 = Shape(q) start=0 end=1
			s1 = Shape(q) start=2 end=3
			shape = Concat(b1, [4], s1, [1]) axis=0
			wide = Expand(sinks, shape)
			c = Concat(a, wide) axis=-1
			p = Softmax(c)
			seen = Slice(p, [0], [-1], [3])
			y = MatMul(seen, v)`, "which is no constant of a number for each head"},
		{"scores before their sinks", operands + `
			const sinks f32[1, 4, 1, 1]
			a = MatMul(q, kt)
			b1 = Shape(q) start=0 end=1
			s1 = Shape(q) start=2 end=3
			shape = Concat(b1, [1], s1, [1]) axis=0
			wide = Expand(sinks, shape)
			c = Concat(a, wide) axis=-1
			p = Softmax(c)
			seen = Slice(p, [1], [9223372036854775807], [3])
			y = MatMul(seen, v)`, "the probabilities of its sinks are not cut off by Slice"},
		{"sinks with values", operands + `
			const sinks f32[1, 4, 1, 1]
			in more f32[b, 4, t1, 16]
			a = MatMul(q, kt)
			b1 = Shape(q) start=0 end=1
			s1 = Shape(q) start=2 end=3
			shape = Concat(b1, [1], s1, [1]) axis=0
			wide = Expand(sinks, shape)
			c = Concat(a, wide) axis=-1
			p = Softmax(c)
			y = MatMul(p, more)`, "the probabilities of its sinks are not cut off by MatMul"},
		{"the probabilities of sinks", operands + `
			const sinks f32[1, 4, 1, 1]
			out all f32[b, 4, s, t1]
			a = MatMul(q, kt)
			b1 = Shape(q) start=0 end=1
			s1 = Shape(q) start=2 end=3
			shape = Concat(b1, [1], s1, [1]) axis=0
			wide = Expand(sinks, shape)
			c = Concat(a, wide) axis=-1
			all = Softmax(c)
			seen = Slice(all, [0], [-1], [3])
			y = MatMul(seen, v)`, "the probabilities of its sinks are read"},
		{"a maximum of the scores beside their sinks", operands + `
			const sinks f32[1, 4, 1, 1]
			a = MatMul(q, kt)
			m = ReduceMax(a, [-1]) keepdims=1
			d = Sub(a, m)
			b1 = Shape(q) start=0 end=1
			s1 = Shape(q) start=2 end=3
			shape = Concat(b1, [1], s1, [1]) axis=0
			wide = Expand(sinks, shape)
			c = Concat(d, wide) axis=-1
			p = Softmax(c)
			seen = Slice(p, [0], [-1], [3])
			y = MatMul(seen, v)`, "its scores come from Sub"},
		{"a sum of float16 beside sinks", `
			in q f16[1, 4, 1, 16]
			in k f16[1, 4, t, 16]
			in v f16[1, 4, t, 16]
			in bias f16[1, 1, 1, t]
			in more f16[1, 1, 1, t]
			out y f16[1, 4, 1, 16]
			const sinks f32[1, 4, 1, 1]
			halves = Cast(sinks) to=10
			kt = Transpose(k) perm=0,1,3,2
			a = MatMul(q, kt)
			d = Add(a, bias)
			e = Add(d, more)
			c = Concat(e, halves) axis=-1
			p = Softmax(c)
			seen = Slice(p, [0], [-1], [3])
			y = MatMul(seen, v)`, "its scores are sums of float16 beside sinks"},
		{"a mask of sinks", operands + `
			const sinks f32[1, 4, 1, 1]
			in bias f32[b, 1, s, t1]
			a = MatMul(q, kt)
			b1 = Shape(q) start=0 end=1
			s1 = Shape(q) start=2 end=3
			shape = Concat(b1, [1], s1, [1]) axis=0
			wide = Expand(sinks, shape)
			c = Concat(a, wide) axis=-1
			d = Add(c, bias)
			p = Softmax(d)
			seen = Slice(p, [0], [-1], [3])
			y = MatMul(seen, v)`, "neither side of"},
		{"an input", `
			in x f32[b, 4, s]
			out y f32[b, 4, s]
			y = Softmax(x)`, "its input x is no matmul of query and key"},
		{"a mask of more rows than there are queries", `
			in q f32[b, 4, 1, 16]
			in k f32[b, 4, t, 16]
			in v f32[b, 4, t, 16]
			out y f32[b, 4, 5, 16]
			kt = Transpose(k) perm=0,1,3,2
			in bias f32[5, t]
			a = MatMul(q, kt)
			c = Add(a, bias)
			p = Softmax(c)
			y = MatMul(p, v)`, "the mask value bias has a length of 5 where its scores have 1"},
		{"a boolean mask of more rows than there are queries", `
			in q f32[b, 4, 1, 16]
			in k f32[b, 4, t, 16]
			in v f32[b, 4, t, 16]
			out y f32[b, 4, 5, 16]
			kt = Transpose(k) perm=0,1,3,2
			in seen bool[1, 1, 5, t]
			a = MatMul(q, kt)
			c = Where(seen, a, -1e9)
			p = Softmax(c)
			y = MatMul(p, v)`, "the mask value seen has a length of 5 where its scores have 1"},
		{"cap after mask", operands + `
			in bias f32[b, 1, s, t]
			a = MatMul(q, kt)
			c = Add(a, bias)
			d = Mul(c, 0.25)
			e = Tanh(d)
			f = Mul(e, 4.0)
			p = Softmax(f)
			y = MatMul(p, v)`, "capped, or scaled by head, after their mask"},
		{"boolean mask between additive ones", operands + `
			in bias f32[b, 1, s, t]
			in more f32[b, 1, s, t]
			in seen bool[b, 1, s, t]
			a = MatMul(q, kt)
			c = Add(a, bias)
			d = Where(seen, c, -1e9)
			e = Add(d, more)
			p = Softmax(e)
			y = MatMul(p, v)`, "a boolean mask stands between two additive ones"},
		{"mask of some of batch and heads in one axis", `
			in q f32[n, s, 16]
			in k f32[n, t, 16]
			in v f32[n, t, 16]
			in bias f32[m, 1, t]
			out y f32[n, s, 16]
			kt = Transpose(k) perm=0,2,1
			a = MatMul(q, kt)
			c = Add(a, bias)
			p = Softmax(c)
			y = MatMul(p, v)`, "of which it is not known whether it has them all"},
		{"one query for the whole batch", `
			in q f32[1, 4, s, 16]
			in k f32[b, 4, t, 16]
			in v f32[b, 4, t, 16]
			out y f32[b, 4, s, 16]
			kt = Transpose(k) perm=0,1,3,2
			a = MatMul(q, kt)
			p = Softmax(a)
			y = MatMul(p, v)`, "its query and its keys or values have other batches"},
		{"mask that hides nothing", operands + `
			in seen bool[b, 1, s, t]
			a = MatMul(q, kt)
			c = Where(seen, a, 0.0)
			p = Softmax(c)
			y = MatMul(p, v)`, "puts 0 in place of scores, which hides nothing"},
		{"factor of the caller's", operands + `
			in scale f32[]
			a = MatMul(q, kt)
			c = Mul(a, scale)
			p = Softmax(c)
			y = MatMul(p, v)`, "whose factor is not a number known at load time"},
		{"no values", operands + `
			a = MatMul(q, kt)
			p = Softmax(a)
			z = ReduceSum(p, [3])
			y = Mul(z, v)`, "go into no matmul with values"},
		{"heads repeated in turns", `
			in q f32[b, 4, s, 16]
			in k f32[b, 2, t, 16]
			in v f32[b, 4, t, 16]
			out y f32[b, 4, s, 16]
			kk = Tile(k, [1,2,1,1])
			kt = Transpose(kk) perm=0,1,3,2
			a = MatMul(q, kt)
			p = Softmax(a)
			y = MatMul(p, v)`, ""},
		{"dropout that trains", operands + `
			in training bool[]
			a = MatMul(q, kt)
			p = Softmax(a)
			d = Dropout(p, 0.1, training)
			y = MatMul(d, v)`, "its probabilities pass through Dropout"},
		{"sums over queries", `
			in q f32[b, 4, s, 16]
			in k f32[b, 4, t, 16]
			in v f32[b, 4, 16, s]
			out y f32[b, 4, 16, t]
			kt = Transpose(k) perm=0,1,3,2
			a = MatMul(q, kt)
			p = Softmax(a)
			y = MatMul(v, p)`, "its probabilities go into no matmul with values"},
		{"turned probabilities that leave", operands + `
			out pt f32[b, 4, t, s]
			a = MatMul(q, kt)
			p = Softmax(a)
			pt = Transpose(p) perm=0,1,3,2
			vt = Transpose(v) perm=0,1,3,2
			o = MatMul(vt, pt)
			y = Transpose(o) perm=0,1,3,2`, "its probabilities are read in columns, too"},
		{"scores of eight bits", operands + `
			const zero u8[]
			a = MatMul(q, kt)
			ai = QuantizeLinear(a, 0.1, zero)
			ad = DequantizeLinear(ai, 0.1, zero)
			p = Softmax(ad)
			y = MatMul(p, v)`, "its scores are rounded to a few bits"},
		{"probabilities of eight bits", operands + `
			const zero u8[]
			a = MatMul(q, kt)
			p = Softmax(a)
			pi = QuantizeLinear(p, 0.004, zero)
			pd = DequantizeLinear(pi, 0.004, zero)
			y = MatMul(pd, v)`, "its probabilities are rounded to a few bits"},
		{"a softmax of eight bits", `
			in x u8[b, 4, s, t]
			out y u8[b, 4, s, t]
			const zero u8[]
			y = com.microsoft.QLinearSoftmax(x, 0.1, zero, 0.004, zero) axis=-1 opset=18`,
			"its scores and probabilities are rounded to a few bits"},
		{"scores whose lengths are not told", `
			in q f32[m, s, 16]
			in k f32[m, t, 16]
			in v f32[b, 4, t, 16]
			in n i64[4]
			out y f32[b, 4, s, 16]
			kt = Transpose(k) perm=0,2,1
			a = MatMul(q, kt)
			c = Reshape(a, n)
			p = Softmax(c)
			y = MatMul(p, v)`, "the axes of its scores could not be told apart at"},
		{"an operator that is not read", `
			in q f32[b, s, 64]
			out y f32[b, s, 64]
			y = com.microsoft.PackedAttention(q) num_heads=4`, "com.microsoft.PackedAttention is an operator whose facts are not read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, s := blockstest.Graph(t, c.text)
			r := blocks.Find(g, s)
			if c.want == "" { // repeated in turns is no grouping: the keys are those that were repeated
				if len(r.Blocks) != 1 || r.Blocks[0].Attention.KVHeads != 4 {
					t.Fatalf("got %+v, %v", r.Blocks, r.Unrecognised)
				}
				return
			}
			if len(r.Unrecognised) != 1 || len(r.Blocks) != 0 || !strings.Contains(r.Unrecognised[0].Reason, c.want) {
				t.Fatalf("got %d blocks, %v, want the reason %q", len(r.Blocks), r.Unrecognised, c.want)
			}
		})
	}
}
