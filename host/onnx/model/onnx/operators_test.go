package onnx

import (
	"github.com/opgraft/graft/internal/must"
	"reflect"
	"slices"
	"testing"
)

func TestSchemas(t *testing.T) {
	for _, c := range []struct {
		op      string
		version int64
		name    string
		want    any
	}{
		{"Softmax", 11, "axis", int64(1)},
		{"Softmax", 13, "axis", int64(-1)},
		{"Softmax", Newest, "axis", int64(-1)},
		{"ReduceMean", 13, "axes", nil},
		{"ReduceMean", 18, "keepdims", int64(1)},
		{"LeakyRelu", 16, "alpha", 0.00999999978},
		{"Gelu", 20, "approximate", "none"},
		{"Gru", 20, "", nil},
		{"Gelu", 19, "", nil},
	} {
		s := SchemaOf(c.op, c.version)
		if s == nil {
			must.Equal(t, c.name, "", c.op, c.version)
			continue
		}
		if a, ok := s.Attribute(c.name); !ok || !reflect.DeepEqual(a.Default, c.want) {
			t.Errorf("%s %d: %+v, want the default %v", c.op, c.version, a, c.want)
		}
	}
	if s := SchemaOf("Concat", 13); s.MinInputs != 1 || s.MaxInputs < 1000 || s.MaxOutputs != 1 ||
		!s.Attributes[0].Required {
		t.Errorf("%+v", s)
	}
	for op, versions := range schemas() {
		if !slices.IsSortedFunc(versions, func(a, b *Schema) int { return int(a.Since - b.Since) }) {
			t.Errorf("the versions of %s are out of order", op)
		}
		for _, s := range versions {
			for _, a := range s.Attributes {
				if !slices.Contains([]string{"int", "float", "string", "ints", "floats", "strings", "graph"}, a.Kind) {
					t.Errorf("%s: attribute %+v", op, a)
				}
			}
		}
	}
}
