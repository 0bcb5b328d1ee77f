package blocks_test

import (
	"strings"
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
)

// TestPaddedHeads: heads that are filled up with zeros are served as they are, where all are and what is made of the
// zeros of values is cut off.
func TestPaddedHeads(t *testing.T) {
	const filled = `
		in q f32[b, 4, s, 12]
		in k f32[b, 4, t, 12]
		in v f32[b, 4, t, 12]
		out y f32[b, 4, s, 12]
		q2 = Pad(q, [0,0,0,0,0,0,0,4])
		k2 = Pad(k, [0,0,0,0,0,0,0,4], 0.0)
		v2 = Pad(v, [0,0,0,0,0,0,0,4])
		kt = Transpose(k2) perm=0,1,3,2
		a = MatMul(q2, kt)
		p = Softmax(a)
		o = MatMul(p, v2)
		y = Slice(o, [0], [12], [3])`
	b := find(t, filled)
	if w := b.Wiring; b.Attention.HeadSize != 12 || b.Attention.ValueSize != 12 || w.Query.Name != "q" ||
		w.Key.Name != "k" || w.Value.Name != "v" || w.Output.Name != "y" {
		t.Errorf("%+v", b.Wiring)
	}
	b = find(t, strings.NewReplacer("Pad(v, [0,0,0,0,0,0,0,4])", "Identity(v)", "Slice(o, [0], [12], [3])",
		"Identity(o)").Replace(filled))
	if b.Attention.HeadSize != 12 || b.Attention.ValueSize != 12 {
		t.Errorf("values as they are: %+v", b.Wiring)
	}
	b = find(t, strings.Replace(filled, "v2 = Pad(v, [0,0,0,0,0,0,0,4])", "v2 = Pad(v, [0,0,0,0,0,0,0,4], 1.0)", 1))
	if b.Attention.ValueSize != 16 || b.Wiring.Value.Name != "v2" || b.Wiring.Output.Name != "o" {
		t.Errorf("values filled with ones: %+v", b.Wiring)
	}
	// What an operator makes is filled up again.
	for _, part := range []string{"Slice(o, [0], [13], [3])", "Slice(o, [4], [16], [3])"} {
		b = find(t, strings.Replace(filled, "Slice(o, [0], [12], [3])", part, 1))
		if w := b.Wiring; w.Filled != 4 || w.Output.Name != "o" || b.Attention.ValueSize != 12 {
			t.Errorf("%s: %+v", part, w)
		}
	}
	for _, c := range []struct{ name, old, new, want string }{
		{"queries alone", "k2 = Pad(k, [0,0,0,0,0,0,0,4], 0.0)", "k2 = Concat(k, ones) axis=3",
			"the head size of its queries is 12, of its keys 16"},
		{"ones", "4], 0.0)", "4], 1.0)", "the head size of its queries is 12, of its keys 16"},
		{"zeros before", "v2 = Pad(v, [0,0,0,0,0,0,0,4])", "v2 = Pad(v, [0,0,0,4,0,0,0,0])", ""},
	} {
		text := strings.Replace(filled, c.old, c.new, 1)
		if strings.Contains(text, "ones") {
			text = "in ones f32[b, 4, t, 4]\n" + text
		}
		g, s := blockstest.Graph(t, text)
		r := blocks.Find(g, s)
		if c.want == "" { // values of 16
			if len(r.Blocks) != 1 || r.Blocks[0].Attention.ValueSize != 16 {
				t.Errorf("%s: %+v", c.name, r.Unrecognised)
			}
			continue
		}
		if len(r.Unrecognised) != 1 || !strings.Contains(r.Unrecognised[0].Reason, c.want) {
			t.Errorf("%s: %d blocks, %+v, want %q", c.name, len(r.Blocks), r.Unrecognised, c.want)
		}
	}
}
