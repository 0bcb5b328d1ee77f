package vision

import "math"

// filter weighs what lies at a distance, in pixels of the smaller of two images, up to its support.
type filter struct {
	support float64
	weight  func(x float64) float64
}

// The numbers of Pillow's filters.
const (
	nearest = iota
	lanczos
	bilinear
	bicubic
	box
	hamming
)

var filters = [...]filter{
	nearest: {},
	lanczos: {3, func(x float64) float64 {
		if x < -3 || x >= 3 {
			return 0
		}
		return sinc(x) * sinc(x/3)
	}},
	bilinear: {1, func(x float64) float64 { return max(0, 1-math.Abs(x)) }},
	bicubic: {2, func(x float64) float64 { // Keys 1981, with a = -1/2
		const a = -0.5
		switch x = math.Abs(x); {
		case x < 1:
			return ((a+2)*x-(a+3))*x*x + 1
		case x < 2:
			return (((x-5)*x+8)*x - 4) * a
		}
		return 0
	}},
	box: {0.5, func(x float64) float64 {
		if x > -0.5 && x <= 0.5 {
			return 1
		}
		return 0
	}},
	hamming: {1, func(x float64) float64 {
		if x = math.Abs(x); x >= 1 {
			return 0
		}
		return sinc(x) * (0.54 + 0.46*math.Cos(x*math.Pi))
	}},
}

func sinc(x float64) float64 {
	if x == 0 {
		return 1
	}
	x *= math.Pi
	return math.Sin(x) / x
}

// span is a part of an axis, in pixels.
type span struct{ from, to float64 }

// resize gives the part of an image that two spans cut out, in another size. An image that is made smaller is averaged
// over as much as a pixel covers; each axis alone, first across, and rounded to 8 bits after each.
func (p *picture) resize(width, height, by int, across, down span) *picture {
	if by == nearest {
		return p.pick(width, height, across, down)
	}
	whole := func(s span, was, is int) bool { return was == is && s == span{0, float64(was)} }
	if !whole(across, p.width, width) {
		wide := newPicture(width, p.height)
		weights := weigh(p.width, width, across, filters[by])
		for y := range p.height {
			row := p.pixels[p.at(0, y):p.at(0, y+1)]
			for x, w := range weights {
				w.sum(wide.pixels[wide.at(x, y):], row[3*w.first:], 3)
			}
		}
		p = wide
	}
	if !whole(down, p.height, height) {
		high := newPicture(p.width, height)
		for y, w := range weigh(p.height, height, down, filters[by]) {
			for x := range p.width {
				w.sum(high.pixels[high.at(x, y):], p.pixels[p.at(x, w.first):], 3*p.width)
			}
		}
		p = high
	}
	return p
}

// weights are those of neighbouring pixels, from a first one on, as fractions of 22 bits.
type weights struct {
	first int
	list  []int32
}

const fraction = 22

// sum is a pixel of pixels that lie some bytes apart.
func (w weights) sum(out, pixels []byte, apart int) {
	const half = 1 << (fraction - 1)
	r, g, b := half, half, half
	for i, k := range w.list {
		at := pixels[i*apart:]
		r, g, b = r+int(k)*int(at[0]), g+int(k)*int(at[1]), b+int(k)*int(at[2])
	}
	out[0], out[1], out[2] = clip(r>>fraction), clip(g>>fraction), clip(b>>fraction)
}

// weigh gives for each of `to` pixels of an axis the weights of those, of `from`, that it is made of.
func weigh(from, to int, s span, f filter) []weights {
	scale := (s.to - s.from) / float64(to)
	stretch := max(scale, 1)
	reach := f.support * stretch
	all := make([]weights, to)
	list := make([]float64, int(math.Ceil(reach))*2+1)
	for i := range all {
		center := s.from + (float64(i)+0.5)*scale
		first := max(0, int(center-reach+0.5))
		end := min(from, int(center+reach+0.5))
		sum := 0.0
		for j := range end - first {
			list[j] = f.weight((float64(j+first) - center + 0.5) * (1 / stretch))
			sum += list[j]
		}
		w := weights{first, make([]int32, end-first)}
		for j := range w.list {
			k := list[j]
			if sum != 0 {
				k /= sum
			}
			w.list[j] = int32(math.Trunc(k*(1<<fraction) + math.Copysign(0.5, k)))
		}
		all[i] = w
	}
	return all
}

// pick takes the nearest pixels.
func (p *picture) pick(width, height int, across, down span) *picture {
	nearest := func(n, most int, s span) []int {
		step := (s.to - s.from) / float64(n)
		list := make([]int, n)
		at := s.from + step*0.5
		for i := range list {
			list[i] = min(int(at), most-1)
			at += step
		}
		return list
	}
	out := newPicture(width, height)
	xs, ys := nearest(width, p.width, across), nearest(height, p.height, down)
	out.each(func(x, y int) [3]byte { return [3]byte(p.pixels[p.at(xs[x], ys[y]):]) })
	return out
}

// shrink averages cells of so many pixels; those at the right and lower edge may be smaller.
func (p *picture) shrink(across, down int) *picture {
	out := newPicture((p.width+across-1)/across, (p.height+down-1)/down)
	out.each(func(x, y int) [3]byte {
		right, bottom := min((x+1)*across, p.width), min((y+1)*down, p.height)
		count := uint32((right - x*across) * (bottom - y*down))
		var sum [3]uint32
		for j := y * down; j < bottom; j++ {
			for i := x * across; i < right; i++ {
				for c, v := range p.pixels[p.at(i, j):][:3] {
					sum[c] += uint32(v)
				}
			}
		}
		// Divided by a factor of 24 bits that is rounded down, as Pillow does, so that halves may be too.
		factor := uint32(float32(1<<32) / float32(256*count))
		var v [3]byte
		for c := range v {
			v[c] = byte((sum[c] + count/2) * factor >> 24)
		}
		return v
	})
	return out
}
