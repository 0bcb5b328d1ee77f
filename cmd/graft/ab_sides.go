package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/measure/comparison"
)

// sides are those of --b: names with commas between. The name of an existing file is one, whatever it holds; so is,
// of folders, what is said of self and of cross attention, of weights and of a draft model.
func sides(b string) ([]string, error) {
	if _, err := os.Stat(b); err == nil {
		return []string{b}, nil
	}
	var list []string
	for part := range strings.SplitSeq(b, ",") {
		part = strings.TrimSpace(part)
		if n := len(list); n > 0 &&
			(otherHalf(list[n-1], part) || ofWeights(list[n-1], part) || ofDraftModel(list[n-1], part)) {
			list[n-1] += "," + part
			continue
		}
		if part == "" {
			return nil, misuse("--b "+b+" with an empty name", "names with commas between, as none,flash-decode,auto")
		}
		list = append(list, part)
	}
	for i, side := range list { // whole ones: two may begin alike
		if slices.Contains(list[:i], side) {
			return nil, misuse("--b "+b+" with "+side+" twice", "each side once")
		}
	}
	if len(list) > comparison.MaxSides {
		return nil, misuse(fmt.Sprintf("%d sides of --b", len(list)), fmt.Sprintf("at most %d", comparison.MaxSides))
	}
	return list, nil
}

// ofWeights says whether b goes on with what a says of weights.
func ofWeights(a, b string) bool {
	name, _, ok := strings.Cut(b, "=")
	return ok && strings.Contains(a, "weights=") &&
		slices.Contains([]string{"logits", "group", "activations", "zero-points"}, name)
}

// ofDraftModel says whether b goes on with what a says of a draft model: how its weights are stored.
func ofDraftModel(a, b string) bool {
	_, from, ok := strings.Cut(a, "draft=")
	return ok && from != "lookup" && from != "none" && !strings.Contains(from, ",weights=") &&
		strings.HasPrefix(b, "weights=")
}

// otherHalf says whether b says of one kind of attention what a says of the other.
func otherHalf(a, b string) bool {
	const self, cross = "self=", "cross="
	return strings.HasPrefix(a, self) && strings.HasPrefix(b, cross) && !strings.Contains(a, cross) ||
		strings.HasPrefix(a, cross) && strings.HasPrefix(b, self) && !strings.Contains(a, self)
}
