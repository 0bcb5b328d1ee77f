package decode_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/exported"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

func open(t *testing.T, folder string, change func(*decode.Options)) *decode.Generator {
	t.Helper()
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	o := decode.Options{Library: l, Plugins: set, CacheBytes: 256 << 20}
	if change != nil {
		change(&o)
	}
	g := must.Value(decode.Open(t.Context(), folder, o))(t)
	t.Cleanup(g.Close)
	return g
}

// run generates for all inputs and returns the outputs in the order of the input.
func run(t *testing.T, g interface {
	Run(context.Context, search.Options, func() (*decode.Input, error), func(decode.Output) error) error
}, o search.Options, inputs []*decode.Input) []decode.Output {
	t.Helper()
	outputs := make([]decode.Output, len(inputs))
	i := -1
	must.Succeed(t, g.Run(t.Context(), o, func() (*decode.Input, error) {
		if i++; i >= len(inputs) {
			return nil, nil
		}
		inputs[i].Index = uint64(i)
		return inputs[i], nil
	}, func(out decode.Output) error { outputs[out.Index] = out; return nil }))
	return outputs
}

// The engine gives the tokens that the model gives as it was exported, with its
// past and present as tensors, for every kind of search.
func TestEngineAgainstTheModelAsExported(t *testing.T) {
	for _, f := range models.SmallFolders() {
		if f.Family {
			continue // compared with Hugging Face's tokens alone, in tests/generate
		}
		t.Run(f.Name, func(t *testing.T) {
			dir := t.TempDir()
			must.Succeed(t, models.Small(f.Name, dir))
			g := open(t, dir, nil)
			l := must.Value(ort.FindAndOpen(""))(t)
			m, err := exported.Open(t.Context(), dir, decode.Options{Library: l, Threads: 1, Batch: 3, ReferenceSelector: true})
			if errors.Is(err, exported.ErrNoPast) || g.Config().ModelType == "whisper" {
				return // compared with Hugging Face's tokens alone, in tests/generate
			}
			must.Succeed(t, err)
			defer m.Close()
			r := rand.New(rand.NewPCG(3, 9))
			for _, kind := range []struct{ beams, groups int }{{1, 1}, {4, 1}, {4, 2}} {
				o := g.Search()
				o.NumBeams, o.NumBeamGroups, o.MaxNewTokens, o.NoRepeatNgramSize = kind.beams, kind.groups, 24, 3
				if kind.groups > 1 {
					o.DiversityPenalty = 0.7
				}
				var inputs []*decode.Input
				for range 3 {
					tokens := make([]int32, 17)
					for i := range tokens {
						tokens[i] = int32(5 + r.IntN(g.Config().Vocab-120))
					}
					inputs = append(inputs, &decode.Input{Tokens: tokens})
				}
				want := run(t, m, o, inputs)
				for i, out := range run(t, g, o, inputs) {
					for j, h := range out.Hypotheses {
						must.Equal(t, h.Tokens, want[i].Hypotheses[j].Tokens, kind.beams, kind.groups)
					}
				}
			}
		})
	}
}

// A request's tokens do not depend on what else is in flight: prompts of mixed
// lengths in one batch give what each gives alone.
func TestBatchOfManyIsBatchOfOne(t *testing.T) {
	dir := t.TempDir()
	must.Succeed(t, models.Small("gpt2", dir))
	alone, together := open(t, dir, func(o *decode.Options) { o.Batch = 1 }),
		open(t, dir, func(o *decode.Options) { o.Batch = 5 })
	r := rand.New(rand.NewPCG(1, 4))
	var inputs []*decode.Input
	for range 13 {
		tokens := make([]int32, 1+r.IntN(50))
		for i := range tokens {
			tokens[i] = int32(5 + r.IntN(150))
		}
		inputs = append(inputs, &decode.Input{Tokens: tokens})
	}
	for _, beams := range []int{1, 4} {
		o := alone.Search()
		o.NumBeams, o.MaxNewTokens = beams, 20
		want, got := run(t, alone, o, inputs), run(t, together, o, inputs)
		for i := range want {
			if a, b := fmt.Sprint(want[i].Hypotheses[0].Tokens), fmt.Sprint(got[i].Hypotheses[0].Tokens); a != b {
				t.Errorf("%d beams, input %d: alone %s, in a batch %s", beams, i, a, b)
			}
		}
		if self, _, _, _ := together.Engine().Memory(); self != 0 {
			t.Errorf("%d bytes of cache are in use after the run", self)
		}
	}
}
