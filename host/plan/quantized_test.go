package plan_test

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/internal/must"
)

// geluOf is the pattern of gelu around a value x.
const geluOf = `
	a = Div(x, 1.4142135)
	b1 = Erf(a)
	c = Add(b1, 1.0)
	d = Mul(x, c)
	y = Mul(d, 0.5)`

// TestQuantizationNoise: an operator whose result is rounded to integers while the model runs is used only where
// that is accepted, however far away the rounding is and whatever it is called.
func TestQuantizationNoise(t *testing.T) {
	m := parsed(t, "gelu", gelu)
	const rounded = "rounds what becomes of its result to a few bits"
	for _, c := range []struct {
		name, text string
		left       string // a part of the reason; "" where it is used
	}{
		{"no rounding", head + geluOf, ""},
		{"dynamic int8", `
			in x f32[b, s, 64]
			out q u8[b, s, 64]` + geluOf + `
			q, scale, zero = DynamicQuantizeLinear(y)`, rounded},
		{"static int8", `
			in x f32[b, s, 64]
			out q u8[b, s, 64]` + geluOf + `
			n = Neg(y)
			q = QuantizeLinear(n, 0.1)`, rounded},
		{"far away", `
			in x f32[b, s, 64]
			in w f32[64, 64]
			out z f32[b, s, 64]` + geluOf + `
			e = MatMul(y, w)
			f = Add(e, x)
			g = Transpose(f) perm=0,2,1
			h = Round(g)
			z = Transpose(h) perm=0,2,1`, rounded},
		{"by a cast", `
			in x f32[b, s, 64]
			out q i8[b, s, 64]` + geluOf + `
			q = Cast(y) to=3`, rounded},
		{"ahead of it", `
			in x0 f32[b, s, 64]
			out y f32[b, s, 64]
			q, scale, zero = DynamicQuantizeLinear(x0)
			x = DequantizeLinear(q, scale, zero)` + geluOf, ""},
		{"beside it", `
			in x f32[b, s, 64]
			out y f32[b, s, 64]
			out q u8[b, s, 64]
			n = Neg(x)
			q, scale, zero = DynamicQuantizeLinear(n)` + geluOf, ""},
		{"weights are rounded, and nothing that it makes", `
			in x f32[b, s, 64]
			out z f32[b, s, 64]
			const w f32[64, 64]
			r = QuantizeLinear(w, 0.1)
			v = DequantizeLinear(r, 0.1)` + geluOf + `
			z = MatMul(y, v)`, ""},
		{"its shape is read there", `
			in x f32[b, s, 64]
			in r f32[b, 1]
			out y f32[b, s, 64]
			out q u8[n]` + geluOf + `
			s1 = Shape(y)
			f = Cast(s1) to=1
			q, scale, zero = DynamicQuantizeLinear(f)`, ""},
		{"integers of another width are none", head + geluOf + `
			out z i64[b, s, 64]
			z = Cast(y) to=7`, ""},
		{"weights of four bits, activations of eight", `
			in x f32[b, s, 64]
			const w u8[32, 2, 16]
			const scales f32[64]
			out z f32[b, s, 32]` + geluOf + `
			z = com.microsoft.MatMulNBits(y, w, scales) K=64 N=32 bits=4 block_size=32 accuracy_level=4`, rounded},
		{"weights of four bits alone", `
			in x f32[b, s, 64]
			const w u8[32, 2, 16]
			const scales f32[64]
			out z f32[b, s, 32]` + geluOf + `
			z = com.microsoft.MatMulNBits(y, w, scales) K=64 N=32 bits=4 block_size=32`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, accepted := range []bool{false, true} {
				p := makePlan(t, c.text, plan.Options{Force: true, QuantizationNoise: accepted}, m)
				if len(p.Choices) != 1 {
					t.Fatalf("%d choices", len(p.Choices))
				}
				got := p.Choices[0]
				if used := got.Operator != nil; used != (accepted || c.left == "") {
					t.Errorf("accepted %v: used %v because %q", accepted, used, got.Reason)
				} else if !used && !(strings.Contains(got.Reason, c.left) &&
					strings.Contains(got.Reason, "--accept-quantization-noise")) {
					t.Errorf("left because %q, want %q", got.Reason, c.left)
				}
			}
		})
	}
}

// TestSameBits: an operator with the bits of the nodes in its place stands before what rounds, where it is known what
// ONNX Runtime fuses around it.
func TestSameBits(t *testing.T) {
	same := parsed(t, "gelu", strings.Replace(gelu, "    replaces:", "    same_bits: true\n    replaces:", 1))
	text := `
		in x f32[b, s, 64]
		out q u8[b, s, 64]` + geluOf + `
		q, scale, zero = DynamicQuantizeLinear(y)`
	known := []plan.Fusion{{Sum: [2]string{"a", "b"}, Output: "c"}}
	for _, c := range []struct {
		name    string
		ask     func() ([]plan.Fusion, error)
		accept  bool
		left    string
		fusions int
	}{
		{"nobody asks", nil, false, "--accept-quantization-noise", 0},
		{"nobody asks, and it is accepted", nil, true, "", 0},
		{"fusions are known", func() ([]plan.Fusion, error) { return known, nil }, false, "", 1},
		{"there are none", func() ([]plan.Fusion, error) { return nil, nil }, false, "", 0},
		{"ONNX Runtime does not say", func() ([]plan.Fusion, error) { return nil, errors.New("no memory") }, false,
			"what ONNX Runtime fuses around it: no memory", 0},
	} {
		p := makePlan(t, text, plan.Options{Force: true, QuantizationNoise: c.accept, Fusions: c.ask}, same)
		got := p.Choices[0]
		if (got.Operator == nil) != (c.left != "") || !strings.Contains(got.Reason, c.left) || len(p.Fusions) != c.fusions {
			t.Errorf("%s: %v because %q, %d fusions; want it left because %q, and %d", c.name, got.Operator, got.Reason,
				len(p.Fusions), c.left, c.fusions)
		}
	}
}

// TestSameBitsWhereNothingRounds: such an operator is one like any other where its results are not rounded, and
// nobody has to ask.
func TestSameBitsWhereNothingRounds(t *testing.T) {
	same := parsed(t, "gelu", strings.Replace(gelu, "    replaces:", "    same_bits: true\n    replaces:", 1))
	if p := makePlan(t, head+geluOf, plan.Options{Force: true}, same); p.Replaced() != 1 || p.Fusions != nil {
		t.Errorf("%d are replaced, want 1: %s", p.Replaced(), p.Left())
	}
}

// TestFusionsAreAskedForOnce: and only where an operator depends on them, since a session is made for that.
func TestFusionsAreAskedForOnce(t *testing.T) {
	same := parsed(t, "gelu", strings.Replace(gelu, "    replaces:", "    same_bits: true\n    replaces:", 1))
	two := head + geluOf + strings.NewReplacer("x", "y", "a =", "a2 =", "(a)", "(a2)", "b1", "b2", "c =", "c2 =", ", c)",
		", c2)", "d =", "d2 =", "(d", "(d2", "y =", "z =").Replace(geluOf)
	for _, c := range []struct {
		name     string
		manifest *manifest.Manifest
		want     int
	}{{"two operators", same, 1}, {"none", parsed(t, "gelu", gelu), 0}} {
		asked := 0
		p := makePlan(t, two, plan.Options{Force: true, Fusions: func() ([]plan.Fusion, error) { asked++; return nil, nil }},
			c.manifest)
		if asked != c.want || p.Replaced() == 0 {
			t.Errorf("%s: asked %d times, want %d; %d replaced", c.name, asked, c.want, p.Replaced())
		}
	}
}

// TestQuantizationNoiseOfAttention: attention is left as patterns are, and presents count as results.
func TestQuantizationNoiseOfAttention(t *testing.T) {
	m := attention(t, "fast", "Fast", `dtype: float32`, 1)
	for name, line := range map[string]string{"its output": "q8, scale, zero = DynamicQuantizeLinear(y)",
		"its present": "q8, scale, zero = DynamicQuantizeLinear(present_key)"} {
		text := strings.Replace(decoder, "out y ", "out q8 u8[batch, 8, n, 64]\n\tout y ", 1) + "\n\t" + line
		for _, accepted := range []bool{false, true} {
			c := makePlan(t, text, plan.Options{Force: true, QuantizationNoise: accepted}, m).Choices[0]
			must.Equal(t, c.Operator != nil, accepted, name, c.Reason)
		}
	}
}

// TestQuantizationNoiseWithinLoops: what a body makes reaches what the body rounds the next time, and what stands
// around it.
func TestQuantizationNoiseWithinLoops(t *testing.T) {
	m := parsed(t, "gelu", gelu)
	body := func(text string) *onnx.Attribute {
		g := blockstest.Proto(t, text).Graph
		for _, n := range g.Node {
			n.Name = proto.String("body_" + n.GetName())
		}
		return &onnx.Attribute{Name: proto.String("body"), Type: onnx.Attribute_GRAPH.Enum(), G: g}
	}
	const inner = `
		in i i64[]
		in more bool[]
		in x f32[b, s, 64]
		out again bool[]
		out y f32[b, s, 64]
		again = Identity(more)`
	const outer = `
		in x0 f32[b, s, 64]
		in n i64[]
		in go bool[]
		out z f32[b, s, 64]
		out r f32[b, s, 64]
		z = Loop(n, go, x0)
		`
	for _, c := range []struct {
		name, inner, outer string
		left               bool
	}{
		{"nothing rounds", inner + geluOf, outer + `r = Neg(z)`, false},
		{"the body", inner + geluOf + `
			q, scale, zero = DynamicQuantizeLinear(x)`, outer + `r = Neg(z)`, true},
		{"what stands around it", inner + geluOf, outer + `r = Round(z)`, true},
		{"what stands around it, of something else", inner + geluOf, outer + `r = Round(x0)`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := blockstest.Proto(t, c.outer)
			p.Graph.Node[0].Attribute = append(p.Graph.Node[0].Attribute, body(c.inner))
			g, s := viewed(t, p)
			got := plan.Make(g, s, blocks.Find(g, s), []*manifest.Manifest{m}, plan.Options{Force: true}).Choices
			if len(got) != 1 || (got[0].Operator == nil) != c.left {
				t.Errorf("%d choices, want one that is left: %v, %+v", len(got), c.left, got)
			}
		})
	}
}

func viewed(t *testing.T, p *onnx.Model) (*graph.Graph, *graph.Shapes) {
	t.Helper()
	b := must.Value(proto.Marshal(p))(t)
	m := must.Value(model.Parse(b, ""))(t)
	g := must.Value(graph.New(m.Proto(), m))(t)
	return g, graph.Infer(g)
}
