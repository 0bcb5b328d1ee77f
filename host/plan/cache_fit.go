package plan

import (
	"fmt"
	"math"
	"strings"
)

// most is what a choice may come to keep for one sample.
func (c *CacheChoice) most() int64 {
	if c.Either == nil {
		return c.Candidate.Bytes(c.Kind.Layers, c.Kind.Range.Largest())
	}
	n := int64(0)
	for _, x := range c.Either.candidates {
		n = max(n, x.Bytes(c.Kind.Layers, c.Kind.Range.Largest()))
	}
	return n
}

// kept is what all kinds keep for the largest batch.
func kept(choices []CacheChoice) int64 {
	sum := int64(0)
	for i := range choices {
		sum += choices[i].most() * max(choices[i].Kind.Range.Batch[1], 1)
	}
	return sum
}

// fit changes choices that together keep more than a bound: of the combinations
// that fit it takes the fastest, or where none does the smallest.
func fit(choices []CacheChoice, most int64) {
	wanted := kept(choices)
	if wanted <= most {
		return
	}
	var fastest, smallest []int
	least, fewest := math.Inf(1), int64(math.MaxInt64)
	at := make([]int, len(choices))
	for {
		if bytes, seconds, ok := combination(choices, at); ok {
			if bytes <= most && seconds < least {
				least, fastest = seconds, append([]int(nil), at...)
			}
			if bytes < fewest {
				fewest, smallest = bytes, append([]int(nil), at...)
			}
		}
		if !advance(at, choices) {
			break
		}
	}
	taken, why := fastest, fmt.Sprintf("the fastest that keeps at most %s", size(most))
	if taken == nil {
		taken, why = smallest, fmt.Sprintf("the smallest; even so %s are wanted of %s, which bounds the batch", size(fewest), size(most))
	}
	for i, j := range taken {
		c := &choices[i]
		x := c.Options[j].Candidate
		if x == c.Candidate && c.Either == nil {
			continue
		}
		before := c.Candidate.String()
		if c.Either != nil {
			before = "deciding by each sample's shape"
		}
		c.Candidate, c.Either = x, nil
		c.Reason = fmt.Sprintf("%s (%s alone would be preferred, which takes all kinds to %s)", why, before, size(wanted))
	}
}

// combination is the bytes of the largest batch and the time of its step where each
// kind takes one option; not ok where one cannot serve.
func combination(choices []CacheChoice, at []int) (bytes int64, seconds float64, ok bool) {
	for i := range choices {
		x := &choices[i].Options[at[i]]
		if x.Refused != "" {
			return 0, 0, false
		}
		r := choices[i].Kind.Range
		bytes += x.Largest.Bytes * max(r.Batch[1], 1)
		seconds += x.Largest.PerStep(r.Largest())
	}
	return bytes, seconds, true
}

// advance counts through the options of all kinds.
func advance(at []int, choices []CacheChoice) bool {
	for i := range at {
		if at[i]++; at[i] < len(choices[i].Options) {
			return true
		}
		at[i] = 0
	}
	return false
}

// batches notes at every option how many samples would fit into a bound.
func batches(choices []CacheChoice, most int64) {
	all := int64(0)
	for i := range choices {
		all += choices[i].most()
	}
	for i := range choices {
		c := &choices[i]
		for j := range c.Options {
			if c.Options[j].Refused == "" {
				c.Options[j].Batch = BatchWithin(most, all-c.most()+c.Options[j].Largest.Bytes)
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
