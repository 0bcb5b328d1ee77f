package plan

import (
	"math"
	"slices"

	"golang.org/x/sys/cpu"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/plugin/manifest"
)

// vnni reports that this CPU multiplies integers of eight bits without saturating what it adds up, and four times as
// many of them as floats. Without it ONNX Runtime's own products of such integers are not exact.
func vnni() bool {
	x := cpu.X86
	return x.HasAVX512F && x.HasAVX512BW && x.HasAVX512VL && x.HasAVX512DQ && x.HasAVX512VNNI
}

// integersPerFloat is how many products of integers of eight bits such a CPU computes in the time of one of floats.
// integerShare is the part of that peak that ONNX Runtime reaches, which makes one node of a matmul of integers, its
// scale and its bias: measured on one core of a Zen 4, with matrices of 384 x 384 to 1536 x 384 and 1,024 rows.
const (
	integersPerFloat = 4
	integerShare     = 0.8
)

// integerWork counts the operations of the matmuls of integers among some nodes.
func (e *estimator) integerWork(nodes []*graph.Node) (work graph.Dim, some bool) {
	work = graph.DimInt(0)
	for _, n := range nodes {
		if n.Is("MatMulInteger") {
			work, some = work.Add(e.flops(n)), true
		}
	}
	return work, some
}

// compareIntegers is compare for a region that ONNX Runtime makes one node of, around matmuls of integers.
func (e *estimator) compareIntegers(ins, outs []*graph.Value, work graph.Dim, cost manifest.Cost) Expectation {
	x := Expectation{Speedup: 1, Worst: 1, Bytes: e.bytesOnly}
	sum, worst := 0.0, math.Inf(1)
	for _, at := range e.range_ {
		bytes, counted := e.bytes(slices.Concat(ins, outs), at)
		operations, known := work.Eval(at)
		if !counted || !known {
			continue
		}
		time := func(bandwidth, peak float64) float64 {
			return e.machine.Dispatch + bytes/(e.bandwidth(bytes)*bandwidth) +
				float64(operations)/(e.machine.FLOPS*integersPerFloat*peak)
		}
		unpatched, op := time(1, integerShare), cost.OverheadUS*1e-6+time(share(cost.Bandwidth), share(cost.FLOPS))
		if !(unpatched > 0) || !(op > 0) {
			continue
		}
		x.Samples = append(x.Samples, Sample{at, unpatched, op})
		worst = min(worst, unpatched/op)
		sum += math.Log(unpatched / op)
	}
	if len(x.Samples) > 0 {
		x.Speedup, x.Worst = math.Exp(sum/float64(len(x.Samples))), worst
	}
	return x
}
