package session_test

import (
	"strings"
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/rewrite/session"
	"github.com/opgraft/graft/internal/must"
)

// A length that no input has is read off what is there before the block, whose
// scores are gone.
func TestShapeReadOffWhatComesBefore(t *testing.T) {
	g, s := blockstest.Graph(t, `
	in q f32[batch, 8, seq, 64]
	in k f32[batch, 8, keys, 64]
	in v f32[batch, 8, keys, 64]
	in all i64[keys]
	in wanted bool[keys]
	out y f32[batch, 8, seq, 64]
	out n i64[1]
	picked = Compress(all, wanted) axis=0
	some = Gather(k, picked) axis=2
	values = Gather(v, picked) axis=2
	kt = Transpose(some) perm=0,1,3,2
	a = MatMul(q, kt)
	a1 = Mul(a, 0.125)
	p = Softmax(a1)
	o = MatMul(p, values)
	n = Shape(a1) start=3 end=4
	kt2 = Transpose(k) perm=0,1,3,2
	b = MatMul(o, kt2)
	b1 = Mul(b, 0.125)
	p2 = Softmax(b1)
	y = MatMul(p2, v)`)
	pl := plan.Make(g, s, blocks.Find(g, s), []*manifest.Manifest{parsed(t, flash)}, plan.Options{Force: true})
	if pl.Replaced() != 2 {
		t.Fatalf("%d of 2 blocks are planned: %+v", pl.Replaced(), pl.Choices)
	}
	must.Succeed(t, session.Apply(g, s, pl))
	if pl.Replaced() != 2 {
		t.Errorf("choices after the rewrite: %+v", pl.Choices)
	}
	n := g.Outputs[1].Producer
	for n != nil && !n.Is("Shape") {
		n = n.Input(0).Producer
	}
	if n == nil || n.Input(0).Name != "picked" {
		t.Errorf("n is the shape of %v", n)
	}
}

// A mask that waits for a length of what attention makes, which nothing before it has, ties the block.
func TestTiedBlockIsLeft(t *testing.T) {
	g, s := blockstest.Graph(t, blockstest.Tied)
	pl := plan.Make(g, s, blocks.Find(g, s), []*manifest.Manifest{parsed(t, flash)}, plan.Options{Force: true})
	if pl.Replaced() != 1 {
		t.Fatalf("%+v", pl.Choices)
	}
	must.Succeed(t, session.Apply(g, s, pl))
	const why = "what it reads is made from the shape of what it makes: no input has the length some.2"
	if c := pl.Choices[0]; pl.Replaced() != 0 || c.Reason != why {
		t.Errorf("%d replaced, %q", pl.Replaced(), c.Reason)
	}
}

// An operator cannot read what comes from what it makes: neither attention that makes the keys of its own queries,
// nor a pattern of two outputs of which one leads to an input.
func TestWhatReadsItselfIsLeft(t *testing.T) {
	const two = `  - name: Two
    replaces:
      pattern:
        inputs: [x, y]
        outputs: [a, b]
        nodes:
          - {op: Sigmoid, in: [x], out: [a]}
          - {op: Mul, in: [a, y], out: [b]}
    with:
      nodes: [{op: Two, domain: graft, in: [x, y], out: [a, b]}]
    cost: {bandwidth: 0.9, flops: 0.5, overhead_us: 1}
`
	for name, text := range map[string]string{"attention": ends + join + `
		kt = Transpose(present_key) perm=0,1,3,2
		a = MatMul(present_key, kt)
		s = Softmax(a)
		o = MatMul(s, present_value)
		t = Transpose(o) perm=0,2,1,3
		y = Reshape(t, [0,-1,512])`, "pattern": `
		in x f32[b, 64]
		out y f32[b, 64]
		out z f32[b, 64]
		z = Sigmoid(x)
		e = Exp(z)
		y = Mul(z, e)`} {
		t.Run(name, func(t *testing.T) {
			g, s := blockstest.Graph(t, text)
			pl := plan.Make(g, s, blocks.Find(g, s), []*manifest.Manifest{parsed(t, flash), parsed(t, two)},
				plan.Options{Force: true})
			if pl.Replaced() != 1 {
				t.Fatalf("%+v", pl.Choices)
			}
			must.Succeed(t, session.Apply(g, s, pl))
			if why := pl.Choices[0].Reason; pl.Replaced() != 0 ||
				!strings.HasSuffix(why, "is read here, and made from what is made here") {
				t.Errorf("%d replaced, %q", pl.Replaced(), why)
			}
		})
	}
}
