package random

import (
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// TestEpsilonOfFusedNorms states why nothing reads the parts of a norm in random graphs. ONNX Runtime fuses a norm of
// which nothing else reads a part, and takes 1e-5 for an epsilon that stands first, or that it casts from float16.
// Replacing an operator may take away the last reader of a part's shape: ONNX Runtime fuses then what it did not fuse
// before. Where this test fails, ONNX Runtime reads epsilons, and norm may show its parts.
func TestEpsilonOfFusedNorms(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		name  string
		wrong bool
	}{
		{"second", false},
		{"first", true},
	} {
		w := &writer{Rand: rand.New(rand.NewPCG(1, 1)), left: map[string]bool{}, opset: 17, float: f32,
			main: &onnx.Graph{Name: proto.String("norm")}}
		w.g = w.main
		w.batch, w.tokens = number(2), number(3)
		x := w.input("hidden", f32, small, w.batch, w.tokens, number(8))
		y := w.node("Sub", []value{x, w.mean(x)}, x.like(x.dims...))
		square := w.node("Pow", []value{y, w.full(f32, func(int64) float64 { return 2 })}, y.like(y.dims...))
		in := []value{w.mean(square), w.full(f32, func(int64) float64 { return 0.25 })}
		if c.wrong {
			in[0], in[1] = in[1], in[0]
		}
		root := w.unary("Sqrt", w.node("Add", in, x.like(w.batch, w.tokens, number(1))))
		y = w.node("Div", []value{y, root}, y.like(y.dims...))
		y = w.node("Mul", []value{y, w.weight(1, 8)}, y.like(y.dims...))
		w.leave(w.node("Add", []value{y, w.weight(1, 8)}, y.like(y.dims...)))
		g := w.graph()
		bytes := must.Value(proto.Marshal(g.Model))(t)
		r := &run{bench: b, names: []string{g.Model.Graph.Output[0].GetName()}}
		var answers []*ort.Value
		for _, level := range []session.Options{{}, {Optimization: session.OptimizeNone}} {
			level.Unpatched, level.IntraOpThreads, level.LogSeverity = true, 1, session.LogFatal
			s := must.Value(session.FromBytes(b.library, bytes, level))(t)
			list, err := r.answers(t.Context(), s, g.Runs[0])
			s.Close()
			must.Succeed(t, err)
			answers = append(answers, list...)
		}
		if out := comparison.CompareValues("y", answers[0], answers[1], 0, 0); (out.MaxAbsolute > 0.1) != c.wrong {
			t.Errorf("an epsilon that is %s: with optimisations ONNX Runtime is %g away from itself without, wrong is %t",
				c.name, out.MaxAbsolute, c.wrong)
		}
		r.close()
	}
}
