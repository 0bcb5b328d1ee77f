package padding

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/meaning/padding"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// head is what follows an encoder's rows x, of a width of 64, in a model whose mask is mask.
type head struct {
	name    string
	nodes   []*onnx.Node
	outputs []string
	kept    string // why padding is kept, in part; "" where it is removed
	ignored bool   // it is removed only when that is asked for
}

func op(kind string, in, out string, attributes ...*onnx.Attribute) *onnx.Node {
	return &onnx.Node{OpType: proto.String(kind), Input: strings.Fields(in), Output: strings.Fields(out),
		Attribute: attributes}
}

func integer(name string, x int64) *onnx.Attribute {
	return &onnx.Attribute{Name: proto.String(name), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(x)}
}

func longs(name string, dims []int64, list ...int64) *onnx.Tensor {
	return graph.Int64Tensor(name, dims, list...)
}

// pooled are the nodes of a mean over visible tokens, as sentence-transformers exports it.
func pooled() []*onnx.Node {
	return []*onnx.Node{op("Unsqueeze", "mask minus", "m3"), op("Cast", "m3", "mf", integer("to", 1)),
		op("Shape", "x", "shape"), op("Expand", "mf shape", "me"),
		op("Mul", "x me", "shown"), op("ReduceSum", "shown one", "sum", integer("keepdims", 0)),
		op("ReduceSum", "me one", "count", integer("keepdims", 0)),
		op("Clip", "count least", "least_count"), op("Div", "sum least_count", "y")}
}

func constants() []*onnx.Tensor {
	return []*onnx.Tensor{longs("zero", nil, 0), longs("first", []int64{1}, 0), longs("one", []int64{1}, 1),
		longs("minus", []int64{1}, -1), longs("last", nil, -1), longs("folded", []int64{2}, -1, 64),
		longs("second", nil, 1), graph.FloatTensor("least", nil, 1e-9), graph.FloatTensor("low", nil, -1e9)}
}

var heads = []head{
	{name: "first token", nodes: []*onnx.Node{op("Gather", "x zero", "y", integer("axis", 1))}, outputs: []string{"y"}},
	{name: "first token, with its axis", nodes: []*onnx.Node{op("Gather", "x first", "y", integer("axis", 1))},
		outputs: []string{"y"}},
	{name: "first token, sliced", nodes: []*onnx.Node{op("Slice", "x first one one", "y")}, outputs: []string{"y"}},
	{name: "last token", nodes: []*onnx.Node{op("Gather", "x last", "y", integer("axis", 1))}, outputs: []string{"y"}},
	{name: "first token and activation of it",
		nodes: []*onnx.Node{op("Tanh", "x", "t"), op("Gather", "t zero", "u", integer("axis", 1)),
			op("Gather", "x zero", "v", integer("axis", 1)), op("Add", "u v", "y")}, outputs: []string{"y"}},
	{name: "mean of visible tokens", nodes: pooled(), outputs: []string{"y"}},
	{name: "mean of visible tokens, and the first",
		nodes: append(pooled(), op("Gather", "x zero", "z", integer("axis", 1))), outputs: []string{"y", "z"}},
	{name: "cleared by the mask",
		nodes: []*onnx.Node{op("Unsqueeze", "mask minus", "m3"), op("Cast", "m3", "mb", integer("to", 9)),
			op("Sub", "low low", "nothing"), op("Where", "mb x nothing", "shown"),
			op("ReduceSum", "shown one", "y", integer("keepdims", 0))}, outputs: []string{"y"}},
	{name: "rows and the first token", nodes: []*onnx.Node{op("Gather", "x zero", "y", integer("axis", 1))},
		outputs: []string{"x", "y"}, ignored: true},
	{name: "logits of each token", nodes: []*onnx.Node{op("Relu", "x", "r"), op("Transpose", "r", "y")},
		outputs: []string{"r"}, ignored: true},
	{name: "rows of all sequences in one axis", nodes: []*onnx.Node{op("Reshape", "x folded", "y")},
		outputs: []string{"y"}, ignored: true},
	{name: "numbers of all sequences in one axis",
		nodes: []*onnx.Node{op("Relu", "x", "r"), op("ReduceSum", "r minus", "top", integer("keepdims", 0)),
			op("Reshape", "top minus", "y")}, outputs: []string{"y"}, ignored: true},
	{name: "mean of all tokens", nodes: []*onnx.Node{op("ReduceSum", "x one", "y", integer("keepdims", 0))},
		outputs: []string{"y"}, kept: "rows of hidden tokens reach"},
	{name: "greatest of visible tokens",
		nodes: []*onnx.Node{op("Unsqueeze", "mask minus", "m3"), op("Cast", "m3", "mb", integer("to", 9)),
			op("Where", "mb x low", "shown"), op("ReduceSum", "shown one", "y", integer("keepdims", 0))}, outputs: []string{"y"},
		kept: "rows of hidden tokens reach"},
	{name: "second token", nodes: []*onnx.Node{op("Gather", "x second", "y", integer("axis", 1))}, outputs: []string{"y"},
		kept: "rows of hidden tokens reach"},
	{name: "sorted tokens", nodes: []*onnx.Node{op("TopK", "x one", "top at", integer("axis", 1)),
		op("Identity", "top", "y")}, outputs: []string{"y"}, kept: "rows of hidden tokens reach"},
}

// rewritten is an encoder, the fixture of BERT, with an edit.
func rewritten(t *testing.T, edit func(*onnx.Model)) string {
	return rewrittenOf(t, "optimum", "bert", edit)
}

func rewrittenOf(t *testing.T, exporter, name string, edit func(*onnx.Model)) string {
	f := must.Value(models.Lookup(exporter, name))(t)
	folder := t.TempDir()
	encoder, path := filepath.Join(folder, "encoder.onnx"), filepath.Join(folder, "model.onnx")
	must.Succeed(t, f.Write(encoder, 1))
	m := must.Value(model.Open(encoder))(t)
	defer m.Close()
	edit(m.Proto())
	must.Succeed(t, m.Write(t.Context(), m.Proto(), path, model.WriteOptions{}))
	return path
}

// write makes a model of an encoder with a head: the encoder's output is x, its mask mask, of a type.
func (h head) write(t *testing.T, kind onnx.Tensor_DataType) string {
	return rewritten(t, func(p *onnx.Model) {
		rename := map[string]string{"last_hidden_state": "x", "attention_mask": "mask"}
		for _, n := range p.Graph.Node {
			for _, list := range [][]string{n.Input, n.Output} {
				for i, name := range list {
					if to := rename[name]; to != "" {
						list[i] = to
					}
				}
			}
		}
		for _, in := range p.Graph.Input {
			if in.GetName() != "attention_mask" {
				continue
			}
			in.GetType().GetTensorType().ElemType = proto.Int32(int32(kind))
			in.Name = proto.String("given")
			p.Graph.Node = append([]*onnx.Node{op("Cast", "given", "mask", integer("to", int64(onnx.Tensor_INT64)))},
				p.Graph.Node...)
		}
		for _, c := range constants() {
			if slices.ContainsFunc(h.nodes, func(n *onnx.Node) bool { return slices.Contains(n.Input, c.GetName()) }) {
				p.Graph.Initializer = append(p.Graph.Initializer, c)
			}
		}
		for i, n := range h.nodes {
			n = proto.CloneOf(n)
			n.Name = proto.String("head/" + n.GetOpType() + strings.Repeat("'", i))
			p.Graph.Node = append(p.Graph.Node, n)
		}
		p.Graph.Output = nil
		for _, name := range h.outputs {
			out := &onnx.ValueInfo{Name: proto.String(name), Type: graph.TensorType(onnx.Tensor_FLOAT)}
			out.Type.GetTensorType().Shape = nil
			p.Graph.Output = append(p.Graph.Output, out)
		}
	})
}

// TestHeads: where the graph shows that no output depends on hidden tokens they are left out by default, and the
// answers are those of ONNX Runtime, those of sequences without a visible token included; where hidden rows are
// outputs, only with one; and where they reach anything else, never.
func TestHeads(t *testing.T) {
	b := open(t)
	for _, h := range heads {
		t.Run(h.name, func(t *testing.T) {
			path := h.write(t, onnx.Tensor_INT64)
			why := b.kept(t, path)
			switch {
			case h.kept != "":
				if !strings.Contains(why, h.kept) {
					t.Errorf("padding is kept for %q, want %q", why, h.kept)
				}
				return
			case h.ignored && !strings.Contains(why, "holds a row for each of them"):
				t.Errorf("padding is kept for %q, though an output holds rows", why)
			case !h.ignored && why != "":
				t.Errorf("padding is kept: %s", why)
			}
			b.compare(t, path, plan.ExactPadding)
			if h.ignored {
				b.compare(t, path, plan.IgnorePadding)
			}
		})
	}
}

// TestMaskTypes: a mask may be of any type that models have it in.
func TestMaskTypes(t *testing.T) {
	b := open(t)
	for _, kind := range []onnx.Tensor_DataType{onnx.Tensor_INT64, onnx.Tensor_INT32, onnx.Tensor_BOOL,
		onnx.Tensor_FLOAT} {
		t.Run(kind.String(), func(t *testing.T) {
			b.compare(t, heads[0].write(t, kind), plan.ExactPadding)
		})
	}
}

// TestGivenMasks: a mask may be given as scores have it: with axes of heads and queries, or as what is added to them.
func TestGivenMasks(t *testing.T) {
	b := open(t)
	for _, c := range []struct {
		name, in string // the value of the encoder that the mask stands for
		kind     onnx.Tensor_DataType
	}{
		{"numbers", "/Unsqueeze_1_output_0", onnx.Tensor_INT64},
		{"floats", "/Cast_output_0", onnx.Tensor_FLOAT},
		{"added", "/Where_1_output_0", onnx.Tensor_FLOAT},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := rewritten(t, func(p *onnx.Model) {
				for _, n := range p.Graph.Node {
					for i, name := range n.Input {
						if name == c.in {
							n.Input[i] = "given"
						}
					}
				}
				p.Graph.Input = append(p.Graph.Input,
					&onnx.ValueInfo{Name: proto.String("given"),
						Type: graph.TensorType(c.kind, "batch_size", 1, 1, "sequence_length")})
			})
			if !b.compare(t, path, plan.IgnorePadding) {
				t.Error("the mask was not understood")
			}
		})
	}
}

// TestHiddenFirstTokens: where the first token is read, it may be hidden and see no visible key within its window.
// What such tokens see is computed of all.
func TestHiddenFirstTokens(t *testing.T) {
	b := open(t)
	path := rewrittenOf(t, "families", "modernbert", func(p *onnx.Model) {
		p.Graph.Initializer = append(p.Graph.Initializer, longs("zero", nil, 0))
		p.Graph.Node = append(p.Graph.Node, op("Gather", "last_hidden_state zero", "y", integer("axis", 1)))
		p.Graph.Output = []*onnx.ValueInfo{{Name: proto.String("y"), Type: graph.TensorType(onnx.Tensor_FLOAT)}}
		p.Graph.Output[0].GetType().GetTensorType().Shape = nil
	})
	for _, mode := range []plan.Padding{plan.ExactPadding, plan.IgnorePadding} {
		if !b.compare(t, path, mode) {
			t.Error("the mask was not understood")
		}
	}
}

// TestMasksOfQueries: of a mask that hides queries as well as keys, what a hidden token sees is all keys alike.
// Attention stays as the model has it, between rows that are put back and taken again; where the token that is read
// is hidden, its sequence is computed wholly.
func TestMasksOfQueries(t *testing.T) {
	b := open(t)
	for _, name := range []string{"deberta-v2", "deberta-v3"} {
		for _, end := range []string{"zero", "last"} {
			t.Run(name+" "+end, func(t *testing.T) {
				path := rewrittenOf(t, "families", name, func(p *onnx.Model) {
					p.Graph.Initializer = append(p.Graph.Initializer, longs("zero", nil, 0), longs("last", nil, -1))
					p.Graph.Node = append(p.Graph.Node, op("Gather", "last_hidden_state "+end, "y", integer("axis", 1)))
					p.Graph.Output = []*onnx.ValueInfo{{Name: proto.String("y"), Type: graph.TensorType(onnx.Tensor_FLOAT)}}
					p.Graph.Output[0].GetType().GetTensorType().Shape = nil
				})
				for _, mode := range []plan.Padding{plan.ExactPadding, plan.IgnorePadding} {
					if !b.compare(t, path, mode) {
						t.Error("the mask was not understood")
					}
				}
			})
		}
	}
}

// TestRunsThatAreRefused: tokens of other lengths than the mask, masks of other numbers than 0 and 1, and tokens that
// the model has not are errors of the run, which the model's own session then answers.
func TestRunsThatAreRefused(t *testing.T) {
	b := open(t)
	path := heads[0].write(t, onnx.Tensor_FLOAT)
	s := b.session(t, path, plan.ExactPadding)
	defer s.Close()
	ids := func(n int, x int64) []int64 { return slices.Repeat([]int64{x}, n) }
	for _, c := range []struct {
		name  string
		shape []int64
		ids   []int64
		mask  []float32
		want  string
	}{
		{"longer tokens", []int64{2, 5}, ids(10, 3), []float32{1, 1, 1, 0, 1, 1, 0, 0}, "needed are those of the mask"},
		{"as many tokens in other rows", []int64{4, 2}, ids(8, 3), []float32{1, 1, 1, 0, 1, 1, 0, 0},
			"needed are those of the mask"},
		{"half visible", []int64{2, 4}, ids(8, 3), []float32{1, 1, 0.5, 0, 1, 1, 0, 0}, "element [0, 2] of mask is 0.5"},
		{"no number", []int64{2, 4}, ids(8, 3), []float32{1, 1, float32(math.NaN()), 0, 1, 1, 0, 0},
			"element [0, 2] of mask is nan"},
		{"a token that there is not", []int64{2, 4}, ids(8, 1<<40), []float32{1, 1, 1, 0, 1, 1, 0, 0},
			"indices element out of data bounds"},
		{"nothing wrong", []int64{2, 4}, ids(8, 3), []float32{1, 1, 1, 0, 0, 0, 0, 0}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			tokens := must.Value(ort.NewTensor(b.library, c.shape, c.ids))(t)
			defer tokens.Close()
			types := must.Value(ort.NewTensor(b.library, c.shape, ids(len(c.ids), 0)))(t)
			defer types.Close()
			mask := must.Value(ort.NewTensor(b.library, []int64{2, 4}, c.mask))(t)
			defer mask.Close()
			results, err := s.Run(t.Context(),
				map[string]*ort.Value{"input_ids": tokens, "token_type_ids": types, "given": mask})
			for _, v := range results {
				v.Close()
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// kept is why a model's padding is kept by default, or "".
func (b *bench) kept(t *testing.T, path string) string {
	m := must.Value(model.Open(path))(t)
	defer m.Close()
	a := must.Value(patch.Analyse(t.Context(), m, b.set.Manifests(), b.set.Plan(plan.Options{})))(t)
	if facts, why := padding.Find(a.Graph, a.Shapes, a.Report); facts == nil && why == "" {
		t.Fatal("the mask was not found")
	}
	return a.PaddingReason
}

// TestScoresThatAreRead: where scores inside of attention are an output, tokens are computed that a mask hides.
func TestScoresThatAreRead(t *testing.T) {
	b := open(t)
	path := rewritten(t, func(p *onnx.Model) {
		p.Graph.Initializer = append(p.Graph.Initializer, longs("zero", nil, 0))
		p.Graph.Node = append(p.Graph.Node, op("Gather", "last_hidden_state zero", "y", integer("axis", 1)))
		p.Graph.Output = nil
		scores := ""
		for _, n := range p.Graph.Node { // those of the last layer
			if n.GetOpType() == "Softmax" {
				scores = n.Input[0]
			}
		}
		for _, n := range p.Graph.Node {
			if n.Output[0] == scores { // their mask is added to them
				scores = n.Input[0]
			}
		}
		for _, name := range []string{"y", scores} {
			out := &onnx.ValueInfo{Name: proto.String(name), Type: graph.TensorType(onnx.Tensor_FLOAT)}
			out.Type.GetTensorType().Shape = nil
			p.Graph.Output = append(p.Graph.Output, out)
		}
	})
	if why := b.kept(t, path); !strings.Contains(why, "rows of hidden tokens reach") {
		t.Errorf("padding is kept for %q, though scores of hidden tokens are read", why)
	}
}
