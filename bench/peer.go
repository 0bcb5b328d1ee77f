package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/opgraft/graft/host/decode"
	"github.com/opgraft/graft/host/decode/engine"
	"github.com/opgraft/graft/host/decode/search"
	"github.com/opgraft/graft/host/statistics"
	"github.com/opgraft/graft/models"
)

// The search of every case.
const peerBeams, peerTokens = 4, 64

// rest is how long a side's threads have to fall asleep before the other is timed.
const rest = 300 * time.Millisecond

// peerCase is a generation that another engine does too, on the same weights.
type peerCase struct {
	name, what string
	least      float64
	peer       string   // module of bench/peers
	ways       []string // of using the peer: the fastest is compared
	subject    string
	batch      int
	input      int    // tokens of an input; 0 for features
	seed       uint64 // of the inputs: one whose beams change places
}

func peerFigures(venv string) []figure {
	var list []figure
	for _, c := range []peerCase{
		{"peer-ct2-gpt2", "GPT-2-124M shape, prompt 704, beam 4, 64 new tokens, fp32, against CTranslate2", 1.3, "ct2", []string{"float32"}, "gpt2-124m", 1, 704, 1},
		{"peer-ct2-gpt2-batch4", "the same, batch 4", 1.3, "ct2", []string{"float32"}, "gpt2-124m", 4, 704, 1},
		{"peer-ct2-bart", "BART-large shape, 1,024 in, beam 4, batch 4, 64 new tokens, fp32, against CTranslate2", 1, "ct2", []string{"float32"}, "bart-large", 4, 1024, 4},
		{"peer-ct2-t5", "T5-base shape, likewise", 1, "ct2", []string{"float32"}, "t5-base", 4, 1024, 1},
		{"peer-ct2-whisper", "Whisper-small shape, 1,500 encoder positions, likewise", 1, "ct2", []string{"float32"}, "whisper-small", 4, 0, 1},
		{"peer-ort-gpt2", "GPT-2-124M shape, prompt 704, beam 4, 64 new tokens, fp32, against ONNX Runtime at its best", 1.5, "ort",
			[]string{"group-query", "masked-attention", "beam-search", "genai"}, "gpt2-124m", 1, 704, 1},
	} {
		list = append(list, figure{c.name, c.what, fmt.Sprintf("at least %.1fx, the same model", c.least), func(ctx context.Context, b *bench) (*outcome, error) {
			return c.run(ctx, b, venv)
		}})
	}
	return list
}

// peerSide is what one engine took.
type peerSide struct {
	Name            string            `json:"name"`
	Versions        map[string]string `json:"versions,omitempty"`
	Settings        map[string]any    `json:"settings,omitempty"`
	Plugins         []string          `json:"plugins,omitempty"`
	Seconds         []float64         `json:"seconds"` // of whole generations
	TokensPerSecond float64           `json:"tokens_per_second"`
	Distinct        int               `json:"min_distinct_tokens"`
}

// peerResult compares graft with a peer: A is the peer, B the engine.
type peerResult struct {
	SchemaVersion int     `json:"schema_version"`
	Model         string  `json:"model"`
	Batch         int     `json:"batch"`
	InputTokens   int     `json:"input_tokens,omitempty"`
	InputFeatures []int64 `json:"input_features,omitempty"`
	NewTokens     int     `json:"new_tokens"` // of the best sequences, all inputs
	Beams         int     `json:"beams"`
	// GreedyEqual counts tokens of a greedy run that are the same on both sides, up to
	// the first that is not; BeamsEqual the best sequences that are.
	GreedyEqual  int                `json:"greedy_tokens_equal"`
	GreedyTokens int                `json:"greedy_tokens"`
	BeamsEqual   int                `json:"beam_sequences_equal"`
	ReorderShare float64            `json:"reorder_share"` // of the engine's steps
	A            peerSide           `json:"a"`
	B            peerSide           `json:"b"`
	Speedup      statistics.Speedup `json:"speedup"`
	Ways         []peerTrial        `json:"ways,omitempty"` // of using the peer, where there are several
}

// peerTrial is one way of using a peer, tried before the fastest is compared.
type peerTrial struct {
	Way     string    `json:"way"`
	Seconds []float64 `json:"seconds,omitempty"`
	Equal   int       `json:"beam_sequences_equal"` // to the engine's
	Error   string    `json:"error,omitempty"`
}

// run compares the engine with the fastest way to use the peer.
func (c peerCase) run(ctx context.Context, b *bench, venv string) (*outcome, error) {
	folder, err := models.Cached(c.subject, say)
	if err != nil {
		return nil, err
	}
	g, err := decode.Open(folder, decode.Options{Library: b.library, Plugins: b.set, CacheBytes: 8 << 30, Batch: c.batch})
	if err != nil {
		return nil, err
	}
	defer g.Close()
	own, err := newPeerWork(g, c)
	if err != nil {
		return nil, err
	}
	way, trials, err := c.fastest(ctx, venv, own)
	if err != nil {
		return nil, err
	}
	p, err := startPeer(ctx, venv, c.peer, c.subject, way)
	if err != nil {
		return nil, err
	}
	defer p.close()
	r := &peerResult{SchemaVersion: 1, Model: c.subject, Batch: c.batch, InputTokens: c.input, Beams: peerBeams, NewTokens: peerTokens * c.batch, Ways: trials,
		A: peerSide{Name: c.peer + " " + way, Versions: p.hello.Versions, Settings: p.hello.Settings},
		B: peerSide{Name: "graft", Plugins: g.Engine().Plugins()}}
	if own.features != nil {
		r.InputFeatures = own.features.Shape
	}
	if err := r.same(ctx, p, own); err != nil {
		return nil, err
	}
	for range max(1, b.rounds/8) {
		if err := r.round(ctx, p, own); err != nil {
			return nil, err
		}
	}
	for _, s := range []*peerSide{&r.A, &r.B} {
		s.TokensPerSecond = float64(r.NewTokens) / statistics.Median(s.Seconds)
	}
	r.Speedup = statistics.SpeedupOf(r.A.Seconds, r.B.Seconds)
	r.ReorderShare = own.reorderShare()
	return r.outcome(c), nil
}

// fastest tries every way to use the peer, four times, twice where it is hopeless.
func (c peerCase) fastest(ctx context.Context, venv string, own *peerWork) (string, []peerTrial, error) {
	if len(c.ways) == 1 {
		return c.ways[0], nil, nil
	}
	r := own.request(peerBeams, peerTokens)
	mine, _, err := own.run(ctx, peerBeams, peerTokens)
	if err != nil {
		return "", nil, err
	}
	chosen, least := "", math.Inf(1)
	var trials []peerTrial
	for _, way := range c.ways {
		t := c.try(ctx, venv, way, r, mine, 2*least)
		if err := ctx.Err(); err != nil {
			return "", nil, err
		}
		if t.Error == "" && slices.Min(t.Seconds) < least {
			chosen, least = way, slices.Min(t.Seconds)
		}
		trials = append(trials, t)
	}
	if chosen == "" {
		return "", nil, fmt.Errorf("no way to use the peer %s works: %+v", c.peer, trials)
	}
	return chosen, trials, nil
}

// try times one way, a third and a fourth time only where that took less than limit.
func (c peerCase) try(ctx context.Context, venv, way string, r peerRequest, mine [][]int32, limit float64) peerTrial {
	t := peerTrial{Way: way}
	p, err := startPeer(ctx, venv, c.peer, c.subject, way)
	if err != nil {
		t.Error = err.Error()
		return t
	}
	defer p.close()
	for len(t.Seconds) < 2 || len(t.Seconds) < 4 && slices.Min(t.Seconds) < limit {
		a, err := p.generate(r)
		if err != nil {
			t.Error = err.Error()
			return t
		}
		t.Seconds, t.Equal = append(t.Seconds, a.Seconds), equalSequences(mine, a.Tokens)
	}
	return t
}

func equalSequences(a, b [][]int32) int {
	n := 0
	for i := range a {
		if slices.Equal(a[i], b[i]) {
			n++
		}
	}
	return n
}

// same runs both sides once before they are timed, greedily and with beams, and
// notes what agrees.
func (r *peerResult) same(ctx context.Context, p *peerProcess, own *peerWork) error {
	const tokens = 16
	greedy, err := p.generate(own.request(1, tokens))
	if err != nil {
		return err
	}
	mine, _, err := own.run(ctx, 1, tokens)
	if err != nil {
		return err
	}
	for i := range mine {
		r.GreedyTokens += tokens
		r.GreedyEqual += prefix(mine[i], greedy.Tokens[i])
	}
	if r.GreedyEqual < r.GreedyTokens/4 {
		return fmt.Errorf("%d of %d greedy tokens are the peer's: the two do not run the same model", r.GreedyEqual, r.GreedyTokens)
	}
	theirs, err := p.generate(own.request(peerBeams, peerTokens))
	if err != nil {
		return err
	}
	if mine, _, err = own.run(ctx, peerBeams, peerTokens); err != nil {
		return err
	}
	r.BeamsEqual = equalSequences(mine, theirs.Tokens)
	r.A.Distinct, r.B.Distinct = leastDistinct(theirs.Tokens), leastDistinct(mine)
	return nil
}

// round times A B B A.
func (r *peerResult) round(ctx context.Context, p *peerProcess, own *peerWork) error {
	for _, theirs := range []bool{true, false, false, true} {
		time.Sleep(rest)
		if theirs {
			a, err := p.generate(own.request(peerBeams, peerTokens))
			if err != nil {
				return err
			}
			r.A.Seconds = append(r.A.Seconds, a.Seconds)
			continue
		}
		_, took, err := own.run(ctx, peerBeams, peerTokens)
		if err != nil {
			return err
		}
		r.B.Seconds = append(r.B.Seconds, took.Seconds())
	}
	return nil
}

func (r *peerResult) outcome(c peerCase) *outcome {
	out := &outcome{Detail: r}
	out.Met = r.Speedup.Median >= c.least && min(r.A.Distinct, r.B.Distinct) >= distinct && r.ReorderShare >= 0.5
	out.Got = fmt.Sprintf("%.2fx (95%% %.2f to %.2f), %.1f -> %.1f tokens/s; at least %d distinct tokens, %.0f%% of steps reorder",
		r.Speedup.Median, r.Speedup.CI95[0], r.Speedup.CI95[1], r.A.TokensPerSecond, r.B.TokensPerSecond, r.B.Distinct, 100*r.ReorderShare)
	out.Answers = fmt.Sprintf("%d of %d greedy tokens and %d of %d best sequences are the peer's", r.GreedyEqual, r.GreedyTokens, r.BeamsEqual, r.Batch)
	var tried []string
	for _, t := range r.Ways {
		if t.Error != "" {
			tried = append(tried, t.Way+": "+t.Error)
		} else {
			tried = append(tried, fmt.Sprintf("%s %.2f s", t.Way, slices.Min(t.Seconds)))
		}
	}
	if tried != nil {
		out.Answers += "; ways: " + strings.Join(tried, ", ")
	}
	return out
}

// prefix is how many tokens two sequences begin with in common.
func prefix(a, b []int32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func leastDistinct(sequences [][]int32) int {
	least := -1
	for _, s := range sequences {
		seen := map[int32]bool{}
		for _, t := range s {
			seen[t] = true
		}
		if least < 0 || len(seen) < least {
			least = len(seen)
		}
	}
	return least
}

// peerWork is the engine's side of a case.
type peerWork struct {
	generator *decode.Generator
	inputs    []*decode.Input
	features  *peerFeatures
	start     []int32 // of a speech model's decoder
	banned    []int32 // tokens that no output has, the end token first
	// Of all requests so far.
	steps, reorders int
}

// The names that make CTranslate2 transcribe English without timestamps.
var transcribe = []int32{50258, 50259, 50359, 50363}

// endOfText is the end token that CTranslate2 knows of a Whisper vocabulary.
const endOfText = 50257

func newPeerWork(g *decode.Generator, c peerCase) (*peerWork, error) {
	o := g.Search()
	if len(o.EOSTokenID) != 1 {
		return nil, fmt.Errorf("%s: its configuration names %d end tokens: the comparison bans one", c.subject, len(o.EOSTokenID))
	}
	w := &peerWork{generator: g, banned: o.EOSTokenID}
	if shape := g.Config().FeatureShape(); shape != nil {
		w.features = &peerFeatures{Name: "features", Shape: append([]int64{int64(c.batch)}, shape[1:]...)}
		w.start, w.banned = transcribe, append([]int32{endOfText}, transcribe...)
		each := int(shape[1] * shape[2])
		values := models.Normal(c.seed, w.features.Name, c.batch*each)
		for i := range c.batch {
			w.inputs = append(w.inputs, &decode.Input{Index: uint64(i), Prompt: w.start[1:],
				Features: &engine.Features{Values: values[i*each : (i+1)*each], Shape: shape}})
		}
		return w, nil
	}
	r := rand.New(rand.NewPCG(c.seed, uint64(c.input)))
	tokens := make([]int32, c.input)
	for i := range tokens {
		tokens[i] = int32(r.IntN(g.Config().Vocab))
	}
	for i := range c.batch {
		r.Shuffle(len(tokens), func(i, j int) { tokens[i], tokens[j] = tokens[j], tokens[i] })
		w.inputs = append(w.inputs, &decode.Input{Index: uint64(i), Tokens: slices.Clone(tokens)})
	}
	// What the decoder begins with is no output either, where every engine has its
	// own view of whether that counts as a repetition.
	if g.Engine().HasEncoder() {
		start, err := o.DecoderPrompt()
		if err != nil {
			return nil, err
		}
		tokens = start
	}
	w.banned = append(slices.Clone(w.banned), tokens...)
	return w, nil
}

// request asks the peer for what run does. No token comes twice in an output, and none
// of the decoder's prompt: random weights would repeat themselves, and this is a rule
// that all engines have in common.
func (w *peerWork) request(beams, tokens int) peerRequest {
	r := peerRequest{Features: w.features, Prompt: w.start, Banned: w.banned, Beams: beams, NewTokens: tokens, NoRepeatNgramSize: 1}
	if w.features == nil {
		for _, in := range w.inputs {
			r.Inputs = append(r.Inputs, in.Tokens)
		}
	}
	return r
}

// run generates the best sequence of every input.
func (w *peerWork) run(ctx context.Context, beams, tokens int) ([][]int32, time.Duration, error) {
	options := map[string]any{
		"num_beams": beams, "max_new_tokens": tokens, "no_repeat_ngram_size": 1, "early_stopping": false,
		// No end, and scores as softmax gives them after what is banned, as peers do it.
		"eos_token_id": []int{}, "suppress_tokens": w.banned, "renormalize_logits": true,
		"forced_bos_token_id": nil, "forced_eos_token_id": nil,
	}
	if w.start != nil {
		options["decoder_start_token_id"] = w.start[0]
	}
	object, err := json.Marshal(options)
	if err != nil {
		return nil, 0, err
	}
	o, err := w.generator.SearchWith(object)
	if err != nil {
		return nil, 0, err
	}
	results := make([][]int32, len(w.inputs))
	i := -1
	start := time.Now()
	err = w.generator.Run(ctx, o, func() (*decode.Input, error) {
		if i++; i >= len(w.inputs) {
			return nil, nil
		}
		return w.inputs[i], nil
	}, func(out decode.Output) error {
		results[out.Index] = best(out.Hypotheses)
		if beams > 1 {
			w.steps, w.reorders = w.steps+out.Steps, w.reorders+out.Reorders
		}
		return nil
	})
	return results, time.Since(start), err
}

func best(list []search.Hypothesis) []int32 {
	if len(list) == 0 {
		return nil
	}
	return list[0].Tokens
}

func (w *peerWork) reorderShare() float64 { return float64(w.reorders) / float64(max(w.steps, 1)) }
