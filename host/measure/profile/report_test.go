package profile

import (
	"math"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// TestSumTakesRecordingOff: what the profiler takes comes off each call, and between calls of a subgraph off the node
// around them; no time is below 0, and all of it is stated.
func TestSumTakesRecordingOff(t *testing.T) {
	// Recording takes 4 us in a call and 6 between two: the loop's body adds 20 to it, and nothing else is in it.
	p := must.Value(Read(strings.NewReader(file(
		node("a", "MatMul", 0, 100, 104),
		node("in", "Add", 0, 210, 14), node("in", "Add", 0, 230, 14), node("loop", "Loop", 1, 210, 44),
		node("fast", "Shape", 2, 260, 4), run(100, 170))), "p.json"))(t)
	r := p.Sum(0, []float64{0.120}, []float64{0.170}, p.Attribute(nil, empty(t), nil), Subject{})
	want := map[string]float64{"a": 0.100, "in": 0.020, "loop": 0, "fast": 0}
	sum := 0.0
	for _, n := range r.Nodes {
		sum += n.MS
		if math.Abs(n.MS-want[n.Name]) > 1e-9 {
			t.Errorf("%s took %g ms, want %g", n.Name, n.MS, want[n.Name])
		}
	}
	if math.Abs(r.RecordingUS-4) > 1e-9 || math.Abs(sum+r.UnexplainedMS-0.120) > 1e-9 {
		t.Errorf("recording takes %g us; %g ms and %g unexplained", r.RecordingUS, sum, r.UnexplainedMS)
	}
}

// TestAtMost is Amdahl's bound.
func TestAtMost(t *testing.T) {
	for share, want := range map[float64]float64{0: 1, 0.14: 1 / 0.86, 0.5: 2, 1: most} {
		if got := atMost(share); math.Abs(got-want) > 1e-9 {
			t.Errorf("a share of %g gains %g at most, want %g", share, got, want)
		}
	}
}

// TestFasterHalf: of runs the faster half counts, whole runs at a time.
func TestFasterHalf(t *testing.T) {
	must.Equal(t, Of([]float64{5, 100, 3, 4}).TypicalMS, 3.5)
	must.Equal(t, Of(nil).TypicalMS, 0)
}
