package decode

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/internal/must"
)

// from gives inputs one after the other.
func from(inputs []*Input) func() (*Input, error) {
	i := -1
	return func() (*Input, error) {
		if i++; i >= len(inputs) {
			return nil, nil
		}
		return inputs[i], nil
	}
}

// results are all hypotheses of a call, by the index of the input.
type results struct{ byIndex [][]search.Hypothesis }

func (r *results) done(out Output) error {
	for len(r.byIndex) <= int(out.Index) {
		r.byIndex = append(r.byIndex, nil)
	}
	r.byIndex[out.Index] = out.Hypotheses
	return nil
}

func equal(a, b *results) bool {
	return slices.EqualFunc(a.byIndex, b.byIndex, func(x, y []search.Hypothesis) bool {
		return slices.EqualFunc(x, y, func(h, k search.Hypothesis) bool { return slices.Equal(h.Tokens, k.Tokens) })
	})
}

// searches are options of many kinds.
func searches(o search.Options) []search.Options {
	var list []search.Options
	for _, set := range []func(*search.Options){
		func(*search.Options) {},
		func(o *search.Options) { o.NumBeams, o.NumReturnSequences = 4, 2 },
		func(o *search.Options) { o.DoSample, o.Seed, o.NumReturnSequences = true, 5, 3 },
		func(o *search.Options) { o.NumBeams, o.DoSample, o.Seed, o.Temperature = 3, true, 6, 1.5 },
		func(o *search.Options) { o.NumBeams, o.NumBeamGroups, o.DiversityPenalty = 4, 2, 0.6 },
		func(o *search.Options) { o.NoRepeatNgramSize, o.RepetitionPenalty, o.OutputScores = 2, 1.2, true },
		func(o *search.Options) { o.NumBeams, o.NoRepeatNgramSize, o.MaxNewTokens = 2, 3, 25 },
		func(o *search.Options) { o.DoSample, o.Seed, o.TopP, o.MaxNewTokens = true, 8, 0.8, 6 },
	} {
		x := o
		x.NumBeams, x.MaxNewTokens = 1, 14
		set(&x)
		list = append(list, x)
	}
	return list
}

// steady reports an input whose answer does not depend on what rounding makes of scores: products over more rows
// round otherwise, by up to 9e-5 of scores of 7 in these models, and a search over a near tie, or a draw next to a
// bound, goes on in another way.
func (g *Generator) steady(t *testing.T, o search.Options, in *Input) bool {
	t.Helper()
	run := g.advance
	defer func() { g.advance = run }()
	answer := func() (r results) {
		must.Succeed(t, g.Run(t.Context(), o, from([]*Input{in}), r.done))
		return r
	}
	want := answer()
	random := rand.New(rand.NewPCG(1, 1))
	g.advance = func(ctx context.Context, feeds []engine.Feed) (*engine.Scores, error) {
		scores, err := run(ctx, feeds)
		if err == nil {
			for i := range scores.Data {
				scores.Data[i] += float32(1e-4 * random.NormFloat64())
			}
		}
		return scores, err
	}
	for range 8 {
		if got := answer(); !equal(&got, &want) {
			return false
		}
	}
	return true
}

// Calls at once, each with a search of its own, some of them cancelled, give what each gives alone.
func TestCallsAtOnceAreCallsOneByOne(t *testing.T) {
	for _, model := range []string{"gpt2", "bart"} {
		t.Run(model, func(t *testing.T) {
			g := opened(t, model, Options{Batch: 6, CacheBytes: 64 << 20})
			kinds := searches(g.Search())
			random := rand.New(rand.NewPCG(11, 2))
			inputs := make([][]*Input, len(kinds))
			want := make([]results, len(kinds))
			drawn, ties := 0, 0
			for i, o := range kinds {
				for want := 3 + random.IntN(4); len(inputs[i]) < want; {
					in := &Input{Index: uint64(len(inputs[i])), Tokens: make([]int32, 1+random.IntN(30))}
					for k := range in.Tokens {
						in.Tokens[k] = int32(5 + random.IntN(80))
					}
					if drawn++; g.steady(t, o, in) {
						inputs[i] = append(inputs[i], in)
					} else if ties++; ties > 6 {
						t.Fatalf("%d of %d inputs are ties", ties, drawn)
					}
				}
				must.Succeed(t, g.Run(t.Context(), o, from(inputs[i]), want[i].done))
			}
			t.Logf("%d of %d inputs were ties", ties, drawn)
			var calls sync.WaitGroup
			for round := range 3 {
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
							return got.done(out)
						})
						must.Equal(t, left, errors.Is(err, context.Canceled), i, round)
						if !left && !equal(&got, &want[i]) {
							t.Errorf("call %d of round %d: %v, alone %v", i, round, got, want[i])
						}
					})
				}
				if round == 1 {
					calls.Wait() // rounds 0 and 1 are in flight together
				}
			}
			calls.Wait()
			if self, _, cross, _ := g.engine.Memory(); self != 0 || cross != 0 {
				t.Errorf("%d and %d bytes of cache are in use after the calls", self, cross)
			}
		})
	}
}

// gate lets no step run before all of n calls have come with their inputs, and counts steps.
func gate(g *Generator, n int) (steps *atomic.Int64) {
	steps = new(atomic.Int64)
	run, before := g.advance, g.calls.joined
	come := func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.calls.joined == before+n && !slices.ContainsFunc(g.list, func(c *call) bool { return !c.ended })
	}
	g.advance = func(ctx context.Context, feeds []engine.Feed) (*engine.Scores, error) {
		for steps.Load() == 0 && !come() {
			time.Sleep(100 * time.Microsecond)
		}
		steps.Add(1)
		return run(ctx, feeds)
	}
	return steps
}

// alike are options under which every request takes `tokens` steps.
func alike(o search.Options, tokens int) search.Options {
	o.NumBeams, o.MaxNewTokens, o.MinNewTokens = 1, tokens, tokens
	return o
}

// Requests of calls at once share steps.
func TestCallsShareSteps(t *testing.T) {
	const calls, tokens = 4, 20
	g := opened(t, "gpt2", Options{CacheBytes: 64 << 20})
	steps := gate(g, calls)
	var all sync.WaitGroup
	for _, in := range prompts(calls) {
		all.Go(func() {
			if err := g.Run(t.Context(), alike(g.Search(), tokens), from([]*Input{in}),
				func(Output) error { return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := steps.Load(); n > tokens+1 { // the first step may have come before all inputs
		t.Errorf("%d calls of %d steps each took %d steps together", calls, tokens, n)
	}
}

// An engine that fails ends every call; logits that cannot be searched, an error of an input and one of
// its receiver end the call that they belong to.
func TestErrorsOfCalls(t *testing.T) {
	const calls, bad = 3, 1
	wrong := errors.New("wrong")
	for name, c := range map[string]struct {
		spoil  func(g *Generator, steps *atomic.Int64, inputs []*Input)
		done   error
		others bool // the other calls end well
		want   string
	}{
		"engine": {spoil: func(g *Generator, steps *atomic.Int64, _ []*Input) {
			run := g.advance
			g.advance = func(ctx context.Context, feeds []engine.Feed) (*engine.Scores, error) {
				scores, err := run(ctx, feeds)
				if steps.Load() == 5 {
					return nil, wrong
				}
				return scores, err
			}
		}, want: "wrong"},
		"logits": {spoil: func(g *Generator, _ *atomic.Int64, inputs []*Input) {
			run := g.advance
			g.advance = func(ctx context.Context, feeds []engine.Feed) (*engine.Scores, error) {
				scores, err := run(ctx, feeds)
				for i, f := range feeds { // one row each
					if err == nil && f.Prompt && len(f.Tokens) == len(inputs[bad].Tokens) {
						scores.Data[i*scores.Vocab] = float32(math.NaN())
					}
				}
				return scores, err
			}
		}, others: true, want: "input 1, step 0: "},
		"input": {spoil: func(_ *Generator, _ *atomic.Int64, inputs []*Input) {
			inputs[bad].Tokens[0] = 1 << 20
		}, others: true, want: "input 1: "},
		"receiver": {spoil: func(*Generator, *atomic.Int64, []*Input) {}, done: wrong, others: true, want: "wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			g := opened(t, "gpt2", Options{CacheBytes: 64 << 20})
			inputs := prompts(calls)
			for i, in := range inputs {
				in.Tokens = slices.Repeat([]int32{7, 9, 30}, i+2)
			}
			var want results
			o := alike(g.Search(), 12)
			must.Succeed(t, g.Run(t.Context(), o, from(inputs), want.done))
			c.spoil(g, gate(g, calls), inputs)
			var all sync.WaitGroup
			for i, in := range inputs {
				all.Go(func() {
					var got results
					err := g.Run(t.Context(), o, from([]*Input{in}), func(out Output) error {
						_ = got.done(out)
						if i == bad {
							return c.done
						}
						return nil
					})
					if i == bad || !c.others {
						if err == nil || !strings.HasPrefix(err.Error(), c.want) {
							t.Errorf("call %d: %v, want %q", i, err, c.want)
						}
						return
					}
					if err != nil || !slices.Equal(got.byIndex[i][0].Tokens, want.byIndex[i][0].Tokens) {
						t.Errorf("call %d: %v, %v, alone %v", i, got.byIndex, err, want.byIndex[i])
					}
				})
			}
			all.Wait()
			if self, _, _, _ := g.engine.Memory(); self != 0 {
				t.Errorf("%d bytes of cache are in use after the calls", self)
			}
		})
	}
}

// An input that is not there yet does not hold up those before it.
func TestSlowInputs(t *testing.T) {
	g := opened(t, "gpt2", Options{CacheBytes: 64 << 20})
	inputs := prompts(4)
	answered := make(chan struct{})
	i := -1
	next := func() (*Input, error) {
		if i++; i > 0 {
			<-answered // as someone does who types
		}
		if i == len(inputs) {
			return nil, nil
		}
		return inputs[i], nil
	}
	must.Succeed(t, g.Run(t.Context(), alike(g.Search(), 5), next, func(Output) error {
		answered <- struct{}{}
		return nil
	}))
}

// A call of many inputs leaves room for one of few.
func TestCallsTakeTurns(t *testing.T) {
	g := opened(t, "gpt2", Options{Batch: 2, CacheBytes: 64 << 20})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	many := 0
	endless := func() (*Input, error) { return prompts(1)[0], nil }
	started, ended := make(chan struct{}), make(chan error)
	o := alike(g.Search(), 4)
	go func() {
		ended <- g.Run(ctx, o, endless, func(Output) error {
			if many++; many == 1 {
				close(started)
			}
			return nil
		})
	}()
	<-started
	before := 0
	must.Succeed(t, g.Run(t.Context(), o, from(prompts(3)), func(Output) error { before = many; return nil }))
	cancel()
	must.Fail(t, <-ended, context.Canceled)
	if before > 200 {
		t.Errorf("%d inputs of another call ended before three of this one", before)
	}
}

func TestCloseEndsCalls(t *testing.T) {
	g := opened(t, "gpt2", Options{Batch: 2, CacheBytes: 64 << 20})
	var started, ended sync.WaitGroup
	for range 3 {
		started.Add(1)
		ended.Go(func() {
			first := sync.OnceFunc(started.Done)
			err := g.Run(t.Context(), alike(g.Search(), 4), func() (*Input, error) { return prompts(1)[0], nil },
				func(Output) error { first(); return nil })
			must.Fail(t, err, ErrClosed)
		})
	}
	started.Wait()
	g.Close()
	ended.Wait()
	g.Close()
	must.Fail(t, g.Run(t.Context(), g.Search(), from(prompts(1)), func(Output) error { return nil }), ErrClosed)
}
