package chat

import (
	"fmt"

	"github.com/ardanlabs/jinja"
)

// maxRange is how many numbers a template's range may have, as in the sandbox that transformers renders in.
const maxRange = 100_000

// boundedRange is Python's range, with the bound of the sandbox. The engine's own has none.
func boundedRange(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if len(args) < 1 || len(args) > 3 {
		return jinja.Undefined(), fmt.Errorf("range takes 1 to 3 numbers, found %d", len(args))
	}
	given := make([]int64, len(args))
	for i, a := range args {
		if !a.IsInt() {
			return jinja.Undefined(), fmt.Errorf("range takes integers, found %s", a.String())
		}
		given[i] = a.AsInt()
	}
	start, stop, step := int64(0), given[0], int64(1)
	if len(given) > 1 {
		start, stop = given[0], given[1]
	}
	if len(given) > 2 {
		step = given[2]
	}
	if step == 0 {
		return jinja.Undefined(), fmt.Errorf("the step of range is 0")
	}
	first, last, stride := start, stop, uint64(step)
	if step < 0 {
		first, last, stride = stop, start, -stride
	}
	count := uint64(0)
	if first < last {
		count = (uint64(last)-uint64(first)-1)/stride + 1
	}
	if count > maxRange {
		return jinja.Undefined(), fmt.Errorf("range has %d numbers, at most %d are taken", count, maxRange)
	}
	list := jinja.NewList(nil)
	for i := range int64(count) {
		list.AsList().Append(jinja.NewInt(start + i*step))
	}
	return list, nil
}
