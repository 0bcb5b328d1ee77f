package blocks_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/meaning/fused"
	"github.com/opgraft/graft/host/meaning/padding"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

// TestUnread: attention that says more than is read of its operator is left alone, with what that is as the reason.
func TestUnread(t *testing.T) {
	const apart = `
		in q f32[b, 4, s, 16]
		in k f32[b, 4, t, 16]
		in v f32[b, 4, t, 16]
		in n i64[b]
		in more f32[b]
		out y f32[b, 4, s, 16]
		`
	const rows = `
		in x f32[b, s, 64]
		in k f32[b, s, 64]
		in n i32[b]
		in one i32[]
		in pk f32[b, 4, p, 16]
		in more f32[b]
		out y f32[b, s, 64]
		const w f32[64, 192]
		const bias f32[192]
		`
	for _, c := range []struct{ name, text, want string }{
		{"ONNX's", apart + "opset 25\ny = Attention(q, k, v) is_causal=1 left_window_size=-1", ""},
		{"windows of ONNX's", apart + "opset 25\ny = Attention(q, k, v) is_causal=1 left_window_size=2",
			"its attribute left_window_size is 2, of which -1 alone is known"},
		{"right windows of ONNX's", apart + "opset 25\ny = Attention(q, k, v) right_window_size=0",
			"its attribute right_window_size is 0"},
		{"an attribute of ONNX's", apart + "opset 24\ny = Attention(q, k, v) sinks=1", "its attribute sinks is not known"},
		{"an input of ONNX's", apart + "opset 24\ny = Attention(q, k, v, , , , n, more)", "its input 8, more, is not known"},
		{"an opset of ONNX's", apart + "opset 29\ny = Attention(q, k, v)", "its opset 29 is newer than 28"},
		{"lengths", apart + "opset 24\ny = Attention(q, k, v, , , , n)", ""},
		{"lengths, causal", apart + "opset 24\ny = Attention(q, k, v, , , , n) is_causal=1",
			"as many keys as its nonpad_kv_seqlen says"},
		{"written out, of another opset", apart + "opset 29\nkt = Transpose(k) perm=0,1,3,2\na = MatMul(q, kt)\n" +
			"p = Softmax(a)\ny = MatMul(p, v)", "its opset 29 is newer than 28"},
		{"many heads", rows + "y = com.microsoft.MultiHeadAttention(x, k, k) num_heads=4", ""},
		{"an attribute of many heads", rows + "y = com.microsoft.MultiHeadAttention(x, k, k) num_heads=4 window=3",
			"its attribute window is not known"},
		{"an input of many heads", rows + "y = com.microsoft.MultiHeadAttention(x, k, k, , , , , , , , more) num_heads=4",
			"its input 11, more, is not known"},
		{"packed", rows + "y = com.microsoft.Attention(x, w, bias) num_heads=4", ""},
		{"an attribute of packed", rows + "y = com.microsoft.Attention(x, w, bias) num_heads=4 window=3",
			"its attribute window is not known"},
		{"an input of packed", rows + "y = com.microsoft.Attention(x, w, bias, , , , , more) num_heads=4",
			"its input 8, more, is not known"},
		{"groups", rows + "y = com.microsoft.GroupQueryAttention(x, k, k, pk, pk, n, one) num_heads=4 kv_num_heads=4 " +
			"causal=1", ""},
		{"groups, not causal", rows + "y = com.microsoft.GroupQueryAttention(x, k, k, pk, pk, n, one) num_heads=4 " +
			"kv_num_heads=4 causal=0", "its attribute causal is 0"},
		{"groups that scale their cache", rows + "y = com.microsoft.GroupQueryAttention(x, k, k, pk, pk, n, one, , , , , , " +
			"more) num_heads=4 kv_num_heads=4", "its input 13, more, is not known"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, s := blockstest.Graph(t, c.text)
			r := blocks.Find(g, s)
			if c.want == "" {
				if len(r.Blocks) != 1 || len(r.Unrecognised) != 0 {
					t.Fatalf("got %d blocks and %v, want one", len(r.Blocks), r.Unrecognised)
				}
				return
			}
			if len(r.Unrecognised) != 1 || len(r.Blocks) != 0 || !strings.Contains(r.Unrecognised[0].Reason, c.want) {
				t.Fatalf("got %d blocks, %v, want the reason %q", len(r.Blocks), r.Unrecognised, c.want)
			}
			for _, n := range g.Nodes {
				if why := fused.Whole(n, s); n.Is(fused.Attention, fused.MultiHead) && !strings.Contains(why, c.want) {
					t.Errorf("it is not taken apart because %q", why)
				}
				if why := fused.WholeGroup(n, s); n.Is(fused.GroupQuery) && !strings.Contains(why, c.want) {
					t.Errorf("the groups are not taken apart because %q", why)
				}
			}
		})
	}
}

// TestUnreadRotary: a rotary embedding that says more than is read of it is no rotary embedding of a block.
func TestUnreadRotary(t *testing.T) {
	const text = `
		in q f32[b, 4, s, 16]
		in k f32[b, 4, s, 16]
		in v f32[b, 4, s, 16]
		in at i64[b, s]
		out y f32[b, 4, s, 16]
		const cos f32[32, 8]
		const sin f32[32, 8]
		qr = com.microsoft.RotaryEmbedding(q, at, cos, sin)%[1]s
		kr = com.microsoft.RotaryEmbedding(k, at, cos, sin)%[1]s
		kt = Transpose(kr) perm=0,1,3,2
		a = MatMul(qr, kt)
		p = Softmax(a)
		y = MatMul(p, v)`
	for more, rotary := range map[string]bool{"": true, " interleaved=1": true, " is_packed_batching=1": false,
		" scale=0.5": false, " base=10000": false} {
		g, s := blockstest.Graph(t, strings.ReplaceAll(text, "%[1]s", more))
		r := blocks.Find(g, s)
		if len(r.Blocks) != 1 || (r.Blocks[0].Wiring.Rotary != nil) != rotary {
			t.Errorf("%q: %d blocks, %v", more, len(r.Blocks), r.Unrecognised)
		}
	}
}

// TestUnreadRows: rows do not pass an operator that says more than is read of it, so that padding stays in it.
func TestUnreadRows(t *testing.T) {
	const text = `
		in ids i64[b, s]
		in mask i64[b, s]
		out y f32[b, 1, 64]
		const w f32[64]
		const o f32[64, 64]
		const table f32[100, 64]
		x = Gather(table, ids)
		h = Reshape(x, [0,0,4,16])
		q = Transpose(h) perm=0,2,1,3
		kt = Transpose(h) perm=0,2,3,1
		m = Cast(mask) to=1
		u = Unsqueeze(m, [1,2])
		i = Sub(1.0, u)
		bias = Mul(i, -3.4e38)
		a = MatMul(q, kt)
		c = Add(a, bias)
		p = Softmax(c)
		z = MatMul(p, q)
		zt = Transpose(z) perm=0,2,1,3
		rows = Reshape(zt, [0,0,64])
		l = MatMul(rows, o)
		n = com.microsoft.SkipLayerNormalization(l, x, w, w)%s
		f = MatMul(n, o)
		y = Gather(f, [0]) axis=1`
	for more, passes := range map[string]bool{"": true, " axis=1": false} {
		g, s := blockstest.Graph(t, strings.ReplaceAll(text, "%s", more))
		f, why := padding.Find(g, s, blocks.Find(g, s))
		if passes && f == nil || !passes && !strings.Contains(why, "reach n_com.microsoft.SkipLayerNormalization") {
			t.Errorf("%q: %v, %q", more, f, why)
		}
	}
}

// TestOutputsLeftOut: what is left out among a node's outputs is no value, as ONNX Runtime's optimizer of transformers
// writes encoders that normalize before attention.
func TestOutputsLeftOut(t *testing.T) {
	g, s := blockstest.Graph(t, `
		in ids i64[b, s]
		in mask i64[b, s]
		out y f32[b, s, 64]
		const table f32[100, 64]
		const w f32[64]
		const o f32[64, 64]
		x = Gather(table, ids)
		e = MatMul(x, o)
		n0, , , x0 = com.microsoft.SkipLayerNormalization(x, e, w, w)
		h = Reshape(n0, [0,0,4,16])
		q = Transpose(h) perm=0,2,1,3
		kt = Transpose(h) perm=0,2,3,1
		m = Cast(mask) to=1
		u = Unsqueeze(m, [1,2])
		i = Sub(1.0, u)
		bias = Mul(i, -3.4e38)
		a = MatMul(q, kt)
		c = Add(a, bias)
		p = Softmax(c)
		z = MatMul(p, q)
		zt = Transpose(z) perm=0,2,1,3
		rows = Reshape(zt, [0,0,64])
		l = MatMul(rows, o)
		n, , , sum = com.microsoft.SkipLayerNormalization(l, x0, w, w)
		f = MatMul(n, o)
		y = Add(f, sum)`)
	f, why := padding.Find(g, s, blocks.Find(g, s))
	if f == nil || len(f.Late) == 0 {
		t.Fatalf("%+v, %s", f, why)
	}
	for v := range f.Places {
		if v == nil {
			t.Error("rows of no value have a place")
		}
	}
}

// TestFunctions: attention in a function of the model's own is left alone, and the reason names both.
func TestFunctions(t *testing.T) {
	p := blockstest.Proto(t, "in x f32[b, s, 8]\nout y f32[b, s, 8]\nz = own.Norm(x)\ny = own.Outer(z)")
	node := func(domain, op, in, out string) *onnx.Node {
		return &onnx.Node{Domain: &domain, OpType: &op, Input: []string{in}, Output: []string{out}}
	}
	for _, f := range []struct{ name, domain, op string }{{"Outer", "own", "Inner"}, {"Inner", "", "Softmax"},
		{"Norm", "", "Relu"}} {
		p.Functions = append(p.Functions, &onnx.Function{Name: proto.String(f.name), Domain: proto.String("own"),
			Input: []string{"a"}, Output: []string{"c"}, Node: []*onnx.Node{node(f.domain, f.op, "a", "c")},
			OpsetImport: p.OpsetImport})
	}
	p.OpsetImport = append(p.OpsetImport, &onnx.OperatorSet{Domain: proto.String("own"), Version: proto.Int64(1)})
	m := must.Value(model.Parse(must.Value(proto.Marshal(p))(t), ""))(t)
	g := must.Value(graph.New(m.Proto(), m))(t)
	r := blocks.Find(g, graph.Infer(g))
	must.Equal(t, len(r.Unrecognised), 1)
	u := r.Unrecognised[0]
	must.Equal(t, u.Node, "y_own.Outer")
	must.Equal(t, u.Reason, "its Softmax stands in own.Outer, a function of the model, and functions are left as they "+
		"are; onnx.inliner.inline_local_functions writes the model without")
}
