package graph

import (
	"slices"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// microsoftRules are the operators of ONNX Runtime's own domain that its
// optimizer and the generators of models write, attention aside.
func microsoftRules() map[string]func(*call) {
	const ms = "com.microsoft."
	skipNorm := func(c *call) {
		x := c.in(0)
		c.set(0, like(x, onnx.Tensor_UNDEFINED))
		c.set(1, c.stats(onnx.Tensor_FLOAT))
		c.set(2, c.stats(onnx.Tensor_FLOAT))
		c.set(3, like(x, onnx.Tensor_UNDEFINED))
	}
	rules := map[string]func(*call){
		ms + "SkipLayerNormalization":           skipNorm,
		ms + "SkipSimplifiedLayerNormalization": skipNorm,
		ms + "EmbedLayerNormalization":          embedNormRule,
		ms + "BiasSplitGelu": func(c *call) {
			half, _ := c.in(0).Dim(-1).Div(DimInt(2))
			c.set(0, c.replaced(c.in(0), -1, half, onnx.Tensor_UNDEFINED))
		},
		ms + "BiasDropout": func(c *call) {
			c.set(0, like(c.in(0), onnx.Tensor_UNDEFINED))
			c.set(1, like(c.in(0), onnx.Tensor_BOOL))
		},
		ms + "SkipGroupNorm": func(c *call) {
			c.set(0, like(c.in(0), onnx.Tensor_UNDEFINED))
			c.set(1, like(c.in(0), onnx.Tensor_UNDEFINED))
		},
		ms + "GemmFastGelu": func(
			c *call) {
			c.set(0, c.s.multiplied(c.in(0), c.in(1), onnx.Tensor_UNDEFINED))
		},
		ms + "FusedMatMul":                  fusedMatMulRule,
		ms + "TransposeMatMul":              fusedMatMulRule,
		ms + "FusedMatMulActivation":        fusedMatMulRule,
		ms + "FusedGemm":                    gemmRule,
		ms + "FusedConv":                    func(c *call) { c.conv(0, 1, onnx.Tensor_UNDEFINED) },
		ms + "MatMulNBits":                  matMulPackedRule,
		ms + "MatMulBnb4":                   matMulPackedRule,
		ms + "MatMulFpQ4":                   func(c *call) {},
		ms + "DynamicQuantizeMatMul":        func(c *call) { c.set(0, c.s.multiplied(c.in(0), c.in(1), c.in(0).DType)) },
		ms + "MatMulIntegerToFloat":         func(c *call) { c.set(0, c.s.multiplied(c.in(0), c.in(1), c.in(2).DType)) },
		ms + "MatMulInteger16":              func(c *call) { c.set(0, c.s.multiplied(c.in(0), c.in(1), onnx.Tensor_INT32)) },
		ms + "QLinearAdd":                   quantBinaryRule,
		ms + "QLinearMul":                   quantBinaryRule,
		ms + "GatherBlockQuantized":         gatherQuantizedRule,
		ms + "IsAllFinite":                  func(c *call) { c.set(0, shaped(onnx.Tensor_BOOL)) },
		ms + "Trilu":                        sameAsFirst,
		ms + "Pad":                          padRule,
		ms + "ReduceSumInteger":             reduceRule(nil, Dim{}),
		ms + "ConvTransposeWithDynamicPads": func(c *call) {},
	}
	for _, op := range []string{
		"BiasAdd", "BiasGelu", "BiasSoftmax", "FastGelu", "Gelu", "GroupNorm", "Inverse", "MoE", "QLinearLeakyRelu",
		"QLinearSigmoid", "QLinearSoftmax", "QMoE", "QuickGelu", "LayerNormalization", "SimplifiedLayerNormalization",
	} {
		rules[ms+op] = sameAsFirst
	}
	return rules
}

func embedNormRule(c *call) {
	ids, words := c.in(0), c.in(2)
	f := shaped(words.DType, ids.Dim(0), ids.Dim(1), words.Dim(1))
	for _, i := range []int{1, 7} { // types and mask have to have the shape of the tokens
		if same := c.in(i); ids.Rank == 2 && same.Rank == 2 {
			c.s.equate(ids.Dims[0], same.Dims[0])
			c.s.equate(ids.Dims[1], same.Dims[1])
		}
	}
	c.set(0, f)
	c.set(1, shaped(onnx.Tensor_INT32, ids.Dim(0)))
	c.set(2, f)
}

func fusedMatMulRule(c *call) {
	if c.n.Int("transBatchA", 0) != 0 || c.n.Int("transBatchB", 0) != 0 {
		c.set(0, unranked(c.in(0).DType))
		return
	}
	c.set(0, c.s.multiplied(matrix(c.in(0), c.n.Int("transA", 0) != 0), matrix(c.in(1), c.n.Int("transB", 0) != 0),
		onnx.Tensor_UNDEFINED))
}

// matMulPackedRule is for matmuls with packed weights, whose true width is an
// attribute.
func matMulPackedRule(c *call) {
	if n := c.n.Attr("N"); n != nil && n.I != nil {
		c.set(0, c.replaced(c.in(0), -1, DimInt(n.GetI()), onnx.Tensor_UNDEFINED))
	}
}

func quantBinaryRule(c *call) {
	f := Fact{DType: c.in(0).DType}
	f.Rank, f.Dims = c.s.broadcast(c.in(0), c.in(3))
	c.set(0, f)
}

// gatherQuantizedRule is Gather from blocks of quantized numbers, several of
// which a byte on the last axis may hold.
func gatherQuantizedRule(c *call) {
	x, index := c.in(0), c.in(1)
	f := unranked(c.in(2).DType)
	a, ok := axisOf(c.n.Int("gather_axis", 0), x.Rank)
	if x.Rank >= 0 && index.Rank >= 0 && ok {
		dims := slices.Clone(x.Dims)
		if bits := c.n.Int("bits", 4); x.DType == onnx.Tensor_UINT8 && bits > 0 && bits < 8 {
			dims[x.Rank-1] = dims[x.Rank-1].Mul(DimInt(8 / bits))
		}
		f = shaped(f.DType, slices.Concat(dims[:a], index.Dims, dims[a+1:])...)
	}
	c.set(0, f)
}
