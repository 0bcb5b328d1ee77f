package blocks_test

import (
	"strings"
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks"
)

func TestTerms(t *testing.T) {
	for _, c := range []struct {
		name, text string
		holds      func(b *blocks.Block) bool
	}{
		{"a bias over batch and heads in one axis", `
			in q f32[b, 4, s, 16]
			in mask bool[b, 1, s, s]
			out y f32[b, 4, s, 16]
			k = Neg(q)
			v = Abs(q)
			n = Shape(q) start=2 end=3
			flat = Concat([-1], n, [16]) axis=0
			q3 = Reshape(q, flat)
			k3 = Reshape(k, flat)
			v3 = Reshape(v, flat)
			kt = Transpose(k3) perm=0,2,1
			a = MatMul(q3, kt)
			bias = Sigmoid(a)
			c = Add(a, bias)
			four = Concat([-1,4], n, n) axis=0
			c4 = Reshape(c, four)
			d = Where(mask, c4, -3.4e38)
			p = Softmax(d)
			three = Concat([-1], n, n) axis=0
			p3 = Reshape(p, three)
			o = MatMul(p3, v3)
			heads = Concat([-1,4], n, [16]) axis=0
			y = Reshape(o, heads)`,
			func(b *blocks.Block) bool {
				return terms(b) == "bias joined" && b.Attention.Heads == 4 && b.Attention.Mask.PerHead && b.Wiring.MaskAfterBias
			}},
		{"a mask over windows of images", `
			in q f32[n, 2, 16, 8]
			in k f32[n, 2, 16, 8]
			in v f32[n, 2, 16, 8]
			in bias f32[1, 2, 16, 16]
			in mask f32[1, w, 1, 16, 16]
			out y f32[n, 2, 16, 8]
			kt = Transpose(k) perm=0,1,3,2
			a = MatMul(q, kt)
			c = Add(a, bias)
			nw = Shape(mask) start=1 end=2
			five = Concat([-1], nw, [2,16,16]) axis=0
			c5 = Reshape(c, five)
			d5 = Add(c5, mask)
			d = Reshape(d5, [-1,2,16,16])
			p = Softmax(d)
			y = MatMul(p, v)`,
			func(b *blocks.Block) bool { return terms(b) == "mask over windows, bias" }},
		{"positions that come from queries, before the scores", `
			in q f32[n, s, 16]
			in table f32[1, 16, 1]
			out y f32[n, s, 16]
			k = Neg(q)
			v = Abs(q)
			qt = Transpose(q) perm=1,0,2
			some = MatMul(qt, table)
			bias = Transpose(some) perm=1,0,2
			kt = Transpose(k) perm=0,2,1
			a = MatMul(q, kt)
			c = Add(bias, a)
			p = Softmax(c)
			y = MatMul(p, v)`,
			func(b *blocks.Block) bool { return terms(b) == "bias joined" }},
		{"a factor for each head", operands + `
			in factor f32[4, 1, 1]
			in mask f32[b, 1, 1, t]
			a = MatMul(q, kt)
			c = Mul(a, factor)
			d = Add(c, mask)
			p = Softmax(d)
			y = MatMul(p, v)`,
			func(b *blocks.Block) bool {
				return b.Wiring.HeadScale != nil && b.Wiring.HeadScale.Name == "factor" && b.Wiring.Scale == 1
			}},
		{"keys of one head, positions last", `
			in q f32[n, 1, 16]
			in k f32[s, n, 16]
			in v f32[n, s, 16]
			out y f32[n, 1, 16]
			kt = Transpose(k) perm=1,2,0
			a = MatMul(q, kt)
			p = Softmax(a)
			y = MatMul(p, v)`,
			func(b *blocks.Block) bool { return b.Wiring.KeyLayout == "bd1s" && b.Wiring.Key.Name == "kt" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if b := find(t, c.text); !c.holds(b) {
				t.Errorf("facts %+v, wiring %+v, terms %s", b.Attention, b.Wiring, terms(b))
			}
		})
	}
}

// terms tells what is added to a block's scores, and what it lies over.
func terms(b *blocks.Block) string {
	var list []string
	for _, t := range b.Wiring.Biases {
		name := t.Value.Name
		if t.Joined {
			name += " joined"
		}
		if t.Windows {
			name += " over windows"
		}
		list = append(list, name)
	}
	return strings.Join(list, ", ")
}
