package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/opgraft/graft/host/measure/comparison"
)

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
				return nil, nil, misuse("--dim "+d,
					fmt.Sprintf("name=length, a length from 0 to %d, or several with commas between", math.MaxInt32))
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
			return nil, nil, misuse(fmt.Sprintf("--dim with %d and more cells", cells),
				fmt.Sprintf("at most %d: the product of the numbers of lengths", comparison.MaxCells))
		}
	}
	return fixed, axes, nil
}

// oneEach reads --dim where nothing is swept, and says why.
func oneEach(dims []string, why string) (map[string]int64, error) {
	fixed, axes, err := lengths(dims)
	if err == nil && len(axes) > 0 {
		err = misuse("--dim with several lengths", "one of each"+why)
	}
	return fixed, err
}
