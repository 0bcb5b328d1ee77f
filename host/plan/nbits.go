package plan

import (
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

// nbitsRows are the rows at which products with integers of a few bits were timed.
var nbitsRows = [...]float64{1, 4, 16, 128, 512}

// nbitsForm is what the time of such a product depends on, beside its size.
type nbitsForm struct {
	bits   int64
	rounds bool // rows to eight bits
}

// nbitsTimes are picoseconds a number of the weight, in ONNX Runtime's MatMulNBits and in panels.
type nbitsTimes struct{ exported, panels [len(nbitsRows)]float64 }

// nbitsMeasured are those of one core of a Zen 3, AVX2 alone, whose products in float32 reach nbitsFLOPS: weights of
// 768 x 768, 384 x 1536, 1536 x 384, 768 x 2304 and 3072 x 768, blocks of 32 and 128, with and without zero points,
// of which the worst ratio for panels counts (RATIONALE.md, "Why are some MatMulNBits left?").
var nbitsMeasured = map[nbitsForm]nbitsTimes{
	{4, false}: {exported: [...]float64{209, 385, 724, 3625, 12640}, panels: [...]float64{170, 230, 560, 3800, 14500}},
	{4, true}:  {exported: [...]float64{68, 146, 517, 3560, 15260}, panels: [...]float64{62, 100, 330, 2150, 8200}},
	{8, false}: {exported: [...]float64{2800, 3200, 3560, 6800, 17500}, panels: [...]float64{520, 620, 1190, 4600, 14600}},
	{8, true}:  {exported: [...]float64{81, 241, 763, 5090, 20300}, panels: [...]float64{81, 166, 460, 3050, 11500}},
}

// nbitsFLOPS is what float32 reaches on that core.
const nbitsFLOPS = 75e9

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

// nbits is the expected time of a product with integers, by ONNX Runtime or in panels.
func (e *estimator) nbits(n *graph.Node, q *model.Integers, at map[string]int64, panels bool) (float64, bool) {
	elements, ok := e.count(n.Input(0)).Eval(at)
	if !ok || q.Depth <= 0 {
		return 0, false
	}
	times := nbitsMeasured[nbitsForm{q.Bits, q.RoundsRows()}]
	a := times.exported
	if panels {
		a = times.panels
	}
	return interpolated(a, float64(elements)/float64(q.Depth)) * 1e-12 * float64(q.Depth) * float64(
		q.Columns) * nbitsFLOPS / e.machine.FLOPS, true
}

// interpolated is a time between those that were measured, or beyond, as the last ones grow.
func interpolated(times [len(nbitsRows)]float64, rows float64) float64 {
	last := len(nbitsRows) - 1
	if rows <= nbitsRows[0] {
		return times[0]
	}
	for i := range last {
		if rows <= nbitsRows[i+1] || i+1 == last {
			return times[i] + (times[i+1]-times[i])*(rows-nbitsRows[i])/(nbitsRows[i+1]-nbitsRows[i])
		}
	}
	return times[last]
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
func (x Expectation) noGain(q *model.Integers) string {
	switch {
	// of the other form it makes float32 of the whole weight in every run
	case !nbitsKnown() && (q.Bits != 8 || q.RoundsRows()):
		return "how fast integers are multiplied was measured with AVX2 alone, and this CPU has other instructions"
	case !x.gains() || x.Worst < minNBits:
		return x.String() + ": ONNX Runtime's own " + fused.NBits + " is as fast or faster"
	}
	return ""
}

// nbitsKnown reports a CPU with the instructions of the one that was measured.
var nbitsKnown = func() bool { return cpu.X86.HasAVX2 && cpu.X86.HasFMA && !cpu.X86.HasAVX512F }

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
