package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opgraft/graft/host/measure/comparison/generations"
	"github.com/opgraft/graft/host/measure/statistics"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plan/tune"
	"github.com/opgraft/graft/models"
)

// plannerModel is a model with the cells of the planner's figure: every combination of
// a length, a number of beams and a batch, but those of too many rows.
type plannerModel struct {
	name           string
	lengths        []int64 // of the encoder's input, or of the prompt without one
	beams, batches []int64
	maxRows        int64
	// exported are cells, [length, beams, batch], in which whole generations are compared
	// with the model as exported.
	exported [][3]int64
}

// plannerModels are the figure's. An encoder of sound has one length, which leaves time
// for more beams and batches. Rows of the largest models end at 64.
var plannerModels = []plannerModel{
	{"whisper-tiny", []int64{1500}, []int64{1, 2, 4, 8}, []int64{1, 2, 4, 8, 16}, 128,
		[][3]int64{{1500, 1, 1}, {1500, 4, 4}}},
	{"gpt2-124m", []int64{32, 256, 704}, []int64{1, 4, 8}, []int64{1, 4, 16}, 128, [][3]int64{{32, 1, 1}, {256, 4, 4}}},
	{"llama-135m", []int64{32, 256, 1024}, []int64{1, 4, 8}, []int64{1, 4, 16}, 64, [][3]int64{{32, 1, 1}}},
	{"t5-base", []int64{64, 256, 1024}, []int64{1, 4, 8}, []int64{1, 4, 16}, 64, [][3]int64{{64, 1, 1}}},
	{"bart-large", []int64{64, 256, 1024}, []int64{1, 4, 8}, []int64{1, 4, 16}, 64, [][3]int64{{64, 1, 1}}},
}

// plannerShare is the part of the cells in which the planner must be right.
const plannerShare = 0.95

// plannerSteps is how many tokens a request generates: what is computed before the first
// is spread over as many. Cells are timed when a request has generated plannerOwn.
const plannerSteps, plannerOwn = 64, 24

// plannerOutcome is the detail of the figure.
type plannerOutcome struct {
	Steps  int64            `json:"steps"`
	Own    int64            `json:"own"`
	Models []*plannerReport `json:"models"`
}

// plannerReport is what came of one model.
type plannerReport struct {
	Model  string        `json:"model"`
	Tables []*tune.Table `json:"tables"` // what the planner knows of this machine, by kind of attention
	Sides  []plannerSide `json:"sides"`
	Cells  []plannerCell `json:"cells"`
	// Exported are whole generations against the model as exported.
	Exported []*generations.Result `json:"exported"`
}

// plannerCell is one cell. All times are in seconds of a step of the whole batch, with
// its part of what fills the caches of an encoder's output.
type plannerCell struct {
	Length  int64                 `json:"length"`
	Beams   int64                 `json:"beams"`
	Batch   int64                 `json:"batch"`
	Choice  string                `json:"choice"`
	Timed   string                `json:"timed"`   // the side with the chosen strategies, as far as the weights let it
	Reasons []string              `json:"reasons"` // the planner's, by kind of attention
	Options map[string][]foreseen `json:"options"`
	// Screened are the times by which the choice's strongest rival is found; those of the
	// contest decide. Both are by name of a side.
	Screened map[string][]float64 `json:"screened"`
	Contest  map[string][]float64 `json:"contest"`
	verdict
}

// plannerSummary is a model's cells in short.
type plannerSummary struct {
	Model    string               `json:"model"`
	Cells    []cellSummary        `json:"cells"`
	Exported []statistics.Speedup `json:"exported"` // whole generations against the model as exported
}

// cellSummary is a cell with what was decided.
type cellSummary struct {
	Length int64  `json:"length"`
	Beams  int64  `json:"beams"`
	Batch  int64  `json:"batch"`
	Choice string `json:"choice"`
	verdict
}

// summary is every cell with its verdict, without what was measured on the way.
func (d *plannerOutcome) summary() any {
	var models []plannerSummary
	for _, r := range d.Models {
		s := plannerSummary{Model: r.Model}
		for _, c := range r.Cells {
			s.Cells = append(s.Cells, cellSummary{c.Length, c.Beams, c.Batch, c.Choice, c.verdict})
		}
		for _, g := range r.Exported {
			s.Exported = append(s.Exported, g.Speedup)
		}
		models = append(models, s)
	}
	return map[string]any{"steps": d.Steps, "own": d.Own, "models": models}
}

// foreseen is what the planner foresaw of an option.
type foreseen struct {
	Name    string  `json:"name"`
	Speedup float64 `json:"speedup,omitempty"` // over the default
	Refused string  `json:"refused,omitempty"`
}

// verdict is whether the planner was right.
type verdict struct {
	Alone   bool               `json:"alone"` // no other strategy could be used: it says nothing of the planner
	Fastest string             `json:"fastest"`
	Medians map[string]float64 `json:"medians"`
	// Loss is the choice's median over the fastest's, P the U-test of the two.
	Loss float64 `json:"loss"`
	P    float64 `json:"p"`
	// Right says that the choice is the fastest, or not distinguishable from it; Slower that
	// it is significantly slower than the default.
	Right  bool `json:"right"`
	Slower bool `json:"slower_than_default"`
}

// significant is the level of the U-tests.
const significant = 0.05

// judge decides by the times of a contest.
func judge(choice, base string, contest map[string][]float64) (v verdict) {
	v.Medians, v.Fastest, v.P = map[string]float64{}, choice, 1
	for name, times := range contest {
		v.Medians[name] = statistics.Median(times)
	}
	for name, m := range v.Medians {
		if m < v.Medians[v.Fastest] {
			v.Fastest = name
		}
	}
	v.Loss = v.Medians[choice] / v.Medians[v.Fastest]
	if v.Fastest != choice {
		v.P = statistics.SpeedupOf(contest[choice], contest[v.Fastest]).P
	}
	v.Right = v.P >= significant
	if choice != base {
		c := statistics.SpeedupOf(contest[choice], contest[base])
		v.Slower = c.P < significant && c.Median > 1
	}
	return v
}

// planner is the figure of the planner's choices.
func planner() figure {
	return figure{"planner", "the planner's choice for 5 models, lengths, beams 1 to 8, batches 1 to 16, against every " +
		"KV-cache strategy",
		"best or not distinguishable in 95 % of cells, nowhere slower than keys_values",
		func(ctx context.Context, b *bench) (*outcome, error) {
			detail := &plannerOutcome{Steps: plannerSteps, Own: plannerOwn}
			for _, m := range plannerModels {
				folder, err := models.Cached(m.name, say)
				if err != nil {
					return nil, err
				}
				start := time.Now()
				r, err := b.plannerModel(ctx, m, folder)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", m.name, err)
				}
				right, open, _ := r.count()
				fmt.Fprintf(os.Stderr, "%s: %d of %d cells, after %s\n", m.name, right, open, time.Since(start).Round(time.Second))
				detail.Models = append(detail.Models, r)
			}
			return detail.outcome(), nil
		}}
}

// count is in how many cells the planner was right, of how many in which there was
// something to choose, and in how many it was slower than the default.
func (r *plannerReport) count() (right, open, slower int) {
	for _, c := range r.Cells {
		if c.Slower {
			slower++
		}
		if c.Alone {
			continue
		}
		if open++; c.Right {
			right++
		}
	}
	return right, open, slower
}

func (d *plannerOutcome) outcome() *outcome {
	o := &outcome{Detail: d}
	right, open, slower, alone, exported, lost := 0, 0, 0, 0, 0, 0
	worst, wrong := 1.0, []string{}
	for _, r := range d.Models {
		a, b, c := r.count()
		right, open, slower, alone = right+a, open+b, slower+c, alone+len(r.Cells)-b
		for _, c := range r.Cells {
			if worst = max(worst, c.Loss); !c.Right {
				wrong = append(wrong, fmt.Sprintf("%s %dx%dx%d", r.Model, c.Length, c.Beams, c.Batch))
			}
		}
		for _, g := range r.Exported {
			if exported++; g.Speedup.Significant && g.Speedup.Median < 1 {
				lost++
			}
		}
	}
	share := 1.0
	if open > 0 {
		share = float64(right) / float64(open)
	}
	o.Met = open > 0 && share >= plannerShare && slower == 0 && lost == 0
	o.Got = fmt.Sprintf("right in %d of %d cells (%.1f%%), at worst %.2fx the time of the fastest; %d slower than "+
		"keys_values, %d of %d than as exported; %d more cells have nothing to choose",
		right, open, 100*share, worst, slower, lost, exported, alone)
	o.Answers = "wrong: " + strings.Join(wrong, ", ")
	if len(wrong) == 0 {
		o.Answers = "wrong nowhere"
	}
	return o
}

// cells are those of a model in the order in which they are timed.
func (m plannerModel) cells() (list []plannerCell) {
	for _, length := range m.lengths {
		for _, beams := range m.beams {
			for _, batch := range m.batches {
				if beams*batch <= m.maxRows {
					list = append(list, plannerCell{Length: length, Beams: beams, Batch: batch})
				}
			}
		}
	}
	return list
}

// plannerModel opens an engine for each strategy, asks the planner for every cell of
// a model, and times them.
func (b *bench) plannerModel(ctx context.Context, m plannerModel, folder string) (*plannerReport, error) {
	asked, err := b.ask(ctx, folder, m)
	if err != nil {
		return nil, err
	}
	r := &plannerReport{Model: m.name, Tables: asked.tables, Cells: m.cells()}
	if err := b.timeCells(ctx, asked, folder, m, r); err != nil {
		return nil, err
	}
	for _, x := range m.exported {
		i := slices.IndexFunc(r.Cells, func(c plannerCell) bool { return [3]int64{c.Length, c.Beams, c.Batch} == x })
		if i < 0 {
			return nil, fmt.Errorf("no cell of length %d, %d beams, batch %d", x[0], x[1], x[2])
		}
		g, err := b.exported(ctx, folder, r.Cells[i])
		if err != nil {
			return nil, err
		}
		r.Exported = append(r.Exported, g)
	}
	return r, nil
}

// exportedTokens is how many tokens are generated where an engine is compared with the
// model as exported.
const exportedTokens = 16

// exported compares whole generations of the planner's choice with those of the model as
// exported.
func (b *bench) exported(ctx context.Context, folder string, c plannerCell) (*generations.Result, error) {
	search := fmt.Sprintf(
		`{"num_beams": %d, "max_new_tokens": %d, "eos_token_id": [], "no_repeat_ngram_size": 3, "forced_eos_token_id": null, "repetition_penalty": 1.3}`,
		c.Beams, exportedTokens)
	g, err := generations.Compare(ctx, b.library, b.set, folder, generations.Options{
		A: "none", B: c.Choice, Search: []byte(search), Batch: int(c.Batch), PromptLength: int(c.Length), Seed: 1, Rounds: 2,
		CacheBytes: plannerCache,
	})
	if err != nil {
		return nil, err
	}
	g.Model = filepath.Base(folder)
	return g, nil
}

// sideName is how strategies are asked for by name.
func sideName(strategies map[string]plan.Strategy) string {
	var parts []string
	for _, kind := range []string{"self", "cross"} {
		if strategy, ok := strategies[kind]; ok {
			parts = append(parts, kind+"="+string(strategy))
		}
	}
	return strings.Join(parts, ",")
}
