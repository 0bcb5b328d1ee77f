package report

import (
	"math"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/measure/comparison/divergence"
	"github.com/opgraft/graft/host/measure/comparison/generations"
	"github.com/opgraft/graft/host/measure/statistics"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/internal/must"
)

// generated is a comparison of whole generations, the same each time; the last side has some sequences of its own.
func generated(sides ...string) *generations.Compared {
	side := func(name string, second float64) generations.Side {
		s := generations.Side{Name: name, Plugins: []string{"flash-decode"}, TokensPerSecond: 64 / second,
			DecodeTokensPerSecond: 60 / second, TTFTMedianSeconds: second / 10,
			CacheBytes: 12_345_678, RequestBytes: 3_000_000,
			Footprint: generations.Footprint{OpenedRSSBytes: 100_000_001, GeneratingPeakRSSBytes: 150_000_002,
				PeakRSSBytes: 160_000_003}}
		for i := range 6 {
			s.Seconds, s.TTFTSeconds = append(s.Seconds, second*(1+float64(i)/50)),
				append(s.TTFTSeconds, second*(1+float64(i)/50)/10)
		}
		s.Attention = []plan.LayerStrategy{{Node: "/layers.0/" + hostile, Type: "self", Strategy: plan.KeysValues,
			Plugin: "flash-decode"},
			{Node: "/layers.1/Softmax", Type: "self", Strategy: plan.KeysValues, Plugin: "flash-decode",
				Reason: "the layer has no weights to fold"}}
		return s
	}
	c := &generations.Compared{SchemaVersion: 3,
		Subject: generations.Subject{Model: "/models/bart", Batch: 2, InputTokens: 128}, Rounds: 3, A: side("none", 2),
		Environment: example(small).Environment}
	c.A.Attention = nil
	c.Forced = &generations.Forced{Over: generations.OverInputs, Texts: 3, Tokens: 999, Left: 12, Window: 64, Stride: 32}
	c.A.Likelihood = &divergence.Likelihood{Perplexity: 12.345, NLL: 2.5}
	for i, name := range sides {
		b := generations.Against{Side: side(name, 1.5-0.4*float64(i)),
			Outcome: generations.Outcome{NewTokens: 128, MinDistinct: 31, ReorderShare: 0.4375, Equal: 8, Sequences: 8}}
		b.Speedup, b.DecodeSpeedup = statistics.SpeedupOf(c.A.Seconds, b.Seconds),
			statistics.SpeedupOf(c.A.TTFTSeconds, b.TTFTSeconds)
		b.Likelihood = &divergence.Likelihood{Perplexity: 12.345678 + float64(i), NLL: 2.5}
		b.Divergence = &divergence.Divergence{Tokens: 999, KLMean: 1.25e-12, KLP99: 3.5e-11, KLMax: 4e-10, EqualGreedy: 999,
			PerplexityRatio: 1.0000321, RatioCI95: [2]float64{0.9999876, 1.0000766}}
		b.Drafts = &generations.Drafts{From: "lookup", Steps: 101, Drafted: 77 + i, Accepted: 41, AcceptedPerStep: 41.0 / 101}
		if i > 0 && i == len(sides)-1 {
			b.Drafts.Model = &decode.DraftReport{Model: "/models/" + hostile, Steps: 345}
			b.Equal = 5
			b.Divergence.EqualGreedy, b.Divergence.KLMax = 990, math.MaxFloat64
			b.Divergence.First = &divergence.Difference{Text: 2, Token: 17,
				A: divergence.Choice{Token: 5, Text: hostile, Probability: 0.4, Other: 0.3},
				B: divergence.Choice{Token: 6, Probability: 0.5}}
		}
		c.Sides = append(c.Sides, b)
	}
	return c
}

// TestGenerations opens reports on whole generations in Chromium.
func TestGenerations(t *testing.T) {
	for _, c := range []struct {
		sides           []string
		width           int
		dark, right     bool
		verdict, answer string
	}{
		{[]string{"auto"}, 1200, true, true, "auto is 1.33× as fast as none",
			"The tokens are equal, token by token: 8 sequences."},
		{[]string{"keys_values", "auto", hostile}, 390, false, false, "auto is 1.82× as fast as none",
			"The tokens differ from those of none: "},
	} {
		g := generated(c.sides...)
		page := must.Value(Generations(g, Options{}))(t)
		v := looked(t, page, c.width, c.dark)
		var data any = g
		if r := g.Result(); r != nil {
			data = r
		}
		numbers(t, v, data)
		drawnWell(t, v, c.dark)
		for _, part := range []string{"999 tokens of 3 texts", "windows of 64 tokens, 32 apart",
			"12 more tokens were left out", "accepted a step"} {
			if !strings.Contains(string(page), part) {
				t.Errorf("the page has no %q", part)
			}
		}
		if told := strings.Contains(string(page), "token 18 of text 3: token 6, where a has "); told == c.right {
			t.Errorf("the first other token is told: %v", told)
		}
		if want := "bart: " + c.verdict; v.Title != want || !strings.Contains(string(page), c.answer) || g.OK() != c.right {
			t.Errorf("title %q, want %q; %q is there: %v", v.Title, want, c.answer, strings.Contains(string(page), c.answer))
		}
	}
}
