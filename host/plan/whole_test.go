package plan_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// wholeOf plans a fixture with some built-in plugins and estimates the whole of it.
func wholeOf(t *testing.T, exporter, name string, edit func(*onnx.Model), plugins ...string) (*plan.Plan, plan.Whole) {
	t.Helper()
	f := must.Value(models.Lookup(exporter, name))(t)
	b := must.Value(f.Bytes(1))(t)
	m := must.Value(model.Parse(b, ""))(t)
	t.Cleanup(func() { m.Close() })
	if edit != nil {
		edit(m.Proto())
	}
	g := must.Value(graph.New(m.Proto(), m))(t)
	shapes := graph.Infer(g)
	report := blocks.Find(g, shapes)
	var manifests []*manifest.Manifest
	for _, name := range plugins {
		manifest := must.Value(manifest.Read("../../plugins/" + name))(t)
		manifests = append(manifests, manifest)
	}
	o := plan.Options{Machine: plan.Machine{Bandwidth: 20e9, CacheBandwidth: 180e9, CacheBytes: 3e6, FLOPS: 240e9,
		Dispatch:           1.5e-6,
		LastCacheBandwidth: 60e9, LastCacheBytes: 16e6}}
	p := plan.Make(g, shapes, report, manifests, o)
	measured = func(x plan.Measured) plan.Whole { return p.WholeMeasured(g, shapes, report, o, x) }
	return p, p.Whole(g, shapes, report, o)
}

// measured is plan.WholeMeasured of the model that wholeOf planned last.
var measured func(plan.Measured) plan.Whole

// TestWholeMeasured: on a run that was timed, a plan gains what its operators save of the time that the replaced
// blocks took: never more than Amdahl's bound, nothing where they took nothing, and as much on a machine that was
// slow meanwhile.
func TestWholeMeasured(t *testing.T) {
	p, _ := wholeOf(t, "optimum", "bert", widen, "flash-decode", "fused-gelu")
	x := plan.Measured{Lengths: map[string]int64{"batch_size": 4, "sequence_length": 128}, Run: 0.1,
		Choices: map[int]float64{}}
	x.Linear.Seconds, x.Linear.Operations, x.Linear.Bytes = 0.05, 240e9*0.93*0.05, 0
	nothing := measured(x)
	if nothing.Reason != "" || *nothing.Replaced != 0 || nothing.Speedup > 1 || *nothing.AtMost != 1 {
		t.Errorf("blocks that took nothing: %v", nothing)
	}
	for i, c := range p.Choices {
		if c.Operator != nil {
			x.Choices[i] = 0.01
		}
	}
	some := measured(x)
	share := float64(p.Replaced()) * 0.01 / 0.1
	if d := *some.Replaced - share; d > 1e-9 || d < -1e-9 || some.Speedup <= 1 || some.Speedup > *some.AtMost {
		t.Errorf("%d blocks of 10 ms in 100: %v", p.Replaced(), some)
	}
	slow := plan.Measured{Lengths: x.Lengths, Run: 3 * x.Run, Choices: map[int]float64{}}
	for i, s := range x.Choices {
		slow.Choices[i] = 3 * s
	}
	slow.Linear.Seconds, slow.Linear.Operations = 3*x.Linear.Seconds, x.Linear.Operations
	if d := measured(slow).Speedup - some.Speedup; d > 1e-6 || d < -1e-6 {
		t.Errorf("on a machine three times as slow %v, else %v", measured(slow), some)
	}
	if text := some.String(); !strings.Contains(text,
		"where the replaced blocks took 40 % of a run: at most 1.67x is to be had") {
		t.Error(text)
	}
	x.Lengths = nil
	if r := measured(x); !strings.Contains(r.Reason, "are not known") {
		t.Errorf("without lengths: %v", r)
	}
}

// A plan that replaces nothing gains nothing, and where a branch or an operator cannot be
// counted nothing is promised.
func TestWholeOfNothingReplaced(t *testing.T) {
	for _, f := range models.Fixtures() {
		if f.Exporter == "full" {
			continue
		}
		t.Run(f.String(), func(t *testing.T) {
			_, x := wholeOf(t, f.Exporter, f.Name, nil)
			switch {
			case strings.Contains(f.Name, "merged"):
				if !strings.Contains(x.Reason, "runs one of several graphs") {
					t.Errorf("%v", x)
				}
			case x.Reason != "":
				t.Logf("%v", x)
				if f.Exporter == "optimum" {
					t.Errorf("a model of ordinary operators is not estimated: %s", x.Reason)
				}
			case x.Speedup != 1 || x.Least != 1 || x.Greatest != 1 || len(x.Samples) == 0:
				t.Errorf("nothing is replaced: %v", x)
			}
		})
	}
}

// widen makes BERT's fixture as wide as MiniLM: 384, 12 heads of 32, 1,536 inside.
func widen(p *onnx.Model) {
	wide := map[int64]int64{64: 384, 4: 12, 16: 32, 128: 1536}
	for _, t := range p.Graph.Initializer {
		for i, d := range t.Dims {
			if w := wide[d]; w > 0 && t.GetDataType() == int32(onnx.Tensor_FLOAT) && !strings.Contains(t.GetName(), "position") {
				t.Dims[i] = w
			}
		}
	}
	for _, n := range p.Graph.Node {
		for _, a := range n.Attribute {
			if a.T == nil || a.T.GetDataType() != int32(onnx.Tensor_INT64) || len(a.T.RawData) != 8 ||
				n.GetOpType() != "Constant" {
				continue
			}
			if w := wide[int64(binary.LittleEndian.Uint64(a.T.RawData))]; w > 0 {
				binary.LittleEndian.PutUint64(a.T.RawData, uint64(w))
			}
		}
	}
}

// Of an encoder as small as MiniLM most time goes to linear layers, and ONNX Runtime fuses
// attention and activations by itself: blocks gain twofold, the model next to nothing. Measured
// with graft ab: 1.03x at 1 x 16, 1.12x at 4 x 128.
func TestWholeOfASmallEncoder(t *testing.T) {
	p, x := wholeOf(t, "optimum", "bert", widen, "flash-decode", "fused-gelu")
	if x.Reason != "" || p.Replaced() != 4 || x.Fused != 4 {
		t.Fatalf("%d blocks replaced, %d of them fused by ONNX Runtime: %v", p.Replaced(), x.Fused, x)
	}
	for _, s := range x.Samples {
		if ratio := s.Unpatched / s.Patched; s.Symbols["sequence_length"] <= 128 && (ratio < 0.97 || ratio > 1.15) {
			t.Errorf("%.2fx at %v", ratio, s.Symbols)
		}
	}
	for _, c := range p.Choices {
		if c.Operator != nil && c.Expected.Speedup < x.Speedup+0.3 {
			t.Errorf("%s gains %.2fx and the whole %.2fx", c.Node, c.Expected.Speedup, x.Speedup)
		}
	}
	if text := x.String(); !strings.Contains(text, "x at batch_size=") || !strings.Contains(text, "ONNX Runtime fuses 4") {
		t.Error(text)
	}
}

// TestWholeOfManyReaders: a value that many nodes read is followed once, and what that takes is counted.
func TestWholeOfManyReaders(t *testing.T) {
	steps := func(many int) int64 {
		t.Helper()
		var text strings.Builder
		text.WriteString(`in q f32[b, 4, s, 32]
			in k f32[b, 4, t, 32]
			in v f32[b, 4, t, 32]
			in m0 f32[b, 1, s, t]
			out y f32[b, 4, s, 32]
			kt = Transpose(k) perm=0,1,3,2
			a = MatMul(q, kt)
			`)
		for i := range many {
			fmt.Fprintf(&text, "m%d = Add(m%d, m0)\n", i+1, i)
		}
		fmt.Fprintf(&text, "c = Add(a, m%d)\np = Softmax(c)\ny = MatMul(p, v)", many)
		g, shapes := blockstest.Graph(t, text.String())
		report := blocks.Find(g, shapes)
		flash := must.Value(manifest.Read("../../plugins/flash-decode"))(t)
		o := plan.Options{Machine: plan.Machine{Bandwidth: 20e9, CacheBandwidth: 180e9, CacheBytes: 3e6, FLOPS: 240e9,
			Dispatch: 1.5e-6, LastCacheBandwidth: 60e9, LastCacheBytes: 16e6}}
		before, _ := g.Steps()
		must.Succeed(t, g.Bounded(t.Context(), func() error {
			plan.Make(g, shapes, report, []*manifest.Manifest{flash}, o).Whole(g, shapes, report, o)
			return nil
		}))
		after, _ := g.Steps()
		return after - before
	}
	if one, two := steps(1000), steps(2000); two > 3*one || two < 1000 {
		t.Errorf("%d steps for 1,000 readers of a value, %d for 2,000", one, two)
	}
}
