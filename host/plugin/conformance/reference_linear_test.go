package conformance

import (
	"testing"

	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
	"github.com/opgraft/graft/internal/must"
)

func TestReferenceLinearByHand(t *testing.T) {
	x := given(t, []int64{2, 1, 3}, 1, 2, 3, 0, 0, 1)
	weight := given(t, []int64{3, 2}, 1, 10, 2, 20, 3, 30)
	across := given(t, []int64{2, 3}, 1, 2, 3, 10, 20, 30)
	for _, test := range []struct {
		name       string
		inputs     map[string]*tensor.Tensor
		attributes []manifest.Attribute
		want       []float64
	}{
		{"plain", map[string]*tensor.Tensor{"x": x, "weight": weight}, nil, []float64{14, 140, 3, 30}},
		{"bias", map[string]*tensor.Tensor{"x": x, "weight": weight, "bias": given(t, []int64{2}, 1, -1)}, nil,
			[]float64{15, 139, 4, 29}},
		{"one bias for all", map[string]*tensor.Tensor{"x": x, "weight": weight, "bias": given(t, []int64{1}, 1)}, nil,
			[]float64{15, 141, 4, 31}},
		{"transposed", map[string]*tensor.Tensor{"x": x, "weight": across},
			[]manifest.Attribute{{Name: "transposed", Value: int64(1)}}, []float64{14, 140, 3, 30}},
	} {
		got, err := referenceLinear(test.inputs, test.attributes)
		must.Succeed(t, err, test.name)
		must.Equal(t, got["y"], test.want, test.name)
	}
	for want, inputs := range map[string]map[string]*tensor.Tensor{
		"needed both":           {"x": x},
		"needed a last axis of": {"x": x, "weight": across},
		"needed 2":              {"x": x, "weight": weight, "bias": given(t, []int64{3}, 1, 1, 1)},
	} {
		must.Fail(t, must.Error(referenceLinear(inputs, nil)), want)
	}
}
