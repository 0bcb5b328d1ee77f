package models

import (
	"math"
	"slices"
	"strings"
)

// Conditioned, after the name of a full-size subject, names the subject with
// well-conditioned weights of the decoder's keys. Those of a square matrix sampled
// at random have a condition number of thousands, with which values cannot be had
// from keys in float32; a trained model's can be far better.
const Conditioned = "-conditioned"

// conditionedShare is the deviation of such a weight as a share of the usual one. A
// diagonal brings the rest: singular values of width x width values of deviation
// 1/sqrt(width) end at 2, so that those of the sum lie between 1 - 2/3 and 1 + 2/3 of
// the diagonal.
const conditionedShare = 1. / 3

// conditioned passes weights of a decoder's keys on with a diagonal, which has the
// size that a row had.
func conditioned(place placement) placement {
	return func(tensor *output, in *instruction) {
		changed := *in
		changed.parts = slices.Clone(in.parts)
		for i := range changed.parts {
			p := &changed.parts[i].parameter
			if len(p.shape) != 2 || p.shape[0] != p.shape[1] || p.distribution != normal {
				continue
			}
			if strings.HasPrefix(p.name, "model.decoder.") && strings.HasSuffix(p.name, "_attn.k_proj.weight") {
				p.diagonal = p.scale * math.Sqrt(float64(p.shape[0]))
				p.scale *= conditionedShare
			}
		}
		place(tensor, &changed)
	}
}
