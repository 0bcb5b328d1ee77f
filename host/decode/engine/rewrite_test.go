package engine

import (
	"path/filepath"
	"testing"

	"github.com/opgraft/graft/host/blocks"
	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/rewrite"
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
		"optimum/bart-decoder-with-past", "optimum/bart-decoder-merged", "optimum/t5-decoder-with-past", "optimum/t5-decoder-merged",
		"optimum/whisper-decoder-with-past", "optimum/whisper-decoder-merged",
		"dynamo18/gpt2", "dynamo18/llama", "dynamo23/gpt2", "dynamo23/llama",
	} {
		t.Run(name, func(t *testing.T) {
			files, err := models.Build(name, t.TempDir(), models.DefaultSeed)
			if err != nil {
				t.Fatal(err)
			}
			path := files[0]
			e, err := newEvaluator(l, path)
			if err != nil {
				t.Fatal(err)
			}
			defer e.close()
			m, err := model.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if err := takeBranch(m.Proto(), true); err != nil {
				t.Fatal(err)
			}
			g, err := graph.New(m.Proto(), m)
			if err != nil {
				t.Fatal(err)
			}
			shapes := graph.Infer(g)
			before := len(g.Nodes)
			face, err := rewrite.Stateful(g, shapes, blocks.Find(g, shapes), rewrite.StatefulOptions{Evaluate: e.evaluate, Positions: 48})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %d nodes, %d left, %+v", filepath.Base(path), before, len(g.Nodes), face)
		})
	}
}
