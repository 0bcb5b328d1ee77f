package graph

import (
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

func normRules() map[string]func(*call) {
	return map[string]func(*call){
		"LayerNormalization": func(c *call) {
			c.set(0, like(c.in(0), onnx.Tensor_UNDEFINED))
			stats := c.stats(onnx.Tensor_DataType(c.n.Int("stash_type", int64(onnx.Tensor_FLOAT))))
			c.set(1, stats)
			c.set(2, stats)
		},
		"RMSNormalization": sameAsFirst,
		"SimplifiedLayerNormalization": func(c *call) {
			c.set(0, like(c.in(0), onnx.Tensor_UNDEFINED))
			c.set(1, c.stats(onnx.Tensor_FLOAT))
		},
		"GroupNormalization":    sameAsFirst,
		"InstanceNormalization": sameAsFirst,
		"BatchNormalization": func(c *call) {
			c.set(0, like(c.in(0), onnx.Tensor_UNDEFINED))
			for i := 1; i < len(c.out); i++ {
				c.set(i, like(c.in(3), onnx.Tensor_UNDEFINED))
			}
		},
	}
}

// sameAsFirst is for operators whose result looks like their first input.
func sameAsFirst(c *call) { c.set(0, like(c.in(0), onnx.Tensor_UNDEFINED)) }

// stats is the shape of a layer normalization's mean: the normalized axes, from
// axis on, have length one.
func (c *call) stats(t onnx.Tensor_DataType) Fact {
	x := c.in(0)
	a, ok := axisOf(c.n.Int("axis", -1), x.Rank)
	if x.Rank < 0 || !ok {
		return unranked(t)
	}
	var axes []int
	for i := a; i < x.Rank; i++ {
		axes = append(axes, i)
	}
	return reduced(x, axes, true, t)
}
