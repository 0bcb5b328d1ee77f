package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/statistics"
	"github.com/opgraft/graft/models"
)

// GPT-2-124M, as far as what attention computes needs it, and the past of the figure's steps.
const (
	gpt2Layers, gpt2Width = 12, 768
	stepPast              = 704
)

// stepTarget is how many times its floor a step of int8 may take.
const stepTarget = 1.25

// stepsATurn are timed after one that is not.
const stepsATurn = 4

// stepReport is the raw figures of steps with weights in fewer bits.
type stepReport struct {
	SchemaVersion int         `json:"schema_version"`
	Model         string      `json:"model"`
	Past          int         `json:"past"`
	Peak          peak        `json:"peak_operations_s"`
	Cells         []*stepCell `json:"cells"`
}

// stepCell is a step of so many rows: requests, each with beams of one prompt.
type stepCell struct {
	Rows      int        `json:"rows"`
	Requests  int        `json:"requests"`
	Beams     int        `json:"beams"`
	Bandwidth []float64  `json:"memory_bandwidths_gb_s"` // measured in every round; the median counts
	Sides     []stepTime `json:"sides"`
}

// stepTime is what a side took, beside the least that it could.
type stepTime struct {
	Weights string    `json:"weights"`
	Steps   []float64 `json:"steps_ms"`
	Median  float64   `json:"median"`
	// Bytes are the weights of all linear layers and the keys and values of every prompt, once.
	Bytes  int64   `json:"bytes"`
	BytesM float64 `json:"bytes_floor_ms"` // at the measured bandwidth
	// Operations are those of the linear layers, of which attention's are left out; their time counts both.
	Operations float64            `json:"linear_operations"`
	OperationM float64            `json:"operations_floor_ms"` // at the measured peak; 0 where that is not known
	Ratio      float64            `json:"ratio_to_floor"`      // to the longer of the two
	Speedup    statistics.Speedup `json:"speedup"`             // over float32
}

// stepSide is an engine with weights of a type.
type stepSide struct {
	generator *decode.Generator
	weights   prepare.Weights
	sequences []*engine.Sequence
	feeds     []engine.Feed
}

// quantizedStep times decode steps with weights as float32, int8 and int4 in turns, beside what memory and arithmetic
// allow.
func quantizedStep() figure {
	const what = "GPT-2-124M shape, a step of 1, 4 and 16 rows at past 704, weights as float32, int8 and int4"
	return figure{"step-int8", what,
		fmt.Sprintf("int8 at most %.2fx the longer of its bytes at the measured bandwidth and its operations at the "+
			"measured peak", stepTarget),
		func(ctx context.Context, b *bench) (*outcome, error) {
			folder, err := models.Cached("gpt2-124m", say)
			if err != nil {
				return nil, err
			}
			r := &stepReport{SchemaVersion: 1, Model: "gpt2-124m", Past: stepPast, Peak: measurePeak()}
			var sides []*stepSide
			defer func() {
				for _, s := range sides {
					s.end()
					s.generator.Close()
				}
			}()
			for _, name := range []string{"float32", "int8", "int4"} {
				s := &stepSide{}
				if s.weights, err = prepare.ParseWeights(name); err != nil {
					return nil, err
				}
				if s.generator, err = decode.Open(ctx, folder,
					decode.Options{Library: b.library, Plugins: b.set, CacheBytes: 2 << 30, Batch: 4,
						Weights: s.weights}); err != nil {
					return nil, err
				}
				sides = append(sides, s)
				if s.generator.Engine().StepBytes() == 0 {
					return nil, fmt.Errorf("%s: there is too little memory to lay out all weights", name)
				}
			}
			for _, shape := range [][2]int{{1, 1}, {1, 4}, {4, 4}} {
				c := &stepCell{Rows: shape[0] * shape[1], Requests: shape[0], Beams: shape[1]}
				if err := c.time(ctx, sides, max(1, b.rounds/2)); err != nil {
					return nil, err
				}
				c.judge(sides, r.Peak)
				r.Cells = append(r.Cells, c)
			}
			return r.outcome(), nil
		}}
}

// time lets the sides take turns, there and back.
func (c *stepCell) time(ctx context.Context, sides []*stepSide, rounds int) error {
	c.Sides = make([]stepTime, len(sides))
	for range rounds {
		for turn := range 2 * len(sides) {
			i := min(turn, 2*len(sides)-1-turn)
			if err := sides[i].begin(c.Requests, c.Beams); err != nil {
				return err
			}
			time.Sleep(rest)
			for n := range 1 + stepsATurn {
				start := time.Now()
				if _, err := sides[i].generator.Engine().Step(ctx, sides[i].feeds); err != nil {
					return fmt.Errorf("%s: %w", sides[i].weights, err)
				}
				if n > 0 {
					c.Sides[i].Steps = append(c.Sides[i].Steps, 1e3*time.Since(start).Seconds())
				}
			}
			sides[i].end()
		}
		c.Bandwidth = append(c.Bandwidth, comparison.MemoryBandwidth()/1e9)
	}
	return nil
}

// begin makes requests as they are after their prompts.
func (s *stepSide) begin(requests, beams int) error {
	r := rand.New(rand.NewPCG(1, uint64(requests)))
	for range requests {
		x, err := s.generator.Engine().Imagine(stepPast, beams, 0)
		if err != nil {
			return err
		}
		s.sequences = append(s.sequences, x)
		f := engine.Feed{Sequence: x}
		for range beams {
			f.Tokens = append(f.Tokens, int64(r.IntN(s.generator.Config().Vocab)))
		}
		s.feeds = append(s.feeds, f)
	}
	return nil
}

// end releases them.
func (s *stepSide) end() {
	for _, x := range s.sequences {
		x.Release()
	}
	s.sequences, s.feeds = nil, nil
}

// judge compares what a step took with what its bytes and its operations take at least.
func (c *stepCell) judge(sides []*stepSide, p peak) {
	bandwidth := statistics.Median(c.Bandwidth) * 1e9
	// Queries with keys, and probabilities with values.
	attention := 2. * 2 * gpt2Layers * gpt2Width * stepPast * float64(c.Rows)
	for i, s := range sides {
		t, e := &c.Sides[i], s.generator.Engine()
		t.Operations, t.OperationM = 0, 0
		t.Weights, t.Median = s.weights.String(), statistics.Median(t.Steps)
		t.Speedup = statistics.SpeedupOf(c.Sides[0].Steps, t.Steps)
		t.Bytes = e.StepBytes() + int64(c.Requests)*stepPast*e.PromptBytes()
		t.BytesM = 1e3 * float64(t.Bytes) / bandwidth
		for _, w := range s.generator.Weights().Linear {
			t.Operations += 2 * float64(w.Float32Bytes/4) * float64(c.Rows)
		}
		rate := p.Float32
		if s.weights.Quantizes() {
			rate = p.Int8
		}
		if rate > 0 && p.Float32 > 0 {
			t.OperationM = 1e3 * (t.Operations/rate + attention/p.Float32)
		}
		t.Ratio = t.Median / max(t.BytesM, t.OperationM)
	}
}

func (r *stepReport) outcome() *outcome {
	out := &outcome{Detail: r, Met: true, Answers: "not compared"}
	var got []string
	for _, c := range r.Cells {
		for _, t := range c.Sides {
			of := fmt.Sprintf("%.0f MB", float64(t.Bytes)/1e6)
			if t.OperationM > t.BytesM {
				of = fmt.Sprintf("%.0f MOP", t.Operations/1e6)
			}
			kind, _, _ := strings.Cut(t.Weights, ",")
			got = append(got, fmt.Sprintf("%d rows %s %.2f ms, %.2fx the floor of %s, %.2fx float32", c.Rows, kind, t.Median,
				t.Ratio, of, t.Speedup.Median))
			out.Met = out.Met && (kind != string(prepare.Int8Weights) || t.Ratio <= stepTarget)
		}
	}
	out.Got = strings.Join(got, "; ") + "; " + r.Peak.String()
	return out
}
