package padding_test

import (
	"strings"
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/meaning/padding"
)

// TestMixes: what reads neighbours in a sequence reads padding, where that is not zeros as what stands around a text
// is.
func TestMixes(t *testing.T) {
	const head = `
		in ids i64[b, s]
		in mask i64[b, s]
		const words f32[9, 8]
		const w f32[8, 8, 3]
		x = Gather(words, ids)
		m = Cast(mask) to=1
		u = Unsqueeze(m, [2])
		cleared = Mul(x, u)
		t = Transpose(x) perm=0,2,1
		`
	for _, c := range []struct{ name, text, want string }{
		{"a window", "y = Conv(t, w) kernel_shape=3 pads=1,1", "(Conv) reads neighbouring tokens"},
		{"of one token", "const w1 f32[8, 8, 1]\ny = Conv(t, w1) kernel_shape=1", ""},
		{"over what is zeros where a token is hidden",
			"c = Transpose(cleared) perm=0,2,1\ny = Conv(c, w) kernel_shape=3 pads=1,1", ""},
		{"the same, after a Dropout that drops nothing",
			"d = Dropout(cleared, 0.1)\nc = Transpose(d) perm=0,2,1\ny = Conv(c, w) kernel_shape=3 pads=1,1", ""},
		{"over what is zeros, and a bias beside it",
			"const bias f32[8]\ne = Add(cleared, bias)\nc = Transpose(e) perm=0,2,1\n" +
				"y = Conv(c, w) kernel_shape=3 pads=1,1", "reads neighbouring"},
		{"back alone", "y = Conv(t, w) kernel_shape=3 pads=2,0", ""},
		{"back alone, cut",
			"c = Conv(t, w) kernel_shape=3 pads=2,2\nn = Shape(ids) start=1 end=2\n" +
				"y = Slice(c, [0], n, [2])", ""},
		{"ahead, cut",
			"c = Conv(t, w) kernel_shape=3 pads=2,2\nn = Shape(ids) start=1 end=2\n" +
				"y = Slice(c, [2], [9223372036854775807], [2])", "reads neighbouring"},
		{"not far enough back", "y = Conv(t, w) kernel_shape=3 pads=2,2 dilations=2", "reads neighbouring"},
		{"along features",
			"const f f32[4, 1, 1, 3]\nr = Unsqueeze(x, [1])\n" +
				"y = Conv(r, f) kernel_shape=1,3 pads=0,1,0,1", ""},
		{"along tokens of two axes",
			"const f f32[4, 1, 3, 1]\nr = Unsqueeze(x, [1])\n" +
				"y = Conv(r, f) kernel_shape=3,1 pads=1,0,1,0", "reads neighbouring"},
		{"a pool", "y = MaxPool(t) kernel_shape=3 pads=1,1", "(MaxPool) reads neighbouring tokens"},
		{"a recurrence",
			"const i f32[1, 32, 8]\nq = Transpose(x) perm=1,0,2\n" +
				"y = LSTM(q, i, i) hidden_size=8", "(LSTM) goes from token to token"},
		{"the next token",
			"r = Slice(x, [1], [9223372036854775807], [1])\ny = Pad(r, [0,0,0,0,1,0])",
			"(Pad) moves tokens to their neighbours"},
		{"the next token, joined",
			"r = Slice(x, [1], [9223372036854775807], [1])\nz = Slice(x, [0], [1], [1])\n" +
				"y = Concat(r, z) axis=1", "(Concat) moves"},
		{"the next token's number", "r = Slice(ids, [1], [9223372036854775807], [1])\ny = Pad(r, [0,0,0,1])", ""},
		{"attention that hides nothing",
			"k = Transpose(x) perm=0,2,1\na = MatMul(x, k)\np = Softmax(a)\n" +
				"y = MatMul(p, x)", "sees hidden keys"},
		{"each token alone", "y = Relu(x)", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, shapes := blockstest.Graph(t, head+c.text+"\nout y f32[b, s, 8]\nout kept f32[b, s, 8]\nkept = Identity(cleared)")
			got := padding.Mixes(g, shapes, blocks.Find(g, shapes), g.Inputs[0], g.Inputs[1])
			if got != "" && c.want == "" || !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	g, shapes := blockstest.Graph(t, "in ids i64[b, s]\nin mask i64[b, s]\nout y i64[b, s]\ny = Identity(ids)")
	if got := padding.Mixes(g, shapes, blocks.Find(g, shapes), g.Inputs[0], g.Inputs[1]); got != "nothing reads mask" {
		t.Error(got)
	}
}
