package verification

import (
	"strings"
	"testing"

	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/signature"
)

// TestDeclared: what a manifest says of operators, attributes and facts that there are none of is refused where a
// plugin is verified.
func TestDeclared(t *testing.T) {
	library := []signature.Operator{{
		Name:       "Norm",
		Inputs:     []signature.Parameter{{Name: "x"}, {Name: "scale"}, {Name: "bias", Optional: true}},
		Outputs:    []signature.Parameter{{Name: "y"}, {Name: "mean", Optional: true}},
		Attributes: []signature.Attribute{{Name: "epsilon", Kind: "float"}, {Name: "axis", Kind: "int", Required: true}},
	}}
	const pattern = "{inputs: [x, g], outputs: [y], nodes: [{op: LayerNormalization, in: [x, g], out: [y], attributes: " +
		"{axis: -1, epsilon: \"?eps\"}}]}"
	block := func(where string) string { return "replaces: {block: attention}\n    where: {" + where + "}" }
	with := func(node string) string {
		return "replaces:\n      pattern: " + pattern + "\n    with: {nodes: [" + node + "]}"
	}
	for _, c := range []struct{ name, operator, want string }{
		{"all is there", with(`{op: Norm, domain: graft, in: [x, g], out: [y], attributes: {axis: -1, epsilon: "?eps"}}`) +
			"\n    where: {dtype: float32, x_rank: 3, g_dim0: 64, eps: {max: 1}}", ""},
		{"a whole number for another",
			with("{op: Norm, domain: graft, in: [x, g], out: [y], attributes: {axis: -1, epsilon: 1}}"), ""},
		{"an attribute that it has not",
			with("{op: Norm, domain: graft, in: [x, g], out: [y], attributes: {axis: -1, epsilom: 1}}"),
			"operator Norm: with: Norm has no attribute epsilom, did you mean epsilon?"},
		{"an attribute of another kind", with("{op: Norm, domain: graft, in: [x, g], out: [y], attributes: {axis: 1.5}}"),
			"attribute axis of Norm is 1.5, needed is int"},
		{"an attribute too few", with("{op: Norm, domain: graft, in: [x, g], out: [y]}"), "Norm needs the attribute axis"},
		{"an input too few", with("{op: Norm, domain: graft, in: [x], out: [y], attributes: {axis: 1}}"),
			"Norm is given 1 inputs, needed are 2 to 3"},
		{"an input too many", with("{op: Norm, domain: graft, in: [x, g, g, g], out: [y], attributes: {axis: 1}}"),
			"Norm is given 4 inputs, needed are 2 to 3"},
		{"an operator that ONNX has not", with("{op: Reluh, in: [x], out: [y]}"),
			"ONNX has no operator Reluh, did you mean Relu?"},
		{"a pattern of one", "replaces: {pattern: {inputs: [x], outputs: [y], nodes: [{op: Geluu, in: [x], out: [y]}]}}\n " +
			"   with: {nodes: [{op: Relu, in: [x], out: [y]}]}", "pattern: ONNX has no operator Geluu, did you mean Gelu?"},
		{"an attribute that ONNX has not",
			"replaces: {pattern: {inputs: [x], outputs: [y], nodes: [{op: Softmax, in: [x], out: [y], attributes: {axes: " +
				"1}}]}}\n    with: {nodes: [{op: Relu, in: [x], out: [y]}]}", "ONNX's Softmax has no attribute axes"},
		{"facts of blocks", block("mask: none, heads: 8, past_layout: bhsd"), ""},
		{"a fact that no block has", block("head: 8"), "where: no fact is called head, did you mean heads?"},
		{"a type that no element has", block("dtype: float"),
			"where: no element type is called float; there are float32, float64"},
		{"one of several types that no element has", block("dtype: [float32, flaot16]"),
			"where: no element type is called flaot16, did you mean float16?"},
		{"a fact that no match has",
			with(`{op: Norm, domain: graft, in: [x, g], out: [y], attributes: {axis: -1}}`) + "\n    where: {z_rank: 3}",
			"where: no fact is called z_rank"},
	} {
		m, err := manifest.Parse("plugin.yaml", []byte(`schema_version: 1
name: norm
version: 0.1.0
abi: "1.0"
license: Apache-2.0
summary: for a test
variants:
  - {device: cpu, os: linux, arch: amd64, file: libnorm.so}
operators:
  - name: Norm
    `+c.operator+`
    cost: {bandwidth: 0.9, flops: 0.7, overhead_us: 1}
`))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		err = declared(m, library, "cpu")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
