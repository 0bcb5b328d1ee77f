package quantized

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/measure/quantization"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/host/session/sessions"
	"github.com/opgraft/graft/internal/must"
)

// layers is a layer normalization, three products of it, and a feed-forward with a residual.
func layers(p product, r *rand.Rand, bias bool) *onnx.Graph {
	g := &onnx.Graph{}
	some := func(name string, count int64) string {
		list := make([]float32, count)
		for i := range list {
			list[i] = float32(r.NormFloat64())
		}
		g.Initializer = append(g.Initializer, tensorOf(name, onnx.Tensor_FLOAT, floatBytes(list), count))
		return name
	}
	product := func(x, y string, depth, columns int64) {
		p := p
		p.depth, p.columns = depth, columns
		var b []float32
		if bias {
			b = make([]float32, columns)
			for i := range b {
				b[i] = float32(r.NormFloat64())
			}
		}
		p.node(g, x, y, p.weight(r), b)
	}
	node := func(domain, op string, in []string, out string, attributes ...*onnx.Attribute) {
		g.Node = append(g.Node, &onnx.Node{Domain: proto.String(domain), OpType: proto.String(op), Input: in,
			Output: []string{out}, Attribute: attributes})
	}
	node("", "LayerNormalization", []string{"x", some("scale", p.depth), some("shift", p.depth)}, "n", whole("axis", -1))
	product("n", "q", p.depth, p.columns)
	product("n", "k", p.depth, p.columns)
	product("n", "v", p.depth, p.columns)
	node("", "Tanh", []string{"q"}, "tq")
	node("", "Tanh", []string{"k"}, "tk")
	node("", "Mul", []string{"tq", "tk"}, "qk")
	node("", "Tanh", []string{"v"}, "tv")
	node("", "Add", []string{"qk", "tv"}, "attended")
	product("attended", "up", p.columns, 2*p.columns)
	node("com.microsoft", "Gelu", []string{"up"}, "gelu")
	product("gelu", "down", 2*p.columns, p.depth)
	node("", "Add", []string{"down", "x"}, "sum")
	node("", "LayerNormalization", []string{"sum", "scale", "shift"}, "y", whole("axis", -1))
	return g
}

// TestNBitsLayers: products with integers take in what stands around them as others do, those of one x are one, and a
// patched session holds their integers once, in panels.
func TestNBitsLayers(t *testing.T) {
	runs := newRunner(t)
	for i, p := range []product{
		{bits: 4, block: 32, depth: 256, columns: 192},
		{bits: 4, block: 64, zeros: true, depth: 256, columns: 192},
		{bits: 8, block: 32, zeros: true, depth: 224, columns: 160},
		{bits: 8, block: 256, depth: 512, columns: 96},
		{bits: 4, block: 32, level: 4, depth: 256, columns: 192},
	} {
		t.Run(p.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(i), 3))
			model := encoded(t, layers(p, r, i%2 == 0), 3, p.depth, "y")
			shape := []int64{2, 5, p.depth}
			x := make([]float32, 10*p.depth)
			for i := range x {
				x[i] = float32(r.NormFloat64())
			}
			plain, _ := runs.run(t, model, false, shape, x)
			made, a := runs.run(t, model, true, shape, x)
			tolerance := 1e-4
			if p.level == 4 {
				tolerance = 0.05 // of rows that are rounded anew in every layer
			}
			for i, y := range made[0] {
				if math.Abs(float64(y-plain[0][i])) > tolerance*(1+math.Abs(float64(plain[0][i]))) {
					t.Fatalf("element %d is %g, want %g", i, y, plain[0][i])
				}
			}
			var got []string
			for _, n := range a.Graph.Nodes {
				if n.Is("graft.PackedLinear") {
					got = append(got, fmt.Sprintf("%d parts, norm before %t, after %t, residual %t, gelu %t", n.Int("parts", 1),
						n.Input(4) != nil, n.Input(6) != nil, n.Input(3) != nil, n.Attr("activation") != nil))
				} else if n.Is("com.microsoft.MatMulNBits", "LayerNormalization", "com.microsoft.Gelu") {
					got = append(got, n.Op())
				}
			}
			want := []string{"3 parts, norm before true, after false, residual false, gelu false",
				"1 parts, norm before false, after false, residual false, gelu true",
				// whose result is the model's
				"1 parts, norm before false, after false, residual true, gelu false", "LayerNormalization"}
			must.Equal(t, got, want, strings.Join(got, "\n"), strings.Join(want, "\n"))
			once(t, runs, model)
		})
	}
}

// once holds that a patched session is given panels, scales and zero points in place, and nothing else of a product's
// weight.
func once(t *testing.T, runs *runner, content []byte) {
	t.Helper()
	p := &sessions.Patcher{Plugins: runs.set.Plugins,
		Options: runs.set.Plan(plan.Options{Force: true, QuantizationNoise: true})}
	var got *session.Patch
	s := must.Value(session.FromBytes(runs.l, content,
		session.Options{Patcher: func(r session.Request) (made *session.Patch, err error) {
			got, err = p.Patch(r)
			return got, err
		}}))(t)
	defer s.Close()
	m := &onnx.Model{}
	must.Succeed(t, proto.Unmarshal(got.Model, m))
	given := map[string]bool{}
	panels := 0
	for _, w := range got.Weights {
		if given[w.Name] = w.InPlace; strings.HasPrefix(w.Name, "graft_panels") && w.Element != ort.Float32 {
			panels++
		}
	}
	if panels == 0 {
		t.Error("no panels of integers are given in place")
	}
	for _, x := range m.Graph.Initializer {
		large := len(x.Dims) == 3 && x.Dims[0]*x.Dims[1]*x.Dims[2] >= 16<<10
		if name := x.GetName(); strings.HasSuffix(name, ".q") || strings.HasSuffix(name, "_numbers") ||
			large && !given[name] {
			t.Errorf("%s of %v is in the session's model", name, x.Dims)
		}
	}
}

// TestNBitsModels: of a model whose linear layers are MatMulNBits everything is recognised and replaced that is in
// float32, and answers are those of ONNX Runtime.
func TestNBitsModels(t *testing.T) {
	runs := newRunner(t)
	root := filepath.Join("..", "..", "models")
	for name, path := range map[string]string{"encoder": filepath.Join(root, "encoders", "embedder", "onnx", "model.onnx"),
		"decoder with past": filepath.Join(root, "tiny-gpt2", "model.onnx")} {
		for _, weights := range []string{"int8,activations=float32", "int4,group=64,activations=float32"} {
			t.Run(name+" "+weights, func(t *testing.T) {
				as := must.Value(prepare.ParseWeights(weights))(t)
				to := filepath.Join(t.TempDir(), "model.onnx")
				must.Value(quantization.File(t.Context(), path, to,
					quantization.Options{Plugins: runs.set.Plugins, Weights: as}))(t)
				before, attention := factsOf(t, runs.set, path)
				after, same := factsOf(t, runs.set, to)
				if len(before) == 0 || !slices.Equal(before, after) {
					t.Errorf("recognised are\n%s\nin float32\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
				}
				must.Equal(t, attention, same)
				o := comparison.Options{A: "none", B: "auto", Inputs: inputs.Options{Seed: 1}, Force: true}
				r := must.Value(comparison.Answers(t.Context(), runs.l, runs.set, to, o))(t)
				for _, out := range r.Parity.Outputs {
					if !out.OK {
						t.Errorf("%s %v: %s, %d differ, at most by %g", out.Name, out.Shape, out.Problem, out.Disagree, out.MaxAbsolute)
					}
				}
			})
		}
	}
}

// factsOf are the facts of a model's attention, but for the names of weights, and which operators replace what.
func factsOf(t *testing.T, set *loaded.Set, path string) (facts, replaced []string) {
	t.Helper()
	m := must.Value(model.Open(path))(t)
	defer m.Close()
	a := must.Value(patch.Analyse(t.Context(), m, set.Manifests(), set.Plan(plan.Options{Force: true})))(t)
	for _, b := range a.Report.Blocks {
		if p := b.Attention.Projections; p != nil {
			for _, l := range []*blocks.Linear{p.Query, p.Key, p.Value, p.Output} {
				if l != nil {
					l.Weight, l.Bias, l.Transposed = "", fmt.Sprint(l.Bias != ""), false
				}
			}
		}
		text := must.Value(json.Marshal(b.Attention))(t)
		facts = append(facts, string(text))
	}
	for _, c := range a.Plan.Choices {
		if c.Operator == nil {
			continue
		}
		op := c.Operator.Name
		if strings.HasPrefix(op, "PackedLinear") {
			op = "PackedLinear" // whatever wrote the layer
		}
		replaced = append(replaced, op)
	}
	slices.Sort(replaced)
	return facts, replaced
}
