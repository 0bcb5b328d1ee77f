package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/opgraft/graft/host/measure/statistics"
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
	subject    peerSubject

	beams, tokens int            // of the search
	fewer         *quantizedCase // where weights are in fewer bits on both sides
}

// peerSubject is a model and what it is given.
type peerSubject struct {
	model string
	batch int
	input int    // tokens of an input; 0 for features
	seed  uint64 // of the inputs: one whose beams change places
}

// What the figures of peers generate from.
var (
	peerGPT2       = peerSubject{"gpt2-124m", 1, 704, 1}
	peerGPT2Batch4 = peerSubject{"gpt2-124m", 4, 704, 1}
	peerBART       = peerSubject{"bart-large", 4, 1024, 4}
	peerT5         = peerSubject{"t5-base", 4, 1024, 1}
	peerWhisper    = peerSubject{"whisper-small", 4, 0, 1}
)

func peerFigures(venv string) []figure {
	float32Only := []string{"float32"}
	var list []figure
	for _, c := range slices.Concat([]peerCase{
		{"peer-ct2-gpt2", "GPT-2-124M shape, prompt 704, beam 4, 64 new tokens, fp32, against CTranslate2", 1.3, "ct2",
			float32Only, peerGPT2, peerBeams, peerTokens, nil},
		{"peer-ct2-gpt2-batch4", "the same, batch 4", 1.3, "ct2", float32Only, peerGPT2Batch4, peerBeams, peerTokens, nil},
		{"peer-ct2-bart", "BART-large shape, 1,024 in, beam 4, batch 4, 64 new tokens, fp32, against CTranslate2", 1, "ct2",
			float32Only, peerBART, peerBeams, peerTokens, nil},
		{"peer-ct2-t5", "T5-base shape, likewise", 1, "ct2", float32Only, peerT5, peerBeams, peerTokens, nil},
		{"peer-ct2-whisper", "Whisper-small shape, 1,500 encoder positions, likewise", 1, "ct2", float32Only, peerWhisper,
			peerBeams, peerTokens, nil},
		{"peer-ort-gpt2", "GPT-2-124M shape, prompt 704, beam 4, 64 new tokens, fp32, against ONNX Runtime at its best", 1.5,
			"ort",
			[]string{"group-query", "masked-attention", "beam-search", "genai"}, peerGPT2, peerBeams, peerTokens, nil},
	}, quantizedPeers()) {
		list = append(list, figure{c.name, c.what, c.need(), func(ctx context.Context, b *bench) (*outcome, error) {
			return c.run(ctx, b, venv)
		}})
	}
	return append(list, perplexity(venv))
}

// need is what is asked for.
func (c peerCase) need() string {
	if c.fewer != nil && !c.fewer.whole {
		return fmt.Sprintf("at least %.1fx, whole and after the prompt, the same model", c.least)
	}
	return fmt.Sprintf("at least %.1fx, the same model", c.least)
}

// peerSide is what one engine took.
type peerSide struct {
	Name     string            `json:"name"`
	Versions map[string]string `json:"versions,omitempty"`
	Settings map[string]any    `json:"settings,omitempty"`
	Plugins  []string          `json:"plugins,omitempty"`
	Seconds  []float64         `json:"seconds"` // of whole generations
	// of these, until every input had its first token, where that is known
	FirstSeconds    []float64 `json:"first_seconds,omitempty"`
	TokensPerSecond float64   `json:"tokens_per_second"`
	Distinct        int       `json:"min_distinct_tokens"`
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
	*quantizedResult
	Ways []peerTrial `json:"ways,omitempty"` // of using the peer, where there are several
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
	if b.quick {
		c.tokens = quickTokens
	}
	var fewer *quantizedResult
	if c.fewer != nil {
		var err error
		if fewer, err = c.checked(ctx, b, venv); err != nil {
			return nil, err
		}
	}
	own, err := c.open(ctx, b, c.weights())
	if err != nil {
		return nil, err
	}
	defer own.close()
	if fewer != nil {
		fewer.Weights = own.generator.Weights()
	}
	way, trials, err := c.fastest(ctx, b, venv, own)
	if err != nil {
		return nil, err
	}
	p, err := c.start(ctx, venv, way)
	if err != nil {
		return nil, err
	}
	defer p.close()
	s := c.subject
	r := &peerResult{SchemaVersion: 1, Model: s.model, Batch: s.batch, InputTokens: s.input, Beams: c.beams,
		NewTokens: c.tokens * s.batch, Ways: trials, quantizedResult: fewer,
		A: peerSide{Name: c.peer + " " + way, Versions: p.hello.Versions, Settings: p.hello.Settings},
		B: peerSide{Name: "graft", Plugins: own.generator.Engine().Plugins()}}
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
	if fewer != nil {
		return r.quantizedOutcome(c)
	}
	return r.outcome(c), nil
}

// fastest tries every way to use the peer, four times, twice where it is hopeless.
func (c peerCase) fastest(ctx context.Context, b *bench, venv string, own *peerWork) (string, []peerTrial, error) {
	if len(c.ways) == 1 {
		return c.ways[0], nil, nil
	}
	r := own.request(c.beams, c.tokens)
	mine, err := own.run(ctx, c.beams, c.tokens)
	if err != nil {
		return "", nil, err
	}
	chosen, least := "", math.Inf(1)
	var trials []peerTrial
	for _, way := range c.ways {
		t := c.try(ctx, b, venv, way, r, mine.tokens, 2*least)
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
func (c peerCase) try(ctx context.Context, b *bench, venv, way string, r peerRequest, mine [][]int32,
	limit float64) peerTrial {
	t := peerTrial{Way: way}
	p, err := c.start(ctx, venv, way)
	if err != nil {
		t.Error = err.Error()
		return t
	}
	defer p.close()
	few, most := 2, 4
	if b.quick {
		few, most = 1, 1
	}
	for len(t.Seconds) < few || len(t.Seconds) < most && slices.Min(t.Seconds) < limit {
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
	var err error
	if r.GreedyEqual, r.GreedyTokens, err = equalGreedy(ctx, p, own); err != nil {
		return err
	}
	if r.quantizedResult == nil {
		if err := sameModel(r.GreedyEqual, r.GreedyTokens); err != nil {
			return err
		}
	}
	theirs, err := p.generate(own.request(r.Beams, r.newTokens()))
	if err != nil {
		return err
	}
	mine, err := own.run(ctx, r.Beams, r.newTokens())
	if err != nil {
		return err
	}
	r.BeamsEqual = equalSequences(mine.tokens, theirs.Tokens)
	r.A.Distinct, r.B.Distinct = leastDistinct(theirs.Tokens), leastDistinct(mine.tokens)
	return nil
}

// newTokens are those of one input.
func (r *peerResult) newTokens() int { return r.NewTokens / r.Batch }

// equalGreedy counts the tokens of a short greedy run that are the peer's, up to the first that is not, of all inputs.
func equalGreedy(ctx context.Context, p *peerProcess, own *peerWork) (equal, all int, err error) {
	const tokens = 16
	greedy, err := p.generate(own.request(1, tokens))
	if err != nil {
		return 0, 0, err
	}
	mine, err := own.run(ctx, 1, tokens)
	if err != nil {
		return 0, 0, err
	}
	for i := range mine.tokens {
		all += tokens
		equal += prefix(mine.tokens[i], greedy.Tokens[i])
	}
	return equal, all, nil
}

// sameModel is an error where too few greedy tokens are equal.
func sameModel(equal, all int) error {
	if equal < all/4 {
		return fmt.Errorf("%d of %d greedy tokens are the peer's: the two do not run the same model", equal, all)
	}
	return nil
}

// round times A B B A.
func (r *peerResult) round(ctx context.Context, p *peerProcess, own *peerWork) error {
	for _, theirs := range []bool{true, false, false, true} {
		time.Sleep(rest)
		if theirs {
			a, err := p.generate(own.request(r.Beams, r.newTokens()))
			if err != nil {
				return err
			}
			r.A.add(a.Seconds, a.First)
			continue
		}
		mine, err := own.run(ctx, r.Beams, r.newTokens())
		if err != nil {
			return err
		}
		r.B.add(mine.seconds, mine.first)
	}
	return nil
}

// add adds a timed generation; first is 0 where it is not known.
func (s *peerSide) add(seconds, first float64) {
	s.Seconds = append(s.Seconds, seconds)
	if first > 0 {
		s.FirstSeconds = append(s.FirstSeconds, first)
	}
}

func (r *peerResult) outcome(c peerCase) *outcome {
	out := &outcome{Detail: r}
	out.Met = r.Speedup.Median >= c.least && min(r.A.Distinct, r.B.Distinct) >= distinct && r.ReorderShare >= 0.5
	out.Got = fmt.Sprintf("%.2fx (95%% %.2f to %.2f), %.1f -> %.1f tokens/s; at least %d distinct tokens, %.0f%% of "+
		"steps reorder",
		r.Speedup.Median, r.Speedup.CI95[0], r.Speedup.CI95[1], r.A.TokensPerSecond, r.B.TokensPerSecond, r.B.Distinct,
		100*r.ReorderShare)
	out.Answers = fmt.Sprintf("%d of %d greedy tokens and %d of %d best sequences are the peer's", r.GreedyEqual,
		r.GreedyTokens, r.BeamsEqual, r.Batch)
	out.Answers += r.tried()
	return out
}

// tried says what the ways took.
func (r *peerResult) tried() string {
	var tried []string
	for _, t := range r.Ways {
		if t.Error != "" {
			tried = append(tried, t.Way+": "+t.Error)
		} else {
			tried = append(tried, fmt.Sprintf("%s %.2f s", t.Way, slices.Min(t.Seconds)))
		}
	}
	if tried == nil {
		return ""
	}
	return "; ways: " + strings.Join(tried, ", ")
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
