package quantization

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/opgraft/graft/host/half"
)

// TestSearch4: what is found is better where positions count differently, has a scale of bfloat16 and integers of four bits, and nothing is found where nothing is better.
func TestSearch4(t *testing.T) {
	var before, after float64
	for i := range 2000 {
		r := rand.New(rand.NewPCG(uint64(i), 4))
		n := 1 + r.IntN(64)
		w, h, best, q := make([]float64, n), make([]float64, n), make([]int8, n), make([]int8, n)
		most := 0.0
		for k := range w {
			w[k], h[k] = r.NormFloat64(), math.Exp(2*r.NormFloat64())
			if math.Abs(w[k]) > math.Abs(most) {
				most = w[k]
			}
		}
		scale := half.BFloatToFloat(half.BFloatFromFloat(most / -8))
		for k, x := range w {
			best[k] = int8(min(max(math.RoundToEven(x/scale), -8), 7))
		}
		was := weightedError(w, h, best, scale)
		given := append([]int8(nil), best...)
		found, better := search4(w, h, best, q, scale)
		now := was
		if better {
			if now = weightedError(w, h, best, float64(found)); !(now < was) {
				t.Errorf("problem %d: the error is %g, before %g", i, now, was)
			}
			if bits := half.BFloatFromFloat(float64(found)); half.BFloatToFloat(bits) != float64(found) {
				t.Errorf("problem %d: the scale %g is no bfloat16", i, found)
			}
		}
		for k, v := range best {
			if v < -8 || v > 7 || !better && v != given[k] {
				t.Errorf("problem %d: integer %d is %d, before %d", i, k, v, given[k])
			}
		}
		before, after = before+was, after+now
	}
	if after > 0.8*before {
		t.Errorf("the error is %.3g of what it was, want at most 0.8", after/before)
	}
	for _, w := range [][]float64{{0, 0}, {math.NaN(), 1}, {math.Inf(1), 1}} {
		if _, better := search4(w, []float64{1, 1}, []int8{0, 0}, []int8{0, 0}, 1); better {
			t.Errorf("%v: something is better", w)
		}
	}
}
