package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sys/cpu"

	"github.com/opgraft/graft/host/meaning/fused"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plugin/capability"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/signature"
)

// minNBits is the expected speed-up that must hold at every shape of the range where ONNX Runtime multiplies with
// integers too: both sides were measured.
const minNBits = 0.98

// numbersOf are the integers that the second operand of a matmul stands for, or nil.
func numbersOf(n *graph.Node) *model.Integers {
	if !n.Is("MatMul", "Gemm") {
		return nil
	}
	return integersOf(n.Input(1))
}

func integersOf(v *graph.Value) *model.Integers {
	if v == nil || v.Tensor == nil {
		return nil
	}
	m, ok := v.Graph.Source().(*model.Model)
	if !ok {
		return nil
	}
	return m.IntegersOf(v.Tensor)
}

// product is the matmul of a match whose weight stands for integers, and these; nil for none.
func (m *Match) product() (*graph.Node, *model.Integers) {
	for _, n := range m.Nodes {
		if q := numbersOf(n); q != nil {
			return n, q
		}
	}
	return nil, nil
}

// cannotTake says why an operator is not used for a weight of integers, or "".
func (e *estimator) cannotTake(m *manifest.Manifest, op *manifest.Operator, q *model.Integers, o Options) string {
	const weightScale, weightZero = "weight_scale", "weight_zero_point"
	multiplies := m.Providing(capability.LinearPanels)
	switch {
	case multiplies == nil || !slices.Contains(op.Emits(), multiplies.Name):
		return "its weight stands for integers, of which " + op.Name + " would make float32"
	case !e.panels && !o.OwnPanels:
		return "its weight stands for integers, which are taken in panels, and weights stay as stored here"
	case q.RoundsRows() && !o.QuantizationNoise:
		return fused.NBits + " of accuracy level 4 rounds rows to eight bits, and what is added up in another order moves " +
			"the model's answers within the noise of that; " +
			op.Name + " needs that to be accepted (--accept-quantization-noise)"
	}
	d := o.described(m.Name, multiplies.Name)
	if d == nil {
		return ""
	}
	for _, name := range []string{weightScale, weightZero} {
		if !slices.ContainsFunc(d.Inputs, func(p signature.Parameter) bool { return p.Name == name }) {
			return fmt.Sprintf("its weight stands for integers, and this version of %s takes no %s", d.Name, name)
		}
	}
	return ""
}

// integerTimes are a plugin's figures for a form of integers, and whether they hold for this CPU: where none do, those
// of another say more than nothing.
func (e *estimator) integerTimes(q *model.Integers) (t *manifest.IntegerTimes, hold bool) {
	for i := range e.times {
		x := &e.times[i]
		if x.Bits != q.Bits || (x.AccuracyLevel == roundsToInt8) != q.RoundsRows() {
			continue
		}
		if t = x; x.CPU == "any" || x.CPU == instructions() {
			return t, true
		}
	}
	return t, false
}

// nbits is the expected time of a product with integers, by ONNX Runtime or in panels.
func (e *estimator) nbits(n *graph.Node, q *model.Integers, at map[string]int64, panels bool) (float64, bool) {
	elements, ok := e.count(n.Input(0)).Eval(at)
	if !ok || q.Depth <= 0 {
		return 0, false
	}
	rows, numbers := float64(elements)/float64(q.Depth), float64(q.Depth)*float64(q.Columns)
	if t, _ := e.integerTimes(q); t != nil {
		return t.Seconds(rows, numbers, e.machine.FLOPS, panels), true
	}
	return max(numbers*float64(q.Bits)/8/e.machine.Bandwidth, 2*rows*numbers/e.machine.FLOPS), true
}

// compareNBits compares a MatMulNBits with an operator that takes its integers in panels.
func (e *estimator) compareNBits(n *graph.Node, q *model.Integers, cost manifest.Cost) Expectation {
	x := Expectation{Worst: math.Inf(1)}
	sum := 0.0
	for _, at := range e.range_ {
		exported, ok := e.nbits(n, q, at, false)
		panels, known := e.nbits(n, q, at, true)
		if !ok || !known {
			continue
		}
		s := Sample{at, exported + e.machine.Dispatch, panels + e.machine.Dispatch + cost.OverheadUS*1e-6}
		x.Samples = append(x.Samples, s)
		x.Worst = min(x.Worst, s.Unpatched/s.Operator)
		sum += math.Log(s.Unpatched / s.Operator)
	}
	if len(x.Samples) == 0 {
		return Expectation{Speedup: 1, Worst: 1}
	}
	x.Speedup = math.Exp(sum / float64(len(x.Samples)))
	return x
}

// noGain says why integers stay with ONNX Runtime, or "".
func (e *estimator) noGain(x Expectation, q *model.Integers) string {
	if _, hold := e.integerTimes(q); !hold {
		level := 0
		if q.RoundsRows() {
			level = roundsToInt8
		}
		return fmt.Sprintf("how fast it multiplies integers of %d bits at accuracy level %d on a CPU with %s is not known "+
			"(integer_times of its manifest)", q.Bits, level, cmp.Or(instructions(), "other instructions"))
	}
	if !x.gains() || x.Worst < minNBits {
		return x.String() + ": ONNX Runtime's own " + fused.NBits + " is as fast or faster"
	}
	return ""
}

// instructions are those of this CPU by which products of integers are chosen, as manifests name them; "" for others.
var instructions = func() string {
	switch x := cpu.X86; {
	case x.HasAVX512F:
		return "avx512"
	case x.HasAVXVNNI:
		return "avx_vnni"
	case x.HasAVX2 && x.HasFMA:
		return "avx2"
	case cpu.ARM64.HasASIMD:
		return "neon"
	}
	return ""
}

// leftNBits are the products with integers that are not taken apart, where an operator would take them.
func leftNBits(g *graph.Graph, by provided, o Options) (list []Choice) {
	m := by[capability.LinearPanels]
	if o.Device != nil || m == nil {
		return nil
	}
	for _, n := range g.Nodes {
		if !n.Is(fused.NBits) {
			continue
		}
		if why := fused.WholeNBits(n); why != "" {
			list = append(list, Choice{Node: n.Path(), Kind: "pattern", Reason: m.Name + ": " + why})
		}
	}
	return list
}

// weightBits are those of a constant's elements, of numbers that stand for integers those of these.
func weightBits(v *graph.Value) int {
	if q := integersOf(v); q != nil {
		return int(q.Bits)
	}
	return model.ElementBits(onnx.Tensor_DataType(v.Tensor.GetDataType()))
}
