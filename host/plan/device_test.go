package plan_test

import (
	"strings"
	"testing"

	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/signature"
	"github.com/opgraft/graft/host/plugin/tensor"
	"github.com/opgraft/graft/internal/must"
)

// On a device an operator runs when the plugin's variant for it has it and takes the type; that of the
// CPU never does.
func TestChoicesOnADevice(t *testing.T) {
	fast := attention(t, "fast", "Fast", `dtype: float32`, 1)
	lame := attention(t, "lame", "Lame", `dtype: float32`, 1e6) // on the CPU
	operator := func(name string, types ...tensor.DType) signature.Operator {
		return signature.Operator{Name: name, Inputs: []signature.Parameter{{Name: "query", Types: types}}}
	}
	type operators = map[string][]signature.Operator
	for _, c := range []struct {
		name     string
		device   plan.Device
		options  plan.Options
		manifest *manifest.Manifest
		operator string
		reason   string
	}{
		{"runs", plan.Device{Operators: operators{"fast": {operator("Fast", tensor.Float16, tensor.Float32)}}},
			plan.Options{}, fast,
			"Fast", "of the bytes over the range"},
		{"costs are of the CPU", plan.Device{Operators: operators{"lame": {operator("Lame", tensor.Float32)}}},
			plan.Options{}, lame,
			"Lame", "(times on the device are not predicted)"},
		{"no variant", plan.Device{}, plan.Options{}, fast, "", "fast has no variant for cuda"},
		{"a variant that was refused", plan.Device{Without: map[string]string{"fast": "no driver"}}, plan.Options{}, fast, "",
			"fast: none for cuda: no driver"},
		{"a variant without the operator", plan.Device{Operators: operators{"fast": {operator("Other", tensor.Float32)}}},
			plan.Options{}, fast,
			"", "fast: its variant for cuda has no Fast, and the CPU's would have its tensors copied to the host and back"},
		{"a variant without the type", plan.Device{Operators: operators{"fast": {operator("Fast", tensor.BFloat16)}}},
			plan.Options{}, fast,
			"", "fast: Fast of its variant for cuda takes no float32"},
		{"force does not make one", plan.Device{}, plan.Options{Force: true}, fast, "", "fast has no variant for cuda"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.device.Device = tensor.Device{Kind: "cuda"}
			c.options.Device = &c.device
			got := makePlan(t, decoder, c.options, c.manifest).Choices[0]
			name, variant := "", ""
			if got.Operator != nil {
				name, variant = got.Operator.Name, "cuda"
			}
			if name != c.operator || got.Variant != variant || !strings.Contains(got.Reason, c.reason) {
				t.Errorf("chose %q of variant %q because %q, want %q because %q", name, got.Variant, got.Reason, c.operator,
					c.reason)
			}
			must.Empty(t, got.Expected.Samples)
		})
	}
	must.Equal(t, makePlan(t, decoder, plan.Options{}, fast).Choices[0].Variant, "cpu")
}

// An operator of ONNX Runtime's own already moves as few bytes as one of graft's would: it stays.
func TestBytesOnADevice(t *testing.T) {
	m := parsed(t, "same", `  - name: Same
    replaces:
      pattern: {inputs: [x], outputs: [y], nodes: [{op: Relu, in: [x], out: [y]}]}
    cost: {bandwidth: 1, flops: 1, overhead_us: 0}
  - name: Pair
    replaces:
      pattern: {inputs: [x], outputs: [y], nodes: [{op: Abs, in: [x], out: [a]}, {op: Sqrt, in: [a], out: [y]}]}
    cost: {bandwidth: 1, flops: 1, overhead_us: 0}
  - name: Plain
    replaces:
      pattern: {inputs: [x], outputs: [y], nodes: [{op: Exp, in: [x], out: [a]}, {op: Log, in: [a], out: [y]}]}
    with: {nodes: [{op: Identity, in: [x], out: [y]}]}
    cost: {bandwidth: 1, flops: 1, overhead_us: 0}
`)
	float := []signature.Parameter{{Name: "x", Types: []tensor.DType{tensor.Float32}}}
	on := &plan.Device{Device: tensor.Device{Kind: "cuda"},
		Operators: map[string][]signature.Operator{"same": {{Name: "Same", Inputs: float}, {Name: "Pair", Inputs: float}}}}
	for _, c := range []struct{ text, operator, variant, reason string }{
		{"y = Relu(x)", "", "", "same: moves 1/1.00 of the bytes over the range, 1/1.00 at worst (times on the device are " +
			"not predicted)"},
		{"a = Abs(x)\n\ty = Sqrt(a)", "Pair", "cuda",
			"moves 1/2.00 of the bytes over the range, 1/2.00 at worst (times on the device are not predicted)"},
		// Nodes of ONNX's own need no variant.
		{"a = Exp(x)\n\ty = Log(a)", "Plain", "", "moves 1/2.00 of the bytes"},
	} {
		p := makePlan(t, head+c.text, plan.Options{Device: on}, m)
		if len(p.Choices) != 1 {
			t.Fatalf("%s: %d choices", c.text, len(p.Choices))
		}
		got := p.Choices[0]
		name := ""
		if got.Operator != nil {
			name = got.Operator.Name
		}
		if name != c.operator || got.Variant != c.variant || !strings.HasPrefix(got.Reason, c.reason) {
			t.Errorf("%s: chose %q of variant %q because %q, want %q of %q because %q", c.text, name, got.Variant, got.Reason,
				c.operator, c.variant, c.reason)
		}
	}
	none := &plan.Device{Device: tensor.Device{Kind: "cuda"}}
	if p := makePlan(t, head+"a = Abs(x)\n\ty = Sqrt(a)", plan.Options{Device: none}, m); p.Replaced() != 0 ||
		p.Choices[0].Reason != "same has no variant for cuda" {
		t.Errorf("a pattern without a variant: %+v", p.Choices[0])
	}
}
