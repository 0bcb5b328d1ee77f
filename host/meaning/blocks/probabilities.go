package blocks

import (
	"errors"
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/onnx/graph"
)

// weighting is the matmul of probabilities and values.
type weighting struct {
	matmul *graph.Node
	turned bool         // it is of values and probabilities, both in columns, and so is its result
	read   *graph.Value // the probabilities, when something else reads them
}

// weighted walks from the softmax down to the matmul with the values.
func (f *finder) weighted(v *graph.Value, w *Wiring) (by weighting, err error) {
	dims, err := f.start(v, "t")
	if err != nil {
		return by, err
	}
	at := view{v, dims, 1}
	if w.Sinks != nil {
		if at, err = f.withoutSinks(at); err != nil {
			return by, err
		}
	}
	for range maxDetour {
		var next *graph.Node
		others := f.output(at.value) != nil
		for _, u := range f.readers(at.value) {
			n := u.Node
			switch {
			case isMatMul(n) && by.matmul == nil && (u.Index == 0 || at.weighsRight(n)):
				by.matmul, by.turned = n, u.Index == 1
			case f.onlyClears(n, at.value, 8):
				w.ClearNaN = true
			case next == nil && u.Index == 0 && isView(n) && !f.repeats(n) || n == next:
				next = n
			case next == nil && f.clears(n, at.value):
				next = n
			default:
				others = true
			}
		}
		switch {
		case by.matmul != nil && next == nil:
			if !by.turned && !at.isScores() {
				return by, fmt.Errorf("the axes of its probabilities could not be told apart at %s", by.matmul)
			}
			if others && !at.isScores() {
				return by, errors.New("its probabilities are read in columns, too")
			}
			if others {
				by.read = at.value
			}
			return by, nil
		case next == nil && f.quantized(at.value):
			return by, errors.New("its probabilities are " + rounded)
		case by.matmul != nil || next == nil:
			return by, errors.New("its probabilities go into no matmul with values")
		case others:
			return by, errors.New("its probabilities are read before they are cleared or copied")
		}
		step, ok := f.stepDown(at, next)
		if next.Is("Where") || next.Is("Cast") && f.isFloat(next.Output(0)) {
			step, ok = view{next.Output(0), at.dims, 1}, true
		}
		if !ok {
			return by, fmt.Errorf("its probabilities pass through %s %s", next.Op(), next)
		}
		at = step
	}
	return by, fmt.Errorf("its probabilities pass through more than %d nodes", maxDetour)
}

// quantized reports a value that a QuantizeLinear reads.
func (f *finder) quantized(v *graph.Value) bool {
	return slices.ContainsFunc(f.readers(v), func(u graph.Use) bool { return u.Node.Is("QuantizeLinear") })
}

// clears reports Where(IsNaN(v), 0, v).
func (f *finder) clears(n *graph.Node, v *graph.Value) bool {
	if !n.Is("Where") {
		return false
	}
	condition, yes, no := f.choice(n)
	zero, ok := f.scalar(yes)
	isNaN := condition.Producer
	return ok && zero == 0 && no == f.first(v) && isNaN.Is("IsNaN") && f.in(isNaN, 0) == no
}

// onlyClears reports IsNaN(v), negated or not, whose only use is to clear.
func (f *finder) onlyClears(n *graph.Node, v *graph.Value, depth int) bool {
	if depth == 0 || !n.Is("IsNaN", "Not") || f.output(n.Output(0)) != nil {
		return false
	}
	readers := f.readers(n.Output(0))
	for _, u := range readers {
		if !(f.clears(u.Node, v) && u.Index == 0) && !(u.Node.Is("Not") && f.onlyClears(u.Node, v, depth-1)) {
			return false
		}
	}
	return len(readers) > 0
}
