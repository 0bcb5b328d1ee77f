package session_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/internal/must"
)

// quantizedLinear is the plugin's manifest, for any CPU.
func quantizedLinear(t *testing.T) *manifest.Manifest {
	t.Helper()
	b := must.Value(os.ReadFile(filepath.Join("..", "..", "..", "plugins", "quantized-linear", "plugin.yaml")))(t)
	m := must.Value(manifest.Parse("plugin.yaml", []byte(strings.ReplaceAll(string(b), "cpu_vnni: true, ", ""))))(t)
	return m
}

// matmulOf is y = x W + b of integers that rounding made of x, as ONNX Runtime's tool writes it; names begin with the
// letter.
func matmulOf(letter, rounded, width string) string {
	return strings.NewReplacer("@", letter, "#", rounded, "%", width).Replace(`
	const @w i8[16, %]
	const @wz i8[%]
	const @ws f32[%]
	const @b f32[%]
	@i = MatMulInteger(#q, @w, #z, @wz)
	@f = Cast(@i) to=1
	@s = Mul(#s, @ws)
	@m = Mul(@f, @s)
	@ = Add(@b, @m)`)
}

const (
	roundX = `
	xq, xs, xz = DynamicQuantizeLinear(x)`
	encoderEnds = `
	in x f32[b, n, 16]
	out y f32[b, n, 16]`
	// attend is attention over heads of four, and the matmul after it.
	attend = `
	q4 = Reshape(q, [0,0,4,4])
	qh = Transpose(q4) perm=0,2,1,3
	k4 = Reshape(k, [0,0,4,4])
	kh = Transpose(k4) perm=0,2,3,1
	v4 = Reshape(v, [0,0,4,4])
	vh = Transpose(v4) perm=0,2,1,3
	a = MatMul(qh, kh)
	p = Softmax(a)
	c = MatMul(p, vh)
	ch = Transpose(c) perm=0,2,1,3
	c3 = Reshape(ch, [0,0,16])
	cq, cs, cz = DynamicQuantizeLinear(c3)`
)

// summary is what a graph runs, in order: operators, and of joined matmuls the numbers of inputs and outputs and the
// layouts.
func summary(m *onnx.Model) string {
	var list []string
	for _, n := range m.Graph.Node {
		name := n.GetOpType()
		if n.GetDomain() == manifest.Domain {
			name = fmt.Sprintf("%s(%d)->%d", name, len(n.Input), len(n.Output))
			for _, of := range []string{"layouts", "x_layout", "activations"} {
				for _, a := range n.Attribute {
					switch {
					case a.GetName() != of:
					case of == "layouts":
						name += fmt.Sprint(a.GetInts())
					case of == "activations":
						if slices.Max(a.GetInts()) > 0 {
							name += " gelu"
						}
					case a.GetI() != 0:
						name += " of heads"
					}
				}
			}
		}
		if len(n.Input) > 2 && strings.HasPrefix(n.Input[1], "graft_range") {
			name += " in a known range"
		}
		list = append(list, name)
	}
	return strings.Join(list, ", ")
}

// TestQuantizedMatmuls: those of one x are one operator, which rounds x where nothing else reads its integers, and
// reads and writes heads where rows are only told apart.
func TestQuantizedMatmuls(t *testing.T) {
	qkv := roundX + matmulOf("q", "x", "16") + matmulOf("k", "x", "16") + matmulOf("v", "x", "16")
	for _, c := range []struct{ name, text, want string }{
		{"attention of an encoder", encoderEnds + qkv + attend + matmulOf("y", "c", "16"),
			"QuantizedLinear(15)->3[1 2 1], MatMul, Softmax, MatMul, QuantizedLinear(7)->1[0 0 0] of heads"},
		{"one matmul", encoderEnds + roundX + matmulOf("y", "x", "16"), "QuantizedLinear(7)->1[0 0 0]"},
		{"the integers are read elsewhere",
			encoderEnds + "\n\tout z u8[b, n, 16]" + roundX + matmulOf("y", "x", "16") + "\n\tz = Identity(xq)",
			"DynamicQuantizeLinear, Identity, QuantizedLinear(7)->1"},
		{"the scale is handed out", encoderEnds + "\n\tout xs f32[]" + roundX + matmulOf("y", "x", "16"),
			"DynamicQuantizeLinear, QuantizedLinear(7)->1"},
		{"rows of queries are read elsewhere",
			encoderEnds + "\n\tout z f32[b, n, 16]" + qkv + attend + matmulOf("y", "c", "16") + "\n\tz = Neg(q)",
			"QuantizedLinear(15)->3[0 2 1], Reshape, Transpose, MatMul, Softmax, MatMul, QuantizedLinear(7)->1[0 0 0] of " +
				"heads, Neg"},
		{"joined heads are read elsewhere",
			encoderEnds + "\n\tout z f32[b, n, 16]" + qkv + attend + matmulOf("y", "c", "16") + "\n\tz = Neg(c3)",
			"QuantizedLinear(15)->3[1 2 1], MatMul, Softmax, MatMul, Transpose, Reshape, Neg, QuantizedLinear(7)->1[0 0 0]"},
		{"four matmuls of one x",
			encoderEnds + roundX + matmulOf("q", "x", "16") + matmulOf("k", "x", "16") + matmulOf("v", "x", "16") +
				matmulOf("u", "x", "16") +
				"\n\tqk = Add(q, k)\n\tvu = Add(v, u)\n\ty = Add(qk, vu)",
			"DynamicQuantizeLinear, QuantizedLinear(7)->1, QuantizedLinear(15)->3[0 0 0], Add, Add, Add"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := apply(t, blockstest.Proto(t, c.text), plan.Options{Fusions: func() ([]plan.Fusion, error) { return nil, nil }},
				quantizedLinear(t))
			got, want := strings.Split(summary(m), ", "), strings.Split(c.want, ", ")
			slices.Sort(got) // of what does not depend on each other the order is free
			slices.Sort(want)
			must.Equal(t, got, want, summary(m), c.want)
		})
	}
}

// TestFusedNormalisation: where ONNX Runtime makes one node of a sum and its normalisation, that node stands in the
// rewritten graph, since it does not know there that the summands have one shape.
func TestFusedNormalisation(t *testing.T) {
	text := encoderEnds + `
	const g f32[16]
	const h f32[16]` + roundX + matmulOf("r", "x", "16") + `
	sum = Add(r, x)
	y = LayerNormalization(sum, g, h)`
	for _, c := range []struct {
		name    string
		fusions []plan.Fusion
		want    string
	}{
		{"fused", []plan.Fusion{{Sum: [2]string{"r", "x"}, Scale: "g", Bias: "h", Output: "y", Epsilon: 1e-5}},
			"QuantizedLinear(7)->1[0 0 0], SkipLayerNormalization"},
		{"not fused", nil, "QuantizedLinear(7)->1[0 0 0], Add, LayerNormalization"},
	} {
		m := apply(t, blockstest.Proto(t, text),
			plan.Options{Fusions: func() ([]plan.Fusion, error) { return c.fusions, nil }}, quantizedLinear(t))
		must.Equal(t, summary(m), c.want, c.name)
	}
}

// TestTakenIn: a GELU, a normalised sum and attention between matmuls of integers are part of an operator where ONNX
// Runtime has a node for each, and nothing else reads what is between.
func TestTakenIn(t *testing.T) {
	const norm = `
	const g f32[16]
	const h f32[16]
	const two f32[]
	const root f32[]`
	const gelu = `
	d = Div(u, root)
	e = Erf(d)
	o = Add(e, root)
	w = Mul(u, o)
	y = Mul(w, two)`
	summed := encoderEnds + norm + roundX + matmulOf("r", "x", "16") +
		"\n\tsum = Add(r, x)\n\ty = LayerNormalization(sum, g, h)"
	apart := plan.Fusion{Sum: [2]string{"r", "x"}, Scale: "g", Bias: "h", Output: "y", Epsilon: 1e-5, Apart: true}
	attention := encoderEnds + roundX + matmulOf("q", "x", "16") + matmulOf("k", "x", "16") + matmulOf("v", "x", "16") +
		attend + matmulOf("y", "c", "16")
	attended := plan.Fusion{Attention: &plan.FusedAttention{Query: "qh", Key: "kh", Value: "vh", Scale: 1}, Output: "c"}
	for _, c := range []struct {
		name, text string
		fusion     plan.Fusion
		want       string
	}{
		{"GELU", encoderEnds + norm + roundX + matmulOf("u", "x", "16") + gelu, plan.Fusion{Gelu: "u", Output: "y"},
			"QuantizedLinear(7)->1[0 0 0] gelu"},
		{"GELU of rows that are read elsewhere",
			encoderEnds + "\n\tout z f32[b, n, 16]" + norm + roundX + matmulOf("u", "x", "16") + gelu + "\n\tz = Neg(u)",
			plan.Fusion{Gelu: "u", Output: "y"}, "QuantizedLinear(7)->1[0 0 0], Div, Erf, Add, Mul, Mul, Neg"},
		{"GELU of columns that are no whole vectors",
			strings.ReplaceAll(encoderEnds, "out y f32[b, n, 16]", "out y f32[b, n, 8]") + norm + roundX +
				matmulOf("u", "x", "8") + gelu, plan.Fusion{Gelu: "u", Output: "y"},
			"QuantizedLinear(7)->1[0 0 0], Div, Erf, Add, Mul, Mul"},
		{"a normalised sum", summed, apart, "QuantizedLinear(18)->1[0 0 0]"},
		{"a normalised sum that a matmul rounds",
			strings.ReplaceAll(summed, "y = Layer", "u = Layer") + "\n\tuq, us, uz = DynamicQuantizeLinear(u)" +
				matmulOf("y", "u", "16"),
			plan.Fusion{Sum: apart.Sum, Scale: "g", Bias: "h", Output: "u", Apart: true},
			"QuantizedLinear(18)->4[0 0 0], QuantizedLinear(7)->1[0 0 0] in a known range"},
		{"a normalised sum of two matmuls of one x",
			encoderEnds + "\n\tout z f32[b, n, 16]" + norm + roundX + matmulOf("r", "x", "16") + matmulOf("z", "x", "16") +
				"\n\tsum = Add(r, x)\n\ty = LayerNormalization(sum, g, h)", apart,
			"QuantizedLinear(11)->2[0 0 0], Add, LayerNormalization"},
		{"a normalised sum that is read elsewhere",
			strings.ReplaceAll(summed, "const g", "out z f32[b, n, 16]\n\tconst g") + "\n\tz = Neg(r)", apart,
			"QuantizedLinear(7)->1[0 0 0], Add, LayerNormalization, Neg"},
		{"attention", attention, attended,
			"QuantizedLinear(15)->3[1 2 1], NodewiseAttention(3)->1, QuantizedLinear(7)->1[0 0 0] of heads"},
		{"attention of heads that are summed up in parts",
			strings.NewReplacer("4,4]", "4,256]", "[0,0,16]", "[0,0,1024]").Replace(encoderEnds + roundX +
				matmulOf("q", "x", "1024") + matmulOf("k", "x", "1024") + matmulOf("v", "x", "1024") + attend +
				strings.ReplaceAll(matmulOf("y", "c", "16"), "i8[16,", "i8[1024,")),
			attended, "QuantizedLinear(15)->3[1 2 1], MatMul, Softmax, MatMul, QuantizedLinear(7)->1[0 0 0] of heads"},
		{"attention of values that the model does not have", attention,
			plan.Fusion{Attention: &plan.FusedAttention{Query: "qh", Key: "kh", Value: "w"}, Output: "c"},
			"QuantizedLinear(15)->3[1 2 1], MatMul, Softmax, MatMul, QuantizedLinear(7)->1[0 0 0] of heads"},
		{"attention with a mask of another rank", strings.ReplaceAll(attention, "in x", "in m f32[n]\n\tin x"),
			plan.Fusion{Attention: &plan.FusedAttention{Query: "qh", Key: "kh", Value: "vh", Mask: "m"}, Output: "c"},
			"QuantizedLinear(15)->3[1 2 1], MatMul, Softmax, MatMul, QuantizedLinear(7)->1[0 0 0] of heads"},
	} {
		m := apply(t, blockstest.Proto(t, c.text),
			plan.Options{Fusions: func() ([]plan.Fusion, error) { return []plan.Fusion{c.fusion}, nil }}, quantizedLinear(t))
		got, want := strings.Split(summary(m), ", "), strings.Split(c.want, ", ")
		slices.Sort(got)
		slices.Sort(want)
		must.Equal(t, got, want, c.name, summary(m), c.want)
	}
}
