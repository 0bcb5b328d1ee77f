package manifest

import "testing"

func TestWhereAllows(t *testing.T) {
	type kind string
	number := func(v float64) *float64 { return &v }
	dtype := Constraint{Fact: "dtype", OneOf: []any{"float32", "float16"}}
	size := Constraint{Fact: "head_size", Min: number(1), Max: number(512)}
	for _, test := range []struct {
		name   string
		where  Where
		facts  map[string]any
		reason string // empty when allowed
	}{
		{"nothing asked", nil, nil, ""},
		{"all hold", Where{dtype, size}, map[string]any{"dtype": "float16", "head_size": 64}, ""},
		{"named string type", Where{dtype}, map[string]any{"dtype": kind("float32")}, ""},
		{"one of fails", Where{dtype}, map[string]any{"dtype": "bfloat16"},
			"dtype is bfloat16, needs one of float32, float16"},
		{"first failure is told", Where{dtype, size}, map[string]any{"dtype": "int8", "head_size": 0},
			"dtype is int8, needs one of float32, float16"},
		{"bounds are inclusive", Where{size}, map[string]any{"head_size": int64(512)}, ""},
		{"above", Where{size}, map[string]any{"head_size": uint8(0)}, "head_size is 0, needs 1 to 512"},
		{"absent", Where{size}, map[string]any{}, "head_size is not known, needs 1 to 512"},
		{"text for a number", Where{size}, map[string]any{"head_size": "d_head"}, "head_size is d_head, needs 1 to 512"},
		{"range inside", Where{size}, map[string]any{"head_size": Range{1, 512}}, ""},
		{"range across", Where{size}, map[string]any{"head_size": Range{1, 1024}}, "head_size is 1 to 1024, needs 1 to 512"},
		{"range for one value", Where{{Fact: "batch", OneOf: []any{int64(4)}}}, map[string]any{"batch": Range{4, 4}}, ""},
		{"range for one value, wider", Where{{Fact: "batch", OneOf: []any{int64(4)}}}, map[string]any{"batch": Range{1, 4}},
			"batch is 1 to 4, needs 4"},
		{"only min", Where{{Fact: "rank", Min: number(2)}}, map[string]any{"rank": 1}, "rank is 1, needs at least 2"},
		{"only max", Where{{Fact: "scale", Max: number(0.5)}}, map[string]any{"scale": float32(1)},
			"scale is 1, needs at most 0.5"},
		{"flag", Where{{Fact: "causal", OneOf: []any{false}}}, map[string]any{"causal": true}, "causal is true, needs false"},
		{"integer equals decimal", Where{{Fact: "scale", OneOf: []any{int64(1)}}}, map[string]any{"scale": 1.0}, ""},
		{"a number is not text", Where{{Fact: "v", OneOf: []any{"1"}}}, map[string]any{"v": 1}, "v is 1, needs \"1\""},
		{"every item of a list", Where{{Fact: "mask", OneOf: []any{"none", "additive"}}},
			map[string]any{"mask": []string{"additive"}}, ""},
		{"no item, which is none", Where{{Fact: "mask", OneOf: []any{"none", "additive"}}},
			map[string]any{"mask": []string{}}, ""},
		{"no item, where some is needed", Where{{Fact: "mask", OneOf: []any{"additive"}}}, map[string]any{"mask": []string{}},
			"mask is none, needs additive"},
		{"one item of a list is not allowed", Where{{Fact: "mask", OneOf: []any{"additive"}}},
			map[string]any{"mask": []string{"additive", "lengths"}},
			"mask is additive and lengths, needs additive"},
		{"empty text", Where{dtype}, map[string]any{"dtype": ""}, "dtype is empty, needs one of float32, float16"},
	} {
		t.Run(test.name, func(t *testing.T) {
			ok, reason := test.where.Allows(test.facts)
			if ok != (test.reason == "") || reason != test.reason {
				t.Errorf("got %v %q, want reason %q", ok, reason, test.reason)
			}
		})
	}
}
