package comparison

import (
	"github.com/opgraft/graft/internal/must"
	"testing"
)

func TestDescribe(t *testing.T) {
	for want, got := range map[string]string{
		"none is ONNX Runtime as it is, without graft": OfModel.Describe("none", nil, nil),
		"auto is what graft chooses of the plugins it finds: fused-gelu 0.1.0, my-mish 0.3.0": OfModel.Describe("auto",
			[]string{"fused-gelu", "my-mish"}, []string{"0.1.0", "0.3.0"}),
		"auto is graft's engine, with what it chooses of the plugins it finds: no plugin": OfGenerations.Describe("auto",
			nil, nil),
		"plan.json runs fused-gelu 0.1.0": OfModel.Describe("plan.json", []string{"fused-gelu"}, []string{"0.1.0"}),
	} {
		must.Equal(t, got, want)
	}
}

// TestLabels: cells are told apart by the beginnings of their axes' names, where these differ.
func TestLabels(t *testing.T) {
	axes := []Axis{{Name: "batch_size"}, {Name: "past_sequence_length"}}
	must.Equal(t, Label(axes, map[string]int64{"batch_size": 1, "past_sequence_length": 960}), "batch=1 past=960")
	axes = []Axis{{Name: "past_length"}, {Name: "past_batch"}, {Name: "x.0"}}
	if got := Label(axes, map[string]int64{"past_length": 1, "past_batch": 2, "x.0": 3}); got !=
		"past_length=1 past_batch=2 x.0=3" {
		t.Errorf("%q", got)
	}
}

// TestOfTolerance: what is inside the tolerance is at most 1, however small the values are.
func TestOfTolerance(t *testing.T) {
	read := func(b []byte, i int64) float64 { return float64(int8(b[i])) / 128 }
	out := numbers(OutputParity{Shape: []int64{2}, Absolute: 1, Relative: 0}, []byte{0, 64}, []byte{0, 0}, read, 2)
	if !out.OK || out.OfTolerance != 0.5 {
		t.Errorf("%+v", out)
	}
	out = numbers(OutputParity{Shape: []int64{2}, Absolute: 0.125, Relative: 0.25}, []byte{0, 64}, []byte{0, 0}, read, 2)
	if out.OK || out.OfTolerance != 2 {
		t.Errorf("%+v", out)
	}
}
