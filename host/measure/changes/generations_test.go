package changes

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/measure/comparison/divergence"
	"github.com/opgraft/graft/host/measure/comparison/generations"
	"github.com/opgraft/graft/host/measure/statistics"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/internal/must"
)

// generation is a result of a folder, in which a takes aMS, a tenth of it to the first token.
func generation(a side, sides ...side) *generations.Compared {
	of := func(x side) generations.Side {
		s := generations.Side{Name: x.name, Plugins: []string{}, CacheBytes: 1 << 20, RequestBytes: 1 << 19,
			Footprint: generations.Footprint{PeakRSSBytes: 100 << 20}}
		for _, ms := range times(x.ms, 30) {
			s.Seconds, s.TTFTSeconds = append(s.Seconds, ms/1e3), append(s.TTFTSeconds, ms/1e4)
		}
		return s
	}
	c := &generations.Compared{SchemaVersion: 3,
		Subject: generations.Subject{Model: "/models/bart", Batch: 1, InputTokens: 8, InputsSHA256: strings.Repeat("1", 64),
			Search: []byte(`{"num_beams":2}`)},
		Rounds: 15, A: of(a), Environment: result(a).Environment}
	c.Forced = &generations.Forced{Over: generations.OverInputs, Texts: 1, Tokens: 99, SHA256: "1"}
	c.A.Likelihood = &divergence.Likelihood{Perplexity: 12}
	for _, x := range sides {
		b := generations.Against{Side: of(x), Outcome: generations.Outcome{NewTokens: 64, Equal: 2, Sequences: 2}}
		b.Attention = []plan.LayerStrategy{{Node: "Softmax_0", Type: "self", Strategy: plan.KeysValues,
			Plugin: "flash-decode"}}
		b.Speedup = statistics.SpeedupOf(c.A.Seconds, b.Seconds)
		b.Likelihood = &divergence.Likelihood{Perplexity: 12}
		b.Divergence = &divergence.Divergence{Tokens: 99, EqualGreedy: 99, KLMean: 1e-12}
		c.Sides = append(c.Sides, b)
	}
	return c
}

// folder is what was read of one.
func folder(c *generations.Compared) Measured { return Measured{Generations: c} }

func TestGenerationsCompared(t *testing.T) {
	const none, decided = "none ~ auto ~ none ~ auto ~ none ~ auto ~", "auto ~ auto ~ auto ~"
	for _, c := range []struct {
		name    string
		to      func(r *Measured)
		times   string // whole, to the first token, decode steps
		gains   string
		changed []string
		notes   int
		memory  string // what changed
		not     string // why it cannot be required
	}{
		{name: "nothing", to: func(*Measured) {}, times: none, gains: decided},
		{name: "slower", to: func(r *Measured) { *r = folder(generation(side{"none", 10}, side{"auto", 6})) },
			times: "none ~ auto +20 none ~ auto +20 none ~ auto +20", gains: "auto -17 auto -17 auto -17"},
		{name: "slower to the first token alone", to: func(r *Measured) {
			s := &r.Generations.Sides[0]
			for i := range s.TTFTSeconds {
				s.TTFTSeconds[i], s.Seconds[i] = 2*s.TTFTSeconds[i], s.Seconds[i]+s.TTFTSeconds[i]
			}
			s.Speedup = statistics.SpeedupOf(r.Generations.A.Seconds, s.Seconds)
		}, times: "none ~ auto +10 none ~ auto +100 none ~ auto ~", gains: "auto -9 auto -50 auto ~"},
		{name: "tokens", to: func(r *Measured) { r.Generations.Sides[0].Equal = 1 }, times: none, gains: decided,
			changed: []string{"sequences of auto that are a's"}},
		{name: "perplexity", to: func(r *Measured) {
			r.Generations.Sides[0].Likelihood = &divergence.Likelihood{Perplexity: 13}
		}, times: none, gains: decided, changed: []string{"perplexity of auto"}},
		{name: "divergence", to: func(r *Measured) {
			r.Generations.Sides[0].Divergence = &divergence.Divergence{Tokens: 99, EqualGreedy: 98, KLMean: 1e-3}
		}, times: none, gains: decided,
			changed: []string{"mean KL divergence of auto from a", "greedy tokens of auto that are a's"}},
		{name: "divergence of rounding", to: func(r *Measured) { r.Generations.Sides[0].Divergence.KLMean = 3e-12 },
			times: none, gains: decided},
		{name: "perplexity of other texts", to: func(r *Measured) {
			r.Generations.Forced.SHA256, r.Generations.Sides[0].Likelihood = "2", &divergence.Likelihood{Perplexity: 13}
		}, times: none, gains: decided},
		{name: "beams", to: func(r *Measured) { r.Generations.Search = []byte(`{"num_beams": 4}`) }, times: none,
			gains: decided, changed: []string{"option num_beams"}, notes: 1, not: "the inputs or the search differ"},
		{name: "inputs", to: func(r *Measured) { r.Generations.InputsSHA256 = strings.Repeat("2", 64) }, times: none,
			gains: decided, changed: []string{"inputs"}, notes: 1, not: "the inputs or the search differ"},
		{name: "the same search, written otherwise",
			to: func(r *Measured) { r.Generations.Search = []byte(` { "num_beams" : 2 } `) }, times: none, gains: decided},
		{name: "layers", to: func(r *Measured) { r.Generations.Sides[0].Attention[0].Strategy = plan.PromptHiddenStates },
			times: none, gains: decided, changed: []string{"plan of auto, Softmax_0"}},
		{name: "memory", to: func(r *Measured) { r.Generations.Sides[0].CacheBytes *= 2 }, times: none, gains: decided,
			memory: "auto cache_bytes +100"},
		{name: "another model", to: func(r *Measured) { r.Generations.Model = "/models/t5" }, times: none, gains: decided,
			changed: []string{"model"}, notes: 1, not: "the models differ"},
		{name: "another side", to: func(r *Measured) { *r = folder(generation(side{"none", 10}, side{"keys_values", 5})) },
			times: "none ~ none ~ none ~", not: "it lacks auto, to the first token auto, decode steps auto"},
		{name: "one new token", to: func(r *Measured) {
			for _, s := range []*generations.Side{&r.Generations.A, &r.Generations.Sides[0].Side} {
				s.TTFTSeconds = s.Seconds
			}
		}, times: "none ~ auto ~ none +900 auto +900", gains: "auto ~ auto ~", not: "it lacks decode steps auto"},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, to := folder(generation(side{"none", 10}, side{"auto", 5})),
				folder(generation(side{"none", 10}, side{"auto", 5}))
			c.to(&to)
			r := must.Value(Compare(from, to))(t)
			said := func(side string, x float64, significant bool) string {
				if !significant {
					return side + " ~"
				}
				return fmt.Sprintf("%s %+.0f", side, 100*x)
			}
			var times, gains, changed, memory []string
			for _, x := range r.Times {
				times = append(times, said(x.Side, x.Delta, x.Significant))
			}
			for _, x := range r.Speedups {
				gains = append(gains, said(x.Side, x.Change.Median-1, x.Change.Significant))
			}
			for _, x := range r.Changed {
				changed = append(changed, x.What)
			}
			for _, x := range r.Memory {
				if x.Delta != 0 {
					memory = append(memory, fmt.Sprintf("%s %s %+.0f", x.Side, x.What, 100*x.Delta))
				}
			}
			if strings.Join(times, " ") != c.times || strings.Join(gains, " ") != c.gains || !slices.Equal(changed, c.changed) ||
				len(r.Notes) != c.notes || strings.Join(memory, ", ") != c.memory {
				t.Errorf("times %q, gains %q, changed %q, notes %q, memory %q", times, gains, changed, r.Notes, memory)
			}
			must.Equal(t, r.Incomparable(), c.not)
		})
	}
}

// TestGenerationsRequired: the whole of a generation is required, and not its parts.
func TestGenerationsRequired(t *testing.T) {
	c := generation(side{"none", 10}, side{"auto", 5})
	for i, s := range c.Sides[0].TTFTSeconds {
		c.Sides[0].TTFTSeconds[i] = 4 * s
	}
	must.Empty(t, (Measured{Generations: c}).Short(1.5))
	if got := (Measured{Generations: c}).Short(2.5); len(got) != 1 || got[0].Cell != "" || got[0].Side != "auto" {
		t.Errorf("%v", got)
	}
	r := must.Value(Compare(folder(generation(side{"none", 10}, side{"auto", 5})), folder(c)))(t)
	if mean, of := r.GeometricMean(); len(r.Short(0.9)) != 0 || len(r.Short(1.1)) != 1 || of != 1 ||
		mean != r.Speedups[0].Change.Median {
		t.Errorf("%+v, %g of %d", r.Speedups, mean, of)
	}
}

// TestKinds: a result of a folder and one of a model are not compared, in either order.
func TestKinds(t *testing.T) {
	one, other := measured(result(side{"none", 10}, side{"auto", 5})),
		folder(generation(side{"none", 10}, side{"auto", 5}))
	for _, c := range []struct {
		from, to Measured
		want     string
	}{
		{one, other, "/models/bart: a result of whole generations of a model folder, needed one of a model, as the other is"},
		{other, one, "model.onnx: a result of a model, needed one of whole generations of a model folder, as the " +
			"other is"},
	} {
		if _, err := Compare(c.from, c.to); err == nil || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// TestGenerationsRead: what -o json writes comes back, of two sides and of more.
func TestGenerationsRead(t *testing.T) {
	for _, sides := range [][]side{{{"auto", 5}}, {{"auto", 5}, {"keys_values", 6}}} {
		c := generation(side{"none", 10}, sides...)
		var written any = c
		if one := c.Result(); one != nil {
			written = one
		}
		text := must.Value(json.MarshalIndent(written, "", "  "))(t)
		path := filepath.Join(t.TempDir(), "generations.json")
		must.Succeed(t, os.WriteFile(path, text, 0o600))
		file := must.Value(Read(path))(t)
		if r, err := Compare(folder(c), file); err != nil || r.otherTask || len(r.OnlyOld)+len(r.OnlyNew) > 0 ||
			len(r.Times) != 3*(1+len(sides)) || len(r.Changed) > 0 {
			t.Errorf("%+v, %v", r, err)
		}
	}
}
