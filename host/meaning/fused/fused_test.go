package fused_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/meaning/fused"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/internal/must"
)

const (
	attention = `
	in x f32[batch, seq, 64]
	in mask i32[batch, seq]
	in bias f32[batch, 4, seq, seq]
	in past f32[2, batch, 4, before, 16]
	const w f32[64, 192]
	const narrow f32[64, 160]
	const b f32[192]
	const c f32[160]
	in lengths i32[batch]
	in two i32[2*batch]
	in three i32[3*batch + 2]
	in some i32[some]
	in dummy i32[batch, 1]
	in pairs i32[batch, seq, seq]
	in halves f16[batch, seq, 64]
	out y f32[batch, seq, 64]
	`
	heads = `
	in x f32[batch, seq, 64]
	in mask i32[batch, seq]
	in lengths i32[batch]
	in bias f32[batch, 4, seq, seq]
	const wq f32[64, 64]
	const b f32[192]
	in given f32[192]
	out y f32[batch, seq, 64]
	q = MatMul(x, wq)
	k = MatMul(x, wq)
	v = MatMul(x, wq)
	`
	embedding = `
	in ids i32[batch, seq]
	in types i32[batch, seq]
	in mask i32[batch, seq]
	in at i32[batch, seq]
	const words f32[50, 64]
	const places f32[40, 64]
	const kinds f32[2, 64]
	const scale f32[64]
	const shift f32[64]
	const w f32[64, 192]
	const b f32[192]
	out y f32[batch, seq, 64]
	`
)

// operators are those of a graph, in its order.
func operators(g *graph.Graph) (list []string) {
	for _, n := range g.Nodes {
		list = append(list, n.Op())
	}
	return list
}

// apart are graphs with operators that are taken apart, and what attention is then; "" where they stay as they are.
var apart = []struct {
	name, text, want string
}{
	{"projections", attention + "y = com.microsoft.Attention(x, w, b) num_heads=4", fused.MultiHead},
	{"projections without biases", attention + "y = com.microsoft.Attention(x, w) num_heads=4", fused.MultiHead},
	{"values of another width", attention + "y = com.microsoft.Attention(x, narrow, c) num_heads=4 " +
		"qkv_hidden_sizes=64,64,32", fused.MultiHead},
	{"a mask of keys", attention +
		"y = com.microsoft.Attention(x, w, b, mask) num_heads=4 mask_filter_value=-3.4e38 scale=0.5", fused.MultiHead},
	{"a mask of keys of each query", attention + "y = com.microsoft.Attention(x, w, b, pairs) num_heads=4",
		fused.MultiHead},
	{"lengths", attention + "y = com.microsoft.Attention(x, w, b, lengths) num_heads=4", fused.MultiHead},
	{"ends and starts", attention + "y = com.microsoft.Attention(x, w, b, two) num_heads=4", fused.MultiHead},
	{"lengths and their sums", attention + "y = com.microsoft.Attention(x, w, b, three) num_heads=4", fused.MultiHead},
	{"a mask and what is added besides", attention + "y = com.microsoft.Attention(x, w, b, mask, , bias) num_heads=4",
		fused.MultiHead},
	{"two that share a mask", attention + "z = com.microsoft.Attention(x, w, b, lengths) num_heads=4\ny = " +
		"com.microsoft.Attention(z, w, b, lengths) num_heads=4", fused.MultiHead},
	{"heads with a bias", heads + "y = com.microsoft.MultiHeadAttention(q, k, v, b) num_heads=4", fused.MultiHead},
	{"heads with a bias and a mask", heads + "y = com.microsoft.MultiHeadAttention(q, k, v, b, mask) num_heads=4",
		fused.MultiHead},
	{"heads with lengths and what is added besides",
		heads + "y = com.microsoft.MultiHeadAttention(q, k, v, , lengths, bias) num_heads=4", fused.MultiHead},
	{"an embedding that counts its mask",
		embedding + "x, index = com.microsoft.EmbedLayerNormalization(ids, types, words, places, kinds, scale, shift, " +
			"mask)\ny = com.microsoft.Attention(x, w, b, index) num_heads=4", fused.MultiHead},
	{"an embedding without one", embedding + "x, index = com.microsoft.EmbedLayerNormalization(ids, , words, places, , " +
		"scale, shift)\ny = com.microsoft.Attention(x, w, b, mask) num_heads=4", fused.MultiHead},
	{"an embedding that is told positions",
		embedding + "x, index = com.microsoft.EmbedLayerNormalization(ids, types, words, places, kinds, scale, shift, " +
			"mask, at)\ny = com.microsoft.Attention(x, w, b, index) num_heads=4", fused.MultiHead},
	{"a past", attention + "y, present = com.microsoft.Attention(x, w, b, , past) num_heads=4", ""},
	{"causal", attention + "y = com.microsoft.Attention(x, w, b) num_heads=4 unidirectional=1", ""},
	{"rotated", attention + "y = com.microsoft.Attention(x, w, b) num_heads=4 do_rotary=1", ""},
	{"float16", attention + "y = com.microsoft.Attention(halves, w, b) num_heads=4", ""},
	{"heads that do not fit", attention + "y = com.microsoft.Attention(x, w, b) num_heads=5", ""},
	{"sizes that do not fit", attention + "y = com.microsoft.Attention(x, w, b) num_heads=4 qkv_hidden_sizes=64,64,32",
		""},
	{"a mask of an unknown form", attention + "y = com.microsoft.Attention(x, w, b, some) num_heads=4", ""},
	{"a mask of one key", attention + "y = com.microsoft.Attention(x, w, b, dummy) num_heads=4", ""},
	{"heads with a bias that is no constant", heads + "y = com.microsoft.MultiHeadAttention(q, k, v, given) num_heads=4",
		""},
	{"causal heads with a mask", heads + "y = com.microsoft.MultiHeadAttention(q, k, v, , mask) num_heads=4 " +
		"unidirectional=1", ""},
}

// TestApartAndBack: what was taken apart and nothing took is put back to the last attribute. In between no
// projection, bias or mask is inside an attention.
func TestApartAndBack(t *testing.T) {
	for _, c := range apart {
		t.Run(c.name, func(t *testing.T) {
			g, shapes := blockstest.Graph(t, c.text)
			before := proto.CloneOf(g.Model())
			p := must.Value(fused.TakeApart(g, shapes))(t)
			if !p.Any() && c.want != "" || c.want == "" && slices.Contains(operators(g), "Split") {
				t.Fatalf("operators %v", operators(g))
			}
			for i, n := range g.Model().Graph.Node {
				if !proto.Equal(before.Graph.Node[i], n) {
					t.Errorf("node %d of the model changes before a commit: %v", i, n)
				}
			}
			if c.want != "" && slices.Contains(operators(g), fused.Attention) {
				t.Errorf("attention is there: %v", operators(g))
			}
			shapes = graph.Infer(g)
			for _, n := range g.Nodes {
				if c.want == "" || n.Op() != fused.MultiHead {
					continue
				}
				if n.Input(3) != nil || n.Input(4) != nil {
					t.Errorf("%s has a bias or a mask inside", n)
				}
				if s := shapes.Of(n.Output(0)); s.Rank != 3 || !s.Dim(2).Known() {
					t.Errorf("the shape of its result is %v", s.Dims)
				}
				if n.Attr("qkv_hidden_sizes") != nil {
					t.Errorf("%s has an attribute of another operator", n)
				}
			}
			must.Succeed(t, p.PutBack(g))
			after := g.Model()
			if len(before.Graph.Node) != len(after.Graph.Node) {
				t.Fatalf("operators %v are left", operators(g))
			}
			for i, n := range after.Graph.Node {
				was := before.Graph.Node[i]
				for len(was.Input) > 0 && was.Input[len(was.Input)-1] == "" {
					was.Input = was.Input[:len(was.Input)-1]
				}
				if was.GetOpType() == "Attention" { // of which a past is no output any more
					was.Output = was.Output[:len(n.Output)]
				}
				if !proto.Equal(was, n) {
					t.Errorf("a node is\n%v, was\n%v", n, was)
				}
			}
		})
	}
}

// TestPartsThatWereTaken: an attention whose projections something took is one with projections apart, and its mask
// inside.
func TestPartsThatWereTaken(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string // its inputs, in part
	}{
		{"keys", attention + "y = com.microsoft.Attention(x, w, b, mask) num_heads=4 scale=0.5", []string{"", "mask"}},
		{"keys and what is added besides", attention + "y = com.microsoft.Attention(x, w, b, mask, , bias) num_heads=4",
			[]string{"", "mask", "bias"}},
		{"no mask", attention + "y = com.microsoft.Attention(x, w, b) num_heads=4", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, shapes := blockstest.Graph(t, c.text)
			p := must.Value(fused.TakeApart(g, shapes))(t)
			for _, n := range g.Nodes {
				if n.Is("MatMul") {
					n.Proto.OpType = proto.String("Other")
				}
			}
			must.Succeed(t, p.PutBack(g))
			last := g.Model().Graph.Node[len(g.Model().Graph.Node)-1]
			if last.GetOpType() != "MultiHeadAttention" || len(last.Input) < 3 ||
				strings.Join(last.Input[3:], " ") != strings.Join(c.want, " ") {
				t.Errorf("attention is %v", last)
			}
		})
	}
}
