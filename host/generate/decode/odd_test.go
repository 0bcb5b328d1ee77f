package decode_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/exported"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/fold"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// edit changes a model's file.
func edit(t *testing.T, path string, change func(*onnx.Graph)) {
	t.Helper()
	m := &onnx.Model{}
	data, err := os.ReadFile(path)
	if err == nil {
		err = proto.Unmarshal(data, m)
	}
	if err == nil {
		change(m.Graph)
		data, err = proto.Marshal(m)
	}
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	must.Succeed(t, err)
}

// projection is a linear layer of a decoder layer, such as "layers.1/self_attn/k_proj".
func projection(t *testing.T, g *onnx.Graph, name string) *onnx.Node {
	t.Helper()
	i := slices.IndexFunc(g.Node, func(n *onnx.Node) bool { return strings.HasSuffix(n.GetName(), name+"/MatMul") })
	if i < 0 {
		t.Fatalf("no linear layer %s", name)
	}
	return g.Node[i]
}

// singular takes the inverse off a weight: its first column is zero.
func singular(t *testing.T, g *onnx.Graph, name string) {
	n := projection(t, g, name)
	for _, w := range g.Initializer {
		if w.GetName() != n.Input[1] {
			continue
		}
		row := 4 * int(w.Dims[1])
		for i := 0; i < len(w.RawData); i += row {
			clear(w.RawData[i:][:4])
		}
		return
	}
	t.Fatalf("%s has no constant weight", name)
}

// bent puts a function between linear layers and what they read.
func bent(t *testing.T, g *onnx.Graph, names ...string) {
	const to = "bent"
	first := projection(t, g, names[0])
	i := slices.Index(g.Node, first)
	g.Node = slices.Insert(g.Node, i,
		&onnx.Node{OpType: proto.String("Tanh"), Name: proto.String(to), Input: []string{first.Input[0]},
			Output: []string{to}})
	for _, name := range names {
		projection(t, g, name).Input[0] = to
	}
}

// TestOddLayers: what some layers cannot store they do not, whatever the others do, and
// the tokens are those of the model as exported.
func TestOddLayers(t *testing.T) {
	const past, first = "decoder_with_past_model", "decoder_model"
	either := prepare.Attention{Self: plan.KeysValues, Cross: plan.PromptHiddenStates,
		Choose: func(positions, _ int) bool { return positions%2 == 0 }}
	bentEncoder := func(t *testing.T, file string, g *onnx.Graph) {
		if file == first {
			bent(t, g, "layers.1/encoder_attn/k_proj", "layers.1/encoder_attn/v_proj")
		}
	}
	for _, c := range []struct {
		name       string
		change     func(t *testing.T, file string, g *onnx.Graph)
		way        prepare.Attention
		strategies []plan.Strategy // of the layers: self, cross, self, cross
		plan       plan.Options
	}{
		{
			"two layers share the weight of keys",
			func(t *testing.T, _ string, g *onnx.Graph) {
				projection(t, g, "layers.1/self_attn/k_proj").Input[1] = projection(t, g, "layers.0/self_attn/k_proj").Input[1]
			},
			prepare.Attention{Self: plan.Keys, Cross: plan.KeysValues},
			[]plan.Strategy{plan.Keys, plan.KeysValues, plan.Keys, plan.KeysValues},
			plan.Options{},
		},
		{
			"no inverse of self attention's second layer",
			func(t *testing.T, _ string, g *onnx.Graph) { singular(t, g, "layers.1/self_attn/k_proj") },
			prepare.Attention{Self: plan.Keys, Cross: plan.KeysValues},
			[]plan.Strategy{plan.Keys, plan.KeysValues, plan.HiddenStates, plan.KeysValues},
			plan.Options{},
		},
		{
			"a prompt is stored for all layers or for none",
			func(t *testing.T, _ string, g *onnx.Graph) { bent(t, g, "layers.1/self_attn/v_proj") },
			prepare.Attention{Self: plan.PromptHiddenStates, Cross: plan.KeysValues},
			[]plan.Strategy{plan.KeysValues, plan.KeysValues, plan.KeysValues, plan.KeysValues},
			plan.Options{},
		},
		{
			"no inverse of cross attention's second layer",
			func(t *testing.T, file string, g *onnx.Graph) {
				if file == first {
					singular(t, g, "layers.1/encoder_attn/k_proj")
				}
			},
			prepare.Attention{Self: plan.KeysValues, Cross: plan.Keys},
			[]plan.Strategy{plan.KeysValues, plan.Keys, plan.KeysValues, plan.PromptHiddenStates},
			plan.Options{},
		},
		{
			"the same, and nothing may store the encoder's output",
			func(t *testing.T, file string, g *onnx.Graph) {
				if file == first {
					singular(t, g, "layers.1/encoder_attn/k_proj")
				}
			},
			prepare.Attention{Self: plan.KeysValues, Cross: plan.Keys},
			[]plan.Strategy{plan.KeysValues, plan.Keys, plan.KeysValues, plan.KeysValues},
			plan.Options{Except: []string{"el-attention"}},
		},
		{
			"no inverse of the layer that others compute their keys from",
			func(t *testing.T, file string, g *onnx.Graph) {
				if file == first {
					singular(t, g, "layers.0/encoder_attn/k_proj")
				}
			},
			prepare.Attention{Self: plan.KeysValues, Cross: plan.FirstLayerKeys},
			[]plan.Strategy{plan.KeysValues, plan.PromptHiddenStates, plan.KeysValues, plan.PromptHiddenStates},
			plan.Options{},
		},
		{
			"keys of one layer are no projection of the encoder's output",
			bentEncoder,
			prepare.Attention{Self: plan.KeysValues, Cross: plan.PromptHiddenStates},
			[]plan.Strategy{plan.KeysValues, plan.PromptHiddenStates, plan.KeysValues, plan.KeysValues},
			plan.Options{},
		},
		{
			"keys of one layer cannot be computed from those of another",
			bentEncoder,
			prepare.Attention{Self: plan.KeysValues, Cross: plan.FirstLayerKeys},
			[]plan.Strategy{plan.KeysValues, plan.FirstLayerKeys, plan.KeysValues, plan.KeysValues},
			plan.Options{},
		},
		{
			"requests choose, and one layer cannot",
			bentEncoder,
			either,
			[]plan.Strategy{plan.KeysValues, plan.PromptHiddenStates, plan.KeysValues, plan.KeysValues},
			plan.Options{},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			must.Succeed(t, models.Small("bart", dir))
			for _, file := range []string{past, first} {
				edit(t, filepath.Join(dir, file+".onnx"), func(g *onnx.Graph) { c.change(t, file, g) })
			}
			g := open(t, dir, func(o *decode.Options) {
				o.Attention, o.Plan, o.Folds = c.way, c.plan,
					fold.At(t.TempDir(), nil)
			})
			var strategies []plan.Strategy
			for _, layer := range g.Engine().Strategies() {
				strategies = append(strategies, layer.Strategy)
				t.Logf("%s: %s %s", layer.Node, layer.Strategy, layer.Reason)
			}
			must.Equal(t, strategies, c.strategies)
			likeExported(t, g, dir)
		})
	}
}

// likeExported compares what a generator of an encoder-decoder gives with the model as
// exported.
func likeExported(t *testing.T, g *decode.Generator, dir string) {
	t.Helper()
	l := must.Value(ort.FindAndOpen(""))(t)
	m := must.Value(exported.Open(t.Context(), dir, decode.Options{Library: l, Threads: 1, ReferenceSelector: true}))(t)
	defer m.Close()
	o := g.Search()
	o.NumBeams, o.MaxNewTokens = 3, 20
	r := rand.New(rand.NewPCG(5, 2))
	var inputs []*decode.Input
	for length := range 4 {
		tokens := make([]int32, 20+length)
		for i := range tokens {
			tokens[i] = int32(5 + r.IntN(g.Config().Vocab-120))
		}
		inputs = append(inputs, &decode.Input{Tokens: tokens})
	}
	want := run(t, m, o, inputs)
	for i, out := range run(t, g, o, inputs) {
		for j, h := range out.Hypotheses {
			must.Equal(t, h.Tokens, want[i].Hypotheses[j].Tokens, i)
		}
	}
}
