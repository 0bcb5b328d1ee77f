package manifest

import (
	"strings"
	"testing"

	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/internal/must"
)

// TestMistakesInPatterns: each mistake in a pattern has its line, what was found, what is needed, and the fix.
func TestMistakesInPatterns(t *testing.T) {
	many := ""
	for range 9 {
		many += ", {op: Neg, in: [x], out: [a], optional: true}"
	}
	for _, c := range []struct{ name, pattern, with, want string }{
		{"optional of two inputs", "{inputs: [x, z], outputs: [y], nodes: [{op: Add, in: [x, z], out: [s], optional: " +
			"true}, {op: Relu, in: [s], out: [y]}]}", "",
			"pattern.nodes[0].optional is true of a node with 2 inputs that are no constants, so that which of them stands " +
				"for its output is not known; name it, as in optional: x"},
		{"optional is another value", "{inputs: [x], outputs: [y], nodes: [{op: Neg, in: [x], out: [s], optional: y}, " +
			"{op: Relu, in: [s], out: [y]}]}", "",
			"pattern.nodes[0].optional is y, needed an input of the node: x"},
		{"optional of two outputs", "{inputs: [x], outputs: [y], nodes: [{op: Split, in: [x], out: [s, t], optional: x}, " +
			"{op: Add, in: [s, t], out: [y]}]}", "",
			"pattern.nodes[0].optional is of a node with 2 outputs, needed one; make a choice of it with any_of"},
		{"all optional", "{inputs: [x], outputs: [y], nodes: [{op: Neg, in: [x], out: [y], optional: true}]}", "",
			"pattern, in the form without Neg (line 14): there is no node, needed at least one in each form"},
		{"one alternative", "{inputs: [x], outputs: [y], nodes: [{any_of: [[{op: Neg, in: [x], out: [y]}]]}]}", "",
			"pattern.nodes[0].any_of has 1 alternatives, needed at least 2; write the nodes without any_of"},
		{"node without brackets", "{inputs: [x], outputs: [y], nodes: [{any_of: [{op: Neg, in: [x], out: [y]}, [{op: " +
			"Relu, in: [x], out: [y]}]]}]}", "",
			"pattern.nodes[0].any_of[0] is a node, needed a list of nodes; write it in brackets"},
		{"empty alternative", "{inputs: [x], outputs: [y], nodes: [{any_of: [[], [{op: Relu, in: [x], out: [y]}]]}]}", "",
			"pattern.nodes[0].any_of[0] is empty, needed nodes, or what its value is without any, as in {y: x}"},
		{"a value that is itself", "{inputs: [x], outputs: [y], nodes: [{any_of: [{a: b, b: a}, [{op: Relu, in: [x], out: " +
			"[y]}]]}]}", "",
			"pattern.nodes[0].any_of: a value is itself; name another"},
		{"an alternative without the value",
			"{inputs: [x], outputs: [y], nodes: [{any_of: [[{op: Neg, in: [x], out: [a]}], [{op: Abs, in: [x], out: [b]}]]}, " +
				"{op: Relu, in: [a], out: [y]}]}", "",
			"pattern, in the form alternative 2 of line 14: node Relu uses a, which is no input, constant or output of a " +
				"node; define it"},
		{"too many forms", "{inputs: [x], outputs: [y], nodes: [{op: Relu, in: [x], out: [y]}" + many + "]}", "",
			"pattern stands for more than 256 forms, needed fewer choices; make several operators of it"},
		{"too many nodes", "{inputs: [x], outputs: [y], nodes: [{repeat: {max: 200, from: x, to: y, nodes: [{op: Neg, in: " +
			"[x], out: [a]}, {op: Neg, in: [a], out: [y]}]}}]}", "",
			"pattern stands for more than 256 nodes in a form, or 256 forms, needed fewer repetitions or choices"},
		{"too deep", "{inputs: [x], outputs: [y], nodes: [" + strings.Repeat("{any_of: [[", 5) +
			"{op: Relu, in: [x], out: [y]}" + strings.Repeat("], {y: x}]}", 5) + "]}", "",
			"pattern.nodes[0].any_of[0][0].any_of[0][0].any_of[0][0].any_of[0][0]: choices and repetitions stand in each " +
				"other more than 4 deep; write them out"},
		{"repetition without an end", "{inputs: [x], outputs: [y], nodes: [{repeat: {from: x, to: y, nodes: [{op: Neg, " +
			"in: [x], out: [y]}]}}]}", "",
			"pattern.nodes[0].repeat.max is missing; add it"},
		{"repetition of what is not handed on",
			"{inputs: [x], outputs: [y], nodes: [{repeat: {max: 2, from: x, to: z, nodes: [{op: Neg, in: [x], out: [y]}]}}]}",
			"",
			`pattern.nodes[0].repeat.to is z, which none of its nodes makes; name what each repetition hands to the next`},
		{"repetition from nothing", "{inputs: [x], outputs: [y], nodes: [{repeat: {max: 2, from: w, to: y, nodes: [{op: " +
			"Neg, in: [x], out: [y]}]}}]}", "",
			"pattern.nodes[0].repeat.from is w, which none of its nodes reads; name what the first repetition reads"},
		{"each of an inner value", "{inputs: [x], outputs: [y], nodes: [{repeat: {max: 2, from: x, to: y, each: [y], " +
			"nodes: [{op: Neg, in: [x], out: [y]}]}}]}", "",
			"pattern.nodes[0].repeat.each names y, needed inputs or constants of the pattern"},
		{"commute of one", "{inputs: [x], outputs: [y], nodes: [{op: Neg, in: [x], out: [y], commute: true}]}", "",
			"pattern.nodes[0].commute is of a node with 1 inputs, needed two or more; remove it"},
		{"constant of nothing", "{inputs: [x], outputs: [y], nodes: [{op: Mul, in: [x, c], out: [y]}], constants: {c: {}}}",
			"",
			"pattern.constants.c has none of value, values, min, max and any: true, needed one"},
		{"constant of a range and a value",
			"{inputs: [x], outputs: [y], nodes: [{op: Mul, in: [x, c], out: [y]}], constants: {c: {value: 1, max: 2}}}", "",
			"pattern.constants.c has both value and a range, needed one"},
		{"constant of an empty range",
			"{inputs: [x], outputs: [y], nodes: [{op: Mul, in: [x, c], out: [y]}], constants: {c: {min: 3, max: 2}}}", "",
			"pattern.constants.c has min 3 above max 2, which no number is in; exchange them"},
		{"constant of a word", "{inputs: [x], outputs: [y], nodes: [{op: Mul, in: [x, c], out: [y]}], constants: {c: " +
			"{value: half}}}", "",
			`pattern.constants.c.value is "half", needed a number, or ? and a name to capture it`},
		{"constant that nothing uses",
			"{inputs: [x], outputs: [y], nodes: [{op: Neg, in: [x], out: [a], optional: true}, {op: Relu, in: [a], out: " +
				"[y]}], constants: {c: {value: 1}}}", "",
			"pattern: value c is a constant but nothing uses it; remove it"},
		{"type", "{inputs: [x], outputs: [y], nodes: [{op: Neg, in: [x], out: [y]}], types: {x: float}}", "",
			`pattern.types.x is "float", needed an element type such as float32, or a name such as T that stands for one type wherever it is`},
		{"type of no value", "{inputs: [x], outputs: [y], nodes: [{op: Neg, in: [x], out: [y]}], types: {z: T}}", "",
			`pattern.types: the pattern has no value "z"`},
		{"rank", "{inputs: [x], outputs: [y], nodes: [{op: Neg, in: [x], out: [y]}], ranks: {x: {min: 3, max: 2}}}", "",
			"pattern.ranks.x has min 3 above max 2, which no rank is in; exchange them"},
		{"recomputed output", "{inputs: [x], outputs: [y], nodes: [{op: Neg, in: [x], out: [y]}], recompute: [y]}", "",
			"pattern.recompute names y, which is an output, that anything may read; remove it"},
		{"recomputed input", "{inputs: [x], outputs: [y], nodes: [{op: Neg, in: [x], out: [y]}], recompute: [x]}", "",
			"pattern.recompute names x, which no node makes; remove it"},
		{"a replacement for no form", "{inputs: [x], outputs: [y], nodes: [{op: Neg, in: [x], out: [y]}]}",
			"[{nodes: [{op: Abs, in: [x], out: [y]}]}, {if: x, nodes: [{op: Neg, in: [x], out: [y]}]}]",
			"with[1] is for no form of the pattern, or others before it are for all that it is for; correct if and unless, " +
				"or remove it"},
		{"a condition of no value", "{inputs: [x], outputs: [y], nodes: [{op: Neg, in: [x], out: [y]}]}",
			"[{if: skip, nodes: [{op: Abs, in: [x], out: [y]}]}]",
			`with: the pattern has no value "skip"`},
		{"a list without dots", "{inputs: [x, w], outputs: [y], nodes: [{repeat: {max: 2, from: x, to: y, each: [w], " +
			"nodes: [{op: Add, in: [x, w], out: [y]}]}}]}", "{nodes: [{op: Sum, in: [x, w], out: [y]}]}",
			"with, in the form 2 times line 14: node Sum reads w, of which each repetition has its own; write w... for all " +
				"of them"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := plugintest.Head + plugintest.Variants +
				"operators:\n  - name: A\n    cost: {bandwidth: 1, flops: 1, overhead_us: 0}\n    replaces:\n      pattern:\n   " +
				"     " + c.pattern + "\n"
			line := "p:14: operator A: "
			if c.with != "" {
				text += "    with: " + c.with + "\n"
				line = "p:15: operator A: "
			}
			_, err := Parse("p", []byte(text))
			if err == nil {
				t.Fatalf("no error, want %q", c.want)
			}
			if got, _, _ := strings.Cut(err.Error(), "\n"); got != line+c.want {
				t.Errorf("error\n%s\nwant\n%s", got, line+c.want)
			}
		})
	}
}

// TestMistakesInTests: lists of graphs name files in the plugin's folder.
func TestMistakesInTests(t *testing.T) {
	const pattern = "    replaces: {pattern: {inputs: [x], outputs: [y], nodes: [{op: Neg, in: [x], out: [y]}]}}\n"
	for _, c := range []struct{ replaces, tests, want string }{
		{pattern, "{no_match: [a.onnx]}", "operator A: tests.match is missing; add a graph that the pattern must match"},
		{pattern, "{match: [../a.onnx]}",
			`operator A: tests.match[0] is "../a.onnx", needed the path of a file in this folder that ends with .onnxtxt or .onnx`},
		{pattern, "{match: [/a.onnx]}",
			`operator A: tests.match[0] is "/a.onnx", needed the path of a file in this folder that ends with .onnxtxt or .onnx`},
		{pattern, "{match: [a.txt]}",
			`operator A: tests.match[0] is "a.txt", needed the path of a file in this folder that ends with .onnxtxt or .onnx`},
		{"    replaces: {block: attention}\n", "{match: [a.onnx]}",
			"operator A: tests stand without a pattern, which they are of; remove them"},
	} {
		_, err := Parse("p", []byte(plugintest.Head+plugintest.Variants+"operators:\n  - name: A\n    cost: {bandwidth: "+
			"1, flops: 1, overhead_us: 0}\n"+c.replaces+"    tests: "+c.tests+"\n"))
		must.FailExactly(t, err, "p:13: "+c.want)
	}
}
