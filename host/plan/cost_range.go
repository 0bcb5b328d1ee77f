package plan

import (
	"maps"
	"slices"

	"github.com/opgraft/graft/host/meaning/roles"
)

// ranges are the values of a length that the range is made of. Past and new
// together are their sum.
var ranges = map[roles.Length][]int64{
	roles.Batch:   {1, 4},
	roles.Cached:  {16, 256, 960},
	roles.Encoder: {64, 1024},
	roles.New:     {16, 128, 512},
}

// maxSamples bounds the range that is looked at.
const maxSamples = 64

// samples is the grid of lengths over what a model's symbols count. A model with a
// past decodes one token at a time, most of the time.
func samples(symbols []string, r *roles.Roles) []map[string]int64 {
	count := func(s string) roles.Length {
		if l := r.Symbol(s); l != roles.Unknown {
			return l
		}
		return roles.New
	}
	var lengths []roles.Length
	add := func(l roles.Length) {
		if !slices.Contains(lengths, l) {
			lengths = append(lengths, l)
		}
	}
	for _, s := range symbols {
		if l := count(s); l != roles.All {
			add(l)
		}
	}
	if slices.ContainsFunc(symbols, func(s string) bool { return count(s) == roles.All }) {
		if add(roles.New); r.HasPast {
			add(roles.Cached)
		}
	}
	grid := []map[roles.Length]int64{{}}
	for _, l := range lengths {
		values := ranges[l]
		if l == roles.New && r.HasPast {
			values = []int64{1}
		}
		if len(grid)*len(values) > maxSamples {
			values = values[len(values)-1:]
		}
		var next []map[roles.Length]int64
		for _, at := range grid {
			for _, v := range values {
				to := maps.Clone(at)
				to[l] = v
				next = append(next, to)
			}
		}
		grid = next
	}
	list := make([]map[string]int64, len(grid))
	for i, at := range grid {
		at[roles.All] = at[roles.Cached] + at[roles.New]
		list[i] = map[string]int64{}
		for _, s := range symbols {
			list[i][s] = at[count(s)]
		}
	}
	return list
}
