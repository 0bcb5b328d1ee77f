package blocks_test

import (
	"strings"
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
)

// turnedHalves turns q by cos and sin, (b, 4, s, 16), turnedNeighbours does so pair by pair.
const (
	turnedHalves = `
		q1 = Slice(q, [0], [8], [3])
		q2 = Slice(q, [8], [100], [-1])
		qn = Neg(q2)
		qh = Concat(qn, q1) axis=-1
		qc = Mul(q, cos)
		qs = Mul(qh, sin)
		qt = Add(qc, qs)`
	turnedNeighbours = `
		q0 = Slice(q, [0], [100], [3], [2])
		q1 = Slice(q, [1], [100], [3], [2])
		qn = Neg(q1)
		qn5 = Unsqueeze(qn, [-1])
		q05 = Unsqueeze(q0, [-1])
		q5 = Concat(qn5, q05) axis=-1
		qh = Reshape(q5, [0,0,0,16])
		qc = Mul(q, cos)
		qs = Mul(qh, sin)
		qt = Add(qc, qs)`
)

// A rotation by one angle a pair is found where it is certain that it is one.
func TestTurns(t *testing.T) {
	const angles = "in a f32[b, s, 8]\nin other f32[b, s, 8]\n"
	const double = `
		d = Concat(a, a) axis=-1
		`
	table := func(dims string) string {
		return "in ids i64[b, s]\nconst table f32[" + dims + "]\nc3 = Gather(table, ids) axis=0\n" +
			"cos = Unsqueeze(c3, [1])\nsin = Neg(cos)\n"
	}
	for _, c := range []struct {
		name, text, turn string
		style            string // "" where it is left alone
		cos              string // what holds its cosines
	}{
		{"doubled before the cosine", angles + double + "c = Cos(d)\nf = Mul(c, 1.5)\ncos = Unsqueeze(f, [1])\ns3 = " +
			"Sin(d)\nsin = Unsqueeze(s3, [1])\n", turnedHalves, "half", "f"},
		{"doubled after it", angles + "c = Cos(a)\nc2 = Concat(c, c) axis=2\ncos = Unsqueeze(c2, [1])\nn = Sin(a)\nn2 = " +
			"Concat(n, n) axis=2\nsin = Unsqueeze(n2, [1])\n", turnedHalves, "half", "c2"},
		{"by Tile", angles + "d = Tile(a, [1,1,2])\nc = Cos(d)\ncos = Unsqueeze(c, [1])\nn = Sin(d)\nsin = Unsqueeze(n, " +
			"[1])\n", turnedHalves, "half", "c"},
		{"two angles", angles + "d = Concat(a, other) axis=-1\nc = Cos(d)\ncos = Unsqueeze(c, [1])\nn = Sin(d)\nsin = " +
			"Unsqueeze(n, [1])\n", turnedHalves, "", ""},
		{"two sines", angles + double +
			"e = Concat(a, other) axis=-1\nc = Cos(d)\ncos = Unsqueeze(c, [1])\nn = Sin(e)\nsin = Unsqueeze(n, [1])\n",
			turnedHalves, "", ""},
		{"scaled unalike", angles + double +
			"const by f32[16]\nc = Cos(d)\nc3 = Mul(c, by)\ncos = Unsqueeze(c3, [1])\nn = Sin(d)\nsin = Unsqueeze(n, [1])\n",
			turnedHalves, "", ""},
		{"a table of unlike halves", table("97, 16"), turnedHalves, "", ""},
		{"from outside", "in cos f32[b, 1, s, 16]\nin sin f32[b, 1, s, 16]\n", turnedHalves, "", ""},
		{"neighbours", angles + "a4 = Unsqueeze(a, [-1])\nd4 = Expand(a4, [1,1,1,2])\nd = Reshape(d4, [0,0,16])\nc = " +
			"Cos(d)\ncos = Unsqueeze(c, [1])\nn = Sin(d)\nsin = Unsqueeze(n, [1])\n", turnedNeighbours, "interleaved", "c"},
		{"neighbours put side by side",
			angles + "a4 = Unsqueeze(a, [-1])\nd4 = Concat(a4, a4) axis=-1\nd = Reshape(d4, [0,0,16])\nc = Cos(d)\ncos = " +
				"Unsqueeze(c, [1])\nn = Sin(d)\nsin = Unsqueeze(n, [1])\n", turnedNeighbours, "interleaved", "c"},
		{"neighbours by angles of halves",
			angles + double + "c = Cos(d)\ncos = Unsqueeze(c, [1])\nn = Sin(d)\nsin = Unsqueeze(n, [1])\n", turnedNeighbours, "",
			""},
		{"halves by angles of neighbours",
			angles + "a4 = Unsqueeze(a, [-1])\nd4 = Expand(a4, [1,1,1,2])\nd = Reshape(d4, [0,0,16])\nc = Cos(d)\ncos = " +
				"Unsqueeze(c, [1])\nn = Sin(d)\nsin = Unsqueeze(n, [1])\n", turnedHalves, "", ""},
		{"a run of other angles beside the first",
			angles + "a4 = Unsqueeze(a, [-1])\no4 = Unsqueeze(other, [-1])\nd4 = Concat(a4, o4) axis=-1\nd = Reshape(d4, " +
				"[0,0,16])\nc = Cos(d)\ncos = Unsqueeze(c, [1])\nn = Sin(d)\nsin = Unsqueeze(n, [1])\n", turnedNeighbours, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, shapes := blockstest.Graph(t, "in q f32[b, 4, s, 16]\nout qt f32[b, 4, s, 16]\n"+c.text+c.turn)
			found := blocks.FindTurns(g, shapes)
			if c.style == "" {
				if len(found) > 0 {
					t.Fatalf("found %s by %s and %s, which may be two angles a pair", found[0].Style, found[0].Cos.Of.Name,
						found[0].Sin.Of.Name)
				}
				return
			}
			if len(found) != 1 {
				t.Fatalf("%d found, want 1", len(found))
			}
			if f := found[0]; f.Style != c.style || f.Size != 16 || f.Of.Name != "q" || f.Result.Name != "qt" ||
				f.Cos.Of.Name != c.cos {
				t.Errorf("%s of %d features of %s into %s by %s, want %s of 16 of q into qt by %s", f.Style, f.Size, f.Of.Name,
					f.Result.Name, f.Cos.Of.Name, c.style, c.cos)
			}
		})
	}
}

// torch's repeat_interleave, as its exporter writes it, is undone: all layers read the same lines then.
func TestTurnsByRepeatedAngles(t *testing.T) {
	for _, c := range []struct {
		name, indices string
		found         bool
	}{
		{"each twice", "[0,0,0,1,1,0,1,1,2,0,2,1,3,0,3,1]", true},
		{"another order", "[0,0,0,1,2,0,2,1,1,0,1,1,3,0,3,1]", false},
		{"one of two angles", "[0,0,1,1,1,0,1,1,2,0,2,1,3,0,3,1]", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			repeated := func(name string) string {
				return strings.ReplaceAll(`
					#4 = Unsqueeze(#, [1])
					#h = Slice(#4, [0], [4], [3])
					#t = Transpose(#h) perm=3,2,1,0
					#5 = Unsqueeze(#t, [1])
					#e = Expand(#5, [1,2,1,1,1])
					#g = GatherND(#e, at)
					#r = Transpose(#g) perm=3,2,1,0
					`, "#", name)
			}
			const turn = `
				q0 = Slice(q, [0], [100], [3], [2])
				q1 = Slice(q, [1], [100], [3], [2])
				qn = Neg(q1)
				qn5 = Unsqueeze(qn, [-1])
				q05 = Unsqueeze(q0, [-1])
				q5 = Concat(qn5, q05) axis=-1
				qh = Reshape(q5, [0,0,0,8])
				qc = Mul(q, cosr)
				qs = Mul(qh, sinr)
				qt = Add(qc, qs)`
			g, shapes := blockstest.Graph(t, `
				in q f32[b, 3, 1, 8]
				in cos f32[b, 1, 8]
				in sin f32[b, 1, 8]
				out qt f32[b, 3, 1, 8]
				at = Reshape(`+c.indices+`, [8,2])`+repeated("cos")+repeated("sin")+turn)
			before, beforeShapes := blockstest.Graph(t, `
				in q f32[b, 3, 1, 8]
				in angle f32[b, 1, 8]
				out qt f32[b, 3, 1, 8]
				at = Reshape(`+c.indices+`, [8,2])`+repeated("angle")+`
				cosr = Cos(angler)
				sinr = Sin(angler)`+turn)
			if found := blocks.FindTurns(before, beforeShapes); (len(found) == 1 && found[0].Cos.Step == 2) != c.found {
				t.Errorf("repeated before the cosine: found %+v, want it: %t", found, c.found)
			}
			found := blocks.FindTurns(g, shapes)
			if len(found) == 0 && !c.found {
				return
			}
			if len(found) != 1 || !c.found || found[0].Cos.Of.Name != "cos" || found[0].Cos.First != 0 ||
				found[0].Cos.Step != 1 || found[0].Sin.Of.Name != "sin" {
				t.Errorf("found %+v, want it: %t, by the first elements of cos and sin", found, c.found)
			}
		})
	}
}

// Lines of a constant are compared: 97 columns after one another the same numbers come again.
func TestTurnsByATable(t *testing.T) {
	g, shapes := blockstest.Graph(t, `
		in q f32[b, 1, s, 194]
		in ids i64[b, s]
		out qt f32[b, 1, s, 194]
		const table f32[5, 194]
		c3 = Gather(table, ids) axis=0
		cos = Unsqueeze(c3, [1])
		sin = Neg(cos)
		q1 = Slice(q, [0], [97], [3])
		q2 = Slice(q, [97], [1000], [3])
		qn = Neg(q2)
		qh = Concat(qn, q1) axis=-1
		qc = Mul(q, cos)
		qs = Mul(qh, sin)
		qt = Add(qc, qs)`)
	if found := blocks.FindTurns(g, shapes); len(found) != 1 || found[0].Cos.Of.Name != "c3" {
		t.Errorf("found %v, want one by c3", found)
	}
}
