package quantization

import (
	"encoding/binary"
	"math"
	"sync"
	"sync/atomic"

	"github.com/opgraft/graft/host/half"
)

// damping is the share of the mean importance of a group that each of its positions has at least: what texts did not show may matter.
const damping = 0.05

// weigh replaces integers of four bits and their scales by those that leave the smallest squared error of what the weight gives, where each position counts as much as
// the mean square of what is multiplied with it. A group that this makes no better stays as it is. Scales remain numbers of bfloat16.
func (m *matrix) weigh(data, integers []byte, scales []float32, important []float64, threads int) {
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
						for i := range n {
							h[i] += damping * mean
						}
						at := integers[column*row+begin/2:][:m.group/2]
						for i := range n {
							best[i] = int8(at[i/2]>>(i%2*4)&15) - 8
						}
						scale := &scales[column*groups+g]
						if s, better := search4(w[:n], h[:n], best[:n], q[:n], float64(*scale)); better {
							*scale = s
							for i := range n {
								shift := i % 2 * 4
								at[i/2] = at[i/2]&^(15<<shift) | byte(best[i]+8)<<shift
							}
						}
					}
				}
			}
		})
	}
	all.Wait()
}

// search4 looks for a scale, and integers from -8 to 7 in best, that leave a smaller weighted error of w than those that are given. q is scratch.
func search4(w, h []float64, best, q []int8, scale float64) (found float32, better bool) {
	most := 0.0
	for _, x := range w {
		if math.Abs(x) > math.Abs(most) {
			most = x
		}
	}
	if most == 0 || math.IsNaN(most) || math.IsInf(most, 0) || math.IsNaN(scale) {
		return 0, false
	}
	least := weightedError(w, h, best, scale)
	try := func(s float64) {
		s = half.BFloatToFloat(half.BFloatFromFloat(s))
		if s == 0 {
			return
		}
		for i, x := range w {
			q[i] = int8(min(max(math.RoundToEven(x/s), -8), 7))
		}
		if e := weightedError(w, h, q, s); e < least {
			least, found, better = e, float32(s), true
			copy(best, q)
		}
	}
	for step := -8; step <= 10; step++ {
		s := most / (-8 - 0.12*float64(step))
		inverse := 1 / s
		var both, square float64 // least squares, given the integers
		for i, x := range w {
			v := min(max(math.RoundToEven(x*inverse), -8), 7)
			both += h[i] * v * x
			square += h[i] * v * v
		}
		if square > 0 {
			try(both / square)
		}
	}
	return found, better
}

func weightedError(w, h []float64, q []int8, scale float64) (e float64) {
	for i, x := range w {
		d := x - float64(q[i])*scale
		e += h[i] * d * d
	}
	return e
}
