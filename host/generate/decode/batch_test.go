package decode

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// opened opens a small model.
func opened(t *testing.T, model string, o Options) *Generator {
	t.Helper()
	load(t, &o)
	return openSmall(t, model, o)
}

// load finds the runtime and the plugins.
func load(t *testing.T, o *Options) {
	t.Helper()
	var err error
	if o.Library, err = ort.FindAndOpen(""); err != nil {
		t.Fatal(err)
	}
	if o.Plugins, err = loaded.Load(nil, true); err != nil {
		t.Fatal(err)
	}
}

func openSmall(t *testing.T, model string, o Options) *Generator {
	t.Helper()
	dir := t.TempDir()
	must.Succeed(t, models.Small(model, dir))
	g := must.Value(Open(t.Context(), dir, o))(t)
	t.Cleanup(g.Close)
	return g
}

// prompts are inputs of mixed lengths.
func prompts(n int) []*Input {
	r := rand.New(rand.NewPCG(8, 1))
	list := make([]*Input, n)
	for i := range list {
		list[i] = &Input{Index: uint64(i), Tokens: make([]int32, 3+r.IntN(30))}
		for j := range list[i].Tokens {
			list[i].Tokens[j] = int32(5 + r.IntN(80))
		}
	}
	return list
}

// tokens generates for all inputs: the best sequence of each, by index.
func tokens(t *testing.T, g *Generator, o search.Options, inputs []*Input) ([][]int32, error) {
	t.Helper()
	results := make([][]int32, len(inputs))
	i := -1
	err := g.Run(t.Context(), o, func() (*Input, error) {
		if i++; i >= len(inputs) {
			return nil, nil
		}
		return inputs[i], nil
	}, func(out Output) error {
		if results[out.Index] != nil {
			t.Errorf("input %d came twice", out.Index)
		}
		results[out.Index] = out.Hypotheses[0].Tokens
		return nil
	})
	return results, err
}

var errAllocation = errors.New("onnxruntime: Run: Failed to allocate memory for requested buffer of size 4096")

// Memory that runs out in a step makes the batch smaller until it is enough; what is
// generated stays the same, sampling included.
func TestMemoryThatRunsOutMakesBatchesSmaller(t *testing.T) {
	for _, model := range []string{"gpt2", "bart"} {
		t.Run(model, func(t *testing.T) {
			g := opened(t, model, Options{Batch: 12, CacheBytes: 64 << 20})
			inputs := prompts(30)
			for _, sample := range []bool{false, true} {
				o := g.Search()
				o.MaxNewTokens, o.NumBeams, o.DoSample, o.Seed = 12, 3, sample, 7
				g.advance = g.engine.Step
				want := must.Value(tokens(t, g, o, inputs))(t)
				must.Equal(t, g.Batch(), 12)
				refused, steps := 0, 0
				g.advance = func(ctx context.Context, feeds []engine.Feed) (*engine.Scores, error) {
					scores, err := g.engine.Step(ctx, feeds)
					if steps++; steps > 4 && len(feeds) > 5 {
						refused++
						return nil, errAllocation
					}
					return scores, err
				}
				got := must.Value(tokens(t, g, o, inputs))(t)
				for i := range want {
					must.Equal(t, got[i], want[i], sample)
				}
				if refused == 0 || g.Batch() > 5 || g.Batch() < 2 {
					t.Errorf("%d steps were refused, and the batch is %d", refused, g.Batch())
				}
				if self, _, cross, _ := g.engine.Memory(); self != 0 || cross != 0 {
					t.Errorf("%d and %d bytes of cache are in use after the run", self, cross)
				}
			}
		})
	}
}

func TestMemoryThatIsNeverEnough(t *testing.T) {
	g := opened(t, "gpt2", Options{Batch: 4, CacheBytes: 64 << 20})
	g.advance = func(context.Context, []engine.Feed) (*engine.Scores, error) { return nil, errAllocation }
	o := g.Search()
	o.MaxNewTokens = 4
	_, err := tokens(t, g, o, prompts(6))
	if !errors.Is(err, errAllocation) ||
		!strings.HasPrefix(err.Error(), "input 0: memory ran out with this input alone: ") ||
		!strings.HasSuffix(err.Error(), "; shorten it, take fewer beams, or lower max_length or max_new_tokens") {
		t.Errorf("%v", err)
	}
	other := errors.New("another error")
	g.advance = func(context.Context, []engine.Feed) (*engine.Scores, error) { return nil, other }
	if _, err := tokens(t, g, o, prompts(6)); err != other {
		t.Errorf("%v", err)
	}
}

// AutoBatch takes as many requests as the pool holds, and no more rows than are worth
// having.
func TestAutoBatch(t *testing.T) {
	inputs := prompts(150)
	for _, model := range []string{"gpt2", "bart"} {
		t.Run(model, func(t *testing.T) {
			reference := opened(t, model, Options{Batch: 1, CacheBytes: 256 << 20})
			o := reference.Search()
			o.MaxNewTokens = 10
			for _, c := range []struct {
				beams          int
				cache          int64
				least, largest int
			}{
				{1, 256 << 20, 128, 128},
				{4, 256 << 20, 32, 32},
				{4, 0, 32, 32},
				{4, 1 << 20, 2, 30},
			} {
				o.NumBeams = c.beams
				want := must.Value(tokens(t, reference, o, inputs))(t)
				g := opened(t, model, Options{Batch: AutoBatch, CacheBytes: c.cache})
				got := must.Value(tokens(t, g, o, inputs))(t)
				if n := g.Batch(); n < c.least || n > c.largest {
					t.Errorf("%d beams, %d bytes: batches of %d, want %d to %d", c.beams, c.cache, n, c.least, c.largest)
				}
				must.Equal(t, fmt.Sprint(got), fmt.Sprint(want), c.beams, c.cache)
			}
		})
	}
}
