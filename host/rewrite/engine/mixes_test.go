package engine

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/rewrite"
	"github.com/opgraft/graft/internal/must"
)

// Rows are tokens of any sequences: what computes with neighbours in a sequence is refused.
func TestLayersOverTokensAreRefused(t *testing.T) {
	const head = `
		in x f32[b, 8, s]
		in state f32[b, 8, 3]
		out y f32[b, 8, s]
		`
	past := []*blocks.Block{{Attention: &blocks.Attention{Type: "self"}, Wiring: &blocks.Wiring{PastKey: &graph.Value{}}}}
	for _, c := range []struct {
		name, text, want string
		blocks           []*blocks.Block
	}{
		{"convolution", `const w f32[8, 8, 4]
			y = Conv(x, w) kernel_shape=4 pads=3,0`, "reads neighbouring tokens", past},
		{"convolution after a state", `const w f32[8, 8, 4]
			joined = Concat(state, x) axis=-1
			y = Conv(joined, w) kernel_shape=4`, "", past},
		{"convolution before what is no state", `const w f32[8, 8, 4]
			joined = Concat(x, state) axis=-1
			y = Conv(joined, w) kernel_shape=4`, "reads neighbouring tokens", past},
		{"convolution of one token", `const w f32[8, 8, 1, 1]
			y = Conv(x, w) kernel_shape=1,1`, "", past},
		{"running sum", `y = CumSum(x, 2)`, "counts over tokens", nil},
		{"running sum after a past", `y = CumSum(x, 2)`, "", past},
		{"running sum of counts", `const c f32[4]
			n = CumSum(c, 0)
			y = Add(x, x)
			z = CumSum(c, 0)`, "", nil},
		{"sum of two", `y = Add(x, x)`, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, shapes := blockstest.Graph(t, head+c.text)
			s := &builder{Editor: rewrite.NewEditor(g, shapes),
				Decoder: &Decoder{Shapes: shapes, Report: &blocks.Report{Blocks: c.blocks}}}
			if v := g.Lookup("state"); v != nil {
				s.states = []state{{in: v}}
			}
			got := s.mixes(g.Nodes[len(g.Nodes)-1])
			if got != "" && c.want == "" || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestNumbersOfRows: what depends on no length but the number of tokens is right in a step of as many rows.
func TestNumbersOfRows(t *testing.T) {
	const head = `
		in tokens i64[b, s]
		in past f32[b, 4, p, 16]
		out y i64[n]
		`
	for _, c := range []struct {
		name, tokens, text string
		want               lengthsIn
	}{
		{"tokens, two each", "b, s", `f = Reshape(tokens, [-1])
			l = Shape(f)
			y = Mul(l, [2])`, rowsIn},
		{"a batch", "b, s", `l = Shape(tokens)
			y = Slice(l, [0], [1], [0])`, rowsIn},
		{"a sequence", "b, s", `l = Shape(tokens)
			y = Slice(l, [1], [2], [0])`, othersIn},
		{"a sequence of a batch of one", "1, s", `f = Reshape(tokens, [-1])
			y = Shape(f)`, othersIn},
		{"a past", "b, s", `l = Shape(past)
			y = Slice(l, [2], [3], [0])`, othersIn},
		{"heads", "b, s", `l = Shape(past)
			y = Slice(l, [1], [2], [0])`, noneIn},
		{"numbers of tokens", "b, s", `f = Reshape(tokens, [-1])
			l = Shape(f)
			k = Squeeze(l)
			y = Range(0, k, 1)`, rowsIn},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, shapes := blockstest.Graph(t, strings.Replace(head+c.text, "b, s", c.tokens, 1))
			s := &builder{Editor: rewrite.NewEditor(g, shapes), Decoder: &Decoder{Graph: g, Shapes: shapes}, tokens: g.Inputs[0]}
			must.Equal(t, s.ofRows(g.Outputs[0], map[*graph.Value]lengthsIn{}), c.want)
		})
	}
}

// TestLatentCache: of a cache that holds no keys, an engine says what it needs.
func TestLatentCache(t *testing.T) {
	g, shapes := blockstest.Graph(t, `
		in x f32[b, s, 64]
		in latent f32[b, 1, p, 16]
		out y f32[b, 4, s, 16]
		const wq f32[64, 64]
		const wk f32[16, 64]
		const wv f32[16, 64]
		ql = MatMul(x, wq)
		qr = Reshape(ql, [0,0,4,16])
		q = Transpose(qr) perm=0,2,1,3
		l = Reshape(latent, [0,-1,16])
		kl = MatMul(l, wk)
		kr = Reshape(kl, [0,0,4,16])
		k = Transpose(kr) perm=0,2,3,1
		vl = MatMul(l, wv)
		vr = Reshape(vl, [0,0,4,16])
		v = Transpose(vr) perm=0,2,1,3
		a = MatMul(q, k)
		p1 = Softmax(a)
		y = MatMul(p1, v)`)
	d := &Decoder{Graph: g, Shapes: shapes, Report: blocks.Find(g, shapes)}
	must.Fail(t, d.Check(), "what input latent holds, as a latent cache does")
	g.Model().Functions = []*onnx.Function{{Name: proto.String("Layer")}}
	must.Fail(t, d.Check(), "found no self attention, and functions of its own (Layer)")
}
