package quantization

import (
	"encoding/binary"
	"math"
	"sync"
	"sync/atomic"

	"github.com/opgraft/graft/host/base/half"
)

// damping is the share of the mean importance of a group that each of its positions has at least: what texts did not
// show may matter.
const damping = 0.05

// weigh replaces integers of four bits, their scales and zero points by those that leave the smallest squared error
// of what the weight gives, where each position counts as much as the mean square of what is multiplied with it. A
// group that this makes no better stays as it is. Scales remain numbers of bfloat16.
func (m *matrix) weigh(data []byte, r *rounded, important []float64, threads int) {
	groups, row := m.groups(), m.rowBytes()
	rowStep, columnStep := m.columns, int64(1)
	if m.transposed {
		rowStep, columnStep = 1, m.depth
	}
	const stretch = 64 // columns that are taken at once
	var next atomic.Int64
	var all sync.WaitGroup
	for range max(threads, 1) {
		all.Go(func() {
			w, h := make([]float64, m.group), make([]float64, m.group)
			best, q := make([]int8, m.group), make([]int8, m.group)
			for {
				from := next.Add(stretch) - stretch
				if from >= m.columns {
					return
				}
				for column := from; column < min(from+stretch, m.columns); column++ {
					for g := range groups {
						begin := g * m.group
						n := min(m.group, m.depth-begin)
						mean := 0.0
						for i := range n {
							k := begin + i
							w[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*(k*rowStep+column*columnStep):])))
							h[i] = important[k]
							mean += h[i] / float64(n)
						}
						at := column*groups + g
						four := r.integers[column*row+begin/2:][:m.group/2]
						s := &search4{w: w[:n], h: h[:n], best: best[:n], q: q[:n], scale: float64(r.scales[at]), zero: m.middle(r, at)}
						for i := range n {
							h[i] += damping * mean
							best[i] = int8(int(four[i/2]>>(i%2*4)&15) - s.zero)
						}
						if !s.better(r.zeros != nil) {
							continue
						}
						r.scales[at] = float32(s.scale)
						if r.zeros != nil {
							r.zeros[at] = uint8(s.zero)
						}
						for i := range n {
							shift := i % 2 * 4
							four[i/2] = four[i/2]&^(15<<shift) | byte(int(best[i])+s.zero)<<shift
						}
					}
				}
			}
		})
	}
	all.Wait()
}

// search4 looks for the scale, the zero point and the integers of a group of four bits: a value is best times the
// scale, and best from -zero to 15 - zero.
type search4 struct {
	w, h  []float64 // the numbers, and what their errors count
	best  []int8
	q     []int8 // scratch
	scale float64
	zero  int     // 0 to 15
	off   float64 // weighted squared error of best
}

// better says whether something leaves a smaller weighted error than what was given, and replaces it. Without zero
// points that of 8 stays.
func (s *search4) better(zeros bool) bool {
	most, low, high := 0.0, 0.0, 0.0
	for _, x := range s.w {
		if math.Abs(x) > math.Abs(most) {
			most = x
		}
		low, high = min(low, x), max(high, x)
	}
	if most == 0 || math.IsNaN(most) || math.IsInf(most, 0) || math.IsNaN(low+high) || math.IsNaN(s.scale) {
		return false
	}
	s.off = s.weighted(s.best, s.scale)
	before := s.off
	for step := -8; step <= 10; step++ {
		s.try(most/(-8-0.12*float64(step)), 8)
	}
	if !zeros {
		return s.off < before
	}
	ideal := int(math.RoundToEven(-low / (high - low) * 15))
	for zero := max(ideal-1, 0); zero <= min(ideal+1, 15); zero++ {
		exact := 0.0 // clips nothing
		if zero > 0 {
			exact = -low / float64(zero)
		}
		if zero < 15 {
			exact = max(exact, high/float64(15-zero))
		}
		for step := range 8 {
			s.try(exact*(1.04-0.05*float64(step)), zero)
		}
	}
	return s.off < before
}

// try takes the least-squares scale of the integers that a scale leads to.
func (s *search4) try(scale float64, zero int) {
	least, most := float64(-zero), float64(15-zero)
	inverse := 1 / scale
	var both, square float64 // least squares, given the integers
	for i, x := range s.w {
		v := min(max(math.RoundToEven(x*inverse), least), most)
		both += s.h[i] * v * x
		square += s.h[i] * v * v
	}
	if !(square > 0) {
		return
	}
	scale = half.BFloatToFloat(half.BFloatFromFloat(both / square))
	if scale == 0 || math.IsInf(scale, 0) {
		return
	}
	for i, x := range s.w {
		s.q[i] = int8(min(max(math.RoundToEven(x/scale), least), most))
	}
	if e := s.weighted(s.q, scale); e < s.off {
		s.off, s.scale, s.zero = e, scale, zero
		copy(s.best, s.q)
	}
}

func (s *search4) weighted(q []int8, scale float64) (e float64) {
	for i, x := range s.w {
		d := x - float64(q[i])*scale
		e += s.h[i] * d * d
	}
	return e
}
