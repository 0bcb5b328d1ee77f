package model

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// readIntegers has all numbers of a weight of integers.
func (m *Model) readIntegers(q *Integers) (*integers, error) {
	r, err := m.readGroups(q)
	if err == nil {
		r.raw, err = m.data(q.Quantized, nil)
	}
	return r, err
}

// readGroups has the scales and zero points alone.
func (m *Model) readGroups(q *Integers) (*integers, error) {
	r := &integers{Integers: q}
	scales, err := m.data(q.Scales, nil)
	if err != nil {
		return nil, err
	}
	r.scales = r.spread(func(i int64) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(scales[4*i:])) },
		int64(len(scales)/4))
	middle := float32(q.middle())
	if q.Zeros == nil {
		if !q.Packed && !q.signed() {
			middle = 0
		}
		r.zeros = r.spread(func(int64) float32 { return middle }, 1)
		return r, nil
	}
	zeros, err := m.data(q.Zeros, nil)
	if err != nil {
		return nil, err
	}
	elements, err := NumElements(q.Zeros)
	if err != nil {
		return nil, err
	}
	switch groups := q.Groups(); {
	case onnx.Tensor_DataType(q.Zeros.GetDataType()) == onnx.Tensor_FLOAT:
		r.zeros = r.spread(func(i int64) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(zeros[4*i:])) },
			elements)
	case q.Packed:
		stride := (groups*q.Bits + 7) / 8 // bytes of a column
		r.zeros = r.spread(func(i int64) float32 {
			return float32(number(zeros, i/groups*stride*8/q.Bits+i%groups, q.Bits))
		}, q.Columns*groups)
	default:
		r.zeros = r.spread(func(i int64) float32 { return float32(number(zeros, i, q.Bits) ^ r.sign()) }, elements)
	}
	return r, nil
}

// integers is a weight with its numbers: scales and zeros are [groups][N], and zeros are of integers without a sign.
type integers struct {
	*Integers
	raw           []byte
	scales, zeros []float32
}

// number is one of a list of numbers of four or eight bits, without a sign.
func number(list []byte, i, bits int64) byte {
	if bits == 8 {
		return list[i]
	}
	return list[i/2] >> (i % 2 * 4) & 15
}

// sign is the bit that is turned to make a number with a sign one without, moved by the middle.
func (r *integers) sign() byte {
	if r.signed() {
		return byte(r.middle())
	}
	return 0
}

// spread makes [groups][N] of one number for all, or of one for each, in the order in which the file has them.
func (r *integers) spread(at func(int64) float32, count int64) []float32 {
	groups := r.Groups()
	to := make([]float32, groups*r.Columns)
	for g := range groups {
		for n := range r.Columns {
			i := int64(0)
			switch {
			case count == 1:
			case r.Packed || r.Transposed:
				i = n*groups + g
			default:
				i = g*r.Columns + n
			}
			to[g*r.Columns+n] = at(i)
		}
	}
	return to
}

// tile is the integers of a panel, without a sign: to[k C + i] is that of position k and column C panel + i, C =
// abi.PanelColumns. Of columns beyond N it is left as it was.
func (r *integers) tile(panel int64, to []byte) {
	first := panel * abi.PanelColumns
	width := min(abi.PanelColumns, r.Columns-first)
	sign := r.sign()
	if !r.Packed && !r.Transposed {
		for k := range r.Depth {
			for i := range width {
				to[k*abi.PanelColumns+i] = number(r.raw, k*r.Columns+first+i, r.Bits) ^ sign
			}
		}
		return
	}
	stride := r.Depth // numbers of a column
	if r.Packed {
		stride = r.Groups() * r.Block
	}
	for i := range width {
		from := (first + i) * stride
		for k := range r.Depth {
			to[k*abi.PanelColumns+i] = number(r.raw, from+k, r.Bits) ^ sign
		}
	}
}

// dequantize makes float32 [K, N], or [N, K] of transposed integers.
func (r *integers) dequantize(to []byte) {
	r.each(func(panel int64, tile []byte) {
		first := panel * abi.PanelColumns
		width := min(abi.PanelColumns, r.Columns-first)
		for k := range r.Depth {
			group := k/r.Block*r.Columns + first
			scales, zeros := r.scales[group:group+width], r.zeros[group:group+width]
			at, step := k*r.Columns+first, int64(1)
			if r.Transposed {
				at, step = first*r.Depth+k, r.Depth
			}
			for i := range width {
				w := (float32(tile[k*abi.PanelColumns+i]) - zeros[i]) * scales[i]
				binary.LittleEndian.PutUint32(to[4*(at+i*step):], math.Float32bits(w))
			}
		}
	})
}

// layPanels makes the panels that LayIntegers says.
func (r *integers) layPanels(p IntegerPanels, panels []byte) {
	size := p.Rows * abi.PanelColumns
	r.each(func(panel int64, tile []byte) {
		to := panels[panel*size : (panel+1)*size]
		if r.Bits == 8 {
			layEight(to, tile)
		} else {
			layFour(to, tile)
		}
	})
}

// layScales makes their scales.
func (r *integers) layScales(p IntegerPanels, scales []float32) {
	clear(scales)
	r.eachGroup(p, func(at, from, width int64) { copy(scales[at:], r.scales[from:from+width]) })
}

// layZeros makes their zero points.
func (r *integers) layZeros(p IntegerPanels, zeros []int8) {
	middle := float32(r.middle())
	clear(zeros)
	r.eachGroup(p, func(at, from, width int64) {
		for i := range width {
			zeros[at+i] = int8(r.zeros[from+i] - middle)
		}
	})
}

// eachGroup calls f for each panel and each of its groups: where its numbers lie among those of panels and of the
// weight, and how many there are.
func (r *integers) eachGroup(p IntegerPanels, f func(at, from, width int64)) {
	group := r.group()
	for panel := range p.Panels {
		first := panel * abi.PanelColumns
		for g := range p.Groups {
			f((panel*p.Groups+g)*abi.PanelColumns, min(g*group/r.Block, r.Groups()-1)*r.Columns+first,
				min(abi.PanelColumns, r.Columns-first))
		}
	}
}

// layEight lays out a tile of whole chunks as int8.
func layEight(to, tile []byte) {
	for k := 0; k < len(tile)/abi.PanelColumns; k++ {
		row := tile[k*abi.PanelColumns : (k+1)*abi.PanelColumns]
		at := to[k/4*64+k%4:]
		for i, q := range row {
			at[i*4] = q ^ 0x80
		}
	}
}

// layFour lays out a tile of whole chunks as halves of bytes.
func layFour(to, tile []byte) {
	clear(to)
	for k := 0; k < len(tile)/abi.PanelColumns; k++ {
		row := tile[k*abi.PanelColumns : (k+1)*abi.PanelColumns]
		at := to[k/8*64+k%4:]
		half := k % 8 / 4 * 4
		for i, q := range row {
			at[i*4] |= q << half
		}
	}
}

// tiles are memory for panels, one a thread.
var tiles = sync.Pool{New: func() any { return new([]byte) }}

// each calls f with the tile of every panel, from several threads. Numbers beyond K and N are the middle.
func (r *integers) each(f func(panel int64, tile []byte)) {
	count := int(abi.Panels(r.Columns))
	_ = onThreads(count, func(next func() int) error { // f cannot fail
		memory := tiles.Get().(*[]byte)
		defer tiles.Put(memory)
		size := int((r.Depth + panelChunk - 1) / panelChunk * panelChunk * abi.PanelColumns)
		if cap(*memory) < size {
			*memory = make([]byte, size)
		}
		tile := (*memory)[:size]
		for i := range tile {
			tile[i] = byte(r.middle())
		}
		for panel := next(); panel < count; panel = next() {
			if (int64(panel)+1)*abi.PanelColumns > r.Columns {
				for i := range tile {
					tile[i] = byte(r.middle())
				}
			}
			r.tile(int64(panel), tile)
			f(int64(panel), tile)
		}
		return nil
	})
}
