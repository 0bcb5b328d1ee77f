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
	"github.com/opgraft/graft/models"
)

// Every exporter's decoder with a past becomes an engine graph whose inputs are
// the engine's alone.
func TestEveryExportersDecoderBecomesAnEngine(t *testing.T) {
	l, err := ort.FindAndOpen("")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"optimum/gpt2", "optimum/gpt2-merged", "optimum/gpt2-eager", "optimum/gpt2-runtime-scale", "optimum/llama",
		"optimum/bart-decoder-with-past", "optimum/bart-decoder-merged", "optimum/t5-decoder-with-past",
		"optimum/t5-decoder-merged",
		"optimum/whisper-decoder-with-past", "optimum/whisper-decoder-merged",
		"dynamo18/gpt2", "dynamo18/llama", "dynamo23/gpt2", "dynamo23/llama",
	} {
		t.Run(name, func(t *testing.T) {
			files, err := models.Build(name, t.TempDir(), models.DefaultSeed)
			if err != nil {
				t.Fatal(err)
			}
			path := files[0]
			m, err := model.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if err := takeBranch(m.Proto(), true); err != nil {
				t.Fatal(err)
			}
			x, err := patch.View(t.Context(), m, m.Proto())
			if err != nil {
				t.Fatal(err)
			}
			before := len(x.Graph.Nodes)
			e := newEvaluator(l, x)
			defer e.close()
			d := &engine.Decoder{Graph: x.Graph, Shapes: x.Shapes, Report: x.Report, Positions: 48, Answers: engine.Answers{}}
			if err := d.Check(); err != nil {
				t.Fatal(err)
			}
			e.answer(d.Questions(plan.KeysValues), d.Answers)
			var layers []*engine.Layer
			for _, b := range x.Report.Blocks {
				layer, fold, err := d.Layer(b, plan.KeysValues, layers)
				if err != nil || fold != nil {
					t.Fatalf("%v, %v", fold, err)
				}
				layers = append(layers, layer)
			}
			attended, err := d.Attend(layers)
			if err != nil {
				t.Fatal(err)
			}
			e.answer(attended.Questions(), d.Answers)
			made, err := attended.Finish()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %d nodes, %d left, %+v", filepath.Base(path), before, len(x.Graph.Nodes), made)
			if !strings.HasSuffix(name, "/llama") {
				return
			}
			edited, err := graph.New(x.Graph.Model(), m)
			if err != nil {
				t.Fatal(err)
			}
			shapes := graph.Infer(edited)
			if err := engine.SelectEarly(edited, shapes); err != nil {
				t.Fatal(err)
			}
			if err := engine.TurnAtOnce(edited, shapes); err != nil {
				t.Fatal(err)
			}
			turns := 0
			for _, n := range edited.Nodes {
				if n.Is("com.microsoft.RotaryEmbedding", "RotaryEmbedding") {
					turns++
				}
			}
			if turns != 2*len(layers) {
				t.Errorf("%d rotary embeddings in %d layers, want one node for each query and key", turns, len(layers))
			}
		})
	}
}
