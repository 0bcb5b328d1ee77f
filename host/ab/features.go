package ab

import (
	"math/rand/v2"

	"github.com/opgraft/graft/host/decode/engine"
)

// madeFeatures are inputs of a speech model's encoder: values of about the range
// that log-mel features have, the same for a seed.
func madeFeatures(seed uint64, batch int, shape []int64) []*engine.Features {
	count := int64(1)
	for _, n := range shape {
		count *= n
	}
	r := rand.New(rand.NewPCG(seed, 0x6d656c))
	list := make([]*engine.Features, batch)
	for i := range list {
		values := make([]float32, count)
		for j := range values {
			values[j] = float32(r.NormFloat64()) / 2
		}
		list[i] = &engine.Features{Values: values, Shape: shape}
	}
	return list
}
