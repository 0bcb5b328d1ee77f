package engine_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plugin/capability"
	"github.com/opgraft/graft/host/session/fold"
	"github.com/opgraft/graft/internal/must"
)

// network of linear layers of one x, those of attention and of a gated network. Each reads its own copy of x where
// apart, so that none can be one with another.
func besideText(apart bool) string {
	text := `
	in x f32[rows, 64]
	out q2 f32[rows, 64]
	out k2 f32[rows, 32]
	out v2 f32[rows, 32]
	out z f32[rows, 96]
	const wq f32[64, 64]
	const wk f32[64, 32]
	const wv f32[32, 64]
	const bv f32[32]
	const wu f32[64, 96]
	const wg f32[64, 96]
	`
	for _, name := range []string{"q", "k", "v", "u", "g"} {
		if apart {
			text += fmt.Sprintf("x%s = Identity(x)\n", name)
		}
	}
	text += `
	q = graft.PackedLinear(xq, wq)
	k = graft.PackedLinear(xk, wk)
	v = graft.PackedLinear(xv, wv, bv) transposed=1
	u = graft.PackedLinear(xu, wu)
	g = graft.PackedLinear(xg, wg)
	s = Sigmoid(g)
	a = Mul(g, s)
	z = Mul(a, u)
	q2 = Neg(q)
	k2 = Neg(k)
	v2 = Neg(v)`
	if !apart {
		for _, name := range []string{"q", "k", "v", "u", "g"} {
			text = strings.ReplaceAll(text, "(x"+name+",", "(x,")
		}
	}
	return text
}

// outputsOf runs the network with weights as they are asked for, and says how many linear layers are left.
func outputsOf(t *testing.T, apart bool, weights string, x []float32) (list [][]float32, layers int) {
	t.Helper()
	l, set := open(t)
	p := blockstest.Proto(t, besideText(apart))
	for _, s := range []struct {
		name    string
		columns int
	}{{"q", 64}, {"k", 32}, {"v", 32}, {"u", 96}, {"g", 96}} {
		p.Graph.ValueInfo = append(p.Graph.ValueInfo,
			&onnx.ValueInfo{Name: proto.String(s.name), Type: graph.TensorType(onnx.Tensor_FLOAT, "rows", s.columns)})
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, w := range p.Graph.Initializer {
		w.RawData, w.FloatData = nil, nil
		n := w.Dims[0]
		if len(w.Dims) > 1 {
			n *= w.Dims[1]
		}
		for range n {
			w.RawData = binary.LittleEndian.AppendUint32(w.RawData, math.Float32bits(float32(r.NormFloat64()/4)))
		}
	}
	b := must.Value(proto.Marshal(p))(t)
	m := must.Value(model.Parse(b, ""))(t)
	g := must.Value(graph.New(m.Proto(), m))(t)
	g.Provide(capability.LinearPanels, "graft.PackedLinear")
	w := must.Value(prepare.ParseWeights(weights))(t)
	s := must.Value(engine.OpenSession(t.Context(),
		&prepare.Graph{Graph: g, Model: m, Shapes: graph.Infer(g), Plugins: []string{"packed-linear"}},
		engine.Options{Library: l, Plugins: set, Threads: 2, PanelBytes: 1 << 30, Weights: w,
			Quantized: fold.At(t.TempDir(), nil)}))(t)
	defer s.Close()
	for _, n := range g.Nodes {
		if n.Is("graft.PackedLinear") {
			layers++
		}
	}
	in := must.Value(ort.NewTensor(l, []int64{int64(len(x) / 64), 64}, x))(t)
	defer in.Close()
	out := must.Value(s.Run(t.Context(), map[string]*ort.Value{"x": in}, "q2", "k2", "v2", "z"))(t)
	for _, v := range out {
		numbers := must.Value(ort.Data[float32](v))(t)
		list = append(list, slices.Clone(numbers))
		v.Close()
	}
	return list, layers
}

// TestLinearLayersOfOneInput: they are one node where they are as wide, and give the bits that they give apart. Of a
// gate the first half is that which is activated, whichever comes first; its function may round in another way than
// ONNX Runtime's.
func TestLinearLayersOfOneInput(t *testing.T) {
	x := make([]float32, 5*64)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	for _, weights := range []string{"float32", "bf16", "int8", "int4,logits=int4", "int8,activations=float32,group=64"} {
		for _, rows := range []int{1, 5} {
			got, joined := outputsOf(t, false, weights, x[:rows*64])
			want, apart := outputsOf(t, true, weights, x[:rows*64])
			if joined != 3 || apart != 5 {
				t.Errorf("%s: %d layers, and %d apart, want 3 and 5", weights, joined, apart)
			}
			for i, name := range []string{"q", "k", "v", "gated"} {
				exact := name != "gated"
				for j, y := range want[i] {
					if off := math.Abs(float64(got[i][j] - y)); exact && off != 0 || !(off <= 2e-6*(1+math.Abs(float64(y)))) {
						t.Fatalf("%s, %d rows: number %d of %s is %g, apart %g", weights, rows, j, name, got[i][j], y)
					}
				}
			}
		}
	}
}
