package conformance

// random is a splitmix64 sequence: cases mean the same numbers everywhere and always.
type random uint64

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// uniform is a number in [low, high).
func (r *random) uniform(low, high float64) float64 {
	return low + (high-low)*float64(r.next()>>11)/(1<<53)
}
