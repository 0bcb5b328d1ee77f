package graph

import (
	"slices"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// sequenceRules are operators over sequences of tensors. Of a sequence nothing is known but how a Loop collects it.
func sequenceRules() map[string]func(*call) {
	return map[string]func(*call){"ConcatFromSequence": joinedRule}
}

// joinedRule is for tensors side by side, or along an axis of their own.
func joinedRule(c *call) {
	element, count := c.s.collected(c.n.Input(0))
	rank, stacked := element.Rank, c.n.Int("new_axis", 0) == 1
	if stacked && rank >= 0 {
		rank++
	}
	a, ok := axisOf(c.n.Int("axis", 0), rank)
	if rank < 0 || !ok {
		c.set(0, unranked(element.DType))
		return
	}
	dims := slices.Clone(element.Dims)
	if stacked {
		dims = slices.Insert(dims, a, count)
	} else {
		dims[a] = dims[a].Mul(count)
	}
	c.set(0, shaped(element.DType, dims...))
}

// collected is the tensor that every iteration of a Loop adds to a sequence which begins empty, as far as it is the
// same in all of them, and how many there are.
func (s *Shapes) collected(v *Value) (element Fact, count Dim) {
	element = unranked(onnx.Tensor_UNDEFINED)
	if v == nil || v.Producer == nil || !v.Producer.Is("Loop") {
		return element, Dim{}
	}
	loop := v.Producer
	body, i := loop.attrGraph("body"), slices.Index(loop.Out, v)
	if body == nil || 1+i >= len(body.Outputs) || 2+i >= len(body.Inputs) {
		return element, Dim{}
	}
	begin, insert := loop.Input(2+i), body.Outputs[1+i].Producer
	if begin == nil || begin.Producer == nil || !begin.Producer.Is("SequenceEmpty") ||
		insert == nil || insert.Graph != body || !insert.Is("SequenceInsert") || insert.Input(0) != body.Inputs[2+i] {
		return element, Dim{}
	}
	element = like(s.Of(insert.Input(1)), onnx.Tensor_UNDEFINED)
	element.Dims = outside(loop, s, element.Dims)
	return element, s.trips(loop, body)
}
