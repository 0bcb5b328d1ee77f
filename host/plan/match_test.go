package plan_test

import (
	"strings"
	"testing"

	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/internal/must"
)

// gelu is x/2 * (1 + erf(x/sqrt2)).
const gelu = `  - name: Gelu
    replaces:
      pattern:
        inputs: [x]
        outputs: [y]
        nodes:
          - {op: Div, in: [x, sqrt2], out: [a]}
          - {op: Erf, in: [a], out: [b]}
          - {op: Add, in: [b, one], out: [c]}
          - {op: Mul, in: [x, c], out: [d]}
          - {op: Mul, in: [d, half], out: [y]}
        constants: {sqrt2: {value: 1.4142135, tolerance: 1e-4}, one: {value: 1}, half: {value: 0.5}}
    with: {nodes: [{op: Gelu, domain: graft, in: [x], out: [y]}]}
    cost: {bandwidth: 0.9, flops: 0.5, overhead_us: 1}
`

const head = `
	in x f32[b, s, 64]
	out y f32[b, s, 64]
	`

func TestPatterns(t *testing.T) {
	m := parsed(t, "gelu", gelu)
	for _, c := range []struct {
		name, text string
		found      int
	}{
		{"as written", head + `
			a = Div(x, 1.4142135)
			b1 = Erf(a)
			c = Add(b1, 1.0)
			d = Mul(x, c)
			y = Mul(d, 0.5)`, 1},
		{"commuted", head + `
			a = Div(x, 1.4142135)
			b1 = Erf(a)
			c = Add(1.0, b1)
			d = Mul(c, x)
			y = Mul(0.5, d)`, 1},
		{"a constant within the tolerance", head + `
			a = Div(x, 1.41428)
			b1 = Erf(a)
			c = Add(b1, 1.0)
			d = Mul(x, c)
			y = Mul(d, 0.5)`, 1},
		{"a constant beyond it", head + `
			a = Div(x, 1.4150)
			b1 = Erf(a)
			c = Add(b1, 1.0)
			d = Mul(x, c)
			y = Mul(d, 0.5)`, 0},
		{"operands that do not commute", head + `
			a = Div(1.4142135, x)
			b1 = Erf(a)
			c = Add(b1, 1.0)
			d = Mul(x, c)
			y = Mul(d, 0.5)`, 0},
		{"another x", head + `
			in x2 f32[b, s, 64]
			a = Div(x, 1.4142135)
			b1 = Erf(a)
			c = Add(b1, 1.0)
			d = Mul(x2, c)
			y = Mul(d, 0.5)`, 0},
		{"an inner value is read outside", head + `
			out z f32[b, s, 64]
			a = Div(x, 1.4142135)
			b1 = Erf(a)
			c = Add(b1, 1.0)
			d = Mul(x, c)
			z = Neg(d)
			y = Mul(d, 0.5)`, 0},
		{"an inner value is an output", head + `
			out c f32[b, s, 64]
			a = Div(x, 1.4142135)
			b1 = Erf(a)
			c = Add(b1, 1.0)
			d = Mul(x, c)
			y = Mul(d, 0.5)`, 0},
		{"twice", head + `
			a = Div(x, 1.4142135)
			b1 = Erf(a)
			c = Add(b1, 1.0)
			d = Mul(x, c)
			x2 = Mul(d, 0.5)
			a2 = Div(x2, 1.4142135)
			b2 = Erf(a2)
			c2 = Add(b2, 1.0)
			d2 = Mul(x2, c2)
			y = Mul(d2, 0.5)`, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := makePlan(t, c.text, plan.Options{Force: true}, m)
			if p.Replaced() != c.found {
				t.Fatalf("%d matches, want %d", p.Replaced(), c.found)
			}
			taken := map[any]bool{}
			for _, choice := range p.Choices {
				if choice.Kind != "pattern" || len(choice.Match.Nodes) != 5 {
					t.Errorf("kind %s with %d nodes", choice.Kind, len(choice.Match.Nodes))
				}
				for _, n := range choice.Match.Nodes {
					if taken[n] {
						t.Errorf("%s is in two matches", n)
					}
					taken[n] = true
				}
			}
		})
	}
}

func TestCaptures(t *testing.T) {
	m := parsed(t, "norm", `  - name: Norm
    replaces:
      pattern:
        inputs: [x]
        outputs: [y]
        nodes:
          - {op: LayerNormalization, in: [x, g], out: [y], attributes: {axis: -1, epsilon: "?eps"}}
        constants: {g: {any: true, rank: 1}}
    where: {g_dim0: {min: 32}, x_rank: 3}
    with: {nodes: [{op: Norm, domain: graft, in: [x, g], out: [y], attributes: {epsilon: "?eps"}}]}
    cost: {bandwidth: 0.9, flops: 0.5, overhead_us: 1}
`)
	const text = head + `
		const g f32[64]
		y = LayerNormalization(x, g) axis=-1 epsilon=1e-5`
	c := makePlan(t, text, plan.Options{Force: true}, m).Choices
	if len(c) != 1 || c[0].Operator == nil {
		t.Fatalf("no match: %+v", c)
	}
	if eps, ok := c[0].Match.Captured["eps"].(float64); !ok || eps < 0.99e-5 || eps > 1.01e-5 {
		t.Errorf("captured %v", c[0].Match.Captured)
	}
	if c := makePlan(t, strings.Replace(text, "axis=-1", "axis=2", 1), plan.Options{Force: true}, m).Choices; len(c) != 1 {
		t.Error("the last axis counted from the front did not match")
	}
	if c := makePlan(t, strings.Replace(text, "axis=-1", "axis=1", 1), plan.Options{Force: true}, m).Choices; len(c) != 0 {
		t.Errorf("an attribute of another value matched: %v", c[0].Reason)
	}
	c = makePlan(t, strings.Replace(text, " epsilon=1e-5", "", 1), plan.Options{Force: true}, m).Choices
	if len(c) != 1 || c[0].Operator == nil {
		t.Fatalf("an attribute that is absent has no default: %+v", c)
	}
	if eps, ok := c[0].Match.Captured["eps"].(float64); !ok || eps < 0.99e-5 || eps > 1.01e-5 {
		t.Errorf("captured %v of an attribute that is absent", c[0].Match.Captured)
	}
	narrow := strings.NewReplacer("[64]", "[16]", "s, 64]", "s, 16]").Replace(text)
	c = makePlan(t, narrow, plan.Options{Force: true}, m).Choices
	if len(c) != 1 || c[0].Operator != nil || !strings.Contains(c[0].Reason, "g_dim0 is 16, needs at least 32") {
		t.Errorf("a constraint was passed over: %+v", c)
	}
}

// TestNumbersThatBroadcast sees that a number written as a tensor is one only where
// it leaves the shape alone.
func TestNumbersThatBroadcast(t *testing.T) {
	m := parsed(t, "hundredth", `  - name: Hundredth
    replaces:
      pattern:
        inputs: [x]
        outputs: [y]
        nodes: [{op: Mul, in: [x, c], out: [y]}]
        constants: {c: {value: 0.01}}
    with: {nodes: [{op: Hundredth, domain: graft, in: [x], out: [y]}]}
    cost: {bandwidth: 0.9, flops: 0.5, overhead_us: 1}
`)
	for dims, want := range map[string]int{"": 1, "1": 1, "1, 1, 1": 1, "1, 1, 1, 1": 0} {
		p := makePlan(t, head+"const c f32["+dims+"]\ny = Mul(x, c)", plan.Options{Force: true}, m)
		must.Equal(t, p.Replaced(), want, dims)
	}
}

// TestAttributesAndShapes: what a pattern does not name has ONNX's default, numbers match by their value, axes from
// either end, and shapes where they are known.
func TestAttributesAndShapes(t *testing.T) {
	const mean = `y = ReduceMean(x, [-1]) keepdims=1`
	for _, c := range []struct {
		name, nodes, rest, text string
		found                   int
	}{
		{"the default, written out", "{op: ReduceMean, in: [x, last], out: [y]}", "constants: {last: {value: -1}}", mean, 1},
		{"the default, left out", "{op: ReduceMean, in: [x, last], out: [y], attributes: {keepdims: 1}}",
			"constants: {last: {value: -1}}", "y = ReduceMean(x, [-1])", 1},
		{"not the default", "{op: ReduceMean, in: [x, last], out: [y]}", "constants: {last: {value: -1}}",
			"y = ReduceMean(x, [-1]) keepdims=0", 0},
		{"any", "{op: ReduceMean, in: [x, last], out: [y], attributes: {keepdims: any}}", "constants: {last: {value: -1}}",
			"y = ReduceMean(x, [-1]) keepdims=0", 1},
		{"axes from the front", "{op: ReduceMean, in: [x, last], out: [y]}", "constants: {last: {value: -1}}",
			"y = ReduceMean(x, [2])", 1},
		{"other axes", "{op: ReduceMean, in: [x, last], out: [y]}", "constants: {last: {value: -1}}",
			"y = ReduceMean(x, [1])", 0},
		{"an attribute without default", "{op: Cast, in: [x], out: [y]}", "", "y = Cast(x) to=1", 0},
		{"any attribute without default", "{op: Cast, in: [x], out: [y], attributes: {to: any}}", "", "y = Cast(x) to=1", 1},
		{"a whole number for another", "{op: LeakyRelu, in: [x], out: [y], attributes: {alpha: 1}}", "",
			"y = LeakyRelu(x) alpha=1.0", 1},
		{"an operator of another domain", "{op: Gelu, domain: com.microsoft, in: [x], out: [y]}", "",
			"y = com.microsoft.Gelu(x) wide=1", 0},
		{"axes reversed, left out", "{op: Transpose, in: [x], out: [y], attributes: {perm: [2, 1, 0]}}", "",
			"y = Transpose(x)", 1},
		{"axes reversed, written out", "{op: Transpose, in: [x], out: [y]}", "", "y = Transpose(x) perm=2,1,0", 1},
		{"axes in another order", "{op: Transpose, in: [x], out: [y], attributes: {perm: [0, 2, 1]}}", "", "y = Transpose(x)",
			0},
		{"one shape", "{op: Add, in: [x, z], out: [y]}", "shapes: {x: [..., h], z: [..., h]}", "z = Relu(x)\ny = Add(x, z)",
			1},
		{"a shape that broadcasts", "{op: Add, in: [x, z], out: [y]}", "shapes: {x: [..., h], z: [..., h]}",
			"in w f32[4, 64]\nz = Relu(w)\ny = Add(x, z)", 0},
		{"ranks and numbers", "{op: Relu, in: [x], out: [y]}", "shapes: {x: [a, b, 64]}", "y = Relu(x)", 1},
		{"another number", "{op: Relu, in: [x], out: [y]}", "shapes: {x: [a, b, 65]}", "y = Relu(x)", 0},
		{"another rank", "{op: Relu, in: [x], out: [y]}", "shapes: {x: [b, 64]}", "y = Relu(x)", 0},
	} {
		inputs := "[x]"
		if strings.Contains(c.nodes, "z]") {
			inputs = "[x, z]"
		}
		m := parsed(t, "some",
			"  - name: Some\n    replaces:\n      pattern:\n        inputs: "+
				inputs+"\n        outputs: [y]\n        nodes: ["+c.nodes+
				"]\n        "+c.rest+"\n    cost: {bandwidth: 0.9, flops: 0.9, overhead_us: 2}\n")
		must.Equal(t, makePlan(t, head+c.text, plan.Options{Force: true}, m).Replaced(), c.found, c.name)
	}
}

// TestPatternsThatBroadcast: values of different inputs of a pattern have one shape, or its shapes say which.
func TestPatternsThatBroadcast(t *testing.T) {
	const residual = "{op: Add, in: [x, z], out: [s]}, {op: Relu, in: [s], out: [y]}"
	for _, c := range []struct{ name, nodes, shapes, text, want string }{
		{"one shape", residual, "", "z = Sqrt(x)\nw = Add(x, z)\ny = Relu(w)", ""},
		{"fewer rows", residual, "", "in z f32[4, 64]\nw = Add(x, z)\ny = Relu(w)",
			"some: x and z are not known to have one shape"},
		{"one column", residual, "", "in z f32[b, s, 1]\nw = Add(x, z)\ny = Relu(w)",
			"some: x and z are not known to have one shape"},
		{"another length", residual, "", "in z f32[b, t, 64]\nw = Add(x, z)\ny = Relu(w)",
			"some: x and z are not known to have one shape"},
		{"as it says", residual, "shapes: {x: [..., h], z: [h]}", "in z f32[64]\nw = Add(x, z)\ny = Relu(w)", ""},
		{"other than it says", residual, "shapes: {x: [..., h], z: [h]}", "in z f32[1]\nw = Add(x, z)\ny = Relu(w)",
			"no match"},
		{"half of it said", residual, "shapes: {x: [..., h]}", "in z f32[64]\nw = Add(x, z)\ny = Relu(w)",
			"some: x and z are not known to have one shape"},
		{"later", "{op: Relu, in: [x], out: [s]}, {op: Mul, in: [s, z], out: [y]}", "",
			"in z f32[64]\nw = Relu(x)\ny = Mul(w, z)", "some: s and z are not known to have one shape"},
		{"of one input", "{op: ReduceMean, in: [x, last], out: [s]}, {op: Sub, in: [x, s], out: [y]}",
			"constants: {last: {value: -1}}", "w = ReduceMean(x, [-1])\ny = Sub(x, w)", ""},
		{"of one input, normalised", "{op: ReduceMean, in: [x, last], out: [m]}, {op: Sub, in: [x, m], out: [d]}, {op: " +
			"Mul, in: [d, d], out: [q]}, {op: ReduceMean, in: [q, last], out: [v]}, {op: Add, in: [v, eps], out: [e]}, {op: " +
			"Sqrt, in: [e], out: [s]}, {op: Div, in: [d, s], out: [y]}",
			"constants: {last: {value: -1}, eps: {value: 1e-5}}",
			"m = ReduceMean(x, [-1])\nd = Sub(x, m)\nq = Mul(d, d)\nv = ReduceMean(q, [-1])\ne = Add(v, 1e-5)\ns = " +
				"Sqrt(e)\ny = Div(d, s)", ""},
		{"of one input of no known rank", "{op: Sigmoid, in: [u], out: [s]}, {op: Mul, in: [u, s], out: [y]}", "",
			"u = other.Unknown(x)\nw = Sigmoid(u)\ny = Mul(u, w)", ""},
		{"of one input, transposed", "{op: Transpose, in: [u], out: [s], attributes: {perm: [1, 0]}}, {op: Mul, in: [u, " +
			"s], out: [y]}", "", "in u f32[b, 64]\nw = Transpose(u) perm=1,0\ny = Mul(u, w)",
			"some: u and s are not known to have one shape"},
		{"of one input, transposed square",
			"{op: Transpose, in: [u], out: [s], attributes: {perm: [1, 0]}}, {op: Mul, in: [u, s], out: [y]}", "",
			"in u f32[64, 64]\nw = Transpose(u) perm=1,0\ny = Mul(u, w)", ""},
		{"of one input, as it says", "{op: Transpose, in: [u], out: [s], attributes: {perm: [1, 0]}}, {op: Mul, in: [u, " +
			"s], out: [y]}", "shapes: {u: [n, n]}", "in u f32[64, 64]\nw = Transpose(u) perm=1,0\ny = Mul(u, w)", ""},
		{"parts of one input", "{op: Split, in: [u], out: [p, q], attributes: {axis: -1, num_outputs: 2}}, {op: Mul, in: " +
			"[p, q], out: [y]}", "", "in u f32[b, 3]\np, q = Split(u) axis=-1 num_outputs=2\ny = Mul(p, q)",
			"some: p and q are not known to have one shape"},
		{"halves of one input", "{op: Split, in: [u], out: [p, q], attributes: {axis: -1, num_outputs: 2}}, {op: Mul, in: " +
			"[p, q], out: [y]}", "", "in u f32[b, 8]\np, q = Split(u) axis=-1 num_outputs=2\ny = Mul(p, q)", ""},
		{"of one input, reduced without a place",
			"{op: ReduceMean, in: [u, last], out: [s], attributes: {keepdims: 0}}, {op: Sub, in: [u, s], out: [y]}",
			"constants: {last: {value: -1}}", "in u f32[b, 64]\nw = ReduceMean(u, [-1]) keepdims=0\ny = Sub(u, w)",
			"some: u and s are not known to have one shape"},
	} {
		inputs := "[x, z]"
		if strings.Contains(c.nodes, "[u") {
			inputs = "[u]"
		} else if strings.Contains(c.nodes, "last") {
			inputs = "[x]"
		}
		m := parsed(t, "some",
			"  - name: Some\n    replaces:\n      pattern:\n        inputs: "+
				inputs+"\n        outputs: [y]\n        nodes: ["+c.nodes+
				"]\n        "+c.shapes+"\n    cost: {bandwidth: 0.9, flops: 0.9, overhead_us: 2}\n")
		got := "no match"
		if list := makePlan(t, head+c.text, plan.Options{Force: true}, m).Choices; len(list) > 0 {
			if got = list[0].Reason; list[0].Operator != nil {
				got = ""
			}
		}
		if c.want == "" && got != "" || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// linear is a linear layer, as Gemm writes it.
const linear = `  - name: Linear
    replaces:
      pattern:
        inputs: [x]
        outputs: [y]
        nodes: [{op: Gemm, in: [x, w, b], out: [y], attributes: {alpha: 1.0, transB: "?transposed"}}]
        constants: {w: {any: true, rank: 2}, b: {any: true, rank: 1}}
    with: {nodes: [{op: Linear, domain: graft, in: [x, w, b], out: [y], attributes: {transposed: "?transposed"}}]}
    cost: {bandwidth: 0.9, flops: 0.9, overhead_us: 2}
`

// TestDefaults: an attribute that a node leaves out is what ONNX says.
func TestDefaults(t *testing.T) {
	m := parsed(t, "linear", linear)
	for _, c := range []struct {
		attributes string
		found      int
		transposed int64
	}{
		{"", 1, 0},
		{"alpha=1.0 beta=1.0", 1, 0},
		{"transB=1", 1, 1},
		{"alpha=0.5", 0, 0},
	} {
		p := makePlan(t, `
			in x f32[rows, 64]
			const w f32[64, 64]
			const b f32[64]
			out y f32[rows, 64]
			y = Gemm(x, w, b) `+c.attributes, plan.Options{Force: true}, m)
		if p.Replaced() != c.found {
			t.Errorf("%q: %d replaced, want %d", c.attributes, p.Replaced(), c.found)
		} else if c.found > 0 && p.Choices[0].Match.Captured["transposed"] != c.transposed {
			t.Errorf("%q: captured %v, want transposed %d", c.attributes, p.Choices[0].Match.Captured, c.transposed)
		}
	}
}

// TestProductsWithWeights: reading and multiplying are done one after the other as
// written, so an operator gains most where both take as long, and nothing where the
// weights fit in a cache or rows are many.
func TestProductsWithWeights(t *testing.T) {
	m := parsed(t, "linear", linear)
	for _, c := range []struct {
		rows, columns string
		used          bool
	}{
		{"4", "4096", true},
		{"16", "4096", true},
		{"4", "8", false},
		{"100000", "4096", false},
	} {
		p := makePlan(t, strings.NewReplacer("ROWS", c.rows, "COLUMNS", c.columns).Replace(`
			in x f32[ROWS, 2048]
			const w f32[2048, COLUMNS]
			const b f32[COLUMNS]
			out y f32[ROWS, COLUMNS]
			y = Gemm(x, w, b)`), plan.Options{}, m)
		must.Equal(t, p.Replaced() > 0, c.used, c.rows, c.columns, p.Choices[0].Reason)
	}
}
