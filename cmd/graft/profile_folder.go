package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/measure/comparison/generations"
)

// folderProfile is the JSON object of graft profile for the folder of a model that generates.
type folderProfile struct {
	Model  string         `json:"model"`
	Stages []profileStage `json:"stages"`
}

// profileStage is one of a generation's graphs, run as a generation runs it.
type profileStage struct {
	Stage string  `json:"stage"` // "encoder", "prefill" or "step"
	Runs  int     `json:"runs"`  // in a generation
	MS    float64 `json:"ms"`    // of all of them
	Share float64 `json:"share"` // of a generation
	*profiled
}

// generationSize is the size of the generation whose stages are profiled.
type generationSize struct{ batch, beams, prompt, tokens int }

// generatedFlags are the names of its flags.
var generatedFlags = []string{"batch-size", "beam", "prompt-length", "max-new-tokens"}

func (g *generationSize) add(cmd *cobra.Command) {
	f := cmd.Flags()
	between(f, &g.batch, "batch-size", 1, 1, limit.Batch, "folders: requests at once")
	between(f, &g.beams, "beam", 1, 1, limit.Beams, "folders: beams of a request, each a row of a step")
	between(f, &g.prompt, "prompt-length", 0, 0, limit.Tokens,
		"folders: tokens of a prompt, or of what an encoder reads (default: 128, within the model's positions)")
	between(f, &g.tokens, "max-new-tokens", 64, 2, limit.Tokens,
		"folders: tokens of a generation; a step is profiled in the middle of it")
}

// stage is a graph and how it is run.
type stage struct {
	name, path string
	runs       int
	noCache    bool
	lengths    map[roles.Length]int64
}

// stages are the graphs of a folder in the order in which a generation runs them.
func (g *generationSize) stages(files *modeldir.Files) []stage {
	batch, rows, prompt, tokens := int64(g.batch), int64(g.batch*g.beams), int64(g.prompt), int64(g.tokens)
	steps := g.tokens - 1
	if files.Encoder == "" {
		return []stage{
			{"prefill", files.Decoder, 1, false, map[roles.Length]int64{roles.Batch: batch, roles.New: prompt, roles.Cached: 0}},
			{"step", files.Decoder, steps, false,
				map[roles.Length]int64{roles.Batch: rows, roles.New: 1, roles.Cached: prompt + tokens/2}},
		}
	}
	return []stage{
		{"encoder", files.Encoder, 1, false,
			map[roles.Length]int64{roles.Batch: batch, roles.New: prompt, roles.Encoder: prompt}},
		{"prefill", files.First, 1, true,
			map[roles.Length]int64{roles.Batch: rows, roles.New: 1, roles.Encoder: prompt, roles.Cached: 0}},
		{"step", files.Decoder, steps, false,
			map[roles.Length]int64{roles.Batch: rows, roles.New: 1, roles.Encoder: prompt, roles.Cached: max(1, tokens/2)}},
	}
}

// profileFolder profiles the graphs of a model's folder, each as a generation runs it.
func (c *cli) profileFolder(ctx context.Context, folder string, flags *planFlags, p *profileFlags,
	g *generationSize) (*folderProfile, error) {
	files, err := modeldir.Find(folder)
	if err != nil {
		return nil, err
	}
	if g.prompt == 0 {
		if g.prompt, err = generations.PromptLength(folder, g.tokens); err != nil {
			return nil, err
		}
	}
	r := &folderProfile{Model: folder}
	whole := 0.0
	for _, s := range g.stages(files) {
		of := *p
		of.o.Inputs.Lengths, of.o.Inputs.NoCache, of.o.Inputs.LooseDims = s.lengths, s.noCache, true
		found, err := c.profiled(ctx, s.path, flags, &of)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		ms := float64(s.runs) * found.Run.TypicalMS
		whole += ms
		r.Stages = append(r.Stages, profileStage{Stage: s.name, Runs: s.runs, MS: ms, profiled: found})
	}
	for i := range r.Stages {
		if whole > 0 {
			r.Stages[i].Share = r.Stages[i].MS / whole
		}
	}
	return r, nil
}

func (r *folderProfile) text(w *page, nodes int) {
	rows := [][]string{{"stage", "runs", "ms", "share of a generation"}}
	for _, s := range r.Stages {
		rows = append(rows, []string{s.Stage, fmt.Sprint(s.Runs), fmt.Sprintf("%.3f", s.MS),
			fmt.Sprintf("%.1f %%", 100*s.Share)})
	}
	w.table(rows)
	for _, s := range r.Stages {
		w.printf("\n== %s ==\n\n", s.Stage)
		s.profiled.text(w, nodes)
	}
}
