package session_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/signature"
	"github.com/opgraft/graft/host/plugin/tensor"
	"github.com/opgraft/graft/host/rewrite/session"
	"github.com/opgraft/graft/internal/must"
)

// described is an operator for attention as a library might describe it.
func described(inputs []string, attributes ...string) map[string][]signature.Operator {
	op := signature.Operator{Name: "Flash"}
	for i, name := range inputs {
		op.Inputs = append(op.Inputs, signature.Parameter{Name: name, Types: []tensor.DType{tensor.Float32}, Optional: i > 0})
	}
	for _, name := range plan.AttentionOutputs {
		op.Outputs = append(op.Outputs,
			signature.Parameter{Name: name, Types: []tensor.DType{tensor.Float32}, Optional: true})
	}
	for _, name := range attributes {
		op.Attributes = append(op.Attributes, signature.Attribute{Name: name, Kind: "int"})
	}
	return map[string][]signature.Operator{"flash": {op}}
}

// TestOnlyWhatIsDeclared: an attention operator gets the inputs and attributes that its library describes, and no block
// that needs others.
func TestOnlyWhatIsDeclared(t *testing.T) {
	shared := []string{"num_heads", "output_layout", "output_rank"}
	for _, c := range []struct {
		name string
		with map[string][]signature.Operator
		want string // why it is left
	}{
		{"all", described(plan.AttentionInputs, shared...), ""},
		{"not described", nil, ""},
		{"no past", described([]string{"query", "key", "value", "attn_bias"}, shared...), "flash: Flash takes no past_key"},
		{"no rank", described(plan.AttentionInputs, "output_layout"),
			"flash: Flash has no attribute output_rank, which would be 3"},
	} {
		g, s := blockstest.Graph(t, ends+join+strings.Replace(layer, "c = Add(s, zeros)", "c = Identity(s)", 1))
		pl := plan.Make(g, s, blocks.Find(g, s), []*manifest.Manifest{parsed(t, flash)},
			plan.Options{Force: true, Described: c.with})
		if reason := pl.Choices[0].Reason; (pl.Replaced() == 1) != (c.want == "") || c.want != "" && reason != c.want {
			t.Errorf("%s: %d replaced because %s, want %q", c.name, pl.Replaced(), reason, c.want)
			continue
		}
		if c.want != "" {
			continue
		}
		must.Succeed(t, session.Apply(g, s, pl))
		for _, n := range g.Nodes {
			for _, a := range n.Proto.GetAttribute() {
				if n.Proto.GetDomain() == manifest.Domain && c.with != nil && !slices.Contains(shared, a.GetName()) {
					t.Errorf("%s: the node has the attribute %s", c.name, a.GetName())
				}
			}
		}
	}
}

// TestSinks: an operator counts sinks where its library describes an input of them; no other stands for a block that
// has some, and none on a device.
func TestSinks(t *testing.T) {
	with := described(plan.AttentionInputs, "num_heads")
	device := &plan.Device{Device: tensor.Device{Kind: "cuda"}, Operators: with}
	for _, c := range []struct {
		name    string
		options plan.Options
		want    string // why it is left
	}{
		{"taken", plan.Options{Described: with}, ""},
		{"no input", plan.Options{Described: described(plan.AttentionInputs[:8], "num_heads")},
			"flash: Flash takes no sinks"},
		{"not described", plan.Options{}, "flash: its softmax counts sinks, and whether Flash takes any is not known"},
		{"on a device", plan.Options{Described: with, Device: device},
			"flash: its softmax counts sinks, which operators take on the CPU alone"},
	} {
		g, s := blockstest.Graph(t, `
			in q f32[1, 4, 1, 16]
			in k f32[1, 4, t, 16]
			in v f32[1, 4, t, 16]
			out y f32[1, 4, 1, 16]
			const sinks f32[1, 4, 1, 1]
			kt = Transpose(k) perm=0,1,3,2
			a = MatMul(q, kt)
			b = Mul(a, 0.25)
			c = Concat(b, sinks) axis=3
			p = Softmax(c)
			seen = Slice(p, [0], [-1], [3])
			y = MatMul(seen, v)`)
		c.options.Force = true
		pl := plan.Make(g, s, blocks.Find(g, s), []*manifest.Manifest{parsed(t, flash)}, c.options)
		must.Equal(t, pl.Choices[0].Operator != nil, c.want == "", c.name, pl.Choices[0].Reason)
		if c.want != "" {
			must.Equal(t, pl.Choices[0].Reason, c.want, c.name)
			continue
		}
		must.Succeed(t, session.Apply(g, s, pl))
		at := slices.IndexFunc(g.Nodes, func(n *graph.Node) bool { return n.Proto.GetDomain() == manifest.Domain })
		must.Equal(t, g.Nodes[at].Input(8).Name, "sinks", c.name)
	}
}

// TestWholeNumbersForOthers: an attribute has the kind that the library describes, and a node that it does not take
// is not planned.
func TestWholeNumbersForOthers(t *testing.T) {
	with := map[string][]signature.Operator{"flash": {{Name: "Leaky",
		Inputs:     []signature.Parameter{{Name: "x", Types: []tensor.DType{tensor.Float32}}},
		Outputs:    []signature.Parameter{{Name: "y", Types: []tensor.DType{tensor.Float32}}},
		Attributes: []signature.Attribute{{Name: "slope", Kind: "float"}}}}}
	for _, c := range []struct {
		kind, attributes, want string
	}{
		{"f32", "slope: 1", ""},
		{"f32", "steep: 1", "flash: Leaky has no attribute steep"},
		{"f16", "slope: 1", "flash: Leaky takes no float16 as x"},
	} {
		g, s := blockstest.Graph(t, "in x "+c.kind+"[n, 4]\nout y "+c.kind+"[n, 4]\ny = LeakyRelu(x) alpha=1.0")
		m := parsed(t, "  - name: Leaky\n    replaces:\n      pattern: {inputs: [x], outputs: [y], nodes: [{op: "+
			"LeakyRelu, in: [x], out: [y], attributes: {alpha: 1}}]}\n"+
			"    with: {nodes: [{op: Leaky, domain: graft, in: [x], out: [y], attributes: {"+c.attributes+
			"}}]}\n    cost: {bandwidth: 0.9, flops: 0.7, overhead_us: 1}\n")
		pl := plan.Make(g, s, blocks.Find(g, s), []*manifest.Manifest{m}, plan.Options{Force: true, Described: with})
		if len(pl.Choices) != 1 || (pl.Replaced() == 1) != (c.want == "") || c.want != "" && pl.Choices[0].Reason != c.want {
			t.Errorf("%+v: %+v", c, pl.Choices)
			continue
		}
		if c.want != "" {
			continue
		}
		must.Succeed(t, session.Apply(g, s, pl))
		if slope := g.Nodes[0].Float("slope", 0); slope != 1 {
			t.Errorf("the slope is %v of %v", slope, g.Nodes[0].Proto)
		}
	}
}
