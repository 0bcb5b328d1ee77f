package conformance

import (
	"math"
	"testing"

	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// TestReferenceCachedByHand is the example of "Sequence descriptors" in abi/README.md: a prompt of three
// tokens, and two beams with four positions in common, one of their ancestor and one each of their own.
// All keys are zeros, so that an output is the mean of the values read; a slot's value is its number.
func TestReferenceCachedByHand(t *testing.T) {
	cache := make([]float64, 3*32) // three blocks, one head, keys and values of one number
	for slot := range 48 {
		cache[slot/16*32+16+slot%16] = float64(slot)
	}
	inputs := map[string]*tensor.Tensor{
		"query": given(t, []int64{5, 1}, 1, 1, 1, 1, 1), "cache": given(t, []int64{3, 32}, cache...),
		"sequences":    given(t, []int64{2, 8}, 0, 3, 0, 3, 0, 0, 1, 0, 3, 2, 3, 4, 0, 2, 0, 0),
		"shared_slots": given(t, []int64{7}, 32, 33, 34, 0, 1, 2, 3), "private_slots": given(t, []int64{4}, 4, 16, 4, 17),
	}
	attributes := []manifest.Attribute{{Name: "num_heads", Value: int64(1)}, {Name: "head_size", Value: int64(1)}}
	check := func(what string, want ...float64) {
		t.Helper()
		got, err := referenceCached(inputs, attributes)
		if err != nil {
			t.Fatal(what, err)
		}
		for i, x := range want {
			if math.Abs(got["output"][i]-x) > 1e-12 {
				t.Errorf("%s: found %v, needed %v", what, got["output"], want)
				break
			}
		}
	}
	check("keys and values", 32, 32.5, 33, 26./6, 27./6)
	attributes = append(attributes, manifest.Attribute{Name: "window", Value: int64(2)})
	check("a window", 32, 32.5, 33.5, 10, 10.5)
	inputs["bias"] = given(t, []int64{1, 2}, 0, math.Log(3))
	check("weights by distance", 32, (3*32+33)/4., (3*33+34)/4., (3*4+16)/4., (3*4+17)/4.)
	inputs["slot_mapping"] = given(t, []int64{5}, 0, 0, 0, 0, 0)
	if _, err := referenceCached(inputs, attributes); err == nil ||
		err.Error() != "found the input slot_mapping, needed a case without it" {
		t.Errorf("found %v, needed a refusal of slot_mapping", err)
	}
}
