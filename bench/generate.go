package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/opgraft/graft/host/measure/comparison/generations"
	"github.com/opgraft/graft/models"
)

// distinct is the fewest different tokens that a benchmark's output must have, so
// that beams are not all the same loop.
const distinct = 20

// varied is what makes the output of random weights such that beams differ and
// change places, as those of trained ones do.
type varied struct {
	seed    uint64  // of the inputs
	penalty float64 // of repetition
}

// search are the options of a figure's search. There is no end token: every sample
// generates as many as are asked for. Random weights repeat themselves unless they
// are prevented.
func (v varied) search(tokens int) ([]byte, error) {
	return json.Marshal(map[string]any{
		"num_beams": 4, "max_new_tokens": tokens, "eos_token_id": []int{}, "no_repeat_ngram_size": 3,
		"forced_eos_token_id": nil, "early_stopping": false, "repetition_penalty": v.penalty,
	})
}

// generation is a figure of whole generations: the model as exported, its past and
// present moved with care, against the engine.
func generation(name, what string, least float64, subject string, batch, prompt, tokens int, v varied) figure {
	return figure{name, what, fmt.Sprintf("at least %.1fx, equal tokens", least),
		func(ctx context.Context, b *bench) (*outcome, error) {
			folder, err := models.Cached(subject, say)
			if err != nil {
				return nil, err
			}
			options, err := v.search(tokens)
			if err != nil {
				return nil, err
			}
			r, err := generations.Compare(ctx, b.library, b.set, folder, generations.Options{
				A: "none", B: "auto", Search: options, Batch: batch, PromptLength: prompt, Seed: v.seed, Rounds: max(1, b.rounds/8),
				CacheBytes: 8 << 30,
			})
			if err != nil {
				return nil, err
			}
			r.Model = filepath.Base(subject)
			out := &outcome{Detail: r, Answers: fmt.Sprintf("%d of %d sequences equal", r.Equal, r.Sequences)}
			out.Met = r.Speedup.Median >= least && r.Equal == r.Sequences && r.MinDistinct >= distinct && r.ReorderShare >= 0.5
			out.Got = fmt.Sprintf("%.2fx (95%% %.2f to %.2f), %.1f -> %.1f tokens/s; after the prompt %.2fx, %.1f -> %.1f; at "+
				"least %d distinct tokens, %.0f%% of steps reorder",
				r.Speedup.Median, r.Speedup.CI95[0], r.Speedup.CI95[1], r.A.TokensPerSecond, r.B.TokensPerSecond,
				r.DecodeSpeedup.Median, r.A.DecodeTokensPerSecond, r.B.DecodeTokensPerSecond, r.MinDistinct, 100*r.ReorderShare)
			if f := r.StepFloor; f != nil {
				out.Got += fmt.Sprintf("; a step takes %.1f ms, %.2fx its floor of %.0f MB at %.0f GB/s", f.StepMS, f.Ratio,
					float64(f.Bytes)/1e6, f.MemoryBandwidthGB)
			}
			return out, nil
		}}
}
