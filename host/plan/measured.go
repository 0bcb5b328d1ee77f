package plan

import (
	"fmt"
	"math"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/graph"
)

// Measured is a run of the unpatched model as it was timed, in place of what is predicted of it.
type Measured struct {
	Lengths map[string]int64 // by symbol
	Run     float64          // seconds of all of it
	Choices map[int]float64  // seconds of what choices of the plan are about, by their numbers
	// Linear is what linear layers took, and what they computed and moved: how fast the machine was meanwhile.
	Linear struct{ Seconds, Operations, Bytes float64 }
}

// slower is how many times as long as the roofline says linear layers took, within reason; 1 where there are none.
func (x *Measured) slower(m Machine) float64 {
	predicted := x.Linear.Bytes/m.Bandwidth + x.Linear.Operations/(m.FLOPS*weightShare)
	if !(predicted > 0) || !(x.Linear.Seconds > 0) {
		return 1
	}
	return min(8, max(1.0/8, x.Linear.Seconds/predicted))
}

// WholeMeasured is Whole on a run that was timed: what the runtime fuses, and how long all that is not replaced
// takes, is known. Of operators the times are those of the roofline, on a machine as fast as it was in that run.
func (p *Plan) WholeMeasured(g *graph.Graph, shapes *graph.Shapes, report *blocks.Report, o Options, x Measured) Whole {
	if o.Machine == (Machine{}) {
		o.Machine = ThisMachine()
	}
	if !(x.Run > 0) {
		return Whole{Reason: "the run took no time"}
	}
	w := &whole{estimator: newEstimator(shapes, roles.Find(g, shapes, report), p.times, o),
		constant: map[*graph.Value]bool{}, weightBandwidth: o.Machine.Bandwidth}
	if weights(g) <= o.Machine.LastCacheBytes {
		w.weightBandwidth = max(o.Machine.LastCacheBandwidth, o.Machine.Bandwidth)
	}
	slower := x.slower(o.Machine)
	replaced, patched := 0.0, x.Run
	for i := range p.Choices {
		c := &p.Choices[i]
		if c.Operator == nil {
			continue
		}
		s := w.side(c)
		t, ok := w.operator(&s, x.Lengths)
		if !ok {
			return Whole{Reason: fmt.Sprintf("the lengths of %s are not known", c.Node)}
		}
		replaced += x.Choices[i]
		patched += t*slower - x.Choices[i]
	}
	// An operator takes time, however fast the roofline says it is.
	patched = max(patched, (x.Run-replaced)+replaced/maxGain)
	share := min(1, replaced/x.Run)
	out := Whole{Speedup: x.Run / patched, Samples: []WholeSample{{x.Lengths, x.Run, patched}}, Replaced: &share}
	out.Least, out.Greatest = out.Speedup, out.Speedup
	if share < 1 {
		most := 1 / (1 - share)
		out.AtMost = &most
	}
	if math.IsNaN(out.Speedup) || math.IsInf(out.Speedup, 0) {
		return Whole{Reason: "the run took no time"}
	}
	return out
}

// maxGain is how many times as fast as what it replaces no operator is believed to be.
const maxGain = 20

// operator is the expected time of an operator in the place of what it replaces.
func (w *whole) operator(s *side, at map[string]int64) (float64, bool) {
	if s.integers != nil {
		t, ok := w.nbits(s.product, s.integers, at, true)
		return w.machine.Dispatch + s.cost.OverheadUS*1e-6 + t, ok
	}
	flops, known := s.work.Eval(at)
	all := append(append([]*graph.Value{}, s.ins...), s.outs...)
	bytes, counted := w.bytes(all, at)
	moved, ok := w.moved(all, at, w.bandwidth(bytes))
	if !ok || !known || !counted {
		return 0, false
	}
	return w.machine.Dispatch + s.cost.OverheadUS*1e-6 +
		max(moved/share(s.cost.Bandwidth), float64(flops)/w.machine.FLOPS/share(s.cost.FLOPS)), true
}
