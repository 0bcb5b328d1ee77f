package profile

import (
	"slices"
	"strings"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
)

// Kinds of nodes that no block of attention has.
const (
	Linear = "linear layers"
	Matmul = "other matmuls"
)

// kinds are those of operators by name, in any domain.
var kinds = func() map[string]string {
	of := map[string]string{}
	for kind, operators := range map[string]string{
		Matmul: "MatMul Gemm FusedMatMul FusedGemm TransposeMatMul MatMulInteger MatMulIntegerToFloat " +
			"DynamicQuantizeMatMul QLinearMatMul QGemm MatMulNBits MatMulBnb4 Einsum",
		"attention": "Attention MultiHeadAttention GroupQueryAttention DecoderMaskedMultiHeadAttention " +
			"DecoderMaskedSelfAttention PackedAttention QAttention SparseAttention PagedAttention LinearAttention",
		"convolutions": "Conv FusedConv ConvInteger QLinearConv ConvTranspose NhwcConv NhwcFusedConv " +
			"CausalConvWithState MaxPool AveragePool GlobalAveragePool GlobalMaxPool",
		"normalisations": "LayerNormalization SkipLayerNormalization SimplifiedLayerNormalization " +
			"SkipSimplifiedLayerNormalization RMSNormalization BatchNormalization InstanceNormalization GroupNormalization " +
			"GroupNorm EmbedLayerNormalization LpNormalization",
		"activations": "Gelu BiasGelu FastGelu QuickGelu Relu LeakyRelu Elu Selu Celu Sigmoid HardSigmoid HardSwish " +
			"Swish Mish Tanh Erf Softplus Softsign Clip PRelu BiasSplitGelu",
		"softmaxes": "Softmax LogSoftmax BiasSoftmax",
		"lookups":   "Gather GatherND GatherElements GatherBlockQuantized ScatterElements ScatterND",
		"movement": "Transpose Reshape Concat Slice Split Expand Tile Pad Squeeze Unsqueeze Flatten Identity " +
			"ReorderInput ReorderOutput ExpandDims Shape Size Range ConstantOfShape MemcpyToHost MemcpyFromHost DepthToSpace " +
			"SpaceToDepth Resize",
		"elementwise": "Add Sub Mul Div Pow Sqrt Reciprocal Neg Abs Exp Log Where Equal Greater GreaterOrEqual Less " +
			"LessOrEqual And Or Not Xor Min Max Sum Mean Cast CastLike Floor Ceil Round Sign Mod Sin Cos IsNaN IsInf " +
			"QuickGeluMul RotaryEmbedding",
		"reductions": "ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd ReduceL2 ReduceL1 ReduceSumSquare " +
			"ReduceLogSumExp CumSum ArgMax ArgMin TopK",
		"quantisation": "QuantizeLinear DequantizeLinear DynamicQuantizeLinear QLinearAdd QLinearMul QLinearSigmoid " +
			"QLinearSoftmax QLinearConcat QLinearLeakyRelu",
		"recurrence":   "LSTM GRU RNN DynamicQuantizeLSTM",
		"control flow": "If Loop Scan SequenceMap",
	} {
		for operator := range strings.FieldsSeq(operators) {
			of[operator] = kind
		}
	}
	return of
}()

// kindOf is the kind of a node of no block of attention: a matmul with weights is a linear layer.
func kindOf(operator string, n *Ran) string {
	domain, name := "", operator
	if i := strings.LastIndexByte(operator, '.'); i >= 0 {
		domain, name = operator[:i], operator[i+1:]
	}
	if domain == manifest.Domain {
		return kindOfCovered(n)
	}
	kind, ok := kinds[name]
	switch {
	case !ok:
		return "other operators"
	case kind == Matmul && (n.At == nil && n.Parameters > 0 ||
		n.At != nil && (isWeight(n.At.Input(1)) || isWeight(n.At.Input(0)))):
		return Linear
	}
	return kind
}

// kindOfCovered is the kind of a plugin's operator: that of what it stands for.
func kindOfCovered(n *Ran) string {
	kind := "operators of plugins"
	for i, c := range n.Covers {
		if name := c.Proto.GetOpType(); i == 0 || kinds[name] == Matmul {
			kind = kindOf(name, &Ran{Node: n.Node, At: c})
			if kinds[name] == Matmul {
				break
			}
		}
	}
	return kind
}

func isWeight(v *graph.Value) bool { return v != nil && v.Tensor != nil && len(v.Tensor.Dims) > 1 }

// bytesOf is what a call of a node reads and writes: of tables what it takes out of them, and nothing for a view.
func bytesOf(n *Ran) float64 {
	switch n.Operator {
	case "If", "Loop", "Scan", "SequenceMap", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Shape":
		return 0
	case "Gather", "GatherND", "GatherElements", "GatherBlockQuantized", "EmbedLayerNormalization", "Slice", "Split":
		return 2 * float64(n.Results)
	}
	bytes := float64(n.Activations) + float64(n.Results)
	if n.At == nil {
		return bytes + float64(n.Parameters)
	}
	for _, v := range n.At.In {
		if v != nil && v.Tensor != nil {
			elements, err := graph.Elements(v.Tensor)
			if err == nil {
				bytes += float64(elements) * float64(model.ElementBits(onnx.Tensor_DataType(v.Tensor.GetDataType()))) / 8
			}
		}
	}
	return bytes
}

// shares tell what of a node's time is whose.
type shares struct {
	subject Subject
	emitted map[string]bool     // operators that stand for matches of patterns
	choice  map[*graph.Node]int // the first that a node is of
	anchors map[*graph.Node]int // choices by the attention operator that they are
}

func newShares(s Subject) *shares {
	x := &shares{s, map[string]bool{}, map[*graph.Node]int{}, map[*graph.Node]int{}}
	if s.Plan == nil {
		return x
	}
	for i := range s.Plan.Choices {
		c := &s.Plan.Choices[i]
		if c.Block != nil && c.Block.Wiring != nil && c.Block.Wiring.Anchor != nil {
			x.anchors[c.Block.Wiring.Anchor] = i
		}
		if c.Match != nil {
			for _, name := range c.Match.Operator.Emits() {
				x.emitted[name] = true
			}
		}
		for _, n := range c.Region() {
			if before, ok := x.choice[n]; !ok || s.Plan.Choices[before].Operator == nil && c.Operator != nil {
				x.choice[n] = i
			}
		}
	}
	return x
}

// part is a choice's share of a node.
type part struct {
	choice int
	share  float64
}

// of splits a node among choices: by operations where it computes matmuls of several, else it is that of which most
// is in it.
func (x *shares) of(n *Ran) []part {
	count, work, total := map[int]float64{}, map[int]float64{}, 0.0
	var order []int
	attends := x.attends(n)
	for _, c := range n.Covers {
		if attends && !x.inBlock(c) {
			continue
		}
		operations := x.counted(c)
		total += operations
		i, ok := x.choice[c]
		if !ok {
			continue
		}
		if count[i] == 0 {
			order = append(order, i)
		}
		count[i]++
		work[i] += operations
	}
	if len(order) == 0 {
		return nil
	}
	var list []part
	if total > 0 {
		for _, i := range order {
			if work[i] > 0 {
				list = append(list, part{i, work[i] / total})
			}
		}
		return list
	}
	largest := order[0]
	for _, i := range order {
		if count[i] > count[largest] {
			largest = i
		}
	}
	return []part{{largest, 1}}
}

// attends reports an operator of a plugin that stands for a block of attention, and for nothing beside it.
func (x *shares) attends(n *Ran) bool {
	return n.At != nil && n.At.Proto.GetDomain() == manifest.Domain && !x.emitted[n.At.Proto.GetOpType()] &&
		slices.ContainsFunc(n.Covers, x.inBlock)
}

// inBlock reports a node of a block of attention.
func (x *shares) inBlock(n *graph.Node) bool {
	i, ok := x.choice[n]
	return ok && x.subject.Plan.Choices[i].Match == nil
}

// counted is the operations of a node of the model at the run's lengths; 0 where they are not known.
func (x *shares) counted(n *graph.Node) float64 {
	var operations graph.Dim
	if i, ok := x.anchors[n]; ok {
		operations = plan.Operations(n, x.subject.Shapes, x.subject.Plan.Choices[i].Block)
	} else {
		operations = plan.Operations(n, x.subject.Shapes, nil)
	}
	count, _ := operations.Eval(x.subject.Lengths)
	return max(0, float64(count))
}

// operations are those of a call of a node, by its own shapes where these say it, and whether they are of float32.
func (x *shares) operations(n *Ran) (operations float64, float bool) {
	float = len(n.Outputs) > 0 && n.Outputs[0].Type == "float" && (len(n.Inputs) == 0 || n.Inputs[0].Type == "float")
	switch n.Operator {
	case "MatMul", "Gemm", "FusedMatMul", "FusedGemm", "MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul",
		"MatMulNBits":
		if inner := innerOf(n); inner > 0 && len(n.Outputs) > 0 {
			quantized := strings.Contains(n.Operator, "Integer") || strings.Contains(n.Operator, "Quantize")
			return 2 * float64(n.Outputs[0].Elements()) * float64(inner), float && !quantized
		}
	}
	attends := x.attends(n)
	for _, c := range n.Covers {
		if !attends || x.inBlock(c) {
			operations += x.counted(c)
		}
	}
	return operations, float
}

// innerOf is the length that a matmul sums over; 0 where it is not known.
func innerOf(n *Ran) int64 {
	if len(n.Inputs) == 0 || n.At != nil && n.At.Input(0) != nil && n.At.Input(0).Tensor != nil {
		return 0 // what is packed is not among the inputs
	}
	shape := n.Inputs[0].Shape
	if len(shape) == 0 {
		return 0
	}
	if n.At != nil && n.At.Int("transA", 0) != 0 {
		if len(shape) < 2 {
			return 0
		}
		return shape[len(shape)-2]
	}
	return shape[len(shape)-1]
}
