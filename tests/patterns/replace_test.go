package patterns

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
)

// TestReplacements: what stands in place of a form gives the answers of what stood there, outputs that nothing reads
// and values that stay included.
func TestReplacements(t *testing.T) {
	library := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	const softplus = `
pattern:
  inputs: [x]
  outputs: [y, "e?"]
  nodes: [{op: Exp, in: [x], out: [e]}, {op: Neg, in: [e], out: [n]}, {op: Softplus, in: [n], out: [y]}]
  recompute: [n]`
	const softplusWith = `
with: {nodes: [{op: Exp, in: [x], out: [e]}, {op: Identity, in: [e], out: [again]}, {op: Neg, in: [again], out: [m]}, {op: Softplus, in: [m], out: [y]}]}`
	const chain = `
pattern:
  inputs: [x, term]
  outputs: [y]
  nodes:
    - repeat: {min: 0, max: 3, from: x, to: sum, each: [term], nodes: [{op: Add, in: [x, term], out: [sum]}]}
    - {op: Relu, in: [sum], out: [y]}
  shapes: {x: [..., h], term: [..., h]}`
	const chainWith = `
with: {nodes: [{op: Sum, in: [x, term...], out: [s]}, {op: Relu, in: [s], out: [y]}]}`
	const clip = `
pattern:
  inputs: [x]
  outputs: [y]
  nodes:
    - {op: LeakyRelu, in: [x], out: [r], attributes: {alpha: "?alpha"}, optional: true}
    - {op: Clip, in: [r, low, "high?"], out: [y]}
  constants: {low: {any: true}, high: {any: true}}`
	const clipWith = `
with:
  - {if: [r, high], unless: x, nodes: [{op: Relu, in: [x], out: [y]}]}
  - {if: high, nodes: [{op: LeakyRelu, in: [x], out: [a], attributes: {alpha: "?alpha"}}, {op: Max, in: [a, low], out: [b]}, {op: Min, in: [b, high], out: [y]}]}
  - {nodes: [{op: LeakyRelu, in: [x], out: [a], attributes: {alpha: "?alpha"}}, {op: Max, in: [a, low], out: [y]}]}`
	const lastTwo = `
pattern:
  inputs: [x]
  outputs: [y, z]
  nodes: [{op: Exp, in: [x], out: [e]}, {op: Neg, in: [e], out: [y]}, {op: Sqrt, in: [e], out: [z]}]
with: {nodes: [{op: Exp, in: [x], out: [f]}, {op: Sqrt, in: [f], out: [z]}, {op: Neg, in: [f], out: [y]}]}`
	for _, c := range []struct {
		name, operator, graph string
		replaced              int
		holds, lacks          string // operators of the patched graph
	}{
		{"nothing of it is read", softplus + softplusWith,
			"g (float[2, 4] x) => (float[2, 4] y) { e = Exp (x) n = Neg (e) y = Softplus (n) }", 1, "Identity", ""},
		{"an output is read", softplus + softplusWith,
			"g (float[2, 4] x) => (float[2, 4] y, float[2, 4] e) { e = Exp (x) n = Neg (e) y = Softplus (n) }", 1, "Identity",
			""},
		{"an inner value stays", softplus + softplusWith,
			"g (float[2, 4] x) => (float[2, 4] y, float[2, 4] z) { e = Exp (x) n = Neg (e) y = Softplus (n) z = Abs (n) }", 1,
			"Identity Abs", ""},
		{"all is read", softplus + softplusWith,
			"g (float[2, 4] x) => (float[2, 4] y, float[2, 4] n, float[2, 4] e) { e = Exp (x) n = Neg (e) y = Softplus (n) }", 1,
			"Identity", ""},
		{"three terms", chain + chainWith,
			"g (float[2, 4] a, float[2, 4] b, float[2, 4] c, float[2, 4] d) => (float[2, 4] y) { s = Add (a, b) t = Add (c, " +
				"s) u = Add (t, d) y = Relu (u) }", 1, "Sum", "Add"},
		{"four terms, of which three are taken", chain + chainWith,
			"g (float[2, 4] a, float[2, 4] b) => (float[2, 4] y) { s = Add (a, b) t = Add (a, s) u = Add (t, b) v = Add (u, " +
				"b) y = Relu (v) }", 1, "Sum Add", ""},
		{"no term", chain + chainWith, "g (float[2, 4] a) => (float[2, 4] y) { y = Relu (a) }", 1, "Sum", "Add"},
		{"one term behind detours", chain + chainWith,
			"g (float[2, 4] a, float[2, 4] b) => (float[2, 4] y) { c = Identity (b) d = Transpose (c) e = Transpose (d) s = " +
				"Add (e, a) f = Identity (s) y = Relu (f) }", 1, "Sum", "Add Transpose"},
		{"both bounds", clip + clipWith,
			"g (float[2, 4] x) => (float[2, 4] y) <float l = {-0.1}, float h = {0.2}> { r = LeakyRelu <alpha = 0.3> (x) y = " +
				"Clip (r, l, h) }", 1, "Max Min", "Clip"},
		{"one bound", clip + clipWith,
			"g (float[2, 4] x) => (float[2, 4] y) <float l = {-0.1}> { r = LeakyRelu <alpha = 0.3> (x) y = Clip (r, l) }", 1,
			"Max", "Clip Min"},
		{"several outputs", lastTwo, "g (float[2, 4] x) => (float[2, 4] y, float[2, 4] w) { e = Exp (x) y = Neg (e) z = " +
			"Sqrt (e) w = Abs (z) }", 1, "Abs", ""},
		{"an output that the other is made of", lastTwo,
			"g (float[2, 4] x) => (float[2, 4] w) { e = Exp (x) y = Neg (e) z = Sqrt (e) w = Add (y, z) }", 1, "Add", ""},
		{"inside a branch", lastTwo,
			`g (float[2, 4] x, bool c) => (float[2, 4] w) { w = If (c) <then_branch = t () => (float[2, 4] p) { e = Exp (x) y = Neg (e) z = Sqrt (e) p = Add (y, z) },
			else_branch = f () => (float[2, 4] q) { q = Identity (x) }> }`, 1, "If", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			operator := c.operator
			if strings.HasPrefix(operator, "\nwith") {
				t.Fatal("no pattern")
			}
			pattern, with, _ := strings.Cut(strings.TrimPrefix(operator, "\n"), "\nwith:")
			m, err := manifest.Parse("case", []byte(before+indented(pattern, "      ")+indented("with:"+with, "    ")))
			if strings.Contains(operator, "unless: x") {
				// A replacement that no form takes is said to be a mistake; without it the operator is as it should be.
				must.Fail(t, err, "is for no form of the pattern")
				lines := strings.Split(with, "\n")
				m, err = manifest.Parse("case",
					[]byte(before+indented(pattern, "      ")+indented("with:\n"+strings.Join(lines[2:], "\n"), "    ")))
			}
			must.Succeed(t, err)
			_, source := parsed(t, c.graph)
			paths := [2]string{filepath.Join(t.TempDir(), "a.onnx"), filepath.Join(t.TempDir(), "b.onnx")}
			p := source.Proto()
			must.Succeed(t, source.Write(context.Background(), p, paths[0], model.WriteOptions{}))
			if got := replace(t, m, p, source); got != c.replaced {
				t.Fatalf("%d replaced, want %d", got, c.replaced)
			}
			must.Succeed(t, source.Write(context.Background(), p, paths[1], model.WriteOptions{}))
			ops := map[string]bool{}
			for _, n := range p.Graph.Node {
				ops[n.GetOpType()] = true
			}
			for _, op := range strings.Fields(c.holds) {
				if !ops[op] {
					t.Errorf("no %s in the patched graph", op)
				}
			}
			for _, op := range strings.Fields(c.lacks) {
				if ops[op] {
					t.Errorf("%s is in the patched graph", op)
				}
			}
			r := must.Value(comparison.Answers(t.Context(), library, set, paths[0],
				comparison.Options{A: "none", B: "none", ModelB: paths[1], Inputs: inputs.Options{Seed: 1}}))(t)
			for _, out := range r.Parity.Outputs {
				if !out.OK {
					t.Errorf("%s: %s, %d differ, max %g", out.Name, out.Problem, out.Disagree, out.MaxAbsolute)
				}
			}
		})
	}
}

// TestFusedMatMul: packed-linear takes ONNX Runtime's fused product of rows and a constant where nothing but the weight
// is turned, and nothing scaled.
func TestFusedMatMul(t *testing.T) {
	library := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	i := slices.IndexFunc(set.Plugins, func(p *plugin.Plugin) bool { return p.Manifest.Name == "packed-linear" })
	const values = "w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}"
	const wide, tall = "float[3, 4] " + values, "float[4, 3] " + values
	for _, c := range []struct {
		attributes, weight, x string
		replaced              int
	}{
		{"", wide, "float[2, 5, 3] x", 1},
		{"<transB = 1>", tall, "float[2, 5, 3] x", 1},
		{"<alpha = 1.0, transA = 0, transB = 1>", tall, "float[5, 3] x", 1},
		{"<transB = 0>", wide, "float[3] x", 1},
		{"<alpha = 0.5>", wide, "float[2, 5, 3] x", 0},
		{"<transA = 1>", wide, "float[2, 3, 5] x", 0},
		{"<transBatchA = 1>", wide, "float[2, 5, 3] x", 0},
	} {
		text := fmt.Sprintf(`<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>
			g (%s) => (y) <%s> { y = com.microsoft.FusedMatMul %s (x, w) }`, c.x, c.weight, c.attributes)
		_, source := parsed(t, text)
		path, p := filepath.Join(t.TempDir(), "model.onnx"), source.Proto()
		must.Succeed(t, source.Write(t.Context(), p, path, model.WriteOptions{}))
		must.Equal(t, replace(t, set.Plugins[i].Manifest, p, source), c.replaced, text)
		if c.replaced == 0 {
			continue
		}
		r := must.Value(comparison.Answers(t.Context(), library, set, path,
			comparison.Options{A: "none", B: "packed-linear", Force: true,
				Inputs: inputs.Options{Seed: 1}}))(t)
		for _, out := range r.Parity.Outputs {
			if !out.OK {
				t.Errorf("%s: %s: %s, %d differ", text, out.Name, out.Problem, out.Disagree)
			}
		}
	}
}
