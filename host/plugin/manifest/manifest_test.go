package manifest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/opgraft/graft/host/plugin/pattern"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/internal/must"
)

func TestRead(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, FileName)
	must.Succeed(t, os.WriteFile(path, []byte(plugintest.Head+plugintest.Variants+geluOperator), 0o644))
	m := must.Value(Read(folder))(t)
	number := func(v float64) *float64 { return &v }
	want := &Manifest{
		SchemaVersion: 1, Name: "toy", Version: "0.1.0", ABI: ABIVersion{1, 0}, License: "Apache-2.0", Summary: "a toy",
		Variants: []Variant{{Device: "cpu", OS: "linux", Arch: "amd64", File: "libtoy.so"}},
		Operators: []Operator{{
			Name: "FusedGelu",
			Replaces: Replaces{Pattern: &Pattern{
				Inputs: []string{"x"}, Outputs: []string{"y"},
				Parts: []pattern.Part{ // sorted: the Mul that the file has first comes last
					{Node: &pattern.Node{Op: "Div", In: []string{"x", "c1"}, Out: []string{"a"}}},
					{Node: &pattern.Node{Op: "Erf", In: []string{"a"}, Out: []string{"b"}}},
					{Node: &pattern.Node{Op: "Add", In: []string{"b", "one"}, Out: []string{"c"}}},
					{Node: &pattern.Node{Op: "Mul", In: []string{"x", "c"}, Out: []string{"d"}}},
					{Node: &pattern.Node{Op: "Mul", In: []string{"d", "half"}, Out: []string{"y"}}},
				},
				Constants: []pattern.Constant{
					{Name: "c1", Value: number(1.41421356), Tolerance: 1e-3, Rank: -1},
					{Name: "half", Value: number(0.5), Tolerance: 1e-6, Rank: -1},
					{Name: "one", Value: number(1), Tolerance: 1e-6, Rank: -1},
				},
			}},
			Where: Where{
				{Fact: "dtype", OneOf: []any{"float32", "float16"}},
				{Fact: "rank", Min: number(1)},
				{Fact: "static", OneOf: []any{true}},
			},
			With: Withs{{Nodes: []WithNode{{Op: "FusedGelu", Domain: Domain, In: []string{"x"}, Out: []string{"y"}}}}},
			Cost: Cost{Bandwidth: 0.9, FLOPS: 0.7, OverheadUS: 6},
		}},
	}
	ignore := cmp.Options{cmpopts.IgnoreUnexported(Manifest{}, Variant{}, Operator{}, With{}, WithNode{}, Constraint{}),
		cmpopts.IgnoreFields(pattern.Part{}, "Line"), cmpopts.IgnoreFields(pattern.Node{}, "Line"),
		cmpopts.IgnoreFields(pattern.Constant{}, "Line")}
	must.Equal(t, cmp.Diff(want, m, ignore), "")
	must.Equal(t, m.path, path)
}

func TestReadFoldAndCaptures(t *testing.T) {
	m := must.Value(Parse("p", []byte(plugintest.Head+plugintest.Variants+`operators:
  - name: LowRank
    replaces:
      pattern:
        inputs: [x]
        outputs: [y]
        nodes: [{op: Gemm, in: [x, w, ""], out: [y], attributes: {transB: 1, alpha: "?alpha"}}]
        constants: {w: {any: true, rank: 2}}
    with:
      fold: [u, v]
      nodes:
        - {op: Scale, domain: graft, in: [h], out: [y], attributes: {by: "?alpha", axes: [0, 1], scales: [1, 0.5]}}
        - {op: MatMul, domain: ai.onnx, in: [x, u], out: [g]}
        - {op: MatMul, in: [g, v], out: [h]}
    cost: {bandwidth: 1, flops: 1, overhead_us: 0}
  - name: Scale
    replaces: {block: attention}
    cost: {bandwidth: 1, flops: 1, overhead_us: 0}
`)))(t)
	with := m.Operators[0].With
	want := Withs{{
		Fold: []string{"u", "v"},
		Nodes: []WithNode{
			{Op: "MatMul", In: []string{"x", "u"}, Out: []string{"g"}},
			{Op: "MatMul", In: []string{"g", "v"}, Out: []string{"h"}},
			{Op: "Scale", Domain: "graft", In: []string{"h"}, Out: []string{"y"}, Attributes: []Attribute{
				{Name: "by", Value: Capture("alpha")}, {Name: "axes", Value: []int64{0, 1}},
				{Name: "scales", Value: []float64{1, 0.5}},
			}},
		},
	}}
	must.Equal(t, cmp.Diff(want, with, cmpopts.IgnoreUnexported(With{}, WithNode{})), "")
}

// TestOperatorAlone reads an operator that replaces nothing, with a case of its own.
func TestOperatorAlone(t *testing.T) {
	m := must.Value(Parse("p", []byte(plugintest.Head+plugintest.Variants+"operators: [{name: A}]\ncases: [{name: c, "+
		"operator: A, inputs: {}, expect: {values: {y: [1]}}, tolerance: {absolute: 0}}]\n")))(t)
	if op := m.Operators[0]; op.Name != "A" || op.Replaces.Block != "" || op.Replaces.Pattern != nil || op.With != nil ||
		len(m.Cases) != 1 {
		t.Errorf("found %+v with %d cases, want an operator that replaces nothing with one case", op, len(m.Cases))
	}
}

func TestManifestErrors(t *testing.T) {
	const block = "operators:\n  - name: A\n    replaces: {block: attention}\n    cost: {bandwidth: 1, flops: 1, " +
		"overhead_us: 0}\n"
	pattern := func(lines string) string {
		return plugintest.Head + plugintest.Variants +
			"operators:\n  - name: A\n    cost: {bandwidth: 1, flops: 1, overhead_us: 0}\n    replaces:\n      pattern:\n" +
			lines
	}
	for _, test := range []struct{ name, text, want string }{
		{"empty", "", `p:1: found an empty file, needed a plugin manifest that begins with schema_version: 1`},
		{"not YAML", "a: [", `p: not YAML: line 1: did not find expected node content`},
		{"a list", "- 1\n", `p:1: the manifest is a list, needed a mapping (name: value)`},
		{"no schema", "name: x\n", `p:1: schema_version is missing; add schema_version: 1`},
		{"a later schema", "schema_version: 2\n", `p:1: schema_version is 2, needed 1; install a graft that reads it`},
		{"two documents", plugintest.Head + plugintest.Variants + block + "---\na: 1\n",
			`p:1: found more than one YAML document, needed one; remove what follows the second ---`},
		{"unknown field", plugintest.Head + plugintest.Variants + block + "licence: MIT\n",
			`p:13: unknown field "licence" in the manifest (did you mean "license"?); known fields: schema_version, name, version, abi, license, summary, homepage, variants, operators, cases`},
		{"twice", plugintest.Head + plugintest.Variants + block + "name: b\n",
			`p:13: field "name" of the manifest stands twice (first on line 2); remove one`},
		{"anchor", plugintest.Head + "variants: &a []\noperators: *a\n",
			`p:7: variants uses a YAML anchor or alias; write the value out
p:8: operators uses a YAML anchor or alias; write the value out`},
		{"tag", plugintest.Head + "homepage: !!binary aGk=\n" + plugintest.Variants + block,
			`p:7: homepage carries the YAML tag !!binary; remove it`},
		{"unquoted ABI", strings.Replace(plugintest.Head, `"1.0"`, "1.0", 1) + plugintest.Variants + block,
			`p:4: abi is the number 1.0, needed text; write "1.0" in quotes`},
		{"bad ABI", strings.Replace(plugintest.Head, `"1.0"`, `"one"`, 1) + plugintest.Variants + block,
			`p:4: abi: found ABI version "one", needed major.minor such as "1.0"`},
		{"bad name", strings.Replace(plugintest.Head, "toy", "../x", 1) + plugintest.Variants + block,
			`p:2: name is "../x", needed 1 to 64 of a-z, 0-9 and -, not beginning with -`},
		{"bad version", strings.Replace(plugintest.Head, "0.1.0", "v1", 1) + plugintest.Variants + block,
			`p:3: version is "v1", needed a semantic version such as 1.2.3`},
		{"missing", "schema_version: 1\n", `p:1: name is missing; add it
p:1: version is missing; add it
p:1: abi is missing; add it
p:1: license is missing; add it
p:1: summary is missing; add it
p:1: variants is missing; add it
p:1: operators is missing; add it`},
		{"empty summary", strings.Replace(plugintest.Head, "a toy", `" "`, 1) + plugintest.Variants + block,
			`p:6: summary is empty; fill it in`},
		{"no variant", plugintest.Head + "variants: []\n" + block, `p:7: variants is empty, needed at least one library`},
		{"no operator", plugintest.Head + plugintest.Variants + "operators: []\n",
			`p:9: operators is empty, needed at least one`},
		{"foreign arch", plugintest.Head + "variants: [{device: cpu, os: linux, arch: x86_64, file: a.so}]\n" + block,
			`p:7: variants[0].arch is "x86_64", needed amd64 (the name of Go's GOARCH)`},
		{"bad device", plugintest.Head + "variants: [{device: gpu, os: linux, arch: amd64, file: a.so}]\n" + block,
			`p:7: variants[0].device is "gpu", needed one of cpu, cuda`},
		{"file in a folder", plugintest.Head + "variants: [{device: cpu, os: linux, arch: amd64, file: ../a.so}]\n" + block,
			`p:7: variants[0].file is "../a.so", needed the plain name of a file beside plugin.yaml, without folders`},
		{"repeated variant", plugintest.Head + plugintest.Variants +
			"  - {device: cpu, os: linux, arch: amd64, file: b.so}\n" + block,
			`p:9: variants[1] repeats cpu on linux/amd64 of line 8; keep one (instruction sets are chosen inside the library)`},
		{"bad block", plugintest.Head + plugintest.Variants + strings.Replace(block, "attention", "atention", 1),
			`p:11: operator A: replaces.block is "atention", needed one of attention (did you mean "attention"?)`},
		{"block with with", plugintest.Head + plugintest.Variants + block + "    with: {nodes: []}\n",
			`p:13: operator A: with stands beside replaces.block, whose replacement the host writes; remove with`},
		{"where of nothing", plugintest.Head + plugintest.Variants +
			strings.Replace(block, "    replaces: {block: attention}\n", "    where: {rank: 2}\n", 1),
			`p:11: operators[0].where stands without replaces, which it is about; add replaces or remove it`},
		{"KV cache and replaces", plugintest.Head + plugintest.Variants + block + "    kv_cache: {strategy: keys}\n",
			`p:13: operator A both replaces a block and attends over the host's KV cache, needed one; make two operators of it`},
		{"strategy of its own without inputs",
			plugintest.Head + plugintest.Variants +
				strings.Replace(block, "    replaces: {block: attention}\n", "    kv_cache: {strategy: key}\n", 1),
			`p:11: operator A: kv_cache.inputs is missing, which the strategy key needs: it is none of keys_values, prompt_hidden_states, keys, hidden_states; add it`},
		{"standard strategy with a slot",
			plugintest.Head + plugintest.Variants +
				strings.Replace(block, "    replaces: {block: attention}\n", "    kv_cache: {strategy: keys, slot: width}\n", 1),
			`p:11: operator A: kv_cache.slot stands beside the standard strategy keys, which abi/README.md defines; remove it or give the strategy a name of its own`},
		{"name of a strategy", plugintest.Head + plugintest.Variants +
			strings.Replace(block, "    replaces: {block: attention}\n",
				"    kv_cache: {strategy: Mine, inputs: keys, slot: width}\n", 1),
			`p:11: operator A: kv_cache.strategy is "Mine", needed lower-case letters, digits and _`},
		{"inputs of a strategy", plugintest.Head + plugintest.Variants +
			strings.Replace(block, "    replaces: {block: attention}\n",
				"    kv_cache: {strategy: mine, inputs: first_layer_keys, slot: width}\n", 1),
			`p:11: operator A: kv_cache.inputs is "first_layer_keys", needed one of keys_values, keys, hidden_states`},
		{"formula of a slot", plugintest.Head + plugintest.Variants +
			strings.Replace(block, "    replaces: {block: attention}\n",
				"    kv_cache: {strategy: mine, inputs: keys, slot: 2 * depth}\n", 1),
			`p:11: operator A: kv_cache.slot names depth, needed is one of heads, kv_heads, head_size, value_size, width`},
		{"store that is not there",
			plugintest.Head + plugintest.Variants +
				strings.Replace(block, "    replaces: {block: attention}\n",
					"    kv_cache: {strategy: mine, inputs: keys, slot: width, store: B}\n", 1),
			`p:11: operator A: kv_cache.store is B, which this manifest does not list; add it under operators`},
		{"neither", plugintest.Head + plugintest.Variants + strings.Replace(block, "block: attention", "", 1),
			`p:11: operator A: replaces is empty, needed block or pattern`},
		{"share", plugintest.Head + plugintest.Variants + strings.Replace(block, "flops: 1", "flops: 1.5", 1),
			`p:12: operator A: cost.flops is 1.5, needed a share of the machine's limit above 0 and at most 1`},
		{"min above max", plugintest.Head + plugintest.Variants + block + "    where: {head_size: {min: 8, max: 4}}\n",
			`p:13: operator A: where.head_size has min 8 above max 4, which nothing satisfies; exchange them`},
		{"empty list", plugintest.Head + plugintest.Variants + block + "    where: {dtype: []}\n",
			`p:13: operator A: where.dtype is an empty list, which nothing satisfies; list the allowed values`},
		{"unknown bound", plugintest.Head + plugintest.Variants + block + "    where: {rank: {most: 4}}\n",
			`p:13: unknown field "most" in operator A: where.rank; known fields: min, max
p:13: operator A: where.rank has neither min nor max; give at least one`},
		{"nested fact", plugintest.Head + plugintest.Variants + block + "    where: {rank: [[1]]}\n",
			`p:13: operator A: where.rank is a list, needed text, a number, true or false`},

		{"undefined value", pattern("        {inputs: [x], outputs: [y], nodes: [{op: Erf, in: [xx], out: [y]}]}\n"),
			`p:14: operator A: pattern: node Erf uses xx, which is no input, constant or output of a node; define it`},
		{"unmade output", pattern("        {inputs: [x], outputs: [z], nodes: [{op: Erf, in: [x], out: [y]}]}\n"),
			`p:14: operator A: pattern: output z is made by no node; let a node have it as an output
p:14: operator A: pattern: value y is an output of nodes[0] (Erf) but nothing uses it; remove it or make it an output`},
		{"unused input", pattern("        {inputs: [x, w], outputs: [y], nodes: [{op: Erf, in: [x], out: [y]}]}\n"),
			`p:14: operator A: pattern: value w is an input but nothing uses it; remove it or make it an output`},
		{"defined twice", pattern("        {inputs: [x], outputs: [y], nodes: [{op: Erf, in: [x], out: [y]}, {op: Tanh, " +
			"in: [x], out: [y]}]}\n"),
			`p:14: operator A: pattern: value y is an output of nodes[1] (Tanh), but already an output of nodes[0] (Erf) on line 14; rename one`},
		{"cycle", pattern("        {inputs: [x], outputs: [y], nodes: [{op: Add, in: [x, b], out: [a]}, {op: Erf, in: " +
			"[a], out: [b]}, {op: Erf, in: [b], out: [y]}]}\n"),
			`p:14: operator A: pattern: node Add depends on its own output; break the cycle`},
		{"two parts", pattern("        {inputs: [x, w], outputs: [y, z], nodes: [{op: Erf, in: [x], out: [y]}, {op: Erf, " +
			"in: [w], out: [z]}]}\n"),
			`p:14: operator A: pattern: the nodes fall into parts that share no value; make an operator of each part`},
		{"constant of both kinds", pattern("        {inputs: [x], outputs: [y], nodes: [{op: Mul, in: [x, c], out: [y]}], " +
			"constants: {c: {any: true, value: 1}}}\n"),
			`p:14: operator A: pattern.constants.c has both value and any, needed one`},
		{"nothing to fold", pattern("        {inputs: [x], outputs: [y], nodes: [{op: Erf, in: [x], out: [y]}]}\n") +
			"    with: {fold: [u], nodes: [{op: MatMul, in: [x, u], out: [y]}]}\n",
			`p:15: operator A: with.fold has nothing to fold: the pattern has no constant with any: true; add one`},
		{"unknown operator of ours",
			pattern("        {inputs: [x], outputs: [y], nodes: [{op: Erf, in: [x], out: [y]}]}\n") +
				"    with: {nodes: [{op: B, domain: graft, in: [x], out: [y]}]}\n",
			`p:15: operator A: with: node B is of domain graft but this manifest has no such operator; add it or correct the name`},
		{"not captured", pattern("        {inputs: [x], outputs: [y], nodes: [{op: Erf, in: [x], out: [y]}]}\n") +
			"    with: {nodes: [{op: A, domain: graft, in: [x], out: [y], attributes: {by: \"?a\"}}]}\n",
			`p:15: operator A: with: attribute by uses ?a, which no node of the pattern captures; write by: "?a" there`},
		{"mixed attribute", pattern("        {inputs: [x], outputs: [y], nodes: [{op: Erf, in: [x], out: [y], attributes: " +
			"{a: [1, b]}}]}\n"),
			`p:14: operator A: pattern.nodes[0].attributes.a mixes numbers and text, needed one type`},

		{"case of no operator", plugintest.Head + plugintest.Variants + block +
			"cases: [{name: c, operator: B, inputs: {}, expect: {reference: attention}, tolerance: {absolute: 0}}]\n",
			`p:13: cases[0].operator is B, which this manifest does not have`},
		{"huge case", plugintest.Head + plugintest.Variants + block +
			"cases: [{name: c, operator: A, inputs: {q: {shape: [65536, 65536]}}, expect: {reference: attention}, tolerance: " +
			"{absolute: 0}}]\n",
			`p:13: cases[0].inputs.q.shape has more than 67108864 elements, needed a smaller case`},
		{"unknown reference", plugintest.Head + plugintest.Variants + block +
			"cases: [{name: c, operator: A, inputs: {}, expect: {reference: atention}, tolerance: {absolute: 0}}]\n",
			`p:13: cases[0].expect.reference is "atention", needed one of attention, cached-attention, linear (did you mean "attention"?)`},
		{"bad formula", plugintest.Head + plugintest.Variants + block +
			"cases: [{name: c, operator: A, inputs: {}, expect: {formula: {y: x + sinus(x)}}, tolerance: {absolute: 0}}]\n",
			`p:13: cases[0].expect.formula.y: found the function sinus at byte 5, needed one of abs, cos, erf, exp, log, max, min, sin, sqrt, tanh`},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Parse("p", []byte(test.text))
			if err == nil {
				t.Fatalf("no error, want %q", test.want)
			}
			must.Equal(t, err.Error(), test.want)
			must.Fail(t, err, refusal.ErrManifest)
		})
	}
}

func TestManifestProblemsAreBounded(t *testing.T) {
	text := plugintest.Head + plugintest.Variants
	for i := range 100 {
		text += fmt.Sprintf("field%d: 1\n", i)
	}
	_, err := Parse("p", []byte(text))
	if err == nil || strings.Count(err.Error(), "\n") != maxProblems-1 {
		t.Errorf("want %d lines, got %v", maxProblems, err)
	}
}

func TestReadMissing(t *testing.T) {
	folder := t.TempDir()
	_, err := Read(folder)
	want := folder + "/plugin.yaml: no such file, needed the manifest of a plugin; point at the folder that holds " +
		"plugin.yaml"
	must.FailExactly(t, err, want)
}

const geluOperator = `operators:
  - name: FusedGelu
    replaces:
      pattern:
        inputs: [x]
        outputs: [y]
        nodes:
          - {op: Mul, in: [d, half], out: [y]}
          - {op: Div, in: [x, c1], out: [a]}
          - {op: Erf, in: [a], out: [b]}
          - {op: Add, in: [b, one], out: [c]}
          - {op: Mul, in: [x, c], out: [d]}
        constants: {c1: {value: 1.41421356, tolerance: 1e-3}, half: {value: 0.5}, one: {value: 1}}
    where:
      dtype: [float32, float16]
      rank: {min: 1}
      static: true
    cost: {bandwidth: 0.9, flops: 0.7, overhead_us: 6}
`
