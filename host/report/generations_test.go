package report

import (
	"strings"
	"testing"

	"github.com/opgraft/graft/host/comparison/generations"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/rewrite"
	"github.com/opgraft/graft/host/statistics"
)

// generated is a comparison of whole generations, the same each time; the last side has some sequences of its own.
func generated(sides ...string) *generations.Compared {
	side := func(name string, second float64) generations.Side {
		s := generations.Side{Name: name, Plugins: []string{"flash-decode"}, TokensPerSecond: 64 / second, DecodeTokensPerSecond: 60 / second, TTFTMedianSeconds: second / 10,
			CacheBytes: 12_345_678, RequestBytes: 3_000_000,
			Footprint: generations.Footprint{OpenedRSSBytes: 100_000_001, GeneratingPeakRSSBytes: 150_000_002, PeakRSSBytes: 160_000_003}}
		for i := range 6 {
			s.Seconds, s.TTFTSeconds = append(s.Seconds, second*(1+float64(i)/50)), append(s.TTFTSeconds, second*(1+float64(i)/50)/10)
		}
		s.Attention = []rewrite.LayerStrategy{{Node: "/layers.0/" + hostile, Type: "self", Strategy: plan.KeysValues, Plugin: "flash-decode"},
			{Node: "/layers.1/Softmax", Type: "self", Strategy: plan.KeysValues, Plugin: "flash-decode", Reason: "the layer has no weights to fold"}}
		return s
	}
	c := &generations.Compared{SchemaVersion: 3, Subject: generations.Subject{Model: "/models/bart", Batch: 2, InputTokens: 128}, Rounds: 3, A: side("none", 2), Environment: example(small).Environment}
	c.A.Attention = nil
	for i, name := range sides {
		b := generations.Against{Side: side(name, 1.5-0.4*float64(i)), Outcome: generations.Outcome{NewTokens: 128, MinDistinct: 31, ReorderShare: 0.4375, Equal: 8, Sequences: 8}}
		b.Speedup, b.DecodeSpeedup = statistics.SpeedupOf(c.A.Seconds, b.Seconds), statistics.SpeedupOf(c.A.TTFTSeconds, b.TTFTSeconds)
		if i > 0 && i == len(sides)-1 {
			b.Equal = 5
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
		{[]string{"auto"}, 1200, true, true, "auto is 1.33× as fast as none", "The tokens are equal, token by token: 8 sequences."},
		{[]string{"keys_values", "auto", hostile}, 390, false, false, "auto is 1.82× as fast as none", "The tokens differ from those of none: "},
	} {
		g := generated(c.sides...)
		page, err := Generations(g, Options{})
		if err != nil {
			t.Fatal(err)
		}
		v := looked(t, page, c.width, c.dark)
		var data any = g
		if r := g.Result(); r != nil {
			data = r
		}
		numbers(t, v, data)
		drawnWell(t, v, c.dark)
		if want := "bart: " + c.verdict; v.Title != want || !strings.Contains(string(page), c.answer) || g.OK() != c.right {
			t.Errorf("title %q, want %q; %q is there: %v", v.Title, want, c.answer, strings.Contains(string(page), c.answer))
		}
	}
}
