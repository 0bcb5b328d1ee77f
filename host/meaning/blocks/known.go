package blocks

import (
	"math"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// question is one that is asked of a value and, to some depth, of those around it. What is
// true to some depth is true beyond it.
type question struct {
	asked string
	value *graph.Value
}

// depths are to which a question was answered: no up to one, yes from another on.
type depths struct{ no, yes int }

// within answers a question to a depth, once: a value that is reached in many ways is not
// followed in each.
func (f *finder) within(asked string, v *graph.Value, depth int, answer func() bool) bool {
	f.main.Spend(1)
	q := question{asked, v}
	d, before := f.known[q]
	switch {
	case !before:
		d = depths{no: -1, yes: math.MaxInt}
		f.main.Hold(knownBytes)
	case depth <= d.no:
		return false
	case depth >= d.yes:
		return true
	}
	is := answer()
	if is {
		d.yes = depth
	} else {
		d.no = depth
	}
	f.known[q] = d
	return is
}

// knownBytes are held in memory for each answer.
const knownBytes = 96

// leave is where a view is looked for among the graph's outputs, to some depth.
type leave struct {
	value *graph.Value
	axes  string
	depth int
}

// tableQuestion is one about the content of a constant.
type tableQuestion struct {
	asked string
	table *onnx.Tensor
}

// content answers a question about the content of a constant, once.
func (f *finder) content(asked string, t *onnx.Tensor, answer func() bool) bool {
	q := tableQuestion{asked, t}
	is, before := f.tables[q]
	if !before {
		is = answer()
		f.tables[q] = is
	}
	return is
}
