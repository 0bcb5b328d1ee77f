package decode

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/opgraft/graft/host/generate/draft"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// witness drafts nothing and notes the moves.
type witness struct{ moves [][]search.Move }

func (x *witness) Next(int, float64) [][]int32 { return nil }

func (x *witness) Chosen(_ int, moves []search.Move) { x.moves = append(x.moves, slices.Clone(moves)) }

// liar drafts what a request chose without drafts, as far as its rows stay where they are and up to a random place,
// and other tokens from there on.
type liar struct {
	random *rand.Rand
	chosen [][]search.Move
	at     int // positions so far
	rows   int
	vocab  int
}

func (x *liar) Next(n int, _ float64) [][]int32 {
	draft := make([][]int32, x.rows)
	right := x.random.IntN(10)
	for i := range min(n, x.random.IntN(14)) {
		for row := range draft {
			t := int32(x.random.IntN(x.vocab))
			if at := x.at + i; i < right && at < len(x.chosen) && row < len(x.chosen[at]) {
				t = x.chosen[at][row].Token
			}
			draft[row] = append(draft[row], t)
		}
	}
	return draft
}

func (x *liar) Chosen(accepted int, moves []search.Move) {
	x.at, x.rows = x.at+accepted+1, len(moves)
}

// copies are inputs with parts that come again.
func copies(r *rand.Rand, n, longest, vocab int) []*Input {
	list := make([]*Input, n)
	for i := range list {
		tokens := make([]int32, 0, longest)
		for want := 2 + r.IntN(longest-1); len(tokens) < want; {
			if from := r.IntN(len(tokens) + 1); len(tokens)-from > 3 && r.IntN(2) == 0 {
				tokens = append(tokens, tokens[from:min(len(tokens), from+1+r.IntN(8))]...)
			} else {
				tokens = append(tokens, int32(5+r.IntN(vocab)))
			}
		}
		list[i] = &Input{Index: uint64(i), Tokens: tokens[:min(len(tokens), longest)]}
	}
	return list
}

// varied are random options of searches that drafts are made for.
func varied(r *rand.Rand, o search.Options, longest int) search.Options {
	maybe := func(set func()) {
		if r.IntN(3) == 0 {
			set()
		}
	}
	o.NumBeams, o.NumBeamGroups, o.DiversityPenalty, o.NumReturnSequences = 1, 1, 0, 1
	o.MaxNewTokens, o.MinNewTokens, o.NoRepeatNgramSize = 1+r.IntN(longest), 0, 0
	maybe(func() { o.MinNewTokens = r.IntN(o.MaxNewTokens + 1) })
	maybe(func() { o.NoRepeatNgramSize = 2 + r.IntN(3) })
	maybe(func() { o.EncoderNoRepeatNgramSize = 3 + r.IntN(2) })
	maybe(func() { o.RepetitionPenalty = 0.8 + r.Float32() })
	maybe(func() { o.SuppressTokens = []int32{int32(5 + r.IntN(50)), int32(5 + r.IntN(50))} })
	maybe(func() { o.ForcedEOSTokenID = 2 })
	maybe(func() {
		o.EOSTokenID = append(slices.Clone(o.EOSTokenID), int32(5+r.IntN(80)), int32(5+r.IntN(80)), int32(5+r.IntN(80)))
	})
	maybe(func() {
		o.BadWordsIDs = [][]int32{{int32(5 + r.IntN(50))}, {int32(5 + r.IntN(50)), int32(5 + r.IntN(50))}}
	})
	maybe(func() { o.OutputScores = true })
	maybe(func() { o.DoSample, o.Seed, o.TopK = true, r.Uint64(), 20 })
	maybe(func() { o.NumBeams = 2 + r.IntN(3) })
	return o
}

// counts are what drafts came to.
type counts struct{ outputs, ties, drafted, accepted, ended int }

// compare generates for inputs without drafts and with them, looked up or of liars, and reports what differs unless
// rounding alone makes it differ: rows of a step are computed together.
func (c *counts) compare(t *testing.T, g *Generator, o search.Options, inputs []*Input, lies *rand.Rand) {
	t.Helper()
	g.price = draft.Fixed(1, 0.06)
	witnesses := map[uint64]*witness{}
	g.drafts = func(in *search.Input) drafter {
		witnesses[in.Index] = &witness{}
		return witnesses[in.Index]
	}
	var want results
	must.Succeed(t, g.Run(t.Context(), o, from(inputs), want.done))
	if g.drafts = nil; lies != nil {
		g.drafts = func(in *search.Input) drafter {
			return &liar{random: rand.New(rand.NewPCG(lies.Uint64(), 1)), chosen: witnesses[in.Index].moves,
				vocab: g.config.Vocab}
		}
	}
	drafted := o
	drafted.Draft = search.DraftLookup
	var got results
	outputs := map[uint64]Output{}
	must.Succeed(t, g.Run(t.Context(), drafted, from(inputs),
		func(out Output) error { outputs[out.Index] = out; return got.done(out) }))
	g.drafts = nil
	for i, in := range inputs {
		out := outputs[in.Index]
		c.outputs, c.drafted, c.accepted = c.outputs+1, c.drafted+out.Drafted, c.accepted+out.Accepted
		best := out.Hypotheses[0]
		if best.Ended && out.Accepted > 0 {
			c.ended++
		}
		if o.NumBeams == 1 && out.Steps+out.Accepted != len(best.Tokens) || out.Accepted > out.Drafted {
			t.Errorf("%d tokens in %d steps with %d of %d drafted positions", len(best.Tokens), out.Steps, out.Accepted,
				out.Drafted)
		}
		if equal(&results{got.byIndex[i : i+1]}, &results{want.byIndex[i : i+1]}) {
			continue
		}
		if g.steady(t, o, in) {
			t.Errorf("input %d, %+v:\n%v, without drafts\n%v", i, o, out.Hypotheses, want.byIndex[i])
		}
		c.ties++
	}
	if self, _, cross, _ := g.engine.Memory(); self != 0 || cross != 0 {
		t.Errorf("%d and %d bytes of cache are in use after a run", self, cross)
	}
}

func (c *counts) check(t *testing.T) {
	t.Helper()
	t.Logf("%d outputs, %d ties; %d of %d drafted tokens accepted, %d outputs with some ended by a token", c.outputs,
		c.ties, c.accepted, c.drafted, c.ended)
	if c.accepted < c.outputs || c.drafted-c.accepted < c.outputs || c.ties > 1+c.outputs/50 {
		t.Error("too few drafts to show anything, or too many ties")
	}
}

// inputsFor are inputs with parts that come again, or of features, as the model reads them.
func inputsFor(g *Generator, r *rand.Rand, n, longest int) []*Input {
	shape := g.config.FeatureShape()
	if shape == nil {
		return copies(r, n, longest, min(60, g.config.Vocab-20))
	}
	shape = slices.Clone(shape)
	size := int64(1)
	for i := range shape {
		if shape[i] < 0 {
			shape[i] = 3000
		}
		size *= shape[i]
	}
	list := make([]*Input, n)
	for i := range list {
		list[i] = &Input{Index: uint64(i),
			Features: &engine.Features{Values: models.Normal(r.Uint64(), "features", int(size)), Shape: shape}}
	}
	return list
}

// TestDraftsChangeNothing: for every architecture, with random options, whatever is drafted, the tokens are those
// without drafts. Drafts are right up to a random place, or looked up.
func TestDraftsChangeNothing(t *testing.T) {
	few := []string{"gpt2", "bart", "t5", "mistral", "falcon-alibi", "whisper"}
	var all counts
	rounds := 3
	if testing.Short() {
		rounds = 2
	}
	for i, f := range models.SmallFolders() {
		if testing.Short() && !slices.Contains(few, f.Name) {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			g := opened(t, f.Name, Options{Batch: 4, CacheBytes: 64 << 20})
			r := rand.New(rand.NewPCG(17, uint64(i)))
			longest := int(min(40, g.engine.Positions()/2))
			for range rounds {
				o := varied(r, g.Search(), longest)
				if g.config.FeatureShape() != nil {
					o.EncoderNoRepeatNgramSize = 0 // there are no tokens
				}
				inputs := inputsFor(g, r, 3, longest)
				all.compare(t, g, o, inputs, r)
				all.compare(t, g, o, inputs, nil)
			}
		})
	}
	all.check(t)
}

// TestDraftsWithEveryStrategy: prompts stored apart, hidden states and keys alone verify drafts too.
func TestDraftsWithEveryStrategy(t *testing.T) {
	for _, c := range []struct {
		model       string
		self, cross plan.Strategy
		storage     plan.Storage
	}{
		{"gpt2", plan.PromptHiddenStates, "", ""},
		{"gpt2", plan.HiddenStates, "", ""},
		{"gpt2", plan.Keys, "", ""},
		{"bart", plan.PromptHiddenStates, plan.PromptHiddenStates, ""},
		{"bart", plan.Keys, plan.FirstLayerKeys, ""},
		{"t5", plan.PromptHiddenStates, plan.Keys, ""},
		{"gpt2", plan.KeysValues, "", plan.Int8},
		{"gpt2", plan.PromptHiddenStates, "", plan.Int8},
		{"bart", plan.KeysValues, plan.KeysValues, plan.BFloat16},
		{"llama", plan.KeysValues, "", plan.Float16},
	} {
		if testing.Short() && c.self != plan.PromptHiddenStates && c.storage != plan.BFloat16 {
			continue
		}
		t.Run(c.model+" "+string(c.self)+" "+string(c.storage), func(t *testing.T) {
			g := opened(t, c.model, Options{Batch: 3, CacheBytes: 64 << 20,
				Attention: prepare.Attention{Self: c.self, Cross: c.cross, Storage: c.storage}})
			if !slices.ContainsFunc(g.engine.Strategies(),
				func(l plan.LayerStrategy) bool { return l.Type == "self" && l.Strategy == c.self }) {
				t.Fatalf("no layer uses %s: %+v", c.self, g.engine.Strategies())
			}
			r := rand.New(rand.NewPCG(17, 5))
			var n counts
			for _, beams := range []int{1, 3} {
				o := varied(r, g.Search(), 30)
				o.MaxNewTokens, o.MinNewTokens, o.NumBeams = 30, 25, beams
				n.compare(t, g, o, inputsFor(g, r, 3, 30), r)
			}
			n.check(t)
		})
	}
}

// TestDraftsStayWithinWhatWasPledged: a request with drafts needs no more memory than one without.
func TestDraftsStayWithinWhatWasPledged(t *testing.T) {
	const length, more = 30, 35
	g := opened(t, "gpt2", Options{Batch: 1, CacheBytes: 64 << 20, Attention: prepare.Attention{Self: plan.KeysValues}})
	need := g.engine.Need(length, 1, more)
	g = opened(t, "gpt2", Options{Batch: 1, CacheBytes: need, Attention: g.options.Attention})
	r := rand.New(rand.NewPCG(17, 7))
	inputs := copies(r, 6, length, 60)
	var n counts
	n.compare(t, g, alike(g.Search(), more), inputs, r)
	n.check(t)
}

// TestMemoryThatRunsOutInADraft: requests that are started again after a step without memory draft again, and give
// the same.
func TestMemoryThatRunsOutInADraft(t *testing.T) {
	g := opened(t, "bart", Options{Batch: 6, CacheBytes: 64 << 20})
	r := rand.New(rand.NewPCG(17, 8))
	refused := 0
	g.advance = func(ctx context.Context, feeds []engine.Feed) (*engine.Scores, error) {
		scores, err := g.engine.Step(ctx, feeds)
		if drafted := slices.ContainsFunc(feeds, func(f engine.Feed) bool { return f.Drafted > 3 }); drafted &&
			len(feeds) > 2 {
			refused++
			return nil, errAllocation
		}
		return scores, err
	}
	var n counts
	n.compare(t, g, alike(g.Search(), 20), copies(r, 12, 20, 60), r)
	n.check(t)
	if refused == 0 {
		t.Error("no step was refused")
	}
}

// TestDraftsOfCallsAtOnce: requests with drafts share steps with beams, samples and prompts, and calls that are
// cancelled leave nothing behind.
func TestDraftsOfCallsAtOnce(t *testing.T) {
	g := opened(t, "gpt2", Options{Batch: 6, CacheBytes: 64 << 20})
	r := rand.New(rand.NewPCG(17, 9))
	kinds := searches(g.Search())
	inputs, want := make([][]*Input, len(kinds)), make([]results, len(kinds))
	for i, o := range kinds {
		for tries := 0; len(inputs[i]) < 3; tries++ {
			in := copies(r, 1, 25, 60)[0]
			if in.Index = uint64(len(inputs[i])); g.steady(t, o, in) {
				inputs[i] = append(inputs[i], in)
			} else if tries > 8 {
				t.Fatal("the inputs are ties")
			}
		}
		must.Succeed(t, g.Run(t.Context(), o, from(inputs[i]), want[i].done))
	}
	g.drafts = func(*search.Input) drafter { // of the loop, which is one goroutine
		return &liar{random: rand.New(rand.NewPCG(r.Uint64(), 1)), vocab: g.config.Vocab}
	}
	var calls sync.WaitGroup
	var drafted atomic.Int64
	for round := range 2 {
		for i, o := range kinds {
			calls.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var got results
				left := round == 1 && i%3 == 0
				err := g.Run(ctx, o, from(inputs[i]), func(out Output) error {
					if left {
						cancel()
					}
					drafted.Add(int64(out.Drafted))
					if (o.NumBeamGroups > 1 || o.NumBeams == 1 && o.NumReturnSequences > 1) && out.Drafted > 0 {
						t.Errorf("%d positions were drafted where none can be", out.Drafted)
					}
					return got.done(out)
				})
				must.Equal(t, left, errors.Is(err, context.Canceled), i, round)
				if !left && !equal(&got, &want[i]) {
					t.Errorf("call %d of round %d: %v, alone %v", i, round, got, want[i])
				}
			})
		}
	}
	calls.Wait()
	if drafted.Load() == 0 {
		t.Error("nothing was drafted")
	}
	if self, _, _, _ := g.engine.Memory(); self != 0 {
		t.Errorf("%d bytes of cache are in use after the calls", self)
	}
}
