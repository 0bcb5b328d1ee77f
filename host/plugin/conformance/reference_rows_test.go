package conformance

import (
	"math"
	"testing"

	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
	"github.com/opgraft/graft/internal/must"
)

// rows is a token over three rows of keys, one head of two features, whose values are the keys themselves.
func rows(t *testing.T, storage tensor.DType, keys ...float64) map[string]*tensor.Tensor {
	t.Helper()
	cache := given(t, []int64{1, 32}, make([]float64, 32)...)
	view := packed(cache, storage)
	for i, x := range keys {
		view.Set(int64(i), x)
	}
	weight := make([]float64, 2*16)
	weight[0], weight[17] = 1, 1
	return map[string]*tensor.Tensor{
		"query": given(t, []int64{1, 2}, 1, 0), "cache": cache,
		"sequences": given(t, []int64{1, 8}, 0, 1, 0, 3, 0, 0, 0, 0), "shared_slots": given(t, []int64{3}, 0, 1, 2),
		"value_weight": given(t, []int64{1, 1, 2, 16}, weight...),
	}
}

func attributes(pairs ...any) []manifest.Attribute {
	list := []manifest.Attribute{{Name: "num_heads", Value: int64(1)}, {Name: "head_size", Value: int64(2)},
		{Name: "scale", Value: 1.0}}
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, manifest.Attribute{Name: pairs[i].(string), Value: pairs[i+1]})
	}
	return list
}

// TestReferenceRows computes rows that are stored as halves and integers, skipped, and turned, by hand.
func TestReferenceRows(t *testing.T) {
	log3 := math.Log(3)
	check := func(what string, inputs map[string]*tensor.Tensor, attributes []manifest.Attribute, output []float64,
		skipped float64) {
		t.Helper()
		got, err := referenceCached(inputs, attributes)
		if err != nil {
			t.Fatal(what, err)
		}
		for i, want := range append(output, skipped) {
			if found := append(got["output"], got["skipped"]...)[i]; math.Abs(found-want) > 1e-6 {
				t.Errorf("%s: found %v and %v, expected %v and %v", what, got["output"], got["skipped"], output, skipped)
				break
			}
		}
	}
	for _, storage := range []tensor.DType{tensor.Float16, tensor.BFloat16} {
		check(string(storage), rows(t, storage, 0, 1, 0, 2, 0, 6), attributes("storage", string(storage)), []float64{0, 3}, 0)
	}
	// Integers have their scale: of a row before it, of a key and a value at the beginning of the area.
	floats := func(shape ...int64) *tensor.Tensor {
		x := must.Value(tensor.New(tensor.Float32, shape...))(t)
		return x
	}
	inputs, cache := rows(t, tensor.Float32), floats(1, 32)
	inputs["cache"] = cache
	for slot, x := range []float64{2, 4, 12} {
		cache.Set(int64(2*slot), 0.5)
		packed(cache, tensor.Int8).Set(int64(8*slot+4+1), x)
	}
	check("rows of int8", inputs, attributes("storage", "int8"), []float64{0, 3}, 0)
	inputs = rows(t, tensor.Float32)
	delete(inputs, "value_weight")
	cache = floats(1, 48)
	inputs["cache"] = cache
	for slot, x := range []float64{2, 4, 12} {
		cache.Set(int64(slot), 1)
		cache.Set(int64(16+slot), 0.5)
		packed(cache, tensor.Int8).Set(int64(4*32+2*slot+1), -x)
		packed(cache, tensor.Int8).Set(int64(4*32+2*16+2*slot+1), x)
	}
	check("keys and values of int8", inputs, attributes("storage", "int8"), []float64{0, 3}, 0)

	inputs = rows(t, tensor.Float32, log3, 1, 0, 2, 0, 3)
	check("all keys", inputs, attributes(), []float64{0.6 * log3, 0.6 + 0.4 + 0.6}, 0)
	check("two keys skipped", inputs, attributes("skip", 0.5), []float64{0.6 * log3, 0.6}, 0.4)

	// Position 1 is turned by a quarter: (x, y) becomes (-y, x).
	inputs = rows(t, tensor.Float32, 0, 0, 0, -log3, 0, 0)
	inputs["cos"], inputs["sin"] = given(t, []int64{3, 1}, 1, 0, 1), given(t, []int64{3, 1}, 0, 1, 0)
	for _, rotary := range []string{"half", "interleaved"} {
		check("turned for the scores, "+rotary, inputs, attributes("rotary", rotary), []float64{0, -0.6 * log3}, 0)
		check("turned back for the values, "+rotary, inputs, attributes("rotary", rotary, "rotated", int64(1)),
			[]float64{-log3 / 3, 0}, 0)
	}
}

// TestReferenceFold multiplies what was folded by the weights it was folded from.
func TestReferenceFold(t *testing.T) {
	weight := func(name string, rows, columns int64, data ...float64) tensor.Weight {
		return tensor.Weight{Name: name, Shape: []int64{rows, columns}, Floats: data}
	}
	key, value := weight("key_weight", 2, 3, 1, 2, 0, 0, 1, 1), weight("value_weight", 2, 3, 3, 5, 1, 7, 11, 2)
	heads := []manifest.Attribute{{Name: "num_heads", Value: int64(1)}, {Name: "head_size", Value: int64(3)}}
	bias := tensor.Weight{Name: "key_bias", Shape: []int64{3}, Floats: []float64{1, 1, 1}}
	got, err := referenceFold("keys", []tensor.Weight{key, value, bias}, heads)
	must.Succeed(t, err)
	for i := range 2 {
		for j := range 3 {
			sum := 0.0
			for k := range 3 {
				sum += key.Floats[3*i+k] * got["value_weight"][16*k+j]
			}
			if want := value.Floats[3*i+j]; math.Abs(sum-want) > 1e-12 {
				t.Errorf("key_weight times the fold: found %v at %d, %d, expected %v", sum, i, j, want)
			}
		}
	}
	for j := range 3 {
		sum := got["value_bias"][j]
		for k := range 3 {
			sum += got["value_weight"][16*k+j]
		}
		if math.Abs(sum) > 1e-12 {
			t.Errorf("the bias of column %d is off by %v", j, sum)
		}
	}
	got, err = referenceFold("hidden_states", []tensor.Weight{key, value}, heads)
	if err != nil || got["key_weight"][16*1] != 2 || got["key_weight"][16*1+1] != 1 || got["value_weight"][16] != 7 {
		t.Errorf("panels of weights as they are: found %v, %v", got, err)
	}
	if _, err = referenceFold("keys", []tensor.Weight{weight("key_weight", 2, 2, 1, 1, 1, 1), value}, heads); err == nil ||
		err.Error() != "found singular weights, needed ones that have an inverse" {
		t.Errorf("singular weights: found %v", err)
	}
}
