package plan

import (
	"fmt"
	"slices"
	"strings"
)

// largest is what a choice may come to store for one request.
func (c *CacheChoice) largest() int64 {
	if c.Either == nil {
		return c.Candidate.Bytes(c.Kind.Layers, c.Kind.Range.Largest())
	}
	n := int64(0)
	for _, x := range c.Either.candidates {
		n = max(n, x.Bytes(c.Kind.Layers, c.Kind.Range.Largest()))
	}
	return n
}

// stored is what all kinds store for the largest batch.
func stored(choices []CacheChoice) int64 {
	sum := int64(0)
	for i := range choices {
		sum += choices[i].largest() * max(choices[i].Kind.Range.Batch[1], 1)
	}
	return sum
}

// fit changes choices that together store more than a bound at the largest batch. Fewer
// requests then fit, and which ones decides how many: it takes the combination that
// generates the most tokens in a time, the rest of the decoder counted, but leaves what
// was chosen where others are near. Where not one request fits it takes the smallest.
func fit(p *Predictor, choices []CacheChoice, limit int64) {
	if stored(choices) <= limit {
		return
	}
	at := make([]int, len(choices))
	for i := range choices {
		c := &choices[i]
		at[i] = slices.IndexFunc(c.Options, func(x Option) bool { return x.Candidate == c.Candidate })
	}
	preferred := combine(p, choices, at, limit)
	best, taken := preferred.rate*Margin, at
	smallest, least := at, preferred.request
	for at = first(choices, at); ; {
		if x := combine(p, choices, at, limit); x.runs {
			if x.rate > best {
				best, taken = x.rate, slices.Clone(at)
			}
			if x.request < least {
				least, smallest = x.request, slices.Clone(at)
			}
		}
		if !advance(at, choices) {
			break
		}
	}
	if best == 0 {
		taken = smallest
	}
	x := combine(p, choices, taken, limit)
	for i, j := range taken {
		c := &choices[i]
		if to := c.Options[j].Candidate; to != c.Candidate || c.Either != nil {
			before := c.Candidate.String()
			if c.Either != nil {
				before = "deciding by each request's shape"
			}
			c.Candidate, c.Either = to, nil
			c.Reason = fmt.Sprintf("%s hold %s of the largest requests, and %s with %s, the first choice", size(limit),
				count(x.batch), count(preferred.batch), before)
			continue
		}
		c.Reason += fmt.Sprintf("; %s hold %s of the largest requests", size(limit), count(x.batch))
	}
}

// count is a number of requests for people.
func count(n int64) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprint(n)
}

// combined is what comes of one option of each kind.
type combined struct {
	runs    bool
	request int64   // bytes of the largest request
	batch   int64   // requests that a bound holds, at most as many as are wanted
	rate    float64 // steps of requests a second
}

func combine(p *Predictor, choices []CacheChoice, at []int, limit int64) (x combined) {
	wanted := int64(1)
	for i := range choices {
		o := &choices[i].Options[at[i]]
		if o.Refused != "" && choices[i].Kind.Named == "" {
			return combined{}
		}
		x.request += o.Largest.Bytes
		wanted = max(wanted, choices[i].Kind.Range.Batch[1])
	}
	x.runs, x.batch = true, min(wanted, BatchWithin(limit, x.request))
	if x.batch == 0 {
		return x
	}
	seconds := 0.0
	for i := range choices {
		k := &choices[i].Kind
		s := k.Range.Largest()
		s.Batch = x.batch
		seconds += p.Predict(k.Layers, choices[i].Options[at[i]].Candidate, s).PerStep(s)
		if k.Layers.Type == "self" { // once for each of the decoder's layers
			weights := float64(k.Layers.Layers * OtherWeights(k.Layers))
			seconds += p.linear(weights, weights/4*2*float64(s.Batch*s.Beams))
		}
	}
	x.rate = float64(x.batch) / seconds
	return x
}

// first is the first combination of options that advance counts through; kinds that
// were decided already stay where they are.
func first(choices []CacheChoice, at []int) []int {
	list := make([]int, len(at))
	for i := range list {
		if choices[i].Kind.Named != "" {
			list[i] = at[i]
		}
	}
	return list
}

// advance counts through the options of all kinds that are open.
func advance(at []int, choices []CacheChoice) bool {
	for i := range at {
		if choices[i].Kind.Named != "" {
			continue
		}
		if at[i]++; at[i] < len(choices[i].Options) {
			return true
		}
		at[i] = 0
	}
	return false
}

// batches notes at every option how many requests would fit into a bound.
func batches(choices []CacheChoice, limit int64) {
	all := int64(0)
	for i := range choices {
		all += choices[i].largest()
	}
	for i := range choices {
		c := &choices[i]
		for j := range c.Options {
			if c.Options[j].Refused == "" {
				c.Options[j].Batch = BatchWithin(limit, all-c.largest()+c.Options[j].Largest.Bytes)
			}
		}
	}
}

func ratio(a, b int64) float64 { return float64(a) / float64(max(b, 1)) }

// size is a number of bytes for people.
func size(n int64) string {
	x, unit := float64(n), 0
	for x >= 1024 && unit < 3 {
		x, unit = x/1024, unit+1
	}
	text := fmt.Sprintf("%.1f", x)
	return strings.TrimSuffix(text, ".0") + " " + [...]string{"bytes", "KiB", "MiB", "GiB"}[unit]
}
