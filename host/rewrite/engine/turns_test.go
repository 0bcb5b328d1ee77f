package engine_test

import (
	"slices"
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/rewrite/engine"
)

// stepAngles are cosines and sines of a step, a line for each row, as exports unsqueeze them in each layer.
const stepAngles = `
	in x f32[rows, 1, 64]
	in angles f32[rows, 1, 8]
	const w f32[64, 64]
	d = Concat(angles, angles) axis=-1
	c = Cos(d)
	n = Sin(d)
	cos = Unsqueeze(c, [1])
	sin = Unsqueeze(n, [1])
	ql = MatMul(x, w)
	qr = Reshape(ql, [-1,1,4,16])
	q = Transpose(qr) perm=0,2,1,3
	`

const stepTurn = `
	q1 = Slice(q, [0], [8], [3])
	q2 = Slice(q, [8], [100], [-1])
	qn = Neg(q2)
	qh = Concat(qn, q1) axis=-1
	qc = Mul(q, cos)
	qs = Mul(qh, sin)
	qt = Add(qc, qs)
	`

// turnTables is what a step makes once for all layers.
var turnTables = []string{"Concat", "Cos", "Sin", "Slice", "Reshape", "Shape", "Gather", "Range", "Reshape", "Slice",
	"Reshape"}

func TestTurnAtOnce(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string // without turnTables, in order
	}{
		{"before attention, to which axes of length 1 are the same",
			"out y f32[rows, 4, 1, 16]\nin graft.cache f32[blocks, floats]\n" + stepAngles + stepTurn +
				"y = graft.CachedAttention(qt, graft.cache)", []string{"MatMul", "RotaryEmbedding", "CachedAttention"}},
		{"with a transpose between",
			"out y f32[rows, 4, 1, 16]\nin graft.cache f32[blocks, floats]\n" + stepAngles + stepTurn +
				"back = Transpose(qt) perm=0,2,1,3\ny = graft.CachedAttention(back, graft.cache)",
			[]string{"MatMul", "RotaryEmbedding", "CachedAttention"}},
		{"read by others too", "out y f32[rows, 4, 1, 16]\nout z f32[rows, 4, 1, 16]\nin graft.cache f32[blocks, floats]\n" +
			stepAngles + stepTurn +
			"y = graft.CachedAttention(qt, graft.cache)\nz = Exp(qt)",
			[]string{"MatMul", "RotaryEmbedding", "CachedAttention", "Reshape", "Exp"}},
		{"handed out", "out qt f32[rows, 4, 1, 16]\n" + stepAngles + stepTurn,
			[]string{"MatMul", "RotaryEmbedding", "Reshape"}},
		{"of normal heads", "out qt f32[rows, 4, 1, 16]\n" + `
			in x f32[rows, 4, 1, 16]
			in angles f32[rows, 1, 8]
			d = Concat(angles, angles) axis=-1
			c = Cos(d)
			n = Sin(d)
			cos = Unsqueeze(c, [1])
			sin = Unsqueeze(n, [1])
			q = Tanh(x)` + stepTurn, []string{"Tanh", "RotaryEmbedding"}},
		{"of flat rows", "out qt f32[rows, 4, 1, 16]\n" + `
			in x f32[rows, 64]
			in angles f32[rows, 1, 8]
			const w f32[64, 64]
			d = Concat(angles, angles) axis=-1
			c = Cos(d)
			n = Sin(d)
			cos = Unsqueeze(c, [1])
			sin = Unsqueeze(n, [1])
			ql = MatMul(x, w)
			q = Reshape(ql, [-1,4,1,16])` + stepTurn, []string{"MatMul", "Reshape", "RotaryEmbedding", "Reshape"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, got := blockstest.Rewrite(t, c.text, engine.TurnAtOnce, blockstest.Declare("y", "rows", 4, 1, 16))
			want := slices.Sorted(slices.Values(slices.Concat(turnTables, c.want)))
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("nodes\n%v, want\n%v", got, want)
			}
			for _, n := range p.Node {
				if n.GetOpType() == "RotaryEmbedding" && blockstest.Attribute(n, "num_heads").GetI() != 4 {
					t.Errorf("%d heads, want 4", blockstest.Attribute(n, "num_heads").GetI())
				}
			}
		})
	}
}

// Query and key of all layers read tables that are made once.
func TestTurnAtOnceMakesTablesOnce(t *testing.T) {
	_, got := blockstest.Rewrite(t, "out qt f32[rows, 4, 1, 16]\nout kt f32[rows, 4, 1, 16]\n"+stepAngles+stepTurn+`
		kcos = Unsqueeze(c, [1])
		ksin = Unsqueeze(n, [1])
		k = Tanh(q)
		k1 = Slice(k, [0], [8], [3])
		k2 = Slice(k, [8], [100], [-1])
		kn = Neg(k2)
		kh = Concat(kn, k1) axis=-1
		kc = Mul(k, kcos)
		ks = Mul(kh, ksin)
		kt = Add(kc, ks)`, engine.TurnAtOnce)
	count := map[string]int{}
	for _, op := range got {
		count[op]++
	}
	if count["RotaryEmbedding"] != 2 || count["Slice"] != 2 || count["Range"] != 1 {
		t.Errorf("nodes %v, want two RotaryEmbedding, two Slice and one Range", got)
	}
}

// What is not a row by itself, or no certain rotation, stays as it is.
func TestTurnAtOnceLeavesOthers(t *testing.T) {
	for _, c := range []struct{ name, text string }{
		{"several tokens a row", `
			out qt f32[rows, 4, s, 16]
			in q f32[rows, 4, s, 16]
			in angles f32[rows, s, 8]
			d = Concat(angles, angles) axis=-1
			c = Cos(d)
			n = Sin(d)
			cos = Unsqueeze(c, [1])
			sin = Unsqueeze(n, [1])` + stepTurn},
		{"one line for all rows", `
			out qt f32[rows, 4, 1, 16]
			in q f32[rows, 4, 1, 16]
			in angles f32[1, 1, 8]
			d = Concat(angles, angles) axis=-1
			c = Cos(d)
			n = Sin(d)
			cos = Unsqueeze(c, [1])
			sin = Unsqueeze(n, [1])` + stepTurn},
		{"angles from outside", `
			out qt f32[rows, 4, 1, 16]
			in q f32[rows, 4, 1, 16]
			in cos f32[rows, 1, 1, 16]
			in sin f32[rows, 1, 1, 16]` + stepTurn},
		{"float16", `
			out qt f16[rows, 4, 1, 16]
			in q f16[rows, 4, 1, 16]
			in angles f16[rows, 1, 8]
			d = Concat(angles, angles) axis=-1
			c = Cos(d)
			n = Sin(d)
			cos = Unsqueeze(c, [1])
			sin = Unsqueeze(n, [1])` + stepTurn},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, before := blockstest.Rewrite(t, c.text, func(*graph.Graph, *graph.Shapes) error { return nil })
			if _, got := blockstest.Rewrite(t, c.text, engine.TurnAtOnce); !slices.Equal(got, before) {
				t.Errorf("nodes %v, want those of before", got)
			}
		})
	}
}
