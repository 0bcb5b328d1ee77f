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
		{"a mean", "p = ReduceMean(x, [1])\ny = Add(x, p)", "(ReduceMean) reads all tokens"},
		{"a mean of features", "p = ReduceMean(x, [-1])\ny = Add(x, p)", ""},
		{"a mean of what is cleared", "p = ReduceMean(cleared, [1])\ny = Add(x, p)", "reads all tokens"},
		{"a sum", "p = ReduceSum(x, [1])\ny = Add(x, p)", "reads all tokens"},
		{"a sum of what is cleared", "p = ReduceSum(cleared, [1])\ny = Add(x, p)", ""},
		{"a mean of visible tokens", "p = ReduceSum(cleared, [1])\nc = ReduceSum(u, [1])\nq = Div(p, c)\ny = Add(x, q)", ""},
		{"a sum by the padded length",
			"p = ReduceSum(cleared, [1])\nn = Shape(ids) start=1 end=2\nf = Cast(n) to=1\nq = Div(p, f)\ny = Add(x, q)",
			"(Div) reckons with the padded length"},
		{"a pool of all", "p = GlobalAveragePool(t)\nq = Transpose(p) perm=0,2,1\ny = Add(x, q)",
			"(GlobalAveragePool) reads all tokens"},
		{"a product by 1 / n", "h = Shape(mask)\nones = ConstantOfShape(h)\nr = Unsqueeze(ones, [1])\n" +
			"p = MatMul(r, x)\ny = Add(x, p)", "(MatMul) reads all tokens"},
		{"a product by the mask", "r = Unsqueeze(m, [1])\np = MatMul(r, x)\ny = Add(x, p)", ""},
		{"an Einsum", "p = Einsum(x) equation=bsd->bd\nq = Unsqueeze(p, [1])\ny = Add(x, q)", "(Einsum) reads all tokens"},
		{"segments", "r = Reshape(x, [0,4,-1,8])\np = ReduceMean(r, [2])\nq = ReduceMean(p, [1])\n" +
			"z = Unsqueeze(q, [1])\ny = Add(x, z)", "(ReduceMean) reads all tokens"},
		{"segments of four tokens", "r = Reshape(x, [0,-1,4,8])\np = ReduceMean(r, [2])\nq = Unsqueeze(p, [2])\n" +
			"z = Add(r, q)\nn = Shape(x)\ny = Reshape(z, n)", "(ReduceMean) reads all tokens"},
		{"heads", "r = Reshape(x, [0,0,4,2])\np = ReduceMean(r, [2])\nq = Unsqueeze(p, [2])\n" +
			"z = Add(r, q)\ny = Reshape(z, [0,0,8])", ""},
		{"a maximum", "p = ReduceMax(x, [1])\ny = Add(x, p)", "(ReduceMax) reads all tokens"},
		{"a maximum of visible tokens", "b = Cast(u) to=9\nl = Where(b, x, -10000000.0)\np = ReduceMax(l, [1])\n" +
			"y = Add(x, p)", ""},
		{"weights of tokens", "p = Softmax(x) axis=1\ny = Mul(x, p)", "(Softmax) reads all tokens"},
		{"weights of visible tokens", "i = Sub(1.0, u)\nl = Mul(i, -1000000.0)\ns1 = Add(x, l)\n" +
			"p = Softmax(s1) axis=1\nz = Mul(x, p)\nq = ReduceSum(z, [1])\ny = Add(x, q)", ""},
		{"a mask of one number", "i = Div(u, 1000.0)\nj = Add(i, 1.0)\nk = Cast(j) to=6\nl = Cast(k) to=1\n" +
			"z = Mul(x, l)\nq = ReduceSum(z, [1])\ny = Add(x, q)", "(ReduceSum) reads all tokens"},
		{"a norm over tokens", "const o f32[8]\nz = InstanceNormalization(t, o, o)\ny = Transpose(z) perm=0,2,1",
			"(InstanceNormalization) reads all tokens"},
		{"a norm of each token", "const o f32[8]\ny = LayerNormalization(x, o, o)", ""},
		{"a running sum", "y = CumSum(x, [1])", ""},
		{"a running sum from the end", "y = CumSum(x, [1]) reverse=1", "(CumSum) reads all tokens"},
		{"a flip", "y = Slice(x, [-1], [-9223372036854775807], [1], [-1])", "(Slice) counts tokens from the end"},
		{"the last token", "p = Gather(x, [-1]) axis=1\ny = Add(x, p)", "(Gather) counts tokens from the end"},
		{"the first token", "p = Gather(x, [0]) axis=1\ny = Add(x, p)", ""},
		{"positions from the end", "const table f32[9, 8]\nn = Shape(ids) start=1 end=2\nz = Squeeze(n)\n" +
			"none = Squeeze([0])\none = Squeeze([1])\nr = Range(none, z, one)\ni = Sub(n, r)\n" +
			"p = Gather(table, i)\ny = Add(x, p)", "(Gather) counts tokens from the end"},
		{"the first positions", "const table f32[9, 8]\nconst count i64[1, 9]\nn = Shape(ids) start=1 end=2\n" +
			"i = Slice(count, [0], n, [1])\np = Gather(table, i)\ny = Add(x, p)", ""},
		{"stretched", "n = Shape(t)\nk = Mul(n, [1,1,2])\nz = Resize(t, , , k)\n" +
			"q = Transpose(z) perm=0,2,1\n" +
			"w9 = Slice(q, [0], [9223372036854775807], [1], [2])\ny = Add(x, w9)", "(Resize) stretches all tokens"},
		{"sorted", "n = Shape(ids) start=1 end=2\ny, i = TopK(x, n) axis=1", "(TopK) reads all tokens"},
		{"what is not known", "y = elsewhere.Mixer(x)", "is not known to keep tokens apart"},
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
