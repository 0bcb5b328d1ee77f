package sessions

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/sys/cpu"

	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
)

// TestEqualBits: on a CPU with VNNI, operators have the bits of this ONNX Runtime's nodes.
func TestEqualBits(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	equal := must.Value((&Patcher{Plugins: set.Plugins}).equalBits(t.Context(), l))(t)
	if kinds := slices.Sorted(maps.Keys(equal)); !slices.Equal(kinds, []string{attentionBits, geluBits, normBits}) {
		t.Fatalf("compared are %v", kinds)
	}
	for kind, same := range equal {
		if cpu.X86.HasAVX512VNNI && !same {
			t.Errorf("%s has other bits", kind)
		}
	}
	if none, err := (&Patcher{}).equalBits(t.Context(), l); err != nil || len(none) != 0 {
		t.Errorf("without the plugin: %v, %v", none, err)
	}
}

// TestFusionOf: what nodes of an optimised graph are told of, and which are not.
func TestFusionOf(t *testing.T) {
	const ends = `
	in x f32[b, n, 16]
	in r f32[b, n, 16]
	in q f32[b, 2, n, 8]
	in k f32[b, 2, 8, n]
	in m f32[b, 1, 1, n]
	const g f32[16]
	const h f32[16]`
	const out = `
	out y f32[b, n, 16]`
	const heads = `
	out y f32[b, 2, n, 8]`
	attended := &plan.FusedAttention{Query: "q", Key: "k", Value: "q", Mask: "m", Scale: 0.25}
	plain := &plan.FusedAttention{Query: "q", Key: "k", Value: "q", Scale: 1}
	for _, c := range []struct {
		name, text string
		want       *plan.Fusion
	}{
		{"GELU", ends + out + "\n\ty = com.microsoft.Gelu(x)", &plan.Fusion{Gelu: "x", Output: "y"}},
		{"GELU of another kind", ends + out + "\n\ty = Gelu(x) approximate=1", nil},
		{"a normalised sum", ends + out + "\n\ts = Add(x, r)\n\ty = LayerNormalization(s, g, h) epsilon=0.5",
			&plan.Fusion{Sum: [2]string{"x", "r"}, Scale: "g", Bias: "h", Epsilon: 0.5, Apart: true, Output: "y"}},
		{"a normalised sum that is read elsewhere",
			ends + out + "\n\tout z f32[b, n, 16]\n\ts = Add(x, r)\n\ty = LayerNormalization(s, g, h)\n\tz = Neg(s)", nil},
		{"a normalisation of two axes", ends + out + "\n\ts = Add(x, r)\n\ty = LayerNormalization(s, g, h) axis=1", nil},
		{"sum and normalisation in one node",
			ends + out + "\n\ty = com.microsoft.SkipLayerNormalization(x, r, g, h) epsilon=0.5",
			&plan.Fusion{Sum: [2]string{"x", "r"}, Scale: "g", Bias: "h", Epsilon: 0.5, Output: "y"}},
		{"attention with a mask", ends + heads + "\n\ta = com.microsoft.FusedMatMul(q, k) alpha=0.25\n\tc = Add(a, " +
			"m)\n\tp = Softmax(c)\n\ty = MatMul(p, q)",
			&plan.Fusion{Attention: attended, Output: "y"}},
		{"attention, the mask first", ends + heads + "\n\ta = com.microsoft.FusedMatMul(q, k) alpha=0.25\n\tc = Add(m, " +
			"a)\n\tp = Softmax(c)\n\ty = MatMul(p, q)",
			&plan.Fusion{Attention: attended, Output: "y"}},
		{"attention without mask and scale", ends + heads + "\n\ta = MatMul(q, k)\n\tp = Softmax(a)\n\ty = MatMul(p, q)",
			&plan.Fusion{Attention: plain, Output: "y"}},
		{"keys that are transposed in the product",
			ends + heads + "\n\ta = com.microsoft.FusedMatMul(q, q) transB=1\n\tp = Softmax(a)\n\ty = MatMul(p, q)", nil},
		{"a softmax along another axis", ends + heads + "\n\ta = MatMul(q, k)\n\tp = Softmax(a) axis=2\n\ty = MatMul(p, q)",
			nil},
		{"weights of attention that are read elsewhere",
			ends + heads + "\n\tout z f32[b, 2, n, n]\n\ta = MatMul(q, k)\n\tp = Softmax(a)\n\ty = MatMul(p, q)\n\tz = Neg(p)",
			nil},
	} {
		g, _ := blockstest.Graph(t, c.text)
		var got *plan.Fusion
		g.Walk(func(n *graph.Node) {
			if f := fusion(n); f != nil {
				got = f
			}
		})
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
