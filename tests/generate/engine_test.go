package generate

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/generate"
	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/internal/sample"
	"github.com/opgraft/graft/models"
)

// TestEngineGivesHuggingFacesTokens generates every case with the engine, on every
// export of its weights, many cases in flight at once: tokens equal, scores within
// 1e-4.
func TestEngineGivesHuggingFacesTokens(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	prompts := 0
	for _, name := range Models() {
		e := must.Value(Load(name))(t)
		prompts += len(e.Cases)
		for i, f := range models.SmallFolders() {
			if f.Model != e.Model || !sample.Has(i, 2) {
				continue
			}
			t.Run(f.Name, func(t *testing.T) {
				dir := t.TempDir()
				must.Succeed(t, models.Small(f.Name, dir))
				g := must.Value(decode.Open(t.Context(), dir, decode.Options{Library: l, Plugins: set,
					CacheBytes: 256 << 20, Threads: 1}))(t)
				defer g.Close()
				asked := *e
				if strings.Contains(f.Name, "-exporter") { // other graphs of models that were asked in full
					asked.Cases = few(e.Cases)
				}
				compare(t, g, &asked)
			})
		}
	}
	if prompts < 1000 && !testing.Short() {
		t.Errorf("%d prompts in all, want at least 1,000", prompts)
	}
}

// compare runs the cases that share their options together.
func compare(t *testing.T, g *decode.Generator, e *Expected) {
	t.Helper()
	compareBy(t, g, e, g.SearchWith)
}

// compareBy runs all cases of a model on a device, with options as search reads them.
func compareBy(t *testing.T, g generate.Device, e *Expected, searchWith func([]byte) (search.Options, error)) {
	t.Helper()
	alike := map[string][]Case{}
	for _, c := range e.Cases {
		alike[string(c.Options)] = append(alike[string(c.Options)], c)
	}
	equal := 0
	for _, cases := range alike {
		o := must.Value(searchWith(cases[0].Options))(t, cases[0])
		i := -1
		err := g.Run(t.Context(), o, func() (*decode.Input, error) {
			if i++; i >= len(cases) {
				return nil, nil
			}
			in := inputOf(e, cases[i])
			in.Index = uint64(i)
			return in, nil
		}, func(out decode.Output) error {
			c := cases[out.Index]
			if err := differs(c, out.Hypotheses); err != nil {
				t.Errorf("%s, prompt %v: %v", c, c.Prompt, err)
			} else {
				equal++
			}
			return nil
		})
		must.Succeed(t, err, cases[0])
	}
	t.Logf("%d of %d cases equal", equal, len(e.Cases))
}

// inputOf is what a case gives a model.
func inputOf(e *Expected, c Case) *decode.Input {
	in := &decode.Input{Tokens: narrow(c.Prompt), Prompt: narrow(c.DecoderPrompt)}
	if e.FeatureShape != nil {
		in.Tokens = nil
		in.Features = &engine.Features{Values: e.Features(c), Shape: append([]int64{1}, e.FeatureShape...)}
	}
	return in
}

// differs says how hypotheses are not what a case expects.
func differs(c Case, got []search.Hypothesis) error {
	if len(got) != len(c.Sequences) {
		return fmt.Errorf("%d sequences, want %d", len(got), len(c.Sequences))
	}
	for i, h := range got {
		if !slices.Equal(h.Tokens, narrow(c.Sequences[i])) {
			return fmt.Errorf("sequence %d is\n%v, want\n%v", i, h.Tokens, c.Sequences[i])
		}
		// torch's own float32 is that far from float64 where attention is as steep as in these models.
		if len(c.Scores) > 0 && math.Abs(h.Score-c.Scores[i]) > 1e-3*(1+math.Abs(c.Scores[i])) {
			return fmt.Errorf("sequence %d scores %g, want %g", i, h.Score, c.Scores[i])
		}
	}
	return nil
}

func narrow(list []int64) []int32 {
	out := make([]int32, len(list))
	for i, v := range list {
		out[i] = int32(v)
	}
	return out
}

// Every option of the expectations is one that the search knows.
func TestExpectationsTryEveryKind(t *testing.T) {
	for _, name := range Models() {
		e := must.Value(Load(name))(t)
		kinds := map[string]bool{}
		for _, c := range e.Cases {
			kinds[c.Kind] = true
		}
		for _, kind := range []string{"greedy", "beam4", "beam8", "diverse4x2"} {
			if !kinds[kind] {
				t.Errorf("%s has no case of %s", name, kind)
			}
		}
		if e.Counts.Reorders != nil && e.Counts.Reorders.Median < 0.5 ||
			e.Counts.DistinctTokens != nil && e.Counts.DistinctTokens.Median < 20 {
			t.Errorf("%s is dull: %+v", name, strings.TrimSpace(fmt.Sprint(e.Counts)))
		}
	}
}
