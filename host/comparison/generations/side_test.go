package generations

import (
	"strings"
	"testing"
)

// What a side's name says of weights is read before anything is opened.
func TestSideOf(t *testing.T) {
	for _, c := range []struct{ name, base, weights string }{
		{"none", "none", "float32"},
		{"self=keys,cross=keys_values", "self=keys,cross=keys_values", "float32"},
		{"weights=int8", "auto", "int8,logits=int8,group=32,activations=int8"},
		{"keys:skip=1e-3+weights=int4,group=64", "keys:skip=1e-3", "int4,logits=int8,group=64,activations=int8"},
		{"auto+weights=float32", "auto", "float32"},
	} {
		if base, w, err := sideOf(c.name); err != nil || base != c.base || w.String() != c.weights {
			t.Errorf("%s is %q with weights %s, %v; want %q with %s", c.name, base, w, err, c.base, c.weights)
		}
	}
	for name, says := range map[string]string{
		"weights=int5":              `"int5" is no type of weights`,
		"keys+weights=int8,x=1":     `"x=1" is not understood`,
		"none+weights=int8":         "the model as exported has the weights that it has",
		"weights=int8,logits=int8,": `"" is not understood`,
	} {
		if _, _, err := sideOf(name); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want an error that says %s", name, err, says)
		}
	}
}
