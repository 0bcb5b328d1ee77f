package models

import (
	"math"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

func TestConditionedWeights(t *testing.T) {
	const width = 36
	for _, c := range []struct {
		name, shape, transpose string
		changed                bool
	}{
		{"model.decoder.layers.0.self_attn.k_proj.weight", "36,36", "", true},
		{"model.decoder.layers.1.encoder_attn.k_proj.weight", "36,36", "1", true},
		{"model.decoder.layers.0.self_attn.k_proj.weight", "36,18", "", false},
		{"model.decoder.layers.0.self_attn.q_proj.weight", "36,36", "", false},
		{"model.decoder.layers.0.self_attn.k_proj.bias", "36", "", false},
		{"model.encoder.layers.0.self_attn.k_proj.weight", "36,36", "", false},
	} {
		pairs := []string{"name", c.name, "shape", c.shape, "distribution", "normal", "mean", "0", "scale", "0.25"}
		if c.transpose != "" {
			pairs = append(pairs, "transpose", c.transpose)
		}
		in := mustParse(t, pairs...)
		usual, got := values(t, in, 64), []float32(nil)
		conditioned(func(_ *output, changed *instruction) { got = values(t, changed, 64) })(nil, in)
		if !c.changed {
			must.Equal(t, got, usual, c.name, c.shape)
			continue
		}
		for i := range usual {
			want := float64(usual[i]) / 3
			if i/width == i%width {
				want += 0.25 * 6 // the root of the width
			}
			if math.Abs(float64(got[i])-want) > 1e-6 {
				t.Fatalf("%s: value %d, %d is %g, want %g", c.name, i/width, i%width, got[i], want)
			}
		}
		must.Equal(t, values(t, in, 1<<20), usual, c.name)
	}
}

// The files of a conditioned subject are those of the subject, and have a folder of
// their own.
func TestConditionedSubject(t *testing.T) {
	plain := must.Value(Files("whisper-tiny"))(t)
	better := must.Value(Files("whisper-tiny" + Conditioned))(t)
	for i := range plain {
		if plain[i].conditioned || !better[i].conditioned || plain[i].Path != better[i].Path {
			t.Errorf("file %d is %+v, and %+v conditioned", i, plain[i], better[i])
		}
	}
	if _, err := Files(Conditioned); err == nil {
		t.Error("a subject without a name has files")
	}
}
