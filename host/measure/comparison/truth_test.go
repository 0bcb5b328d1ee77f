package comparison

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

func TestCompareCosine(t *testing.T) {
	nan, inf, big := float32(math.NaN()), float32(math.Inf(1)), float32(3e38)
	cases := []struct {
		name  string
		shape []int64
		a, b  []float32
		want  float64 // -2 for none
	}{
		{"equal", []int64{2, 2}, []float32{1, 2, 3, 4}, []float32{1, 2, 3, 4}, 1},
		{"longer is alike", []int64{2}, []float32{1, 2}, []float32{10, 20}, 1},
		{"the worst of the rows", []int64{3, 2}, []float32{1, 0, 1, 1, 0, 1}, []float32{1, 0, 1, 0, 0, 1}, math.Sqrt(0.5)},
		{"three axes", []int64{1, 2, 2}, []float32{1, 0, 0, 1}, []float32{1, 0, 1, 0}, 0},
		{"opposite", []int64{2}, []float32{1, -2}, []float32{-1, 2}, -1},
		{"zeros", []int64{2, 2}, []float32{0, 0, 1, 1}, []float32{0, 0, 1, 1}, 1},
		{"zeros on one side", []int64{2}, []float32{0, 0}, []float32{0, 1e-30}, 0},
		{"no square overflows", []int64{2}, []float32{big, big}, []float32{big, big}, 1},
		{"no square vanishes", []int64{2}, []float32{1e-38, 0}, []float32{1e-38, 1e-38}, math.Sqrt(0.5)},
		{"NaN in the same places", []int64{3}, []float32{nan, inf, 1}, []float32{nan, inf, 1}, 1},
		{"NaN in others", []int64{2}, []float32{nan, 1}, []float32{1, 1}, 0},
		{"numbers", []int64{3, 1}, []float32{1, 2, 3}, []float32{1, 2, 4}, -2},
		{"nothing", []int64{0, 4}, nil, nil, -2},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := CompareValues("y", floats(t, c.shape, c.a...), floats(t, c.shape, c.b...), 0, 0).Cosine
			if got == nil && c.want != -2 || got != nil && math.Abs(*got-c.want) > 1e-12 {
				t.Errorf("least cosine %v, want %g", got, c.want)
			}
		})
	}
}

// TestUnoptimized: B is compared with the model without optimisations where that is asked for, whatever A is.
func TestUnoptimized(t *testing.T) {
	dims := inputs.Options{Dims: map[string]int64{"rows": 2, "width": 4}}
	for _, asked := range []bool{false, true} {
		r := must.Value(Answers(t.Context(), library(t), noPlugins, adder(t),
			Options{A: "none", B: "none", ModelB: tripler(t), Unoptimized: asked, Absolute: 1e-6, Inputs: dims}))(t)
		out := r.Parity.Outputs[0]
		if (out.Unoptimized != nil) != asked {
			t.Fatalf("asked %v: %+v", asked, out)
		}
		if asked && (out.Unoptimized.Disagree != 8 || out.Unoptimized.MaxAbsolute != out.MaxAbsolute ||
			out.Unoptimized.Cosine == nil || out.OK) {
			t.Errorf("3x against 2x without optimisations: %+v", out.Unoptimized)
		}
	}
	for _, c := range []struct {
		name string
		out  OutputParity
		want bool
	}{
		{"not asked", OutputParity{OK: true}, false},
		{"both right", OutputParity{OK: true, MaxAbsolute: 1e-7, Unoptimized: &Noise{MaxAbsolute: 2e-6}}, false},
		{"both wrong alike", OutputParity{OK: true, MaxAbsolute: 1e-7, Unoptimized: &Noise{MaxAbsolute: 0.5, Disagree: 3}},
			true},
		{"both wrong to the bit", OutputParity{OK: true, Unoptimized: &Noise{MaxAbsolute: 0.5, Disagree: 3}}, true},
		{"rounding of one size", OutputParity{OK: true, MaxAbsolute: 1e-4,
			Unoptimized: &Noise{MaxAbsolute: 2e-4, Disagree: 3}}, false},
		{"one of them wrong", OutputParity{MaxAbsolute: 0.5, Unoptimized: &Noise{MaxAbsolute: 0.5, Disagree: 3}}, false},
	} {
		must.Equal(t, c.out.SameMistake(), c.want, c.name)
	}
}

// TestSidesThatAreOne: times of two names for the same operators are not compared; those of one name are, as what
// noise there is.
func TestSidesThatAreOne(t *testing.T) {
	path := adder(t)
	o := Options{Warmup: 1, Rounds: 1, Inputs: inputs.Options{Dims: map[string]int64{"rows": 2, "width": 4}}}
	for _, c := range []struct {
		a, b, modelB string
		refused      bool
	}{
		{a: "none", b: "auto", refused: true},
		{a: "auto", b: "none", refused: true},
		{a: "auto", b: "flash-decode", refused: true},
		{a: "none", b: "none"},
		{a: "auto", b: "auto"},
		{a: "none", b: "auto", modelB: tripler(t)},
	} {
		o.A, o.B, o.ModelB = c.a, c.b, c.modelB
		_, err := Run(context.Background(), library(t), plugins(t), path, o)
		if errors.Is(err, ErrSame) != c.refused || err != nil && !c.refused {
			t.Errorf("%s against %s: %v", c.a, c.b, err)
		}
		if c.refused && !strings.Contains(err.Error(), "nothing is replaced on either side (a is "+c.a+", b is "+c.b) {
			t.Errorf("%s against %s: %v", c.a, c.b, err)
		}
		must.Value(Answers(context.Background(), library(t), plugins(t), path, o))(t, "answers of", c.a, "against", c.b)
	}
}

// TestWrongDeclaredShape: ONNX Runtime only warns of a result in another shape than its model declares, and so does a
// comparison.
func TestWrongDeclaredShape(t *testing.T) {
	dim := func(n int64) *onnx.Shape_Dim {
		return &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimValue{DimValue: n}}
	}
	for name, shape := range map[string][]*onnx.Shape_Dim{
		"a length": {dim(1), dim(5)}, "a length of two": {{Value: &onnx.Shape_Dim_DimParam{DimParam: "rows"}}, dim(7)},
		"as it is": {dim(2), dim(4)},
	} {
		t.Run(name, func(t *testing.T) {
			path := rewritten(t, adder(t), func(m *onnx.Model) {
				m.Graph.Output[0] = proto.Clone(m.Graph.Output[0]).(*onnx.ValueInfo)
				m.Graph.Output[0].GetType().GetTensorType().Shape = &onnx.Shape{Dim: shape}
			})
			r := must.Value(Run(t.Context(), library(t), noPlugins, path,
				Options{A: "none", B: "none", Warmup: 1, Rounds: 2, Unoptimized: true,
					Inputs: inputs.Options{Dims: map[string]int64{"rows": 2, "width": 4}}}))(t)
			if !r.Parity.OK || len(r.A.TimesMS) != 4 || r.Parity.Outputs[0].Shape[1] != 4 {
				t.Errorf("%+v", r.Parity)
			}
		})
	}
}

// TestRandomNumbers: answers that differ because the model draws numbers are not called different.
func TestRandomNumbers(t *testing.T) {
	a, b := write(t, "r = RandomUniformLike(x)", "y = Add(x, r)"),
		write(t, "i = Identity(x)", "j = Sub(i, x)", "r = RandomUniformLike(j)", "y = Add(x, r)")
	o := Options{A: "none", B: "none", ModelB: b, Inputs: inputs.Options{Dims: map[string]int64{"rows": 3, "width": 4}}}
	r, err := Answers(t.Context(), library(t), noPlugins, a, o)
	must.Succeed(t, err)
	if r.Parity.OK || !strings.Contains(r.Parity.Random, "RandomUniformLike") {
		t.Errorf("without a seed: %+v", r.Parity)
	}
	seed := func(m *onnx.Model) {
		for _, n := range m.Graph.Node {
			if n.GetOpType() == "RandomUniformLike" {
				n.Attribute = append(n.Attribute,
					&onnx.Attribute{Name: proto.String("seed"), Type: onnx.Attribute_FLOAT.Enum(), F: proto.Float32(1)})
			}
		}
	}
	o.ModelB = rewritten(t, b, seed)
	if r, err = Answers(t.Context(), library(t), noPlugins, rewritten(t, a, seed), o); err != nil {
		t.Fatal(err)
	}
	if !r.Parity.OK || r.Parity.Random != "" {
		t.Errorf("with a seed: %+v", r.Parity)
	}
}
