package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/opgraft/graft/host/comparison"
)

// sides are those of --b: names with commas between. The name of an existing file is one, whatever it holds; so is, of folders, what
// is said of self and of cross attention.
func sides(b string) ([]string, error) {
	if _, err := os.Stat(b); err == nil {
		return []string{b}, nil
	}
	var list []string
	for part := range strings.SplitSeq(b, ",") {
		part = strings.TrimSpace(part)
		if n := len(list); n > 0 && otherHalf(list[n-1], part) {
			list[n-1] += "," + part
			continue
		}
		if part == "" {
			return nil, misuse("--b "+b+" with an empty name", "names with commas between, as none,flash-decode,auto")
		}
		if slices.Contains(list, part) {
			return nil, misuse("--b "+b+" with "+part+" twice", "each side once")
		}
		list = append(list, part)
	}
	if len(list) > comparison.MaxSides {
		return nil, misuse(fmt.Sprintf("%d sides of --b", len(list)), fmt.Sprintf("at most %d", comparison.MaxSides))
	}
	return list, nil
}

// otherHalf says whether b says of one kind of attention what a says of the other.
func otherHalf(a, b string) bool {
	const self, cross = "self=", "cross="
	return strings.HasPrefix(a, self) && strings.HasPrefix(b, cross) && !strings.Contains(a, cross) ||
		strings.HasPrefix(a, cross) && strings.HasPrefix(b, self) && !strings.Contains(a, self)
}

// lengths reads --dim: one length of an axis, or several, which are swept.
func lengths(dims []string) (fixed map[string]int64, axes []comparison.Axis, err error) {
	fixed = map[string]int64{}
	cells := 1
	seen := map[string]string{}
	for _, d := range dims {
		name, values, _ := strings.Cut(d, "=")
		var list []int64
		for value := range strings.SplitSeq(values, ",") {
			n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			if err != nil || name == "" || n < 0 || n > math.MaxInt32 {
				return nil, nil, misuse("--dim "+d, fmt.Sprintf("name=length, a length from 0 to %d, or several with commas between", math.MaxInt32))
			}
			if slices.Contains(list, n) {
				return nil, nil, misuse(fmt.Sprintf("--dim %s with %d twice", d, n), "each length once")
			}
			list = append(list, n)
		}
		if before, ok := seen[name]; ok && before != values {
			return nil, nil, misuse(fmt.Sprintf("--dim %s as both %s and %s", name, before, values), "one of them")
		} else if ok {
			continue
		}
		seen[name] = values
		if len(list) == 1 {
			fixed[name] = list[0]
			continue
		}
		axes = append(axes, comparison.Axis{Name: name, Lengths: list})
		if cells *= len(list); cells > comparison.MaxCells {
			return nil, nil, misuse(fmt.Sprintf("--dim with %d and more cells", cells), fmt.Sprintf("at most %d: the product of the numbers of lengths", comparison.MaxCells))
		}
	}
	return fixed, axes, nil
}
