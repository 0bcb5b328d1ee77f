package main

import (
	"context"
	"fmt"

	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
)

// step is a figure of one step's time: model A as it is against model B patched.
func step(name, what string, least float64, modelA, modelB [2]string, dims map[string]int64) figure {
	return figure{name, what, fmt.Sprintf("at least %.2fx", least), func(ctx context.Context, b *bench) (*outcome, error) {
		a, err := subject(modelA[0], modelA[1])
		if err != nil {
			return nil, err
		}
		o := comparison.Options{A: "none", B: "auto", Inputs: inputs.Options{Seed: 1, Dims: dims}, Rounds: b.rounds,
			Warmup: 3}
		if modelB != modelA {
			if o.ModelB, err = subject(modelB[0], modelB[1]); err != nil {
				return nil, err
			}
		}
		r, err := comparison.Run(ctx, b.library, b.set, a, o)
		if err != nil {
			return nil, err
		}
		// Where the cache lies says nothing about the figure.
		r.Model = modelA[0] + "/" + modelA[1]
		if r.ModelB != "" {
			r.ModelB = modelB[0] + "/" + modelB[1]
		}
		out := &outcome{Detail: r, Met: r.Speedup.Median >= least && r.Parity.OK}
		out.Got = fmt.Sprintf("%.2fx (95%% %.2f to %.2f): %.2f ms -> %.2f ms, %d of %d blocks replaced",
			r.Speedup.Median, r.Speedup.CI95[0], r.Speedup.CI95[1], r.A.MedianMS, r.B.MedianMS, r.B.Replaced, r.B.Blocks)
		out.Answers = "answers equal"
		if !r.Parity.OK {
			out.Answers = "answers DIFFER"
		}
		return out, nil
	}}
}

func figures() []figure {
	gpt2, scaled, fused := [2]string{"gpt2-124m", "model.onnx"}, [2]string{"gpt2-124m-runtime-scale", "model.onnx"},
		[2]string{"gpt2-124m-mha", "model.onnx"}
	bart := [2]string{"bart-large", "decoder_with_past_model.onnx"}
	long := map[string]int64{"batch_size": 4, "past_sequence_length": 960}
	short := map[string]int64{"batch_size": 1, "past_sequence_length": 16}
	return append([]figure{
		step("gpt2-long", "GPT-2-124M with past, fp32, batch 4, past 960, against ONNX Runtime", 1.25, gpt2, gpt2, long),
		step("gpt2-long-runtime-scale", "the same where the graph computes its scale at run time", 1.8, scaled, scaled, long),
		step("gpt2-long-mha", "the same against ONNX Runtime's fused MultiHeadAttention with past", 1.1, fused, gpt2, long),
		step("gpt2-short", "the same at batch 1, past 16", 0.98, gpt2, gpt2, short),
		step("bart-large", "BART-large decoder with past, fp32, 16 rows, 1,024 encoder positions", 1.3, bart, bart,
			map[string]int64{"batch_size": 16, "encoder_sequence_length": 1024, "past_decoder_sequence_length": 64}),
		prefill(),
		opening("opening-gpt2", "gpt2-124m", 2),
		opening("opening-bart", "bart-large", 2),
		linear(false),
		linear(true),
		tokens(),
		generation("generate-gpt2", "GPT-2-124M shape, prompt 704, beam 4, 64 new tokens, against the model as exported", 2.5,
			"gpt2-124m", 1, 704, 64, varied{1, 1.3}),
		generation("generate-gpt2-batch4", "the same, batch 4", 3.5, "gpt2-124m", 4, 704, 64, varied{1, 1.3}),
		generation("generate-bart", "BART-large shape, 1,024 in, beam 4, batch 4, 64 new tokens, likewise", 1.6, "bart-large",
			4, 1024, 64, varied{3, 1.2}),
		generation("generate-t5", "T5-base shape, 1,024 in, beam 4, batch 4, 64 new tokens, likewise", 1.4, "t5-base", 4,
			1024, 64, varied{1, 1.3}),
		generation("generate-whisper",
			"Whisper-small shape, 1,500 encoder positions, beam 4, batch 4, 64 new tokens, likewise", 1.4, "whisper-small", 4, 0,
			64, varied{1, 1.3}),
		pipelineFigure(),
		planner(),
		profile("profile-gpt2", "what generate-gpt2's time goes into", "gpt2-124m", 704, 64, varied{1, 1.3}),
		profile("profile-bart", "what the decoder of generate-bart's time goes into, one request", "bart-large", 1024, 64,
			varied{3, 1.2}),
	}, append(loads(), attentionFigures()...)...)
}
