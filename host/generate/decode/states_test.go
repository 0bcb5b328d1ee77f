package decode_test

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/exported"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
)

// recurrent are tiny decoders with recurrent states, with random weights: testdata/states/make.py.
//
//go:embed testdata/states/*/*.gz testdata/states/*/*.json
var recurrent embed.FS

// recurrentFolder writes one, its graphs as edit, which may be nil, leaves them.
func recurrentFolder(t *testing.T, name string, edit func(graph string, m *onnx.Model)) string {
	t.Helper()
	dir, from := t.TempDir(), "testdata/states/"+name
	for _, f := range must.Value(recurrent.ReadDir(from))(t) {
		content := must.Value(recurrent.ReadFile(from + "/" + f.Name()))(t)
		to := f.Name()
		if graph, zipped := bytes.CutSuffix([]byte(to), []byte(".onnx.gz")); zipped {
			to = string(graph) + ".onnx"
			content = must.Value(io.ReadAll(must.Value(gzip.NewReader(bytes.NewReader(content)))(t)))(t)
			if edit != nil {
				var m onnx.Model
				must.Succeed(t, proto.Unmarshal(content, &m))
				edit(string(graph), &m)
				content = must.Value(proto.Marshal(&m))(t)
			}
		}
		must.Succeed(t, os.WriteFile(filepath.Join(dir, to), content, 0o600))
	}
	return dir
}

// TestRecurrentStates generates prompts of several lengths beside one another, of which each has states of its own:
// the tokens are Hugging Face's. Rows join when others have left.
func TestRecurrentStates(t *testing.T) {
	for _, name := range []string{"lfm2", "falcon-h1", "lfm2-genai", "bamba", "jamba", "mamba", "mamba2"} {
		t.Run(name, func(t *testing.T) {
			dir, other := recurrentFolder(t, name, nil), recurrentFolder(t, name, nil)
			renamed(t, other)
			g := open(t, dir, func(o *decode.Options) { o.Batch = 3 })
			again := open(t, other, func(o *decode.Options) { o.Batch = 3 })
			plain := must.Value(exported.Open(t.Context(), other, decode.Options{Library: must.Value(ort.FindAndOpen(""))(t),
				Batch: 1, Threads: 1, ReferenceSelector: true}))(t)
			defer plain.Close()
			var cases []struct {
				Prompt, Tokens []int32
				Beams          int
			}
			must.Succeed(t, json.Unmarshal(must.Value(recurrent.ReadFile("testdata/states/"+name+"/expected.json"))(t), &cases))
			o := g.Search()
			o.MaxNewTokens = 16
			for _, beams := range []int{1, 4} {
				o.NumBeams = beams
				var inputs []*decode.Input
				var want [][]int32
				for _, c := range cases {
					if c.Beams == beams {
						inputs, want = append(inputs, &decode.Input{Tokens: c.Prompt}), append(want, c.Tokens)
					}
				}
				renamed, asExported := run(t, again, o, inputs), run(t, plain, o, inputs)
				for i, out := range run(t, g, o, inputs) {
					at := fmt.Sprintf("%d beams, prompt %d", beams, i)
					must.Equal(t, out.Hypotheses[0].Tokens, want[i], at)
					must.Equal(t, renamed[i].Hypotheses[0].Tokens, want[i], at, "renamed")
					must.Equal(t, asExported[i].Hypotheses[0].Tokens, want[i], at, "as exported")
					if out.CacheBytes <= 0 {
						t.Error("states take no memory")
					}
				}
			}
			sampled(t, g, o)
			forcedInParts(t, g)
			o.Draft = search.DraftLookup
			must.Fail(t, g.Run(t.Context(), o, nil, nil), decode.ErrStateDraft)
		})
	}
}

// TestLatentCache: an engine refuses a cache of latents by name, and the loop over the model as exported lets it grow
// and change places with its rows, whatever its inputs are called.
func TestLatentCache(t *testing.T) {
	dir := recurrentFolder(t, "deepseek-v3", nil)
	l := must.Value(ort.FindAndOpen(""))(t)
	_, err := decode.Open(t.Context(), dir,
		decode.Options{Library: l, Plugins: must.Value(loaded.Load(nil, true))(t), CacheBytes: 64 << 20})
	must.Fail(t, err, "as a latent cache does", "--baseline")
	renamed(t, dir)
	plain := must.Value(exported.Open(t.Context(), dir, decode.Options{Library: l, Batch: 1, Threads: 1,
		ReferenceSelector: true}))(t)
	defer plain.Close()
	var cases []struct {
		Prompt, Tokens []int32
		Beams          int
	}
	must.Succeed(t, json.Unmarshal(must.Value(recurrent.ReadFile("testdata/states/deepseek-v3/expected.json"))(t), &cases))
	o := plain.Search()
	o.MaxNewTokens = 16
	for _, c := range cases {
		o.NumBeams = c.Beams
		out := run(t, plain, o, []*decode.Input{{Tokens: c.Prompt}})
		must.Equal(t, out[0].Hypotheses[0].Tokens, c.Tokens, c.Beams, c.Prompt)
	}
}

// sampled compares what prompts give alone with what they give beside others.
func sampled(t *testing.T, g *decode.Generator, o search.Options) {
	t.Helper()
	o.NumBeams, o.DoSample, o.Seed = 1, true, 7
	inputs := []*decode.Input{{Tokens: []int32{5}}, {Tokens: []int32{9, 8, 7, 6, 5, 4}}, {Tokens: []int32{3, 4}},
		{Tokens: []int32{11, 12, 13}}}
	together := run(t, g, o, inputs)
	o.NumReturnSequences = 1
	for i, in := range inputs {
		at := uint64(i)
		done := false
		must.Succeed(t, g.Run(t.Context(), o, func() (*decode.Input, error) {
			if done {
				return nil, nil
			}
			done = true
			return &decode.Input{Index: at, Tokens: in.Tokens}, nil
		}, func(out decode.Output) error {
			must.Equal(t, out.Hypotheses[0].Tokens, together[i].Hypotheses[0].Tokens, "sampled alone")
			return nil
		}))
	}
}

// forcedInParts compares logits of a text that is fed at once with those of its tokens one by one.
func forcedInParts(t *testing.T, g *decode.Generator) {
	t.Helper()
	text := []int32{7, 8, 9, 10, 11, 12}
	whole := must.Value(g.Force(t.Context(), &decode.Input{Tokens: text}))(t)
	want := slices.Clone(must.Value(whole.Next(t.Context(), len(text)))(t))
	whole.Close()
	parts := must.Value(g.Force(t.Context(), &decode.Input{Tokens: text}))(t)
	defer parts.Close()
	var got []float32
	for range text {
		got = append(got, must.Value(parts.Next(t.Context(), 1))(t)...)
	}
	must.Equal(t, len(got), len(want))
	if far := away(got, want); far > 1e-4 {
		t.Errorf("logits of a text in parts are %g away", far)
	}
}

// leave makes an output what an input is.
func leave(g *onnx.Graph, output, input string) {
	for _, n := range g.Node {
		for i, name := range n.Output {
			if name == output {
				n.Output[i] = output + ".made"
			}
		}
	}
	g.Node = append(g.Node, &onnx.Node{Name: proto.String("leave"), OpType: proto.String("Identity"),
		Input: []string{input}, Output: []string{output}})
}

// TestStatesThatAreNone: what is no state, or begins otherwise than at zero, is refused.
func TestStatesThatAreNone(t *testing.T) {
	refused := func(t *testing.T, edit func(graph string, m *onnx.Model), want ...any) {
		t.Helper()
		_, err := decode.Open(t.Context(), recurrentFolder(t, "lfm2", edit),
			decode.Options{Library: must.Value(ort.FindAndOpen(""))(t),
				Plugins: must.Value(loaded.Load(nil, true))(t), CacheBytes: 64 << 20})
		must.Fail(t, err, want...)
	}
	t.Run("not handed out", func(t *testing.T) {
		refused(t, func(_ string, m *onnx.Model) {
			m.Graph.Output = slices.DeleteFunc(m.Graph.Output, func(v *onnx.ValueInfo) bool {
				return bytes.HasSuffix([]byte(v.GetName()), []byte("layers.0.conv_states.0"))
			})
		}, "reads neighbouring tokens")
	})
	t.Run("left as it was", func(t *testing.T) {
		for _, state := range []string{"layers.0.conv_states.0", "layers.2.conv_states.0"} {
			refused(t, func(graph string, m *onnx.Model) {
				if graph == "decode" {
					leave(m.Graph, "output.cache."+state, "input.cache."+state)
				}
			}, "away from those of steps with states that begin at zero")
		}
	})
	t.Run("another formula for prompts", func(t *testing.T) {
		refused(t, func(graph string, m *onnx.Model) {
			if graph != "prefill" {
				return
			}
			for _, n := range m.Graph.Node {
				if n.GetOpType() == "Conv" { // a little more than it is, as where prompts clamp what steps do not
					m.Graph.Initializer = append(m.Graph.Initializer, &onnx.Tensor{Name: proto.String("factor"),
						DataType: proto.Int32(int32(onnx.Tensor_FLOAT)), FloatData: []float32{1.003}})
					more := &onnx.Node{Name: proto.String("more"), OpType: proto.String("Mul"), Input: []string{n.Input[0], "factor"},
						Output: []string{"more"}}
					n.Input = append([]string{"more"}, n.Input[1:]...)
					at := slices.Index(m.Graph.Node, n)
					m.Graph.Node = slices.Insert(m.Graph.Node, at, more)
					return
				}
			}
		}, "away from those of steps with states that begin at zero")
	})
	t.Run("another beginning", func(t *testing.T) {
		refused(t, func(graph string, m *onnx.Model) {
			if graph != "prefill" {
				return
			}
			for _, n := range m.Graph.Node {
				if n.GetOpType() == "Conv" { // as if ones stood before the first token
					pad := proto.Clone(n).(*onnx.Node)
					pad.Name, pad.OpType, pad.Attribute = proto.String("before"), proto.String("Relu"), nil
					pad.Input, pad.Output = n.Input[:1], []string{"positive"}
					n.Input = append([]string{"positive"}, n.Input[1:]...)
					at := slices.Index(m.Graph.Node, n)
					m.Graph.Node = slices.Insert(m.Graph.Node, at, pad)
					return
				}
			}
		}, "away from those of steps with states that begin at zero")
	})
}
