package random

import (
	"encoding/binary"
	"math"
)

func append16(b []byte, x uint16) []byte { return binary.LittleEndian.AppendUint16(b, x) }
func append32(b []byte, x float32) []byte {
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
}
func append64(b []byte, x int64) []byte { return binary.LittleEndian.AppendUint64(b, uint64(x)) }

func append32Bits(b []byte, x uint32) []byte { return binary.LittleEndian.AppendUint32(b, x) }
func read16(b []byte) uint16                 { return binary.LittleEndian.Uint16(b) }
func read32(b []byte) uint32                 { return binary.LittleEndian.Uint32(b) }

// length computes a length, as a list of one: from the shape of a value that has it.
func (w *writer) length(d dim) value {
	if d.constant() {
		return w.ints(d.number)
	}
	for _, at := range w.Perm(len(w.seen)) {
		for i, e := range w.seen[at].dims {
			if e.equal(d) {
				return w.lengthOf(w.seen[at], i)
			}
		}
	}
	op := map[byte]string{'*': "Mul", '+': "Add"}[d.op]
	return w.binary(op, w.length(d.parts[0]), w.length(d.parts[1]))
}

// lengthOf takes one axis out of a shape.
func (w *writer) lengthOf(v value, axis int) value {
	one := value{kind: i64, dims: []dim{number(1)}}
	if w.opset >= 15 && w.one(3) {
		return w.node("Shape", []value{v}, one, "start", axis, "end", axis+1)
	}
	shape := w.node("Shape", []value{v}, value{kind: i64, dims: []dim{number(int64(v.rank()))}})
	switch w.IntN(3) {
	case 0:
		return w.node("Gather", []value{shape, w.ints(int64(axis))}, one)
	case 1:
		return w.node("Slice", []value{shape, w.ints(int64(axis)), w.ints(int64(axis + 1))}, one)
	}
	scalar := w.full(i64, func(int64) float64 { return float64(axis) })
	single := w.node("Gather", []value{shape, scalar}, value{kind: i64}, "axis", 0)
	return w.node("Unsqueeze", []value{single, w.ints(0)}, one)
}

// target computes a list of lengths.
func (w *writer) target(dims []dim) value {
	constant := true
	for _, d := range dims {
		constant = constant && d.constant()
	}
	if constant {
		list := make([]int64, len(dims))
		for i, d := range dims {
			list[i] = d.number
		}
		return w.ints(list...)
	}
	parts := make([]value, len(dims))
	for i, d := range dims {
		parts[i] = w.length(d)
	}
	return w.node("Concat", parts, value{kind: i64, dims: []dim{number(int64(len(dims)))}}, "axis", 0)
}

// reshape gives a value other lengths of the same count: by numbers with 0 and -1 where they say it, or by computed
// lengths.
func (w *writer) reshape(x value, dims ...dim) value {
	out := x.like(dims...)
	list, open := make([]int64, len(dims)), 0
	for i, d := range dims {
		switch {
		case d.constant() && d.number > 0:
			list[i] = d.number
		case i < x.rank() && x.dims[i].equal(d):
			list[i] = 0
		default:
			list[i] = -1
			open++
		}
	}
	if open <= 1 && !w.one(3) {
		return w.node("Reshape", []value{x, w.ints(list...)}, out)
	}
	return w.node("Reshape", []value{x, w.target(dims)}, out)
}

// unsqueeze puts in an axis of length 1, at a place of the result.
func (w *writer) unsqueeze(x value, at int) value {
	dims := append(append(append([]dim{}, x.dims[:at]...), number(1)), x.dims[at:]...)
	if w.one(4) {
		return w.reshape(x, dims...)
	}
	axis := int64(at)
	if w.one(3) {
		axis -= int64(len(dims))
	}
	return w.node("Unsqueeze", []value{x, w.ints(axis)}, x.like(dims...))
}

// expand broadcasts a value to a shape.
func (w *writer) expand(x value, dims ...dim) value {
	return w.node("Expand", []value{x, w.target(dims)}, x.like(dims...))
}

// slice takes a part of constant place of an axis of constant length.
func (w *writer) slice(x value, axis int, from, to int64) value {
	dims := append([]dim{}, x.dims...)
	dims[axis] = number(to - from)
	at := int64(axis)
	if w.one(3) {
		at -= int64(x.rank())
	}
	return w.node("Slice", []value{x, w.ints(from), w.ints(to), w.ints(at)}, x.like(dims...))
}

// split cuts an axis into parts of these widths.
func (w *writer) split(x value, axis int, widths ...int64) []value {
	out := make([]value, len(widths))
	if w.one(3) {
		at := int64(0)
		for i, n := range widths {
			out[i] = w.slice(x, axis, at, at+n)
			at += n
		}
		return out
	}
	for i, n := range widths {
		dims := append([]dim{}, x.dims...)
		dims[axis] = number(n)
		out[i] = x.like(dims...)
	}
	return w.nodes("Split", []value{x, w.ints(widths...)}, out, "axis", axis)
}
