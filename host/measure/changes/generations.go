package changes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/opgraft/graft/host/measure/comparison/divergence"
	"github.com/opgraft/graft/host/measure/comparison/generations"
	"github.com/opgraft/graft/host/plan"
)

// Memory is a size of a side, in bytes, of one generation in a process of its own.
type Memory struct {
	Side string `json:"side"`
	What string `json:"what"` // the key that a result has it under
	Old  int64  `json:"old_bytes"`
	New  int64  `json:"new_bytes"`
	// Delta is new/old - 1: -0.1 is a tenth less.
	Delta float64 `json:"delta"`
}

// sizes are those of a side that both results have.
func sizes(from, to *generations.Side) (list []Memory) {
	for _, x := range []struct {
		what string
		of   func(*generations.Side) int64
	}{
		{"cache_bytes", func(s *generations.Side) int64 { return s.CacheBytes }},
		{"cache_bytes_per_request", func(s *generations.Side) int64 { return s.RequestBytes }},
		{"opened_rss_bytes", func(s *generations.Side) int64 { return s.OpenedRSSBytes }},
		{"generating_peak_rss_bytes", func(s *generations.Side) int64 { return s.GeneratingPeakRSSBytes }},
		{"peak_rss_bytes", func(s *generations.Side) int64 { return s.PeakRSSBytes }},
	} {
		if old, now := x.of(from), x.of(to); old > 0 && now > 0 {
			list = append(list, Memory{from.Name, x.what, old, now, float64(now)/float64(old) - 1})
		}
	}
	return list
}

// memory compares the sizes of sides that are in both.
func memory(from, to *generations.Compared) []Memory {
	list := []Memory{}
	if from.A.Name == to.A.Name {
		list = append(list, sizes(&from.A, &to.A)...)
	}
	for i := range from.Sides {
		if b := sideOf(to, from.Sides[i].Name); b != nil {
			list = append(list, sizes(&from.Sides[i].Side, &b.Side)...)
		}
	}
	return list
}

func sideOf(c *generations.Compared, name string) *generations.Against {
	i := slices.IndexFunc(c.Sides, func(s generations.Against) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Sides[i]
}

// task are the words for what was generated, and how it was searched, by what they say.
func task(c *generations.Compared) map[string]string {
	words := map[string]string{"batch": fmt.Sprint(c.Batch), "input tokens": fmt.Sprint(c.InputTokens),
		"inputs": short(c.InputsSHA256)}
	if c.InputFeatures != nil {
		words["input features"] = fmt.Sprint(c.InputFeatures)
	}
	var search map[string]json.RawMessage
	if json.Unmarshal(c.Search, &search) == nil {
		for name, value := range search {
			var data bytes.Buffer
			if json.Compact(&data, value) == nil {
				words["option "+name] = data.String()
			}
		}
	}
	return words
}

// sameTask says whether two results are of the same inputs and search.
func sameTask(from, to *generations.Compared) bool { return maps.Equal(task(from), task(to)) }

// generated notes what is not as it was of whole generations: the task, the tokens, and what runs the layers.
func generated(a, b *generations.Compared, note func(what, old, now string)) {
	note("rounds", fmt.Sprint(a.Rounds), fmt.Sprint(b.Rounds))
	before, now := task(a), task(b)
	for _, what := range slices.Sorted(maps.Keys(merged(before, now))) {
		note(what, absent(before[what], "none"), absent(now[what], "none"))
	}
	sameTexts := a.Forced != nil && b.Forced != nil && *a.Forced == *b.Forced
	if a.A.Name == b.A.Name {
		layers(&a.A, &b.A, note)
		predicted(&a.A, &b.A, sameTexts, note)
	}
	for i := range a.Sides {
		x := &a.Sides[i]
		y := sideOf(b, x.Name)
		if y == nil {
			continue
		}
		note("sequences of "+x.Name+" that are a's", equal(x), equal(y))
		note("new tokens of "+x.Name, fmt.Sprint(x.NewTokens), fmt.Sprint(y.NewTokens))
		layers(&x.Side, &y.Side, note)
		predicted(&x.Side, &y.Side, sameTexts, note)
		if p, q := x.Divergence, y.Divergence; sameTexts && p != nil && q != nil {
			note("mean KL divergence of "+x.Name+" from a", divergent(p), divergent(q))
			note("greedy tokens of "+x.Name+" that are a's", fmt.Sprintf("%d of %d", p.EqualGreedy, p.Tokens),
				fmt.Sprintf("%d of %d", q.EqualGreedy, q.Tokens))
		}
	}
}

// predicted notes what a side makes of texts that are the same in both results.
func predicted(x, y *generations.Side, sameTexts bool, note func(what, old, now string)) {
	if p, q := x.Likelihood, y.Likelihood; sameTexts && p != nil && q != nil {
		note("perplexity of "+x.Name, fmt.Sprintf("%.5g", p.Perplexity), fmt.Sprintf("%.5g", q.Perplexity))
	}
}

// divergent is a mean divergence in words: what rounding makes of an exact side is one of them.
func divergent(d *divergence.Divergence) string {
	if d.KLMean < 1e-9 {
		return "below 1e-9"
	}
	return fmt.Sprintf("%.2e", d.KLMean)
}

func equal(b *generations.Against) string { return fmt.Sprintf("%d of %d", b.Equal, b.Sequences) }

// layers notes those that a side runs otherwise.
func layers(x, y *generations.Side, note func(what, old, now string)) {
	words := func(list []plan.LayerStrategy) (blocks []block) {
		for _, l := range list {
			blocks = append(blocks, block{l.Node, string(l.Strategy) + " of " + l.Plugin})
		}
		return blocks
	}
	otherwise(x.Name, words(x.Attention), words(y.Attention), note)
}
