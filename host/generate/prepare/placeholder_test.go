package prepare_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

// A decoder's placeholder is taken where nothing else can come of it; else the folder says what is in the way.
func TestPlaceholders(t *testing.T) {
	present := func(g *onnx.Graph) *onnx.Node {
		i := slices.IndexFunc(g.Node, func(n *onnx.Node) bool { return slices.Contains(n.Output, "present.0.decoder.key") })
		return g.Node[i]
	}
	for _, c := range []struct {
		name string
		edit func(*onnx.Graph)
		err  string
	}{
		{name: "as exported", edit: func(*onnx.Graph) {}},
		{name: "in the past", edit: func(g *onnx.Graph) {
			n := present(g)
			n.OpType, n.Input = proto.String("Identity"), n.Input[:1]
		}, err: "output present.0.decoder.key holds keys or values of the placeholder"},
		{name: "tokens read without it", edit: func(g *onnx.Graph) {
			g.Node = append(g.Node, &onnx.Node{Name: proto.String("beside"), OpType: proto.String("Shape"),
				Input: []string{"input_ids"}, Output: []string{"length"}})
		}, err: "beside reads input_ids beside"},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := small(t, "prophetnet")
			edited(t, filepath.Join(folder, "decoder_with_past_model.onnx"), c.edit)
			m, err := prepare.Open(t.Context(), folder)
			if err == nil {
				defer m.Close()
			}
			switch {
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Errorf("%v, want %q", err, c.err)
			case c.err == "" && (err != nil || m.Placeholder == nil || *m.Placeholder != 300):
				t.Errorf("%v, want the placeholder 300, the first that is no word", err)
			}
		})
	}
	m := must.Value(prepare.Open(t.Context(), small(t, "bart")))(t)
	defer m.Close()
	if m.Placeholder != nil {
		t.Errorf("BART has the placeholder %d", *m.Placeholder)
	}
}
