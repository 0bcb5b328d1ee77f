package comparison

import (
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// TestFloat64: what misses the tolerance is no alarm where A is as far from the model in float64, and one where A is
// near.
func TestFloat64(t *testing.T) {
	rounds := write(t, "e = Exp(x)", "big = Exp(e)", "far = Add(x, big)", "y = Sub(far, big)") // x, but for rounding
	same := write(t, "y = Identity(x)")
	for _, c := range []struct {
		name, a, b string
		ok         bool
	}{
		{"B rounds less", rounds, same, true},
		{"only B rounds", same, rounds, false},
		{"B is another", rounds, adder(t), false},
	} {
		r := must.Value(Answers(t.Context(), library(t), noPlugins, c.a, Options{A: "none", B: "none", ModelB: c.b,
			Inputs: inputs.Options{Dims: map[string]int64{"rows": 20, "width": 40}}}))(t, c.name)
		out := r.Parity.Outputs[0]
		if out.OK != c.ok || r.Parity.OK != c.ok || out.WideA == nil || out.Noise == nil || out.Noise.MaxAbsolute != 0 {
			t.Errorf("%s: ok %v, want %v: %+v, in float64 a %+v, b %+v", c.name, out.OK, c.ok, out, out.WideA, out.WideB)
		}
	}
}

// TestBothNearFloat64: two that are within the tolerance of the model in float64, on both sides of it, may be further
// apart than that; B beyond it may not.
func TestBothNearFloat64(t *testing.T) {
	with := func(path string, value float32) string {
		return rewritten(t, path, func(m *onnx.Model) {
			m.Graph.Initializer = append(m.Graph.Initializer, &onnx.Tensor{Name: proto.String("c"),
				DataType: proto.Int32(int32(onnx.Tensor_FLOAT)), FloatData: []float32{value}})
		})
	}
	rounds := with(write(t, "far = Add(x, c)", "y = Sub(far, c)"), 160) // x, but for half of 2^-16
	for _, c := range []struct {
		away float32
		ok   bool
	}{{9.5e-6, true}, {15e-6, false}} {
		r := must.Value(Answers(t.Context(), library(t), noPlugins, rounds, Options{A: "none", B: "none",
			ModelB: with(write(t, "y = Sub(x, c)"), c.away),
			Inputs: inputs.Options{Dims: map[string]int64{"rows": 20, "width": 40}}}))(t)
		if out := r.Parity.Outputs[0]; out.OK != c.ok || out.WideA == nil || out.WideB == nil ||
			out.WideB.MaxAbsolute <= out.WideA.MaxAbsolute || out.WideA.Disagree != 0 {
			t.Errorf("%g away: ok %v, want %v: %+v, in float64 a %+v, b %+v", c.away, out.OK, c.ok, out, out.WideA, out.WideB)
		}
	}
}

// TestFloat64Opens: models of exporters run with wideOps in float64, that is ONNX Runtime has those kernels.
func TestFloat64Opens(t *testing.T) {
	for _, name := range []string{"optimum/bart-decoder-merged", "dynamo18/llama", "families/deberta-v2",
		"families/swinv2", "families/vits", "families/modernbert", "families/bamba"} {
		t.Run(name, func(t *testing.T) {
			exporter, graph, _ := strings.Cut(name, "/")
			path := filepath.Join(t.TempDir(), "model.onnx")
			must.Succeed(t, must.Value(models.Lookup(exporter, graph))(t).Write(path, 1))
			must.Value(openWide(t.Context(), library(t), path, Options{}))(t).Close()
		})
	}
}
