package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/measure/statistics"
)

// quantizedCase is what a case has beside where weights are in fewer bits on both sides.
type quantizedCase struct {
	weights string // of the engine
	// check is the peer's way in float32, or the nearest to it that it has, whose greedy tokens must be those of the
	// engine in float32: two roundings to fewer bits need not agree.
	check   string
	trained bool // a model of make trained-models, and texts
	whole   bool // the peer does not say when it has the first token
}

// quantizedResult is what such a comparison says beside.
type quantizedResult struct {
	Weights *engine.WeightReport `json:"weights"` // of the engine
	Checked string               `json:"checked_way"`
	// Float32Equal counts greedy tokens of the checked way that are those of the engine in float32.
	Float32Equal  int `json:"float32_tokens_equal"`
	Float32Tokens int `json:"float32_tokens"`
	// After is the speed-up of what follows the first token of every input; nil where the peer does not say when that was.
	After *statistics.Speedup `json:"speedup_after_prompt,omitempty"`
	StepA float64             `json:"a_ms_a_token,omitempty"` // medians, after the first token
	StepB float64             `json:"b_ms_a_token,omitempty"`
}

// The tokens of SmolLM2's figures.
const smollm2Prompt, smollm2Tokens = 128, 128

// quantizedPeers are the cases with weights in fewer bits.
func quantizedPeers() []peerCase {
	const ct2What = "%s, beam 4, 64 new tokens, int8, against CTranslate2's int8"
	var list []peerCase
	for _, c := range []struct {
		name, what string
		subject    peerSubject
	}{
		{"gpt2", "GPT-2-124M shape, prompt 704, batch 1", peerGPT2},
		{"gpt2-batch4", "GPT-2-124M shape, prompt 704, batch 4", peerGPT2Batch4},
		{"bart", "BART-large shape, 1,024 in, batch 4", peerBART}, {"t5", "T5-base shape, 1,024 in, batch 4", peerT5},
		{"whisper", "Whisper-small shape, 1,500 encoder positions, batch 4", peerWhisper},
	} {
		list = append(list, peerCase{"peer-ct2-" + c.name + "-int8", fmt.Sprintf(ct2What, c.what), 1.5, "ct2",
			[]string{"int8", "int8_float32", "int8_float32+mkl"},
			c.subject, peerBeams, peerTokens, &quantizedCase{weights: "int8", check: "float32", whole: true}})
	}
	for _, c := range []struct {
		rows, beams int
		subject     peerSubject
		least       float64
	}{{1, 1, peerGPT2, 1}, {4, 4, peerGPT2, 2}, {16, 4, peerGPT2Batch4, 2}} {
		rows := fmt.Sprintf("rows%d", c.rows)
		what := fmt.Sprintf("GPT-2-124M shape, prompt 704, %d requests of %d beams, 64 new tokens", c.subject.batch, c.beams)
		list = append(list,
			peerCase{"peer-ort-gpt2-int8-" + rows,
				what + ", int8, against ONNX Runtime's dynamic int8 and MatMulNBits of 8 bits", c.least, "ort",
				ortWays("dynamic-int8", "dynamic-int8-columns", "nbits-8"),
				c.subject, c.beams, peerTokens, &quantizedCase{weights: "int8", check: "group-query"}},
			peerCase{"peer-ort-gpt2-int4-" + rows, what + ", int4, against ONNX Runtime's MatMulNBits of 4 bits", 1, "ort",
				ortWays("nbits-4"),
				c.subject, c.beams, peerTokens, &quantizedCase{weights: "int4", check: "group-query"}})
	}
	for _, c := range []struct {
		batch int
		least float64
	}{{1, 1}, {4, 2}} {
		rows := fmt.Sprintf("rows%d", c.batch)
		what := fmt.Sprintf("SmolLM2-135M (trained), %d requests, prompt %d, %d greedy tokens", c.batch, smollm2Prompt,
			smollm2Tokens)
		subject := peerSubject{smollm2, c.batch, smollm2Prompt, 0}
		for _, t := range []struct{ weights, file string }{{"int8", "Q8_0"}, {"int4", "Q4_0"}} {
			list = append(list,
				peerCase{"peer-llamacpp-smollm2-" + t.weights + "-" + rows,
					what + ", " + t.weights + ", against llama.cpp's " + t.file, c.least, "llamacpp",
					[]string{t.file, t.file + "+no-flash-attention"}, subject, 1, smollm2Tokens,
					&quantizedCase{weights: t.weights, check: "F32", trained: true}},
				peerCase{"peer-openvino-smollm2-" + t.weights + "-" + rows,
					what + ", " + t.weights + ", against OpenVINO GenAI over the same " + t.file, 1, "openvino_llm",
					[]string{t.file, t.file + "+sdpa"}, subject, 1, smollm2Tokens,
					&quantizedCase{weights: t.weights, check: "Q8_0", trained: true}})
		}
	}
	return list
}

// ortWays are the graphs that are fast in float32, in each of some quantisations.
func ortWays(quantizations ...string) (ways []string) {
	for _, q := range quantizations {
		ways = append(ways, "group-query/"+q, "masked-attention/"+q)
	}
	return ways
}

// checked compares the peer in float32 with the engine in float32.
func (c peerCase) checked(ctx context.Context, b *bench, venv string) (*quantizedResult, error) {
	r := &quantizedResult{Checked: c.fewer.check}
	own, err := c.open(ctx, b, "")
	if err != nil {
		return nil, err
	}
	defer own.close()
	p, err := c.start(ctx, venv, r.Checked)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if r.Float32Equal, r.Float32Tokens, err = equalGreedy(ctx, p, own); err != nil {
		return nil, err
	}
	if err := sameModel(r.Float32Equal, r.Float32Tokens); err != nil {
		return nil, fmt.Errorf("%s beside float32: %w", r.Checked, err)
	}
	return r, nil
}

// after are the seconds that follow the first token of each run.
func (s *peerSide) after() []float64 {
	list := slices.Clone(s.Seconds)
	for i := range list {
		list[i] -= s.FirstSeconds[i]
	}
	return list
}

// quantizedOutcome says what came out where weights are in fewer bits.
func (r *peerResult) quantizedOutcome(c peerCase) (*outcome, error) {
	out := &outcome{Detail: r, Met: r.Speedup.Median >= c.least}
	if r.Beams > 1 {
		out.Met = out.Met && min(r.A.Distinct, r.B.Distinct) >= distinct && r.ReorderShare >= 0.5
	}
	out.Got = fmt.Sprintf("%.2fx (95%% %.2f to %.2f), %.1f -> %.1f tokens/s", r.Speedup.Median, r.Speedup.CI95[0],
		r.Speedup.CI95[1], r.A.TokensPerSecond, r.B.TokensPerSecond)
	if !c.fewer.whole {
		if len(r.A.FirstSeconds) != len(r.A.Seconds) || len(r.B.FirstSeconds) != len(r.B.Seconds) {
			return nil, fmt.Errorf("%s says of %d of %d runs when they had the first token, graft of %d of %d", r.A.Name,
				len(r.A.FirstSeconds), len(r.A.Seconds), len(r.B.FirstSeconds), len(r.B.Seconds))
		}
		a, b := r.A.after(), r.B.after()
		after := statistics.SpeedupOf(a, b)
		steps := float64(r.newTokens() - 1)
		r.After, r.StepA, r.StepB = &after, 1e3*statistics.Median(a)/steps, 1e3*statistics.Median(b)/steps
		out.Met = out.Met && after.Median >= c.least
		out.Got += fmt.Sprintf("; after the prompt %.2fx (95%% %.2f to %.2f), a step %.2f -> %.2f ms", after.Median,
			after.CI95[0], after.CI95[1], r.StepA, r.StepB)
	}
	out.Answers = fmt.Sprintf("%d of %d greedy tokens of the peer's %s are those of float32; quantised %d of %d greedy "+
		"tokens and %d of %d best sequences%s", r.Float32Equal, r.Float32Tokens, r.Checked, r.GreedyEqual, r.GreedyTokens,
		r.BeamsEqual, r.Batch, r.tried())
	return out, nil
}
