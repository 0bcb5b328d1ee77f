package prepare

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/rewrite/engine"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// Every exporter's decoder with a past becomes an engine graph whose inputs are
// the engine's alone.
func TestEveryExportersDecoderBecomesAnEngine(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	for _, name := range []string{
		"optimum/gpt2", "optimum/gpt2-merged", "optimum/gpt2-eager", "optimum/gpt2-runtime-scale", "optimum/llama",
		"optimum/bart-decoder-with-past", "optimum/bart-decoder-merged", "optimum/t5-decoder-with-past",
		"optimum/t5-decoder-merged",
		"optimum/whisper-decoder-with-past", "optimum/whisper-decoder-merged",
		"dynamo18/gpt2", "dynamo18/llama", "dynamo23/gpt2", "dynamo23/llama",
	} {
		t.Run(name, func(t *testing.T) {
			files := must.Value(models.Build(name, t.TempDir(), models.DefaultSeed))(t)
			path := files[0]
			m := must.Value(model.Open(path))(t)
			defer m.Close()
			must.Succeed(t, takeBranch(m.Proto(), true))
			x := must.Value(patch.View(t.Context(), m, m.Proto()))(t)
			before := len(x.Graph.Nodes)
			e := newEvaluator(l, x)
			defer e.close()
			d := &engine.Decoder{Graph: x.Graph, Shapes: x.Shapes, Report: x.Report, Logits: "logits", Positions: 48,
				Answers: engine.Answers{}}
			must.Succeed(t, d.Check())
			e.answer(d.Questions(plan.KeysValues), d.Answers)
			var layers []*engine.Layer
			for _, b := range x.Report.Blocks {
				layer, fold, err := d.Layer(b, plan.KeysValues, layers)
				if err != nil || fold != nil {
					t.Fatalf("%v, %v", fold, err)
				}
				layers = append(layers, layer)
			}
			attended := must.Value(d.Attend(layers))(t)
			e.answer(attended.Questions(), d.Answers)
			made := must.Value(attended.Finish())(t)
			t.Logf("%s: %d nodes, %d left, %+v", filepath.Base(path), before, len(x.Graph.Nodes), made)
			if !strings.HasSuffix(name, "/llama") {
				return
			}
			edited := must.Value(graph.New(x.Graph.Model(), m))(t)
			shapes := graph.Infer(edited)
			must.Succeed(t, engine.SelectEarly(edited, shapes))
			must.Succeed(t, engine.TurnAtOnce(edited, shapes))
			turns := 0
			for _, n := range edited.Nodes {
				if n.Is("com.microsoft.RotaryEmbedding", "RotaryEmbedding") {
					turns++
				}
			}
			must.Equal(t, turns, 2*len(layers))
		})
	}
}
