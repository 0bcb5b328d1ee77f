package graph

import (
	"slices"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// rareRules are operators that transformers seldom have: vision, losses,
// strings, recurrent forms of attention.
func rareRules() map[string]func(*call) {
	scalar := func(t onnx.Tensor_DataType) func(*call) {
		return func(c *call) { c.set(0, shaped(t)) }
	}
	windowed := func(c *call) {
		t := onnx.Tensor_DataType(c.n.Int("output_datatype", int64(onnx.Tensor_FLOAT)))
		c.set(0, shaped(t, c.in(0).one()))
	}
	causalConvRule := func(c *call) {
		x := c.in(0)
		c.set(0, like(x, onnx.Tensor_UNDEFINED))
		if past := c.in(3); past.Rank == 3 {
			c.set(1, like(past, onnx.Tensor_UNDEFINED))
			return
		}
		c.set(1, shaped(x.DType, x.Dim(0), x.Dim(1), c.in(1).Dim(2).sub(DimInt(1))))
	}
	return map[string]func(*call){
		"SwiGLU":                            sameAsFirst,
		"LinearAttention":                   linearAttentionRule,
		"FlexAttention":                     flexAttentionRule,
		"ai.onnx.preview.FlexAttention":     flexAttentionRule,
		"CausalConvWithState":               causalConvRule,
		"com.microsoft.CausalConvWithState": causalConvRule,
		"GridSample": func(c *call) {
			x, grid := c.in(0), c.in(1)
			if x.Rank < 2 || grid.Rank != x.Rank {
				c.set(0, unranked(x.DType))
				return
			}
			c.set(0, shaped(x.DType, slices.Concat(x.Dims[:2], grid.Dims[1:grid.Rank-1])...))
		},
		"AffineGrid": func(c *call) {
			size := c.in(1).Elems
			if len(size) != 4 && len(size) != 5 {
				c.set(0, unranked(c.in(0).DType))
				return
			}
			c.set(0, shaped(c.in(0).DType, slices.Concat(size[:1], size[2:], []Dim{DimInt(int64(len(size) - 2))})...))
		},
		"DeformConv": func(c *call) { c.conv(0, 1, onnx.Tensor_UNDEFINED) },
		"RoiAlign": func(c *call) {
			c.set(0, shaped(c.in(0).DType, c.in(1).Dim(0), c.in(0).Dim(1), DimInt(c.n.Int("output_height", 1)),
				DimInt(c.n.Int("output_width", 1))))
		},
		"CenterCropPad":             centerRule,
		"NonMaxSuppression":         func(c *call) { c.set(0, shaped(onnx.Tensor_INT64, Dim{}, DimInt(3))) },
		"NegativeLogLikelihoodLoss": lossRule,
		"SoftmaxCrossEntropyLoss":   lossRule,
		"DFT":                       dftRule,
		"BlackmanWindow":            windowed,
		"HammingWindow":             windowed,
		"HannWindow":                windowed,
		"StringConcat":              binary(onnx.Tensor_STRING, nil, nil),
		"RegexFullMatch":            func(c *call) { c.set(0, like(c.in(0), onnx.Tensor_BOOL)) },
		"SequenceLength":            scalar(onnx.Tensor_INT64),
		"OptionalHasElement":        scalar(onnx.Tensor_BOOL),
	}
}

// linearAttentionRule has heads folded, and a state (batch, heads, key size,
// value size).
func linearAttentionRule(c *call) {
	q := c.in(0)
	heads, groups := DimInt(c.n.Int("q_num_heads", 0)), DimInt(c.n.Int("kv_num_heads", 0))
	k, v := headed(c.in(1), groups), headed(c.in(2), groups)
	c.set(0, shaped(q.DType, q.Dim(0), q.Dim(1), heads.Mul(v.Dims[3])))
	t := q.DType
	if c.has(3) {
		t = c.in(3).DType
	}
	c.set(1, shaped(t, q.Dim(0), groups, k.Dims[3], v.Dims[3]))
}

func flexAttentionRule(c *call) {
	for _, sub := range c.n.Subgraphs {
		c.body(sub, nil)
	}
	q, v := c.in(0), c.in(2)
	c.set(0, shaped(q.DType, q.Dim(0), q.Dim(1), q.Dim(2), v.Dim(3)))
}

func centerRule(c *call) {
	x := c.in(0)
	size := c.in(1).Elems
	axes, given := c.n.Ints("axes")
	if x.Rank < 0 {
		c.set(0, unranked(x.DType))
		return
	}
	if !given {
		for i := range x.Rank {
			axes = append(axes, int64(i))
		}
	}
	f := shaped(x.DType, slices.Clone(x.Dims)...)
	for i, n := range axes {
		a, ok := axisOf(n, x.Rank)
		if !ok {
			clear(f.Dims)
			break
		}
		f.Dims[a] = at(size, i)
	}
	c.set(0, f)
}

// lossRule is for losses over scores (batch, classes, ...): a scalar, or one a
// label when they are not reduced.
func lossRule(c *call) {
	scores, labels := c.in(0), c.in(1)
	if c.n.str("reduction", "mean") == "none" {
		c.set(0, like(labels, scores.DType))
	} else {
		c.set(0, shaped(scores.DType))
	}
	c.set(1, like(scores, onnx.Tensor_UNDEFINED))
}

// dftRule is for signals (batch, ..., 1 or 2): complex numbers come out, but of
// a one-sided inverse.
func dftRule(c *call) {
	x := c.in(0)
	if x.Rank < 2 {
		c.set(0, unranked(x.DType))
		return
	}
	f := shaped(x.DType, slices.Clone(x.Dims)...)
	f.Dims[x.Rank-1] = DimInt(2)
	if c.n.Int("onesided", 0) != 0 && c.n.Int("inverse", 0) != 0 {
		f.Dims[x.Rank-1] = DimInt(1) // real numbers
	}
	c.set(0, f)
	axis := DimInt(c.n.Int("axis", 1))
	if c.n.Graph.Opset("") >= 20 {
		axis = DimInt(-2)
		if c.has(2) {
			axis = c.in(2).one()
		}
	}
	n, known := axis.Const()
	a, ok := axisOf(n, x.Rank)
	if !known || !ok {
		clear(f.Dims[:x.Rank-1])
		return
	}
	length := f.Dims[a]
	if c.has(1) {
		length = c.in(1).one()
	}
	if c.n.Int("onesided", 0) != 0 {
		n, isConst := length.Const()
		length = Dim{}
		if isConst && c.n.Int("inverse", 0) == 0 {
			length = DimInt(n/2 + 1)
		}
	}
	f.Dims[a] = length
}
