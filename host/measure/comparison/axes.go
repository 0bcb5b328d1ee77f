package comparison

import (
	"fmt"
	"maps"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// Axis is a length of inputs that is swept.
type Axis struct {
	Name    string  `json:"name"` // as in inputs.Options.Dims
	Lengths []int64 `json:"lengths"`
}

// Most sides beside A, and cells, of a comparison: sides are in memory together, and each cell is timed.
const (
	MaxSides = 16
	MaxCells = 256
)

// cells are the lengths of each cell, the last axis varying fastest.
func cells(axes []Axis) ([]map[string]int64, error) {
	list, count := []map[string]int64{{}}, 1
	for _, a := range axes {
		if len(a.Lengths) == 0 {
			return nil, fmt.Errorf("axis %s has no lengths", a.Name)
		}
		if count *= len(a.Lengths); count > MaxCells {
			return nil, &diagnostic.Error{Found: fmt.Sprintf("the axes give %s cells", product(axes)),
				Needed: fmt.Sprintf("at most %d", MaxCells), Fix: "give fewer lengths of --dim"}
		}
	}
	for _, a := range axes {
		var longer []map[string]int64
		for _, cell := range list {
			for _, n := range a.Lengths {
				next := maps.Clone(cell)
				next[a.Name] = n
				longer = append(longer, next)
			}
		}
		list = longer
	}
	return list, nil
}

// product is the number of cells in words: 16 x 16 x 2.
func product(axes []Axis) string {
	text := ""
	for i, a := range axes {
		if i > 0 {
			text += " x "
		}
		text += fmt.Sprint(len(a.Lengths))
	}
	return text
}
