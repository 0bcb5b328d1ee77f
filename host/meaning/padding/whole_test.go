package padding_test

import (
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/meaning/padding"
)

// TestWholeNumbers: ONNX rounds towards zero what becomes a whole number, so that a mask may hide nothing behind a cast
// or a division; rows that no mask hides are computed.
func TestWholeNumbers(t *testing.T) {
	for _, c := range []struct {
		name, mask string
		hides      bool
	}{
		{"as it is", "m = Cast(mask) to=1", true},
		{"a cast of what lies between two", "f = Cast(mask) to=1\nd = Div(f, 1000.0)\ne = Add(d, 1.0)\n" +
			"k = Cast(e) to=7\nm = Cast(k) to=1", false},
		{"the same as eight bits", "f = Cast(mask) to=1\nd = Div(f, 1000.0)\nk = Cast(d) to=3\nm = Cast(k) to=1", false},
		{"a cast of what lies at two", "f = Cast(mask) to=1\nd = Add(f, 0.5)\nk = Cast(d) to=7\nm = Cast(k) to=1", true},
		{"a quotient of whole numbers", "d = Div(mask, [2])\nm = Cast(d) to=1", false},
		{"a quotient that is whole", "d = Mul(mask, [2])\ne = Div(d, [2])\nm = Cast(e) to=1", true},
		{"a truth", "f = Cast(mask) to=1\nd = Div(f, 1000.0)\nk = Cast(d) to=9\nm = Cast(k) to=1", true},
	} {
		g, s := blockstest.Graph(t, `
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
			`+c.mask+`
			u = Unsqueeze(m, [1,2])
			i = Sub(1.0, u)
			bias = Mul(i, -3.4e38)
			a = MatMul(q, kt)
			c = Add(a, bias)
			p = Softmax(c)
			z = MatMul(p, q)
			zt = Transpose(z) perm=0,2,1,3
			rows = Reshape(zt, [0,0,64])
			n = com.microsoft.SkipLayerNormalization(rows, x, w, w)
			f2 = MatMul(n, o)
			y = Gather(f2, [0]) axis=1`)
		f, why := padding.Find(g, s, blocks.Find(g, s))
		if hides := f != nil && f.Mask == g.Inputs[1]; hides != c.hides { // the graph may make another mask
			t.Errorf("%s: the mask hides: %v, %q", c.name, hides, why)
		}
		mixes := padding.Mixes(g, s, blocks.Find(g, s), g.Inputs[0], g.Inputs[1])
		if (mixes == "") != c.hides {
			t.Errorf("%s: texts mix: %q", c.name, mixes)
		}
	}
}
