package signature

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/opgraft/graft/internal/must"
)

func TestAttributeJSON(t *testing.T) {
	want := []Attribute{
		{Name: "i", Kind: "int", Default: int64(1<<53 + 1)},
		{Name: "f", Kind: "float", Default: math.Inf(-1)},
		{Name: "g", Kind: "float", Default: 0.5},
		{Name: "s", Kind: "string", Default: "bhsd"},
		{Name: "is", Kind: "ints", Default: []int64{1, 2}},
		{Name: "fs", Kind: "floats", Default: []float64{1, math.Inf(1)}},
		{Name: "r", Kind: "int", Required: true},
	}
	data := must.Value(json.Marshal(want))(t)
	var got []Attribute
	must.Succeed(t, json.Unmarshal(data, &got))
	must.Equal(t, cmp.Diff(want, got), "")
	for _, bad := range []string{`{"name": "a", "kind": "tensor", "default": 1}`,
		`{"name": "a", "kind": "float", "default": "much"}`, `{"name": "a", "kind": "int", "default": 0.5}`} {
		if err := json.Unmarshal([]byte(bad), &Attribute{}); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}
