// Package patterns holds a manifest whose one pattern is layer normalisation however exporters write it, and tests it
// with every fixture.
package patterns

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/matching"
	"github.com/opgraft/graft/host/rewrite/session"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
	"github.com/opgraft/graft/tests/equivalent"
)

// layerNorm is the manifest's only operator.
func layerNorm(t *testing.T) (*manifest.Manifest, *manifest.Operator) {
	t.Helper()
	m := must.Value(manifest.Read("layer-norm"))(t)
	return m, &m.Operators[0]
}

// TestGraphsOfTheManifest: the manifest's own graphs are as it says.
func TestGraphsOfTheManifest(t *testing.T) {
	m, _ := layerNorm(t)
	list, err := matching.Test(t.Context(), "layer-norm", m)
	if err != nil || len(list) != 6 {
		t.Fatalf("%d graphs, %v", len(list), err)
	}
	for _, g := range list {
		if g.Err != nil {
			t.Error(g.Err)
		}
		if g.Must == (g.Reason != "") {
			t.Errorf("%s: must match: %v, reason %q", g.File, g.Must, g.Reason)
		}
	}
}

// fixtures are the graphs of all exporters; those of full-size subjects, and those that skip names, in a long run only.
func fixtures(t *testing.T, skip string, f func(t *testing.T, m *model.Model)) {
	for _, fixture := range models.Fixtures() {
		if (fixture.Exporter == "full" || fixture.Exporter == skip && !strings.HasPrefix(fixture.Name, "deberta")) &&
			testing.Short() {
			continue
		}
		t.Run(fixture.String(), func(t *testing.T) {
			b := must.Value(fixture.Bytes(1))(t)
			m := must.Value(model.Parse(b, ""))(t)
			defer m.Close()
			f(t, m)
		})
	}
}

// counted is what there is of layer normalisation in a graph.
type counted struct{ all, asNodes, residual int }

// count finds it by other means than patterns: by its operator, or by the name that PyTorch's module has left on the
// square root; and before it the sum of two values that are no constants and have one shape.
func count(t *testing.T, m *onnx.Model, tensors graph.Tensors) (c counted) {
	t.Helper()
	g := must.Value(graph.New(m, tensors))(t)
	shapes := graph.Infer(g)
	g.Walk(func(n *graph.Node) {
		x := n.Input(0)
		switch {
		case n.Is("LayerNormalization"):
		case n.Is("Sqrt") && strings.HasSuffix(n.Proto.GetName(), "/LayerNorm/Sqrt"):
			c.asNodes++
			for x != nil && !x.Producer.Is("Sub") {
				x = x.Producer.Input(0)
			}
			for x = x.Producer.Input(0); x.Producer.Is("Cast"); x = x.Producer.Input(0) {
			}
		default:
			return
		}
		c.all++
		if sum := x.Producer; sum.Is("Add") && sum.In[0].Tensor == nil && sum.In[1].Tensor == nil {
			a, b := shapes.Of(sum.In[0]), shapes.Of(sum.In[1])
			if a.Rank >= 2 && a.Rank <= 3 && a.Rank == b.Rank &&
				slices.EqualFunc(a.Dims, b.Dims, func(x, y graph.Dim) bool { return x.Equal(y) }) {
				c.residual++
			}
		}
	})
	return c
}

// matched is the same as the pattern finds it.
func matched(t *testing.T, op *manifest.Operator, m *onnx.Model, tensors graph.Tensors) (c counted) {
	t.Helper()
	found := must.Value(matching.Find(t.Context(), op, m, tensors))(t)
	for _, match := range found.Matches {
		c.all++
		if match.Form.Has("centred") {
			c.asNodes++
		}
		if match.Form.Has("skip") {
			c.residual++
		}
	}
	return c
}

// TestLayerNormIsRecognised: one manifest finds all of it in all fixtures, in both forms, with the residual before it.
func TestLayerNormIsRecognised(t *testing.T) {
	_, op := layerNorm(t)
	total := counted{}
	fixtures(t, "", func(t *testing.T, m *model.Model) {
		want := count(t, m.Proto(), m)
		if got := matched(t, op, m.Proto(), m); got != want {
			t.Errorf("found %+v, counted %+v", got, want)
		}
		total.all, total.asNodes, total.residual = total.all+want.all, total.asNodes+want.asNodes,
			total.residual+want.residual
	})
	t.Logf("%+v", total)
	if total.all < 300 || total.asNodes < 5 || total.residual < 200 {
		t.Errorf("counted %+v in all fixtures, which is too little to show anything", total)
	}
}

// TestVariants: whatever computes the same is recognised as the graph that it is a variant of; so is each operator
// written as its nine nodes.
func TestVariants(t *testing.T) {
	_, op := layerNorm(t)
	seeds := uint64(40)
	if testing.Short() {
		seeds = 2
	}
	steps := 0
	fixtures(t, "families", func(t *testing.T, m *model.Model) {
		want := count(t, m.Proto(), m)
		if want.all == 0 {
			t.Skip("it has no layer normalisation")
		}
		for _, nodes := range []bool{false, true} {
			p := m.Proto()
			if nodes {
				p = asNodes(t, m)
				want.asNodes = want.all
			}
			o := must.Value(equivalent.Read(p, m))(t)
			for seed := range seeds {
				v := must.Value(o.Vary(seed))(t)
				for _, n := range v.Steps {
					steps += n
				}
				if got := matched(t, op, v.Model, m); got != want {
					t.Fatalf("the variant of seed %d, as nodes: %v: found %+v, there are %+v", seed, nodes, got, want)
				}
			}
		}
	})
	if steps < 1000 {
		t.Errorf("%d steps of rewriting, too few to show anything", steps)
	}
}

// lengths are those of a run.
var lengths = map[string]int64{
	"batch_size": 2, "sequence_length": 5, "past_sequence_length": 4, "past_decoder_sequence_length": 4,
	"encoder_sequence_length":      6,
	"past_encoder_sequence_length": 6, "decoder_sequence_length": 5, "num_channels": 3, "height": 32, "width": 32,
	"text_batch_size":  2,
	"image_batch_size": 2, "samples": 400,
}

// TestAnswers: models in which every layer normalisation was replaced, as they are and with each as its nodes, give
// the same answers.
func TestAnswers(t *testing.T) {
	m, _ := layerNorm(t)
	library := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	for _, name := range []string{"optimum/bert", "optimum/gpt2", "optimum/bart-decoder-with-past", "dynamo18/vit",
		"families/deberta", "families/swin"} {
		exporter, of, _ := strings.Cut(name, "/")
		for _, nodes := range []bool{false, true} {
			fixture := must.Value(models.Lookup(exporter, of))(t)
			b := must.Value(fixture.Bytes(1))(t)
			source := must.Value(model.Parse(b, ""))(t)
			defer source.Close()
			p := source.Proto()
			if nodes {
				p = asNodes(t, source)
			}
			paths := [2]string{filepath.Join(t.TempDir(), "a.onnx"), filepath.Join(t.TempDir(), "b.onnx")}
			must.Succeed(t, source.Write(context.Background(), p, paths[0], model.WriteOptions{}))
			want := count(t, source.Proto(), source)
			replaced := replace(t, m, p, source)
			must.Equal(t, replaced, want.all, name, nodes)
			must.Succeed(t, source.Write(context.Background(), p, paths[1], model.WriteOptions{}))
			r := must.Value(comparison.Answers(t.Context(), library, set, paths[0],
				comparison.Options{A: "none", B: "none", ModelB: paths[1],
					Inputs: inputs.Options{Seed: 1, Dims: lengths, LooseDims: true}}))(t, name, "as nodes:", nodes)
			for _, out := range r.Parity.Outputs {
				if !out.OK {
					t.Errorf("%s, as nodes: %v: %s: %s, %d of %v differ, max %g absolute", name, nodes, out.Name, out.Problem,
						out.Disagree, out.Shape, out.MaxAbsolute)
				}
			}
		}
	}
}

// replace puts the manifest's replacements into a model.
func replace(t *testing.T, m *manifest.Manifest, p *onnx.Model, tensors graph.Tensors) int {
	t.Helper()
	g := must.Value(graph.New(p, tensors))(t)
	shapes := graph.Infer(g)
	made := plan.Make(g, shapes, blocks.Find(g, shapes), []*manifest.Manifest{m}, plan.Options{Force: true})
	must.Succeed(t, session.Apply(g, shapes, made))
	return made.Replaced()
}
