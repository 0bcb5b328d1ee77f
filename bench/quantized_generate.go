package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/opgraft/graft/host/measure/comparison/generations"
	"github.com/opgraft/graft/models"
)

// quickTokens are the new tokens of generations with -quick.
const quickTokens = 8

// quantizedSides are what is compared with the engine in float32 where -side names nothing else: the first is judged.
var quantizedSides = []string{"weights=int8", "weights=int4"}

// quantizedGeneration is a figure of whole generations: the engine with weights as float32 against itself with fewer
// bits. whole and after are the speed-ups that are asked for of the first side, over whole runs and over what follows
// the prompt; after may be 0.
func quantizedGeneration(name, what string, whole, after float64, subject string, batch, prompt int, v varied) figure {
	need := fmt.Sprintf("at least %.1fx", whole)
	if after > 0 {
		need += fmt.Sprintf(", %.1fx after the prompt", after)
	}
	return figure{name, what, need + " of the first side", func(ctx context.Context, b *bench) (*outcome, error) {
		folder, err := models.Cached(subject, say)
		if err != nil {
			return nil, err
		}
		tokens := 64
		if b.quick {
			tokens = quickTokens
		}
		options, err := v.search(tokens)
		if err != nil {
			return nil, err
		}
		sides := b.sides
		if len(sides) == 0 {
			sides = quantizedSides
		}
		r, err := generations.CompareAll(ctx, b.library, b.set, folder, generations.Options{
			A: "auto", B: sides[0], Others: sides[1:], Search: options, Batch: batch, PromptLength: prompt, Seed: v.seed,
			Rounds: max(1, b.rounds/8), CacheBytes: 4 << 30,
		})
		if err != nil {
			return nil, err
		}
		r.Model = filepath.Base(subject)
		out := &outcome{Detail: r, Met: true}
		for i, s := range r.Sides {
			if i == 0 {
				out.Met = s.Speedup.Median >= whole && s.DecodeSpeedup.Median >= after && s.MinDistinct >= distinct &&
					s.ReorderShare >= 0.5
			} else {
				out.Got, out.Answers = out.Got+"; ", out.Answers+", "
			}
			out.Got += fmt.Sprintf("%s %.2fx (95%% %.2f to %.2f), after the prompt %.2fx, %.1f -> %.1f tokens/s", s.Name,
				s.Speedup.Median, s.Speedup.CI95[0], s.Speedup.CI95[1],
				s.DecodeSpeedup.Median, r.A.TokensPerSecond, s.TokensPerSecond)
			if f := s.StepFloor; f != nil {
				out.Got += fmt.Sprintf(", a step %.1f ms, %.2fx its floor of %.0f MB at %.0f GB/s", f.StepMS, f.Ratio,
					float64(f.Bytes)/1e6, f.MemoryBandwidthGB)
			}
			out.Answers += fmt.Sprintf("%s: %d of %d sequences are float32's, at least %d distinct tokens, %.0f%% of steps "+
				"reorder", s.Name, s.Equal, s.Sequences,
				s.MinDistinct, 100*s.ReorderShare)
		}
		return out, nil
	}}
}

// quantizedFigures are those of weights in fewer bits that need no other engine.
func quantizedFigures() []figure {
	return []figure{
		quantizedStep(),
		quantizedGeneration("generate-gpt2-int8",
			"GPT-2-124M shape, prompt 704, beam 4, 64 new tokens, weights in fewer bits against float32", 1.8, 2.2, "gpt2-124m",
			1, 704, varied{1, 1.3}),
		quantizedGeneration("generate-gpt2-batch4-int8",
			"GPT-2-124M shape, prompt 704, beam 4, batch 4, 64 new tokens, likewise", 1.5, 0, "gpt2-124m", 4, 704,
			varied{1, 1.3}),
		quantizedGeneration("generate-bart-int8", "BART-large shape, 1,024 in, beam 4, batch 4, 64 new tokens, likewise", 1.6,
			0, "bart-large", 4, 1024, varied{3, 1.2}),
		quantizedGeneration("generate-t5-int8", "T5-base shape, 1,024 in, beam 4, batch 4, 64 new tokens, likewise", 1.6, 0,
			"t5-base", 4, 1024, varied{1, 1.3}),
		quantizedGeneration("generate-whisper-int8",
			"Whisper-small shape, 1,500 encoder positions, beam 4, batch 4, 64 new tokens, likewise", 1.6, 0, "whisper-small", 4,
			0, varied{1, 1.3}),
		whisperWords(),
	}
}
