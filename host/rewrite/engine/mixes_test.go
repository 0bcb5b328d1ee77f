package engine

import (
	"strings"
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/onnx/graph"
)

// Rows are tokens of any sequences: what computes with neighbours in a sequence is refused.
func TestLayersOverTokensAreRefused(t *testing.T) {
	const head = `
		in x f32[b, 8, s]
		out y f32[b, 8, s]
		`
	past := []*blocks.Block{{Attention: &blocks.Attention{Type: "self"}, Wiring: &blocks.Wiring{PastKey: &graph.Value{}}}}
	for _, c := range []struct {
		name, text, want string
		blocks           []*blocks.Block
	}{
		{"convolution", `const w f32[8, 8, 4]
			y = Conv(x, w) kernel_shape=4 pads=3,0`, "reads neighbouring tokens", past},
		{"convolution of one token", `const w f32[8, 8, 1, 1]
			y = Conv(x, w) kernel_shape=1,1`, "", past},
		{"running sum", `y = CumSum(x, 2)`, "counts over tokens", nil},
		{"running sum after a past", `y = CumSum(x, 2)`, "", past},
		{"sum of two", `y = Add(x, x)`, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, _ := blockstest.Graph(t, head+c.text)
			s := &builder{Decoder: &Decoder{Report: &blocks.Report{Blocks: c.blocks}}}
			got := s.mixes(g.Nodes[len(g.Nodes)-1])
			if got != "" && c.want == "" || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
