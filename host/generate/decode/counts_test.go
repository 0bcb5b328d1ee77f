package decode_test

import (
	"path/filepath"
	"testing"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/capability"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// Opening a folder reads each of its files once, and infers the shapes of each graph
// once: of every exported graph that is looked at, and of the decoder's engine graph.
func TestOpeningReadsOnce(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	keys := prepare.Attention{Self: plan.KeysValues, Cross: plan.KeysValues}
	for _, c := range []struct {
		model         string
		attention     prepare.Attention
		files, graphs int64
	}{
		{"gpt2", keys, 1, 2},
		{"gpt2", prepare.Attention{Self: plan.Keys}, 1, 2},
		{"bart", keys, 3, 5},        // decoder twice, the one without a past, filler, encoder
		{"bart-merged", keys, 2, 5}, // a merged decoder is both
		// the decoder without a past, no filler
		{"bart", prepare.Attention{Self: plan.KeysValues, Cross: plan.PromptHiddenStates}, 3, 4},
		{"bart-merged", prepare.Attention{Self: plan.HiddenStates, Cross: plan.FirstLayerKeys}, 2, 5}, // and a filler
	} {
		dir := filepath.Join(t.TempDir(), c.model)
		must.Succeed(t, models.Small(c.model, dir))
		files, graphs := model.Opened(), graph.Inferred()
		g, err := decode.Open(t.Context(), dir, decode.Options{Library: l, Plugins: set, CacheBytes: 64 << 20,
			Attention: c.attention})
		must.Succeed(t, err)
		g.Close()
		if files, graphs = model.Opened()-files, graph.Inferred()-graphs; files != c.files || graphs != c.graphs {
			t.Errorf("%s, %s and %s: %d files were read and the shapes of %d graphs inferred, want %d and %d", c.model,
				c.attention.Self, c.attention.Cross, files, graphs, c.files, c.graphs)
		}
	}
}

// Preparing lays out no weights anew, and makes no session of the decoder: package prepare
// stands before package engine, which does both, in the order that tests/imports holds.
func TestPreparingPacksNothing(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	dir := filepath.Join(t.TempDir(), "bart")
	must.Succeed(t, models.Small("bart", dir))
	g := must.Value(decode.Prepare(t.Context(), dir,
		decode.Options{Library: l, Plugins: set, CacheBytes: 64 << 20,
			Attention: prepare.Attention{Self: plan.KeysValues, Cross: plan.KeysValues}}))(t)
	defer g.Close()
	for name, x := range map[string]*prepare.Graph{"decoder": g.Decoder, "filler": g.Filler, "encoder": g.Encoder} {
		linear := 0
		for _, n := range x.Nodes {
			if !n.Provides(capability.LinearPanels) {
				continue
			}
			linear++
			if w := n.Input(1); w == nil || w.Tensor == nil || n.Int("columns", 0) != 0 {
				t.Errorf("%s: the weights of %s are no longer those of the file", name, n)
			}
		}
		if linear == 0 && name != "filler" {
			t.Errorf("%s: no linear layer was replaced", name)
		}
	}
}
