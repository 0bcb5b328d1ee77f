package quantization

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/opgraft/graft/host/base/half"
	"github.com/opgraft/graft/internal/must"
)

// TestSearch4: what is found is better where positions count differently, has a scale of bfloat16 and integers of
// four bits, and nothing is found where nothing is better. Zero points make it better still.
func TestSearch4(t *testing.T) {
	var before float64
	after := map[bool]float64{}
	for i := range 2000 {
		r := rand.New(rand.NewPCG(uint64(i), 4))
		n := 1 + r.IntN(64)
		w, h, given := make([]float64, n), make([]float64, n), make([]int8, n)
		most := 0.0
		for k := range w {
			w[k], h[k] = r.NormFloat64(), math.Exp(2*r.NormFloat64())
			if math.Abs(w[k]) > math.Abs(most) {
				most = w[k]
			}
		}
		scale := half.BFloatToFloat(half.BFloatFromFloat(most / -8))
		for k, x := range w {
			given[k] = int8(min(max(math.RoundToEven(x/scale), -8), 7))
		}
		for _, zeros := range []bool{false, true} {
			s := &search4{w: w, h: h, best: append([]int8(nil), given...), q: make([]int8, n), scale: scale, zero: 8}
			was := s.weighted(given, scale)
			better := s.better(zeros)
			now := s.weighted(s.best, s.scale)
			if better != (now < was) || now > was || now != s.off {
				t.Errorf("problem %d: the error is %g, before %g; better: %v", i, now, was, better)
			}
			must.Equal(t, half.BFloatToFloat(half.BFloatFromFloat(s.scale)), s.scale, i)
			if s.zero < 0 || s.zero > 15 || !zeros && s.zero != 8 {
				t.Errorf("problem %d: the zero point is %d", i, s.zero)
			}
			for k, v := range s.best {
				if int(v) < -s.zero || int(v) > 15-s.zero || !better && v != given[k] {
					t.Errorf("problem %d: integer %d is %d beside a zero point of %d, before %d", i, k, v, s.zero, given[k])
				}
			}
			after[zeros] += now
			if !zeros {
				before += was
			}
		}
	}
	t.Logf("the error is %.3g of what it was, with zero points %.3g", after[false]/before, after[true]/before)
	if after[false] > 0.8*before || after[true] > 0.9*after[false] {
		t.Errorf("the error is %.3g of what it was, with zero points %.3g, want at most 0.8 and 0.9 of that",
			after[false]/before, after[true]/before)
	}
	for _, w := range [][]float64{{0, 0}, {math.NaN(), 1}, {math.Inf(1), 1}, {math.Inf(-1), math.Inf(1)}} {
		s := &search4{w: w, h: []float64{1, 1}, best: []int8{0, 0}, q: []int8{0, 0}, scale: 1, zero: 8}
		if s.better(true) {
			t.Errorf("%v: something is better", w)
		}
	}
}
