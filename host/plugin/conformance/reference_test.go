package conformance

import (
	"math"
	"slices"
	"testing"

	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
	"github.com/opgraft/graft/internal/must"
)

// randomTensor makes a tensor of random numbers.
func randomTensor(t testing.TB, seed uint64, shape ...int64) *tensor.Tensor {
	t.Helper()
	in := manifest.CaseInput{DType: "float64", Shape: shape, Seed: seed, Min: -1, Max: 1}
	x := must.Value(tensorOf(&in))(t)
	return x
}

func given(t testing.TB, shape []int64, values ...float64) *tensor.Tensor {
	t.Helper()
	x := must.Value(tensor.New(tensor.Float64, shape...))(t)
	copy(tensor.Elems[float64](x), values)
	return x
}

// TestReferenceAttentionByHand has scores that can be computed without a computer: head size 1, query 1, so
// that a score is the key, and values 1, 10, 100.
func TestReferenceAttentionByHand(t *testing.T) {
	ln2 := math.Ln2
	inf := math.Inf(1)
	shape := []int64{1, 1, 3, 1}
	keys := given(t, shape, ln2, 0, ln2) // weights 2 : 1 : 2
	values := given(t, shape, 1, 10, 100)
	one := given(t, []int64{1, 1, 1, 1}, 1)
	scale := manifest.Attribute{Name: "scale", Value: int64(1)}
	for _, test := range []struct {
		name       string
		inputs     map[string]*tensor.Tensor
		attributes []manifest.Attribute
		output     string
		want       []float64
	}{
		{"plain", map[string]*tensor.Tensor{"query": one, "key": keys, "value": values}, nil, "output",
			[]float64{(2 + 10 + 200) / 5.0}},
		{"weights", map[string]*tensor.Tensor{"query": one, "key": keys, "value": values}, nil, "scores",
			[]float64{0.4, 0.2, 0.4}},
		{"scores", map[string]*tensor.Tensor{"query": one, "key": keys, "value": values},
			[]manifest.Attribute{{Name: "scores_mode", Value: int64(0)}}, "scores", []float64{ln2, 0, ln2}},
		{"past", map[string]*tensor.Tensor{"query": one, "past_key": keys, "past_value": values,
			"key": given(t, []int64{1, 1, 1, 1}, 0), "value": given(t, []int64{1, 1, 1, 1}, 1000)}, nil,
			"output", []float64{(2 + 10 + 200 + 1000) / 6.0}},
		{"present", map[string]*tensor.Tensor{"query": one, "past_key": keys, "past_value": values, "key": one, "value": one},
			nil, "present_value", []float64{1, 10, 100, 1}},
		{"bias", map[string]*tensor.Tensor{"query": one, "key": keys, "value": values,
			"attn_bias": given(t, []int64{3}, 0, ln2, -inf)}, nil, "scores", []float64{0.5, 0.5, 0}},
		{"mask", map[string]*tensor.Tensor{"query": one, "key": keys, "value": values,
			"attn_mask": given(t, []int64{1, 3}, 1, 0, 1)}, nil, "scores", []float64{0.5, 0, 0.5}},
		{"finite fill", map[string]*tensor.Tensor{"query": one, "key": keys, "value": values,
			"attn_mask": given(t, []int64{1, 3}, 1, 0, 1)}, []manifest.Attribute{{Name: "mask_fill", Value: ln2}}, "scores",
			[]float64{1 / 3.0, 1 / 3.0, 1 / 3.0}},
		{"mask, then bias", map[string]*tensor.Tensor{"query": one, "key": keys, "value": values,
			"attn_mask": given(t, []int64{1}, 0), "attn_bias": given(t, []int64{3}, 0, ln2, 0)},
			[]manifest.Attribute{{Name: "mask_fill", Value: 7.0}},
			"scores", []float64{0.25, 0.5, 0.25}},
		{"bias, then mask", map[string]*tensor.Tensor{"query": one, "key": keys, "value": values,
			"attn_mask": given(t, []int64{1}, 0), "attn_bias": given(t, []int64{3}, 0, ln2, 0)},
			[]manifest.Attribute{{Name: "mask_fill", Value: 7.0}, {Name: "mask_after_bias", Value: int64(1)}},
			"scores", []float64{1 / 3.0, 1 / 3.0, 1 / 3.0}},
		{"lengths", map[string]*tensor.Tensor{"query": one, "key": keys, "value": values,
			"key_lengths": given(t, []int64{1}, 2)}, nil, "scores", []float64{2 / 3.0, 1 / 3.0, 0}},
		{"causal", map[string]*tensor.Tensor{"query": given(t, shape, 1, 1, 1), "key": keys, "value": values},
			[]manifest.Attribute{{Name: "is_causal", Value: int64(1)}}, "scores",
			[]float64{1, 0, 0, 2 / 3.0, 1 / 3.0, 0, 0.4, 0.2, 0.4}},
		{"causal by lengths", map[string]*tensor.Tensor{"query": one, "key": keys, "value": values,
			"key_lengths": given(t, []int64{1}, 2)},
			[]manifest.Attribute{{Name: "is_causal", Value: int64(1)}, {Name: "causal_from_lengths", Value: int64(1)}}, "scores",
			[]float64{2 / 3.0, 1 / 3.0, 0}},
		{"window", map[string]*tensor.Tensor{"query": given(t, shape, 1, 1, 1), "key": keys, "value": values},
			[]manifest.Attribute{{Name: "is_causal", Value: int64(1)}, {Name: "window", Value: int64(1)}}, "scores",
			[]float64{1, 0, 0, 0, 1, 0, 0, 0, 1}},
		{"softcap", map[string]*tensor.Tensor{"query": one, "key": given(t, shape, 1e9, -1e9, 0), "value": values},
			[]manifest.Attribute{{Name: "softcap", Value: 2.0}, {Name: "scores_mode", Value: int64(1)}}, "scores",
			[]float64{2, -2, 0}},
		{"all masked", map[string]*tensor.Tensor{"query": one, "key": keys, "value": values,
			"attn_mask": given(t, []int64{1}, 0)}, nil, "scores", []float64{math.NaN(), math.NaN(), math.NaN()}},
		{"all masked, zeros", map[string]*tensor.Tensor{"query": one, "key": keys, "value": values,
			"attn_mask": given(t, []int64{1}, 0)}, []manifest.Attribute{{Name: "zero_masked_rows", Value: int64(1)}}, "output",
			[]float64{0}},
		{"NaN cleared", map[string]*tensor.Tensor{"query": given(t, []int64{1, 1, 1, 1}, math.NaN()), "key": keys,
			"value": values}, []manifest.Attribute{{Name: "clear_nan", Value: int64(1)}}, "output", []float64{0}},
		{"NaN, zeros for masked rows",
			map[string]*tensor.Tensor{"query": given(t, []int64{1, 1, 1, 1}, math.NaN()), "key": keys, "value": values},
			[]manifest.Attribute{{Name: "zero_masked_rows", Value: int64(1)}}, "output", []float64{math.NaN()}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := must.Value(referenceAttention(test.inputs, append(test.attributes, scale)))(t)
			equal := slices.EqualFunc(got[test.output], test.want, func(a, b float64) bool {
				return math.Abs(a-b) < 1e-12*max(1, math.Abs(b)) || math.IsNaN(a) && math.IsNaN(b)
			})
			if !equal {
				t.Errorf("%s is %v, want %v", test.output, got[test.output], test.want)
			}
		})
	}
}

// TestReferenceAttentionLayouts computes one problem in every layout.
func TestReferenceAttentionLayouts(t *testing.T) {
	const b, h, g, s, n, d, e = 2, 4, 2, 3, 5, 6, 7
	query, key, value := randomTensor(t, 1, b, h, s, d), randomTensor(t, 2, b, g, n, d), randomTensor(t, 3, b, g, n, e)
	base := must.Value(referenceAttention(map[string]*tensor.Tensor{"query": query, "key": key, "value": value}, nil))(t)
	transposed := func(x *tensor.Tensor, axes ...int) *tensor.Tensor {
		from := x.Shape
		y := given(t, []int64{from[axes[0]], from[axes[1]], from[axes[2]], from[axes[3]]})
		for i, v := range tensor.Elems[float64](x) {
			at := position(int64(i), from)
			to := int64(0)
			for k, axis := range axes {
				to = to*y.Shape[k] + at[axis]
			}
			tensor.Elems[float64](y)[to] = v
		}
		return y
	}
	fold := func(x *tensor.Tensor) *tensor.Tensor {
		y := transposed(x, 0, 2, 1, 3)
		y.Shape = []int64{y.Shape[0], y.Shape[1], y.Shape[2] * y.Shape[3]}
		return y
	}
	heads := []manifest.Attribute{{Name: "num_heads", Value: int64(h)}, {Name: "kv_num_heads", Value: int64(g)}}
	same := func(name string, got map[string][]float64, err error, output []float64) {
		t.Helper()
		if err != nil || !slices.Equal(got["output"], output) {
			t.Errorf("%s: the output differs, %v", name, err)
		}
	}
	layouts := []manifest.Attribute{{Name: "query_layout", Value: "bshd"}, {Name: "key_layout", Value: "bhds"},
		{Name: "value_layout", Value: "bshd"}}
	got, err := referenceAttention(
		map[string]*tensor.Tensor{"query": transposed(query, 0, 2, 1, 3), "key": transposed(key, 0, 1, 3, 2),
			"value": transposed(value, 0, 2, 1, 3)}, layouts)
	same("rank 4", got, err, base["output"])
	got, err = referenceAttention(map[string]*tensor.Tensor{"query": fold(query), "key": fold(key), "value": fold(value)},
		heads)
	same("rank 3", got, err, base["output"])
	output := tensor.Elems[float64](transposed(given(t, []int64{b, h, s, e}, base["output"]...), 0, 2, 1, 3))
	got, err = referenceAttention(map[string]*tensor.Tensor{"query": query, "key": key, "value": value},
		[]manifest.Attribute{{Name: "output_layout", Value: "bshd"}})
	same("output by position", got, err, output)
	got, err = referenceAttention(map[string]*tensor.Tensor{"query": query, "key": key, "value": value},
		[]manifest.Attribute{{Name: "output_rank", Value: int64(3)}})
	same("output of rank 3", got, err, output)

	// One tensor with all three: rows of h + 2g heads.
	const q = 2
	x := randomTensor(t, 4, b, q, (h+2*g)*d)
	part := func(first, count int64) *tensor.Tensor {
		y := given(t, []int64{b, q, count * d})
		for row := range int64(b * q) {
			copy(tensor.Elems[float64](y)[row*count*d:], tensor.Elems[float64](x)[row*(h+2*g)*d+first*d:][:count*d])
		}
		return y
	}
	apart := must.Value(referenceAttention(
		map[string]*tensor.Tensor{"query": part(0, h), "key": part(h, g), "value": part(h+g, g)}, heads))(t)
	got, err = referenceAttention(map[string]*tensor.Tensor{"query": x},
		append(heads, manifest.Attribute{Name: "packed_qkv", Value: int64(1)}))
	same("packed", got, err, apart["output"])
}

func TestReferenceAttentionErrors(t *testing.T) {
	four := randomTensor(t, 1, 1, 4, 2, 8)
	for _, test := range []struct {
		inputs map[string]*tensor.Tensor
		want   string
	}{
		{map[string]*tensor.Tensor{"key": four}, "found no input query, needed it"},
		{map[string]*tensor.Tensor{"query": four}, "found no keys or no values, needed new ones or past ones"},
		{map[string]*tensor.Tensor{"query": randomTensor(t, 1, 2, 2)}, "found query of shape [2 2], needed rank 3 or 4"},
		{map[string]*tensor.Tensor{"query": randomTensor(t, 1, 2, 2, 8)},
			"found query of shape [2 2 8], needed a last axis that 0 heads divide"},
		{map[string]*tensor.Tensor{"query": four, "key": randomTensor(t, 1, 1, 3, 2, 8),
			"value": randomTensor(t, 1, 1, 3, 2, 8)}, "found 4 query heads over 3 key heads, needed a multiple"},
		{map[string]*tensor.Tensor{"query": four, "key": four, "value": four, "attn_bias": randomTensor(t, 1, 3)},
			"found attn_bias of shape [3], needed one that broadcasts to [1 4 2 2]"},
		{map[string]*tensor.Tensor{"query": four, "key": four, "value": four, "key_lengths": randomTensor(t, 1, 3)},
			"found key_lengths of shape [3], needed one a batch row"},
	} {
		must.FailExactly(t, must.Error(referenceAttention(test.inputs, nil)), test.want)
	}
}
