package graph

import (
	"fmt"
)

// needed is how many first inputs operators have in every version, none of which may be left out. They are the
// operators that recognition reads. All of them have a first output.
var needed = map[string]int{
	"MatMul": 2, "Softmax": 1, "Add": 2, "Sub": 2, "Mul": 2, "Div": 2, "Pow": 2, "Where": 3, "Transpose": 1, "Reshape": 1,
	"Concat": 1, "Slice": 1,
	"Cast": 1, "Identity": 1, "Dropout": 1, "Expand": 2, "Tile": 2, "Squeeze": 1, "Unsqueeze": 1, "Flatten": 1,
	"Gather": 2, "GatherND": 2,
	"GatherElements": 2, "Shape": 1, "Size": 1, "Range": 3, "CumSum": 2, "Trilu": 1, "Less": 2, "LessOrEqual": 2,
	"Greater": 2, "GreaterOrEqual": 2,
	"Equal": 2, "And": 2, "Or": 2, "Not": 1, "IsNaN": 1, "Neg": 1, "Tanh": 1, "Erf": 1, "Sqrt": 1, "Reciprocal": 1,
	"Exp": 1, "Log": 1, "Sigmoid": 1,
	"Relu": 1, "Gelu": 1, "Cos": 1, "Sin": 1, "ReduceMean": 1, "Gemm": 2, "Conv": 2, "ConstantOfShape": 1,
	"LayerNormalization":           2,
	"SimplifiedLayerNormalization": 2, "RMSNormalization": 2, "Attention": 3, "RotaryEmbedding": 3, "Pad": 1,
	"com.microsoft.FusedMatMul": 2, "com.microsoft.Attention": 1, "com.microsoft.MultiHeadAttention": 1,
	"com.microsoft.GroupQueryAttention": 1,
	"com.microsoft.RotaryEmbedding":     4, "com.microsoft.SkipLayerNormalization": 3, "com.microsoft.Gelu": 1,
	"com.microsoft.FastGelu":  1,
	"com.microsoft.QuickGelu": 1, "com.microsoft.GatherBlockQuantized": 2, "com.microsoft.EmbedLayerNormalization": 1,
}

// Complete reports a node that lacks an input or output which its operator always has, in the
// graph or those inside it. No runtime takes such a model, and what is recognised in it
// would be wrong. Split and the operators with graphs inside are as they are.
func (g *Graph) Complete() error {
	var err error
	g.Walk(func(n *Node) {
		inputs, known := needed[n.Op()]
		if !known || err != nil {
			return
		}
		for i := range inputs {
			if n.Input(i) == nil {
				err = fmt.Errorf("node %s (%s) has no input %d, needed are %d", n.Path(), n.Op(), i, inputs)
				return
			}
		}
		if n.Output(0) == nil {
			err = fmt.Errorf("node %s (%s) has no first output", n.Path(), n.Op())
		}
	})
	return err
}
