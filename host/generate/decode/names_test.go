package decode_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/exported"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// renamed calls inputs and outputs of a folder's graphs otherwise, in each of them by names that say nothing and are in
// no order.
func renamed(t *testing.T, dir string) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 7))
	names := map[string]bool{}
	for _, path := range must.Value(filepath.Glob(filepath.Join(dir, "*.onnx")))(t) {
		edit(t, path, func(g *onnx.Graph) {
			own := map[string]string{}
			for _, v := range append(g.Input, g.Output...) {
				name := own[v.GetName()]
				for name == "" || names[name] && own[v.GetName()] == "" {
					name = fmt.Sprintf("v%d", r.IntN(1000))
				}
				own[v.GetName()], names[name] = name, true
			}
			for _, v := range g.Input {
				*v.Name = own[v.GetName()]
			}
			swap := func(list []string) {
				for i, name := range list {
					if to := own[name]; to != "" {
						list[i] = to
					}
				}
			}
			var within func(g *onnx.Graph)
			within = func(g *onnx.Graph) {
				for _, n := range g.Node {
					swap(n.Input)
					swap(n.Output)
					for _, a := range n.Attribute {
						if a.G != nil {
							within(a.G)
						}
					}
				}
				for _, v := range g.Output {
					if to := own[v.GetName()]; to != "" {
						*v.Name = to
					}
				}
				g.ValueInfo = nil
			}
			within(g)
		})
	}
}

// TestNamesOfInputs: what inputs and outputs hold, and what comes back as what, shows in the graphs, whatever they are
// called, to the engine and to the loop over the model as it was exported.
func TestNamesOfInputs(t *testing.T) {
	for _, name := range []string{"gpt2", "llama-no-positions", "opt", "qwen2-exporter", "bart", "t5-tied",
		"bart-exporter", "bart-merged", "t5-merged", "prophetnet", "unilm"} {
		t.Run(name, func(t *testing.T) {
			dir, other := t.TempDir(), t.TempDir()
			must.Succeed(t, models.Small(name, dir))
			must.Succeed(t, models.Small(name, other))
			renamed(t, other)
			g := open(t, dir, nil)
			o := g.Search()
			o.NumBeams, o.MaxNewTokens = 3, 12
			inputs := func() []*decode.Input {
				return []*decode.Input{{Tokens: []int32{5, 6, 7, 8, 9}}, {Tokens: []int32{11, 12}}}
			}
			want := run(t, g, o, inputs())
			for i, out := range run(t, open(t, other, nil), o, inputs()) {
				must.Equal(t, out.Hypotheses[0].Tokens, want[i].Hypotheses[0].Tokens, i)
			}
			plain, err := exported.Open(t.Context(), other, decode.Options{Library: must.Value(ort.FindAndOpen(""))(t),
				Batch: 1, Threads: 1, ReferenceSelector: true})
			must.Succeed(t, err)
			defer plain.Close()
			for i, out := range run(t, plain, o, inputs()) {
				must.Equal(t, out.Hypotheses[0].Tokens, want[i].Hypotheses[0].Tokens, i, "as exported")
			}
		})
	}
}

// TestEndsWithoutNames: of graphs whose inputs and outputs say nothing by their names, all is found that is found of
// those as their exporters name them, but where the graph leaves open what names say.
func TestEndsWithoutNames(t *testing.T) {
	open := map[string]string{"moonshine-merged": "past", "cohere": "position_ids"}
	for _, name := range []string{"bloom", "cohere", "donut", "falcon-exporter", "gpt2-merged", "llama3-genai",
		"m2m100-exporter", "mixtral", "moonshine-merged", "mpt", "pegasus-exporter", "qwen2-exporter-fused",
		"t5-tied-exporter", "trocr-merged", "vit-gpt2", "whisper", "whisper-exporter"} {
		t.Run(name, func(t *testing.T) {
			dir, other := t.TempDir(), t.TempDir()
			must.Succeed(t, models.Small(name, dir))
			must.Succeed(t, models.Small(name, other))
			renamed(t, other)
			vocab := must.Value(modeldir.ReadConfig(dir))(t).Vocab
			files, unnamed := must.Value(modeldir.Find(dir))(t), must.Value(modeldir.Find(other))(t)
			want := must.Value(prepare.ReadExported(t.Context(), files, vocab))(t)
			got := must.Value(prepare.ReadExported(t.Context(), unnamed, vocab))(t)
			decoder := originals(t, files.Decoder, unnamed.Decoder)
			first := decoder
			if files.First != "" {
				first = originals(t, files.First, unnamed.First)
			}
			missing := ""
			for _, side := range []struct {
				want, got prepare.Ends
				names     map[string]string // by original name
			}{{want.Decoder, got.Decoder, decoder}, {want.First, got.First, first}} {
				must.Equal(t, side.got.Logits, side.names[side.want.Logits])
				for input, held := range side.want.Inputs {
					if found := side.got.Inputs[side.names[input]]; found.Is == "" && held.Is != "" {
						missing = input
					} else {
						must.Equal(t, found, held, input)
					}
				}
				for out, input := range side.want.Next {
					if found := side.got.Next[side.names[out]]; found == "" {
						missing = input
					} else {
						must.Equal(t, found, decoder[input], out)
					}
				}
			}
			if (missing == "") != (open[name] == "") || !strings.HasPrefix(missing, open[name]) {
				t.Errorf("not found is %q, needed %q", missing, open[name])
			}
		})
	}
}

// originals are the names that inputs and outputs of a graph have in another one, by those that they have in it.
func originals(t *testing.T, named, other string) map[string]string {
	t.Helper()
	names := map[string]string{}
	a, b := must.Value(model.Open(named))(t), must.Value(model.Open(other))(t)
	defer a.Close()
	defer b.Close()
	x, y := a.Proto().GetGraph(), b.Proto().GetGraph()
	for i, v := range x.GetInput() {
		names[v.GetName()] = y.Input[i].GetName()
	}
	for i, v := range x.GetOutput() {
		names[v.GetName()] = y.Output[i].GetName()
	}
	return names
}
