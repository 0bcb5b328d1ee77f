package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"time"

	"github.com/opgraft/graft/host/base/memory"
	"github.com/opgraft/graft/host/base/threads"
	"github.com/opgraft/graft/host/measure/comparison/generations"
	"github.com/opgraft/graft/host/measure/statistics"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plan/tune/probe"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/models"
)

// Of the figure of speed: Whisper-tiny, greedy.
const (
	speedSubject = "whisper-tiny"
	speedBatch   = 16
	speedTokens  = 64
	speedLeast   = 1.3
)

// speedDetail is what it came to.
type speedDetail struct {
	// Operators are the cross attention of a step, all layers, in milliseconds; A is
	// CachedAttention, B ELAttention.
	Operators struct {
		Speedup statistics.Speedup `json:"speedup"`
		A       []float64          `json:"a_ms"`
		B       []float64          `json:"b_ms"`
	} `json:"operators"`
	// Filled says whether the engine computes keys and values of an encoder's output
	// before the first token.
	Filled     [2]bool             `json:"fills_cross"`
	Generation *generations.Result `json:"generation"`
	FirstToken statistics.Speedup  `json:"ttft"`
}

// attentionSpeed compares cross attention over keys and values with that over the
// encoder's output.
func attentionSpeed() figure {
	need := fmt.Sprintf("operators at least %.1fx, no cross phase, equal tokens", speedLeast)
	return figure{"attention-speed",
		"cross attention of Whisper-tiny's shape, batch 16, greedy: flash-decode against el-attention", need,
		func(ctx context.Context, b *bench) (*outcome, error) {
			d := &speedDetail{}
			if err := d.operators(ctx, b); err != nil {
				return nil, err
			}
			if err := d.whole(ctx, b); err != nil {
				return nil, err
			}
			s, g := d.Operators.Speedup, d.Generation
			out := &outcome{Detail: d, Answers: fmt.Sprintf("%d of %d sequences equal", g.Equal, g.Sequences)}
			out.Met = s.Median >= speedLeast && s.Significant && d.Filled == [2]bool{true, false} && g.Equal == g.Sequences
			out.Got = fmt.Sprintf("operators %.2fx (95%% %.2f to %.2f, p %.1g): %.2f -> %.2f ms a step; first token %.2fx, "+
				"%.0f -> %.0f ms; %.2fx after it, %.0f -> %.0f tokens/s; %.2fx in all, %.0f -> %.0f tokens/s",
				s.Median, s.CI95[0], s.CI95[1], s.P, statistics.Median(d.Operators.A), statistics.Median(d.Operators.B),
				d.FirstToken.Median, 1e3*g.A.TTFTMedianSeconds, 1e3*g.B.TTFTMedianSeconds,
				g.DecodeSpeedup.Median, g.A.DecodeTokensPerSecond, g.B.DecodeTokensPerSecond,
				g.Speedup.Median, g.A.TokensPerSecond, g.B.TokensPerSecond)
			return out, nil
		}}
}

// operators times the operators of a step outside a session. What a decoder reads
// between two layers is read here too.
func (d *speedDetail) operators(ctx context.Context, b *bench) error {
	_, l := whisperShapes[0].kinds()
	shape := plan.Shape{Keys: 1500, Beams: 1, Batch: speedBatch}
	crew := threads.NewPool(runtime.GOMAXPROCS(0))
	defer crew.Close()
	var steps [2]*probe.Step
	known := plan.Implementations{}.Among(b.set.Manifests())
	for i, strategy := range []plan.Strategy{plan.KeysValues, plan.PromptHiddenStates} {
		p, err := loaded.Named(b.set.Plugins, known.Of(strategy).Plugin)
		if err != nil {
			return err
		}
		layers, err := probe.New(p, known, l, plan.Candidate{Strategy: strategy}, l.Layers, shape, crew)
		if err != nil {
			return err
		}
		defer layers.Close()
		if steps[i], err = layers.Step(shape); err != nil {
			return err
		}
	}
	weights, err := memory.Reserve(plan.OtherWeights(l))
	if err != nil {
		return err
	}
	defer weights.Close()
	for i := range weights.Bytes() {
		weights.Bytes()[i] = 2
	}
	pass := func(s *probe.Step) (float64, error) {
		sum := time.Duration(0)
		for i := range s.Layers() {
			readAll(crew, weights.Bytes())
			took, err := s.Run(i)
			if err != nil {
				return 0, err
			}
			sum += took
		}
		return 1e3 * sum.Seconds(), nil
	}
	o := &d.Operators
	for round := range 4*b.rounds + 3 { // a step takes a few milliseconds
		for _, i := range []int{0, 1, 1, 0} {
			if err := ctx.Err(); err != nil {
				return err
			}
			ms, err := pass(steps[i])
			if err != nil {
				return err
			}
			if round < 3 { // the first warm up
				continue
			}
			list := &o.A
			if i == 1 {
				list = &o.B
			}
			*list = append(*list, ms)
		}
	}
	o.Speedup = statistics.SpeedupOf(o.A, o.B)
	return nil
}

// readAll reads bytes of which none is 1: the runtime's search for one is as fast as
// memory.
func readAll(crew *threads.Pool, list []byte) {
	n := uint64(crew.Threads())
	crew.Do(n, func(i uint64) {
		if bytes.IndexByte(list[uint64(len(list))*i/n:uint64(len(list))*(i+1)/n], 1) >= 0 {
			panic("bench: a byte that was never written")
		}
	})
}

// whole compares whole generations.
func (d *speedDetail) whole(ctx context.Context, b *bench) error {
	folder, err := models.Cached(speedSubject, say)
	if err != nil {
		return err
	}
	for i, strategy := range []string{strategyShared, strategyOutput} {
		g, err := openAttention(ctx, b.library, b.set, folder, strategy, 1)
		if err != nil {
			return err
		}
		d.Filled[i] = g.Engine().FillsCross()
		g.Close()
	}
	search, err := json.Marshal(map[string]any{
		"num_beams": 1, "max_new_tokens": speedTokens, "eos_token_id": []int{}, "forced_eos_token_id": nil,
		"no_repeat_ngram_size": 3, "repetition_penalty": 1.3})
	if err != nil {
		return err
	}
	g, err := generations.Compare(ctx, b.library, b.set, folder, generations.Options{
		A: strategyShared, B: strategyOutput, Search: search, Batch: speedBatch, Seed: 1, Rounds: max(1, b.rounds/8),
		CacheBytes: 8 << 30})
	if err != nil {
		return err
	}
	g.Model = speedSubject
	d.Generation, d.FirstToken = g, statistics.SpeedupOf(g.A.TTFTSeconds, g.B.TTFTSeconds)
	return nil
}
