package models

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

// distribution says how the values of a parameter are sampled.
type distribution int

const (
	// normal: the sum of four uniform 16-bit integers, scaled to a mean and a
	// standard deviation. Its tails end at 3.46 deviations, and it needs no
	// transcendental function, whose last bits differ between machines.
	normal distribution = iota
	// uniform: mean ± scale.
	uniform
	// constant: the mean.
	constant
	// randomBytes: unsigned bytes, for weights that the exporter quantised.
	randomBytes
)

var distributions = map[string]distribution{
	"normal":   normal,
	"uniform":  uniform,
	"constant": constant,
	"bytes":    randomBytes,
}

// sumDeviation is the standard deviation of the sum of four uniform 16-bit
// integers: sqrt(4 * (2^32 - 1) / 12).
var sumDeviation = math.Sqrt(float64(1<<32-1) / 3)

// parameter is one learned tensor of the subject, by the name and in the shape
// that its training framework knows.
type parameter struct {
	name         string
	shape        []int64
	distribution distribution
	mean, scale  float64
	diagonal     float64 // added where row and column are the same, to a normal distribution
}

// elements is the number of values of the parameter.
func (p *parameter) elements() int64 {
	n := int64(1)
	for _, d := range p.shape {
		n *= d
	}
	return n
}

// size is the bytes of one value.
func (p *parameter) size() int64 {
	if p.distribution == randomBytes {
		return 1
	}
	return 4
}

// streamKey is the start of the stream of values of the parameter name.
func streamKey(seed uint64, name string) uint64 {
	sum := sha256.Sum256([]byte(strconv.FormatUint(seed, 10) + "\n" + name))
	return binary.LittleEndian.Uint64(sum[:])
}

// word is SplitMix64 with the index as its counter, so that any value of a
// stream can be had without those before it.
func word(key, index uint64) uint64 {
	z := key + (index+1)*0x9E3779B97F4A7C15
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
	z = (z ^ (z >> 27)) * 0x94D049BB133111EB
	return z ^ (z >> 31)
}

// generator samples the values of one parameter.
type generator struct {
	distribution distribution
	key          uint64
	factor, mean float64
	diagonal     float64
	columns      uint64 // of the parameter, where there is a diagonal
}

func newGenerator(p *parameter, seed uint64) generator {
	g := generator{distribution: p.distribution, key: streamKey(seed, p.name), mean: p.mean, diagonal: p.diagonal}
	if g.diagonal != 0 {
		g.columns = uint64(p.shape[1])
	}
	switch p.distribution {
	case normal:
		g.factor = p.scale / sumDeviation
	case uniform:
		g.factor = p.scale / (1 << 52)
	case constant, randomBytes:
	}
	return g
}

// put writes the values start, start+stride, start+2*stride... into b, little
// endian, as many as b holds.
func (g *generator) put(b []byte, start, stride int64) {
	index, step := uint64(start), uint64(stride)
	switch g.distribution {
	case randomBytes:
		for i := range b {
			b[i] = byte(word(g.key, index))
			index += step
		}
	case constant:
		for ; len(b) >= 4; b = b[4:] {
			binary.LittleEndian.PutUint32(b, math.Float32bits(float32(g.mean)))
		}
	case normal:
		for ; len(b) >= 4; b = b[4:] {
			bits := g.bits(centredSum(word(g.key, index)))
			if g.diagonal != 0 && index/g.columns == index%g.columns {
				bits = math.Float32bits(math.Float32frombits(bits) + float32(g.diagonal))
			}
			binary.LittleEndian.PutUint32(b, bits)
			index += step
		}
	case uniform:
		for ; len(b) >= 4; b = b[4:] {
			z := word(g.key, index)
			binary.LittleEndian.PutUint32(b, g.bits(int64(z>>11)-1<<52))
			index += step
		}
	}
}

// centredSum is the sum of a word's four 16-bit parts less its mean.
func centredSum(z uint64) int64 {
	return int64(z&0xFFFF+z>>16&0xFFFF+z>>32&0xFFFF+z>>48) - 131070
}

// bits scales a centred integer to a float32. The conversion between product
// and sum forbids a fused multiply-add, whose rounding other machines lack.
func (g *generator) bits(centred int64) uint32 {
	product := float64(float64(centred) * g.factor)
	return math.Float32bits(float32(product + g.mean))
}

func parseDistribution(s string) (distribution, error) {
	d, ok := distributions[s]
	if !ok {
		return 0, fmt.Errorf("distribution %q is not known", s)
	}
	return d, nil
}
