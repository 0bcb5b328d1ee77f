package plan_test

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/meaning/fused"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/capability"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/signature"
	"github.com/opgraft/graft/host/plugin/tensor"
	"github.com/opgraft/graft/internal/must"
)

// ownManifest is that of a plugin of graft's own.
func ownManifest(t *testing.T, name string) *manifest.Manifest {
	t.Helper()
	path := filepath.Join("..", "..", "plugins", name, manifest.FileName)
	b := must.Value(os.ReadFile(path))(t)
	m := must.Value(manifest.Parse(path, b))(t)
	return m
}

// TestNBits: products with integers of a few bits are replaced where panels are faster by the manifest at all rows of
// the range, with a reason elsewhere.
func TestNBits(t *testing.T) {
	const many, one = `
		in x f32[batch, seq, 768]
		out y f32[batch, seq, 768]
		`, `
		in x f32[1, 1, 768]
		out y f32[1, 1, 768]
		`
	const weights = `
		const w4 u8[768, 24, 16]
		const w8 u8[768, 24, 32]
		const small u8[768, 48, 8]
		const s f32[18432]
		const s2 f32[36864]
		const order i32[768]
		y = com.microsoft.MatMulNBits(`
	const four, eight, level4 = "x, w4, s) K=768 N=768 bits=4 block_size=32", "x, w8, s) K=768 N=768 bits=8 block_size=32",
		" accuracy_level=4"
	const faster = "ONNX Runtime's own com.microsoft.MatMulNBits is as fast or faster"
	old := map[string][]signature.Operator{"packed-linear": {{Name: "PackedLinear",
		Inputs: []signature.Parameter{{Name: "x", Types: []tensor.DType{tensor.Float32}},
			{Name: "weight", Types: []tensor.DType{tensor.Float32}}},
		Outputs: []signature.Parameter{{Name: "y", Types: []tensor.DType{tensor.Float32}}}}}}
	for _, c := range []struct {
		name, text string
		options    plan.Options
		cpu        string // "" is avx2
		left       string // "" where it is replaced
		silent     bool   // the manifest has no times
		slower     bool   // by these, the operator is as slow as ONNX Runtime
	}{
		{name: "four bits, many rows", text: many + weights + four, left: faster},
		{name: "four bits, many rows, forced", text: many + weights + four, options: plan.Options{Force: true}},
		{name: "four bits, one row", text: one + weights + four},
		{name: "eight bits, many rows", text: many + weights + eight},
		{name: "eight bits, one row", text: one + weights + eight},
		{name: "rows of eight bits", text: many + weights + four + level4, left: "--accept-quantization-noise"},
		{name: "rows of eight bits, forced", text: many + weights + four + level4, options: plan.Options{Force: true},
			left: "--accept-quantization-noise"},
		{name: "rows of eight bits, accepted", text: many + weights + four + level4,
			options: plan.Options{QuantizationNoise: true}},
		{name: "rows of eight bits, eight bits", text: many + weights + eight + level4,
			options: plan.Options{QuantizationNoise: true}},
		{name: "another CPU", text: one + weights + four, cpu: "avx512",
			left: "how fast it multiplies integers of 4 bits at accuracy level 0 on a CPU with avx512 is not known"},
		{name: "another CPU, rows of eight bits", text: one + weights + eight + level4, cpu: "neon",
			options: plan.Options{QuantizationNoise: true}, left: "8 bits at accuracy level 4 on a CPU with neon"},
		{name: "another CPU, forced", text: one + weights + four, options: plan.Options{Force: true}, cpu: "avx_vnni"},
		{name: "another CPU, of which ONNX Runtime makes float32", text: many + weights + eight, cpu: "avx512"},
		{name: "a plugin that says nothing", text: one + weights + eight, silent: true,
			left: "integers of 8 bits at accuracy level 0 on a CPU with avx2 is not known"},
		{name: "a plugin that says nothing, forced", text: many + weights + eight, silent: true,
			options: plan.Options{Force: true}},
		{name: "a plugin that is slower", text: one + weights + eight, slower: true, left: faster},
		{name: "weights as stored", text: many + weights + eight, options: plan.Options{Force: true, AsTheyLie: true},
			left: "weights stay as stored"},
		{name: "weights as stored until an engine lays them out", text: many + weights + eight,
			options: plan.Options{Force: true, AsTheyLie: true, OwnPanels: true}},
		{name: "a version that takes float32 alone", text: many + weights + eight,
			options: plan.Options{Force: true, Described: old}, left: "takes no weight_scale"},
		{name: "blocks of 16", text: many + weights + "x, small, s2) K=768 N=768 bits=4 block_size=16",
			options: plan.Options{Force: true}, left: "in blocks of 16"},
		{name: "groups in an order of their own",
			text: many + weights + "x, w4, s, , order) K=768 N=768 bits=4 block_size=32", options: plan.Options{Force: true},
			left: "(g_idx)"},
		{name: "not asked for", text: many + weights + eight, options: plan.Options{Plugins: []string{"fused-gelu"}},
			left: "was not asked for"},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer plan.SetInstructions(cmp.Or(c.cpu, "avx2"))()
			packed := ownManifest(t, "packed-linear")
			linear := packed.Providing(capability.LinearPanels)
			if c.silent {
				linear.IntegerTimes = nil
			}
			for i := 0; c.slower && i < len(linear.IntegerTimes); i++ {
				linear.IntegerTimes[i].Operator = linear.IntegerTimes[i].Replaced
			}
			g, s := blockstest.Graph(t, c.text)
			must.Value(fused.TakeApart(g, s))(t)
			s = graph.Infer(g)
			p := plan.Make(g, s, blocks.Find(g, s), []*manifest.Manifest{packed}, c.options)
			if c.name == "not asked for" {
				if len(p.Choices) != 0 {
					t.Errorf("%d choices", len(p.Choices))
				}
				return
			}
			if len(p.Choices) != 1 {
				t.Fatalf("%d choices%s", len(p.Choices), p.Left())
			}
			got := p.Choices[0]
			if (got.Operator == nil) != (c.left != "") || !strings.Contains(got.Reason, c.left) {
				t.Errorf("%v because %q, want it left because %q", got.Operator, got.Reason, c.left)
			}
			if got.Operator != nil && !c.options.Force && got.Expected.Worst < 0.98 {
				t.Errorf("expected %v", got.Expected)
			}
			if w := p.Whole(g, s, blocks.Find(g, s), c.options); got.Operator != nil &&
				(w.Reason != "" || w.Speedup < 0.9 || w.Speedup > 13) {
				t.Errorf("of the model: %v", w)
			}
		})
	}
}

// TestNBitsAroundOthers: what stands before a product that rounds its rows is left, as before other rounding; a
// plugin that would read the weight's numbers is not used.
func TestNBitsAroundOthers(t *testing.T) {
	defer plan.SetInstructions("avx2")()
	const text = `
		in x f32[batch, seq, 64]
		out y f32[batch, seq, 32]
		const w u8[32, 2, 16]
		const s f32[64]
		g = Relu(x)
		y = com.microsoft.MatMulNBits(g, w, s) K=64 N=32 bits=4 block_size=32`
	others := parsed(t, "others", `  - name: Mine
    replaces:
      pattern: {inputs: [x], outputs: [y], nodes: [{op: Relu, in: [x], out: [y]}]}
    with: {nodes: [{op: Mine, domain: graft, in: [x], out: [y]}]}
    cost: {bandwidth: 1, flops: 1, overhead_us: 0}
  - name: Other
    replaces:
      pattern: {inputs: [x], outputs: [y], nodes: [{op: MatMul, in: [x, w], out: [y]}], constants: {w: {any: true}}}
    with: {nodes: [{op: Other, domain: graft, in: [x, w], out: [y]}]}
    cost: {bandwidth: 1, flops: 1, overhead_us: 0}
`)
	for level, want := range map[string][2]string{"": {"", "of which Other would make float32"},
		" accuracy_level=4": {"com.microsoft.MatMulNBits rounds what becomes of its result",
			"of which Other would make float32"}} {
		g, s := blockstest.Graph(t, text+level)
		must.Value(fused.TakeApart(g, s))(t)
		s = graph.Infer(g)
		p := plan.Make(g, s, blocks.Find(g, s), []*manifest.Manifest{others}, plan.Options{Force: true})
		if len(p.Choices) != 2 {
			t.Fatalf("%d choices", len(p.Choices))
		}
		for i, left := range want {
			if got := p.Choices[i]; (got.Operator == nil) != (left != "") || !strings.Contains(got.Reason, left) {
				t.Errorf("level %q: %v because %q, want %q", level, got.Operator, got.Reason, left)
			}
		}
	}
}
