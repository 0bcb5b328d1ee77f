package prepare_test

import (
	"testing"

	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/internal/must"
)

func TestParseWeights(t *testing.T) {
	for _, c := range []struct{ text, means string }{
		{"float32", "float32"},
		{"int8", "int8,logits=int8,group=32,activations=int16"},
		{"int4", "int4,logits=int8,group=32,activations=int8"},
		{"int4,logits=int4", "int4,logits=int4,group=32,activations=int8"},
		{"bf16", "bf16,logits=bf16"},
		{"bf16,logits=float32", "bf16,logits=float32"},
		{"bf16,logits=int8", "bf16,logits=int8,group=32,activations=int16"},
		{"int4,logits=bf16,group=64", "int4,logits=bf16,group=64,activations=int8"},
		{"int4,group=128,logits=float32", "int4,logits=float32,group=128,activations=int8"},
		{"int8,activations=float32", "int8,logits=int8,group=32,activations=float32"},
		{"int4,zero-points=true", "int4,logits=int8,group=32,activations=int8,zero-points=true"},
		{"bf16,logits=int8,zero-points=true", "bf16,logits=int8,group=32,activations=int16,zero-points=true"},
		{"int8,zero-points=false,group=64", "int8,logits=int8,group=64,activations=int16"},
		{"float32,logits=int8,group=64", "float32,logits=int8,group=64,activations=int16"},
	} {
		w, err := prepare.ParseWeights(c.text)
		if err != nil || w.String() != c.means {
			t.Errorf("%q means %q, %v; want %q", c.text, w, err, c.means)
			continue
		}
		if again, err := prepare.ParseWeights(w.String()); err != nil || again.String() != c.means {
			t.Errorf("%q is read back as %q, %v", w, again, err)
		}
	}
	for _, c := range []struct{ text, says string }{
		{"", `"" is no type of weights, needed is float32, bf16, int8 or int4`},
		{"int5", `"int5" is no type of weights, needed is float32, bf16, int8 or int4`},
		{"INT8", `"INT8" is no type of weights`},
		{"logits=int8", `"logits=int8" is no type of weights`},
		{"int8,logits=q8", `logits: "q8" is no type of weights`},
		{"int8,logits", `logits: "" is no type of weights`},
		{"int8,group=16", `group is "16", needed is 32, 64 or 128`},
		{"int8,group=thirty", `group is "thirty"`},
		{"int8,activations=int4", `activations is "int4", needed is int8, int16 or float32`},
		{"int8,", `"" is not understood, needed is logits=TYPE, group=N, activations=TYPE or zero-points=true`},
		{"int4,zero-points", `zero-points is "", needed is true or false`},
		{"int4,zero-points=yes", `zero-points is "yes", needed is true or false`},
		{"int4,zero-points=true,zero-points=true", "zero-points is named twice"},
		{"bf16,zero-points=true", "group, activations and zero-points are of weights that are stored as integers"},
		{"int8,symmetric=true", `"symmetric=true" is not understood`},
		{"int8,group=32,group=64", "group is named twice"},
		{"float32,group=64", "group, activations and zero-points are of weights that are stored as integers"},
		{"bf16,group=64", "group, activations and zero-points are of weights that are stored as integers, and none of " +
			"bf16,group=64 are"},
		{"bf16,logits=float32,activations=float32",
			"group, activations and zero-points are of weights that are stored as integers"},
		{"bfloat16", `"bfloat16" is no type of weights`},
		{"float32,logits=float32,activations=int8",
			"group, activations and zero-points are of weights that are stored as integers"},
	} {
		must.Fail(t, must.Error(prepare.ParseWeights(c.text)), c.says)
	}
}

// The layer that makes logits is stored in eight bits where the others have four, unless it is said otherwise.
func TestTypeOfTheLastLayer(t *testing.T) {
	for text, want := range map[string][2]prepare.WeightType{
		"float32":             {prepare.Float32Weights, prepare.Float32Weights},
		"int8":                {prepare.Int8Weights, prepare.Int8Weights},
		"int4":                {prepare.Int4Weights, prepare.Int8Weights},
		"int4,logits=int4":    {prepare.Int4Weights, prepare.Int4Weights},
		"int8,logits=float32": {prepare.Int8Weights, prepare.Float32Weights},
		"bf16":                {prepare.BFloat16Weights, prepare.BFloat16Weights},
		"bf16,logits=int8":    {prepare.BFloat16Weights, prepare.Int8Weights},
	} {
		w, err := prepare.ParseWeights(text)
		if got := [2]prepare.WeightType{w.Of(false), w.Of(true)}; err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
	var zero prepare.Weights
	if zero.Quantizes() || zero.String() != "float32" {
		t.Errorf("the zero value is %s, want float32", zero)
	}
}
