package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/measure/statistics"
)

// hostile is a name that a model or a plugin may have.
const hostile = `</title><script>console.error("a script ran")</script>"'&<b>`

// shape is the size of an example.
type shape struct {
	sides     []string
	axes      []comparison.Axis
	rounds    int
	outputs   int
	choices   int
	different bool               // the answers of the last side
	speedup   statistics.Speedup // of all, where it would take long to find theirs
}

// example is a result with all that one may have, the same each time.
func example(of shape) *comparison.Swept {
	r := rand.New(rand.NewPCG(7, 11))
	timed := func(median float64) comparison.Timed {
		t := comparison.Timed{}
		for range 2 * of.rounds {
			t.TimesMS = append(t.TimesMS,
				math.Round(1e6*median*math.Exp(0.05*r.NormFloat64()+0.3*max(0, r.NormFloat64()-2)))/1e6)
		}
		t.MedianMS = statistics.Median(t.TimesMS)
		return t
	}
	s := &comparison.Swept{SchemaVersion: 3, Model: "/models/" + hostile + "/model.onnx", Seed: 1, Warmup: 3,
		Rounds: of.rounds, Axes: of.axes,
		A: comparison.Opened{Name: "none", Plugins: []string{}, LoadMS: 251.25,
			Footprint: &comparison.Footprint{OpenedRSSBytes: 210_123_456, PeakRSSBytes: 402_000_321}},
		Environment: comparison.Environment{CPU: "A processor", Cores: 2, OS: "linux", Arch: "amd64", ISA: []string{"avx2"},
			Go: "go1.26", ONNXRuntime: "1.30.0",
			MemoryBandwidthGB: 41.5372, Date: "2026-11-25T20:00:00Z"}}
	s.NodeTimes = &comparison.NodeTimes{A: comparison.SideTimes{Name: "none", Runs: 5, RunMS: 31.75,
		Parts: []comparison.PartTime{{Part: "attention", Nodes: 24, MS: 17.125}, {Part: "MatMul", Nodes: 8, MS: 11.0625},
			{Part: hostile, Nodes: 1, MS: 0.03125}},
		Blocks: []comparison.BlockTime{{Kind: "attention", Node: "/layer.1/Softmax", MS: 1.5},
			{Kind: "attention", Node: hostile, MS: 1.25}}, BetweenMS: -0.125}}
	for i, name := range of.sides {
		o := comparison.Opened{Name: name, Plugins: []string{name}, Replaced: of.choices / 2, Blocks: of.choices,
			Changed: true, LoadMS: 301.5 + float64(i),
			Footprint: &comparison.Footprint{OpenedRSSBytes: 180_000_001, PeakRSSBytes: 260_000_777}}
		for c := range of.choices {
			choice := comparison.Choice{Node: fmt.Sprintf("/layer.%d/%s/Softmax", c, hostile), Kind: "attention",
				Reason: fmt.Sprintf("expected %d.%dx over the range", c%7, c%10)}
			if c < of.choices/2 {
				choice.Plugin, choice.Operator = name, "FlashDecode"
			}
			o.Plan = append(o.Plan, choice)
		}
		s.Sides = append(s.Sides, o)
		s.NodeTimes.Sides = append(s.NodeTimes.Sides,
			comparison.SideTimes{Name: name, Runs: 5, RunMS: 20.5,
				Parts:  []comparison.PartTime{{Part: "attention", Nodes: 4, MS: 5.5}, {Part: "MatMul", Nodes: 8, MS: 11.25}},
				Blocks: []comparison.BlockTime{{Kind: "attention", Node: hostile, MS: 0.75}}, BetweenMS: 0.5})
	}
	one := []map[string]int64{{}}
	for _, a := range of.axes {
		var more []map[string]int64
		for _, cell := range one {
			for _, n := range a.Lengths {
				next := map[string]int64{a.Name: n}
				for k, v := range cell {
					next[k] = v
				}
				more = append(more, next)
			}
		}
		one = more
	}
	for i, lengths := range one {
		c := comparison.Cell{Lengths: lengths, A: timed(3 + float64(i)),
			Inputs: []inputs.Info{{Name: hostile, Type: "int64", Shape: []int64{1, 16}, From: "tokens below 1024"}}}
		for j, name := range of.sides {
			b := comparison.Against{Name: name, Timed: timed((3 + float64(i)) / (1 + 0.3*float64(j+1) - 0.04*float64(i%9)))}
			if b.Speedup = of.speedup; b.Speedup.Median == 0 {
				b.Speedup = statistics.SpeedupOf(c.A.TimesMS, b.TimesMS)
			}
			b.Parity.OK = true
			for k := range of.outputs {
				p := comparison.OutputParity{Name: fmt.Sprintf("present.%d.%s", k, hostile), Type: "float32",
					Shape: []int64{1, 4, 16, 32}, OK: true,
					MaxAbsolute: 1e-6 * r.Float64(), MaxRelative: 1e-4 * r.Float64(), P99: 1e-7 * r.Float64(), Absolute: 1e-5,
					Relative: 1e-4}
				cosine, top := 1-1e-9*r.Float64(), 1.0
				p.Cosine, p.Top1 = &cosine, &top
				if of.different && k == 1 && j == len(of.sides)-1 && i == len(one)-1 {
					p.OK, p.Disagree, p.MaxAbsolute = false, 12, math.MaxFloat64
					b.Parity.OK = false
				}
				b.Parity.Outputs = append(b.Parity.Outputs, p)
			}
			c.Sides = append(c.Sides, b)
		}
		s.Cells = append(s.Cells, c)
	}
	return s
}

// Examples of each kind.
var (
	small = shape{sides: []string{"auto"}, axes: []comparison.Axis{}, rounds: 15, outputs: 3, choices: 4}
	usual = shape{sides: []string{"flash-decode", "fused-gelu", "auto"},
		axes: []comparison.Axis{{Name: "sequence", Lengths: []int64{16, 64, 256}},
			{Name: "batch/~", Lengths: []int64{1, 8}}},
		rounds: 15, outputs: 11, choices: 24}
	wrong = shape{sides: []string{"auto", hostile}, axes: []comparison.Axis{{Name: hostile, Lengths: []int64{1, 2}}},
		rounds: 2, outputs: 3, choices: 6, different: true}
	huge = shape{sides: slices.Collect(func(yield func(string) bool) {
		for i := range comparison.MaxSides {
			if !yield(fmt.Sprintf("plugin-%d-%s", i, hostile)) {
				return
			}
		}
	}), axes: []comparison.Axis{{Name: "sequence", Lengths: make([]int64, 64)},
		{Name: "batch", Lengths: []int64{1, 2, 3, 4}}}, rounds: 8, outputs: 5, choices: 300,
		speedup: statistics.Speedup{Median: 1.5123456789, CI95: [2]float64{1.4123456789, 1.6123456789}, P: 1.23456789e-7,
			Significant: true}}
)
