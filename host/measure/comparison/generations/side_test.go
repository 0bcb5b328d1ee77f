package generations

import (
	"strings"
	"testing"

	"github.com/opgraft/graft/host/plan"
)

// What a side's name says of weights and of the cache is read before anything is opened.
func TestSideOf(t *testing.T) {
	for _, c := range []struct {
		name, base, weights string
		cache               plan.Storage
	}{
		{"none", "none", "float32", ""},
		{"", "", "float32", ""},
		{"self=keys,cross=keys_values", "self=keys,cross=keys_values", "float32", ""},
		{"weights=int8", "auto", "int8,logits=int8,group=32,activations=int16", ""},
		{"keys:skip=1e-3+weights=int4,group=64", "keys:skip=1e-3", "int4,logits=int8,group=64,activations=int8", ""},
		{"auto+weights=float32", "auto", "float32", ""},
		{"cache=bf16", "auto", "float32", plan.BFloat16},
		{"keys_values+cache=int8", "keys_values", "float32", plan.Int8},
		{"weights=int8+cache=fp16", "auto", "int8,logits=int8,group=32,activations=int16", plan.Float16},
		{"auto+cache=float32+weights=int8,group=64", "auto", "int8,logits=int8,group=64,activations=int16", plan.Float32},
	} {
		if base, r, err := sideOf(c.name); err != nil || base != c.base || r.weights.String() != c.weights ||
			r.cache != c.cache {
			t.Errorf("%s is %q with weights %s and a cache of %q, %v; want %q with %s and %q", c.name, base, r.weights, r.cache,
				err, c.base, c.weights, c.cache)
		}
	}
	for name, says := range map[string]string{
		"weights=int5":              `"int5" is no type of weights`,
		"keys+weights=int8,x=1":     `"x=1" is not understood`,
		"none+weights=int8":         "the model as exported has the weights that it has",
		"weights=int8,logits=int8,": `"" is not understood`,
		"cache=int4":                `"int4" is no type of a cache, needed is float32, bf16, fp16 or int8`,
		"none+cache=int8":           "the model as exported has the cache that it has",
		"cache=int8+cache=int8":     "cache is named twice",
		"keys+keys":                 `"keys" is not understood, needed is weights=TYPE or cache=TYPE after a +`,
	} {
		if _, _, err := sideOf(name); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want an error that says %s", name, err, says)
		}
	}
}
