package generate

import (
	"fmt"
	"slices"
	"testing"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/fold"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// TestASeedGivesTheSameTokens samples the same inputs with a fixed seed, one by one and together, on one thread and on
// several, and with each strategy of the cache. (That probabilities are Hugging Face's after each combination of
// warpers, and tokens with the same random numbers, is compared in host/generate/decode/search.)
func TestASeedGivesTheSameTokens(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	folds := fold.At(t.TempDir(), nil)
	asked := []byte(
		`{"do_sample": true, "seed": 11, "temperature": 1.3, "top_k": 30, "top_p": 0.9, "min_p": 0.01, "typical_p": 0.97,
		"num_return_sequences": 2, "max_new_tokens": 10}`)
	for _, name := range []string{"llama-mha", "bart"} {
		dir := t.TempDir()
		must.Succeed(t, models.Small(name, dir))
		// The answers of a generator, once to all inputs.
		answers := func(o decode.Options) (list []string) {
			o.Library, o.Plugins, o.CacheBytes, o.Folds = l, set, 64<<20, folds
			g := must.Value(decode.Open(t.Context(), dir, o))(t, name)
			defer g.Close()
			s := must.Value(g.SearchWith(asked))(t)
			const inputs = 4
			list = make([]string, inputs)
			i := -1
			must.Succeed(t, g.Run(t.Context(), s, func() (*decode.Input, error) {
				if i++; i == inputs {
					return nil, nil
				}
				in := &decode.Input{Index: uint64(i), Tokens: []int32{1}}
				for j := range 3 * i {
					in.Tokens = append(in.Tokens, int32(60+(7*i+5*j)%150))
				}
				return in, nil
			}, func(out decode.Output) error {
				for _, h := range out.Hypotheses {
					list[out.Index] += fmt.Sprintln(h.Tokens)
				}
				return nil
			}))
			return list
		}
		usual := prepare.Attention{Self: plan.KeysValues, Cross: plan.KeysValues}
		want := answers(decode.Options{Threads: 1, Batch: 1, Attention: usual})
		if slices.Compact(slices.Sorted(slices.Values(want)))[0] == "" ||
			len(slices.Compact(slices.Sorted(slices.Values(want)))) != len(want) {
			t.Fatalf("%s: answers are empty or alike: %q", name, want)
		}
		others := map[string]decode.Options{
			"together": {Threads: 1, Batch: 6, Attention: usual}, "threads": {Threads: 3, Batch: 1, Attention: usual},
		}
		for _, s := range plan.StandardStrategies()[1:] {
			others[string(s)] = decode.Options{Threads: 2, Batch: 4,
				Attention: prepare.Attention{Self: s.Within("self"), Cross: s.Within("cross")}}
		}
		for how, o := range others {
			must.Equal(t, answers(o), want, name, how)
		}
	}
}
