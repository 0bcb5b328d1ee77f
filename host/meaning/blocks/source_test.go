package blocks_test

import (
	"path/filepath"
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// TestProjectionsOfSmallModels: every block of every small model is known by its
// four linear layers and what they start from, in its own graph or, where keys and
// values come in, in the decoder that hands them out.
func TestProjectionsOfSmallModels(t *testing.T) {
	for _, folder := range models.SmallFolders() {
		if folder.Family {
			continue
		}
		t.Run(folder.Name, func(t *testing.T) {
			dir := t.TempDir()
			must.Succeed(t, models.Small(folder.Name, dir))
			reports := map[string]*blocks.Report{}
			for _, file := range folder.Files {
				m := must.Value(model.Open(filepath.Join(dir, file+".onnx")))(t)
				t.Cleanup(func() { m.Close() })
				g := must.Value(graph.New(m.Proto(), m))(t)
				reports[file] = blocks.Find(g, graph.Infer(g))
			}
			for _, file := range folder.Files {
				r := reports[file]
				if len(r.Blocks) == 0 || len(r.Unrecognised) > 0 {
					t.Fatalf("%s: %d blocks, not recognised: %v", file, len(r.Blocks), r.Unrecognised)
				}
				without := reports["decoder_model"]
				if without == nil {
					without = reports["prefill"]
				}
				for _, b := range r.Blocks {
					must.Equal(t, complete(b, r, without), "", file, b.Node)
				}
			}
		})
	}
}

// complete says what is not known of a block, or "".
func complete(b *blocks.Block, with, without *blocks.Report) string {
	a, w := b.Attention, b.Wiring
	p := a.Projections
	switch {
	case p == nil || p.Query == nil || p.Output == nil && !w.Output.Uses[0].Node.Is("Where"): // of those that see nothing
		return "query or output have no linear layer"
	case p.Query.Width != a.Heads*a.HeadSize || p.Output != nil && p.Output.Inputs != a.Heads*a.ValueSize:
		return "query or output are of another width"
	case w.RawQuery == nil || w.RawKey == nil:
		return "query and key before their positions are not known"
	case (a.Positions == "rotary") != (w.Rotary != nil):
		return "positions are " + a.Positions + " and the embedding is not known"
	}
	if a.Type == "cross" && w.Key != nil && w.Key.IsInput {
		if w.Graph.Parent != nil {
			return "" // the branches of a merged decoder are parted before layers are paired
		}
		if without == nil {
			return "there is no decoder that makes its keys"
		}
		o := roles.Origin(b, with, without)
		if o == nil {
			return "no block hands out its keys"
		}
		if o.Attention.Type != "cross" || roles.ByName(o.Wiring.Input.Name) != roles.EncoderOutput {
			return "its keys come from " + o.Node + ", which reads " + o.Wiring.Input.Name
		}
		return complete(o, nil, nil)
	}
	switch {
	case p.Key == nil || p.Value == nil:
		return "key or value have no linear layer"
	case p.Key.Width != a.KVHeads*a.HeadSize || p.Value.Width != a.KVHeads*a.ValueSize:
		return "key or value are of another width"
	case w.Input == nil || p.Key.Inputs != p.Value.Inputs:
		return "key and value come from different values"
	}
	return ""
}
