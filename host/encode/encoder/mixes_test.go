package encoder

import (
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/internal/must"
)

// TestNeighboursOfPadding: where a window over tokens reads padding, as ConvBERT's does, a text in a batch has the
// vector that it has alone, with a note. Where padding is zeros, and where the window reaches back alone, texts of any
// lengths run together.
func TestNeighboursOfPadding(t *testing.T) {
	texts := readExpected(t).Texts
	for _, c := range []struct {
		name, of, pads string
		alone          bool
	}{{"a window", "x", "1,1", true}, {"over zeros", "cleared", "1,1", false}, {"back alone", "x", "2,0", false}} {
		t.Run(c.name, func(t *testing.T) {
			made := must.Value(proto.Marshal(blockstest.Proto(t, `
				in input_ids i64[batch, sequence]
				in attention_mask i64[batch, sequence]
				out last_hidden_state f32[batch, sequence, 32]
				const words f32[2000, 32]
				const w f32[32, 32, 3]
				x = Gather(words, input_ids)
				m = Cast(attention_mask) to=1
				u = Unsqueeze(m, [2])
				cleared = Mul(x, u)
				t = Transpose(`+c.of+`) perm=0,2,1
				c = Conv(t, w) kernel_shape=3 pads=`+c.pads+`
				b = Transpose(c) perm=0,2,1
				last_hidden_state = Add(cleared, b)`)))(t)
			dir := copied(t, "embedder", map[string]string{filepath.Join("onnx", "model.onnx"): string(made)})
			for _, plugins := range []bool{true, false} {
				var notes []string
				o := options(t, plugins)
				o.Note = func(note string) { notes = append(notes, note) }
				e := must.Value(OpenEmbedder(t.Context(), dir, o))(t)
				defer e.Close()
				for i, got := range embed(t, e, "", texts) {
					if !near(got, embed(t, e, "", texts[i:i+1])[0]) {
						t.Errorf("text %d is not as alone", i)
					}
				}
				said := strings.Join(notes, "")
				if c.alone != strings.Contains(said, "texts of one length run together") ||
					c.alone != strings.Contains(said, "(Conv) reads neighbouring tokens") {
					t.Errorf("notes %q", notes)
				}
			}
		})
	}
}
