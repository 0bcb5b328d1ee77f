package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/measure/comparison/divergence"
)

// Texts are read in windows of so many tokens, so far apart: a token is predicted from at least 256 before it, where
// its text has them.
const (
	perplexityWindow = 1024
	perplexityStride = 768
	perplexityTokens = 100_000 // where -tokens says nothing
	quickPerplexity  = 200     // with -quick
)

// perplexityRise is the most that int8 may lie above float32.
const perplexityRise = 1.005

// pieceRows are the tokens whose logits are computed at once.
const pieceRows = 128

// perplexityReport is the raw figures: perplexity of all sides over the same tokens.
type perplexityReport struct {
	SchemaVersion int               `json:"schema_version"`
	Model         string            `json:"model"`
	Texts         int               `json:"texts"`
	Window        int               `json:"window"`
	Stride        int               `json:"stride"`
	Read          int               `json:"tokens_read"` // windows overlap
	Predicted     int               `json:"tokens_predicted"`
	Sides         []*perplexitySide `json:"sides"` // float32 first
	Pairs         []perplexityPair  `json:"pairs"`
}

// perplexitySide is a model of some weights.
type perplexitySide struct {
	Name       string                 `json:"name"`
	Likelihood *divergence.Likelihood `json:"likelihood"`
	Divergence *divergence.Divergence `json:"divergence,omitempty"` // from float32
	Weights    *engine.WeightReport   `json:"weights"`
	Seconds    float64                `json:"reading"` // that all windows took

	generator *decode.Generator
}

// perplexityPair compares ours with the numbers of a peer's file of as many bits.
type perplexityPair struct {
	Ours  string     `json:"ours"`
	Peer  string     `json:"peer"`
	Ratio float64    `json:"perplexity_ratio"` // ours over the peer's
	CI95  [2]float64 `json:"perplexity_ratio_ci95"`

	a, b int // sides: the peer's, ours
	sums *divergence.Sides
}

// perplexity compares how well SmolLM2-135M predicts held-out English with weights in fewer bits. Of llama.cpp's
// files the weights are what matters: they are rounded as its tools do it, and run as float32 in the same engine as
// all others. llama.cpp itself rounds rows to eight bits as well, in the same groups: Q8_0 is run so too, where our
// integers of its numbers are its own, and so are ours.
func perplexity(venv string) figure {
	const what = "SmolLM2-135M (trained), perplexity of held-out English: float32, int8, int4, and the numbers of Q8_0 " +
		"and Q4_0 in float32"
	need := fmt.Sprintf("int8 at most %.1f %% above float32 and no worse than Q8_0, int4 no worse than Q4_0",
		100*(perplexityRise-1))
	return figure{"smollm2-perplexity", what, need, func(ctx context.Context, b *bench) (*outcome, error) {
		folder, err := trainedFolder(smollm2)
		if err != nil {
			return nil, err
		}
		texts, err := heldOutTokens(ctx, folder)
		if err != nil {
			return nil, err
		}
		r := &perplexityReport{SchemaVersion: 1, Model: smollm2, Window: perplexityWindow, Stride: perplexityStride}
		defer r.close()
		for _, s := range []struct{ weights, file string }{{"float32", ""}, {"int8", ""}, {"int4", ""}, {"float32", "Q8_0"},
			{"float32", "Q4_0"},
			{"int8,activations=int8", "Q8_0"}, {"int8,activations=int8", ""}} {
			from := folder
			if s.file != "" {
				if from, err = dequantized(ctx, venv, folder, s.file); err != nil {
					return nil, err
				}
			}
			if err := r.open(ctx, b, from, s.weights, s.file); err != nil {
				return nil, err
			}
		}
		tokens := b.tokens
		if b.quick {
			tokens = quickPerplexity
		}
		if err := r.read(ctx, texts, tokens); err != nil {
			return nil, err
		}
		return r.outcome(), nil
	}}
}

// dequantized is a folder of the model whose weights have the numbers of one of llama.cpp's types, as float32.
func dequantized(ctx context.Context, venv, folder, file string) (string, error) {
	p, err := startPeer(ctx, venv, "dequantized", smollm2+"@"+folder, file)
	if err != nil {
		return "", err
	}
	defer p.close()
	made, ok := p.hello.Settings["folder"].(string)
	if !ok {
		return "", fmt.Errorf("%s: the script said no folder: %v", file, p.hello.Settings)
	}
	return made, nil
}

func (r *perplexityReport) open(ctx context.Context, b *bench, folder, weights, file string) error {
	w, err := prepare.ParseWeights(weights)
	if err != nil {
		return err
	}
	s := &perplexitySide{Name: weights}
	if file != "" {
		s.Name = file + ", rows of " + weights
	}
	if s.generator, err = decode.Open(ctx, folder,
		decode.Options{Library: b.library, Plugins: b.set, CacheBytes: 1 << 30, Batch: 1, MaxPositions: perplexityWindow,
			Weights: w}); err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	s.Weights = s.generator.Weights()
	r.Sides = append(r.Sides, s)
	return nil
}

func (r *perplexityReport) close() {
	for _, s := range r.Sides {
		s.generator.Close()
	}
}

// perplexityPart is a window of a text.
type perplexityPart struct {
	text int
	divergence.Window
}

// perplexityParts cuts texts into windows until so many tokens are predicted.
func perplexityParts(texts [][]int32, window, stride, tokens int) (list []perplexityPart, err error) {
	for i, text := range texts {
		windows, err := divergence.Windows(len(text), 1, window, stride)
		if err != nil {
			return nil, err
		}
		for _, w := range windows {
			w.End = min(w.End, w.From+tokens)
			if w.End == w.From {
				return list, nil
			}
			tokens -= w.End - w.From
			list = append(list, perplexityPart{i, w})
		}
	}
	return list, nil
}

// read feeds all windows to all sides.
func (r *perplexityReport) read(ctx context.Context, texts [][]int32, tokens int) error {
	vocab := r.Sides[0].generator.Config().Vocab
	parts, err := perplexityParts(texts, r.Window, r.Stride, tokens)
	if err != nil {
		return err
	}
	seen := map[int]bool{}
	for _, p := range parts {
		seen[p.text] = true
		r.Read, r.Predicted = r.Read+p.End-1-p.Begin, r.Predicted+p.End-p.From
	}
	r.Texts = len(seen)
	operations := 0.
	for _, w := range r.Sides[0].Weights.Linear {
		operations += 2 * float64(w.Float32Bytes/4) * float64(r.Read)
	}
	fmt.Fprintf(os.Stderr, "smollm2-perplexity: %d tokens are predicted, %d read in %d windows, at most %.1f TFLOP for "+
		"each of %d sides\n",
		r.Predicted, r.Read, len(parts), operations/1e12, len(r.Sides))
	all := divergence.New(len(r.Sides), vocab)
	r.Pairs = []perplexityPair{{a: 3, b: 1}, {a: 4, b: 2}, {a: 5, b: 1}, {a: 5, b: 6}}
	for i := range r.Pairs {
		r.Pairs[i].sums = divergence.New(2, vocab)
	}
	start, told := time.Now(), 0
	for i, p := range parts {
		if err := r.window(ctx, texts[p.text], p, all); err != nil {
			return fmt.Errorf("text %d, token %d: %w", p.text, p.Begin, err)
		}
		if tenth := 10 * (i + 1) / len(parts); tenth > told || i == 0 {
			told = tenth
			fmt.Fprintf(os.Stderr, "smollm2-perplexity: %d of %d windows in %s\n", i+1, len(parts),
				time.Since(start).Round(time.Second))
		}
	}
	for i, s := range r.Sides {
		s.Likelihood = all.Likelihood(i)
		if i > 0 {
			s.Divergence = all.Divergence(i)
		}
	}
	for i := range r.Pairs {
		p := &r.Pairs[i]
		d := p.sums.Divergence(1)
		p.Ours, p.Peer, p.Ratio, p.CI95 = r.Sides[p.b].Name, r.Sides[p.a].Name, d.PerplexityRatio, d.RatioCI95
	}
	return nil
}

// window feeds one window to all sides, whose logits are compared piece by piece.
func (r *perplexityReport) window(ctx context.Context, tokens []int32, p perplexityPart, all *divergence.Sides) error {
	begun := make([]decode.Forced, len(r.Sides))
	defer func() {
		for _, f := range begun {
			if f != nil {
				f.Close()
			}
		}
	}()
	logits := make([][]float32, len(r.Sides))
	for from := p.From; from < p.End; from += pieceRows {
		n := min(pieceRows, p.End-from)
		for i, s := range r.Sides {
			start := time.Now()
			var err error
			if begun[i] == nil {
				if begun[i], err = s.generator.Force(ctx, &decode.Input{Tokens: tokens[p.Begin : p.End-1]}); err != nil {
					return fmt.Errorf("%s: %w", s.Name, err)
				}
				if err := begun[i].Skip(ctx, p.From-1-p.Begin); err != nil {
					return fmt.Errorf("%s: %w", s.Name, err)
				}
			}
			if logits[i], err = begun[i].Next(ctx, n); err != nil {
				return fmt.Errorf("%s: %w", s.Name, err)
			}
			s.Seconds += time.Since(start).Seconds()
		}
		targets := tokens[from : from+n]
		if err := all.Add(p.text, from, targets, logits); err != nil {
			return err
		}
		for _, pair := range r.Pairs {
			if err := pair.sums.Add(p.text, from, targets, [][]float32{logits[pair.a], logits[pair.b]}); err != nil {
				return err
			}
		}
	}
	return nil
}

// outcome: a side is no worse than another where it is not significantly worse.
func (r *perplexityReport) outcome() *outcome {
	out := &outcome{Detail: r,
		Answers: fmt.Sprintf("%d tokens of %d texts, windows of %d, %d apart", r.Predicted, r.Texts, r.Window, r.Stride)}
	var got []string
	for i, s := range r.Sides {
		text := fmt.Sprintf("%s %.4f", s.Name, s.Likelihood.Perplexity)
		if i > 0 {
			text += fmt.Sprintf(" (%+.3f %%, KL %.5f, %.1f %% of greedy tokens equal)", 100*(s.Divergence.PerplexityRatio-1),
				s.Divergence.KLMean, 100*s.Divergence.EqualShare())
		}
		got = append(got, text)
	}
	out.Met = r.Sides[1].Divergence.PerplexityRatio <= perplexityRise
	for _, p := range r.Pairs {
		got = append(got, fmt.Sprintf("%s over %s %+.3f %% (95%% %+.3f to %+.3f)", p.Ours, p.Peer, 100*(p.Ratio-1),
			100*(p.CI95[0]-1), 100*(p.CI95[1]-1)))
		out.Met = out.Met && p.CI95[0] <= 1
	}
	out.Got = strings.Join(got, "; ")
	return out
}
