package main

import (
	"slices"
	"testing"
)

// Commas stand between sides, and within one where it goes on about attention or weights.
func TestSides(t *testing.T) {
	for _, c := range []struct {
		b    string
		want []string // nil: an error
	}{
		{"auto", []string{"auto"}},
		{"none, auto", []string{"none", "auto"}},
		{"self=keys,cross=keys_values,auto", []string{"self=keys,cross=keys_values", "auto"}},
		{"weights=int8,weights=int4", []string{"weights=int8", "weights=int4"}},
		{"weights=int4,logits=float32,group=64,auto,keys+weights=int8,activations=float32",
			[]string{"weights=int4,logits=float32,group=64", "auto", "keys+weights=int8,activations=float32"}},
		{"weights=int4,zero-points=true,weights=int4", []string{"weights=int4,zero-points=true", "weights=int4"}},
		{"weights=int4,weights=int4,group=64", []string{"weights=int4", "weights=int4,group=64"}},
		{"auto,logits=int8", []string{"auto", "logits=int8"}}, // the side refuses the name
		{"weights=int8,keys", []string{"weights=int8", "keys"}},
		{"weights=int8,draft=lookup,weights=int4", []string{"weights=int8", "draft=lookup", "weights=int4"}},
		{"draft=small,weights=int4,logits=int8,auto", []string{"draft=small,weights=int4,logits=int8", "auto"}},
		{"weights=int8+draft=small,weights=int8,weights=int4,auto",
			[]string{"weights=int8+draft=small,weights=int8", "weights=int4", "auto"}},
		{"cache=bf16,cache=int8,weights=int8+cache=int8", []string{"cache=bf16", "cache=int8", "weights=int8+cache=int8"}},
		{"auto,,none", nil},
		{"weights=int8,weights=int8", nil},
	} {
		got, err := sides(c.b)
		if !slices.Equal(got, c.want) || (err == nil) != (c.want != nil) {
			t.Errorf("%q: %q, %v; want %q", c.b, got, err, c.want)
		}
	}
}
