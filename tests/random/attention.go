package random

import (
	"math"
	"strings"
)

// heads are what attention is made of, each as [batch, heads, length, size].
type heads struct {
	q, k, v         value
	count, kv       int64 // heads of query, and of key and value
	size, valueSize int64
	turned          bool // the key is [batch, heads, size, length]
}

// attention is a block of it with its projections, on the hidden states and perhaps on others.
func (w *writer) attention(x value) value {
	h := heads{count: pick(w, int64(1), 2, 2, 3, 4, 5), size: pick(w, int64(1), 2, 3, 4, 5, 8, 8, 16, 17, 32)}
	h.kv, h.valueSize = h.count, h.size
	if h.count == 4 && w.one(2) {
		h.kv = pick(w, int64(1), 2)
	}
	if w.one(6) {
		h.valueSize = pick(w, int64(1), 3, 8, 11)
	}
	source := x
	if w.one(4) {
		source = w.other(x)
	}
	if w.domains && source.name == x.name && h.kv == h.count && w.one(8) {
		return w.contributed(x, h)
	}
	w.project(x, source, &h)
	if w.one(3) {
		w.rotate(&h)
	}
	if w.one(3) && !h.turned {
		w.past(&h)
	}
	if w.opset >= 23 && !h.turned && w.one(2) {
		return w.joined(x, w.operator(h), h)
	}
	w.group(&h)
	return w.joined(x, w.core(h), h)
}

// other are hidden states that are not of this stream: an encoder's, or a new input. A mask is none: products with
// its lowest numbers are no numbers, which a graph that clears those of a softmax takes for a row without visible
// keys, and an operator does not.
func (w *writer) other(x value) value {
	for _, at := range w.Perm(len(w.seen)) {
		v := w.seen[at]
		if v.rank() == 3 && v.kind == x.kind && v.dims[0].equal(x.dims[0]) && v.dims[2].constant() && v.dims[2].number > 0 &&
			!strings.HasPrefix(v.name, "mask") && w.one(2) {
			return v
		}
	}
	return w.input("encoded", x.kind, normal, w.batch, pick(w, symbol("encoded"), w.tokens),
		number(pick(w, w.width, 3, 8)))
}

// project makes query, key and value of hidden states, or takes inputs in their place.
func (w *writer) project(x, source value, h *heads) {
	b, t := w.batch, source.dims[1]
	size, valueSize := number(h.size), number(h.valueSize)
	if w.one(8) { // no projections: what comes in is split already
		h.q = w.input("query", x.kind, normal, b, number(h.count), x.dims[1], size)
		h.k = w.input("key", x.kind, normal, b, number(h.kv), t, size)
		h.v = w.input("value", x.kind, normal, b, number(h.kv), t, valueSize)
		if w.one(4) && h.size == h.valueSize {
			h.v = h.k
		}
		return
	}
	if source.name == x.name && w.one(4) { // one matmul for all three
		all := w.linear(x, (h.count+h.kv)*h.size+h.kv*h.valueSize)
		parts := w.split(all, 2, h.count*h.size, h.kv*h.size, h.kv*h.valueSize)
		h.q, h.k, h.v = w.parted(parts[0], h.count), w.parted(parts[1], h.kv), w.parted(parts[2], h.kv)
		return
	}
	h.q = w.parted(w.linear(x, h.count*h.size), h.count)
	key := w.linear(source, h.kv*h.size)
	if w.one(4) && h.size == h.valueSize { // keys are the values as well
		h.v = w.parted(key, h.kv)
	} else {
		h.v = w.parted(w.linear(source, h.kv*h.valueSize), h.kv)
	}
	if w.one(4) {
		split := w.reshape(key, b, t, number(h.kv), size)
		h.k, h.turned = w.transpose(split, 0, 2, 3, 1), true
		return
	}
	h.k = w.parted(key, h.kv)
}

// parted cuts [batch, length, count*size] into heads.
func (w *writer) parted(x value, count int64) value {
	size := number(x.dims[2].number / count)
	if count == 1 && w.one(2) {
		return w.unsqueeze(x, 1)
	}
	split := w.reshape(x, x.dims[0], x.dims[1], number(count), size)
	return w.transpose(split, 0, 2, 1, 3)
}

// rotate turns query and key by angles of their positions.
func (w *writer) rotate(h *heads) {
	if h.size%2 != 0 || h.turned || !h.q.dims[2].equal(h.k.dims[2]) {
		return
	}
	angles := []dim{w.batch, number(1), h.q.dims[2], number(h.size)}
	if w.one(2) {
		angles = angles[2:]
	}
	cos, sin := w.input("cos", w.float, normal, angles...), w.input("sin", w.float, normal, angles...)
	for _, x := range []*value{&h.q, &h.k} {
		if w.one(12) {
			continue // one of them is not turned
		}
		half := h.size / 2
		parts := w.split(*x, 3, half, half)
		around := w.node("Concat", []value{w.unary("Neg", parts[1]), parts[0]}, x.like(x.dims...), "axis", pick(w, 3, -1))
		*x = w.binary("Add", w.binary("Mul", *x, cos), w.binary("Mul", around, sin))
	}
}

// past puts keys and values of earlier runs before those of this one.
func (w *writer) past(h *heads) {
	before := symbol("past")
	for _, x := range []*value{&h.k, &h.v} {
		old := w.input("past", x.kind, normal, x.dims[0], x.dims[1], before, x.dims[3])
		all := x.like(x.dims[0], x.dims[1], plus(before, x.dims[2]), x.dims[3])
		*x = w.node("Concat", []value{old, *x}, all, "axis", pick(w, 2, -2))
		if !w.one(3) {
			w.leave(*x)
		}
	}
}

// group repeats keys and values for the heads of query that share them.
func (w *writer) group(h *heads) {
	if h.kv == h.count {
		return
	}
	repeat := func(x value) value {
		many := w.unsqueeze(x, 2)
		wide := w.expand(many, x.dims[0], x.dims[1], number(h.count/h.kv), x.dims[2], x.dims[3])
		return w.reshape(wide, x.dims[0], number(h.count), x.dims[2], x.dims[3])
	}
	h.k = repeat(h.k)
	if h.v.dims[1].is(h.kv) {
		h.v = repeat(h.v)
	}
}

// core is attention written as nodes.
func (w *writer) core(h heads) value {
	scale := 1 / math.Sqrt(float64(h.size))
	q, k := h.q, h.k
	place := w.IntN(6) // where the scale is
	switch place {
	case 0:
		q = w.scaled(q, scale, h)
	case 1:
		q, k = w.scaled(q, math.Sqrt(scale), h), w.scaled(k, math.Sqrt(scale), h)
	}
	v := h.v
	filled := int64(0) // heads are filled up with zeros, as for kernels that want multiples of a size
	if !h.turned && w.one(10) {
		filled = pick(w, int64(1), 4)
		q, k = w.filled(q, filled), w.filled(k, filled)
		if w.one(4) {
			filled = 0
		}
		v = w.filled(v, filled)
	}
	if !h.turned {
		k = w.transpose(k, 0, 1, 3, 2)
	}
	joint := h.count > 1 && w.one(6) // batch and heads in one axis
	full := []dim{w.batch, number(h.count), h.q.dims[2], k.dims[3]}
	if joint {
		both := times(w.batch, number(h.count))
		q, k = w.reshape(q, both, q.dims[2], q.dims[3]), w.reshape(k, both, k.dims[2], k.dims[3])
		v = w.reshape(v, both, v.dims[2], v.dims[3])
	}
	s := w.node("MatMul", []value{q, k}, q.like(append(append([]dim{}, q.dims[:q.rank()-1]...), k.axis(-1))...))
	if place > 1 && place < 5 {
		s = w.scaled(s, scale, h)
	}
	if w.one(10) {
		limit := pick(w, 2.0, 30.0)
		s = w.binary("Mul", w.unary("Tanh", w.node("Div", []value{s, w.scalar(s.kind, limit)}, s.like(s.dims...))),
			w.scalar(s.kind, limit))
	}
	lie := joint && w.one(2)
	if lie {
		s = w.reshape(s, full...)
	}
	terms := pick(w, 0, 1, 1, 1, 1, 2)
	late := w.one(20) // another scale, after the masks
	for range terms {
		s = w.masked(s)
	}
	if late {
		s = w.scaled(s, scale, h)
	}
	if lie {
		s = w.reshape(s, times(w.batch, number(h.count)), full[2], full[3])
	}
	kind := s.kind
	if kind == f16 && w.one(2) {
		s = w.cast(s, f32)
	}
	p := w.unary("Softmax", s, "axis", pick(w, -1, s.rank()-1))
	p = w.cast(p, kind)
	switch w.IntN(16) {
	case 0:
		nan := w.node("IsNaN", []value{p}, value{kind: boolean, dims: p.dims})
		p = w.node("Where", []value{nan, w.scalar(p.kind, 0), p}, p.like(p.dims...))
	case 1:
		p = w.unary("Dropout", p)
	case 2:
		p = w.unary("Identity", p)
	case 3:
		w.leave(p)
	case 4:
		p = w.masked(p) // which hides nothing
	}
	o := w.node("MatMul", []value{p, v}, p.like(append(append([]dim{}, p.dims[:p.rank()-1]...), v.axis(-1))...))
	width := h.valueSize
	if filled > 0 && w.one(8) { // what is made of the zeros is kept
		width += filled
	} else if filled > 0 {
		last := append(append([]dim{}, o.dims[:o.rank()-1]...), number(width))
		o = w.node("Slice", []value{o, w.ints(0), w.ints(pick(w, width, -filled)), w.ints(int64(pick(w, -1, o.rank()-1)))},
			o.like(last...))
	}
	if joint {
		o = w.reshape(o, full[0], full[1], full[2], number(width))
	}
	return o
}

// filled appends zeros to heads.
func (w *writer) filled(x value, n int64) value {
	if n == 0 {
		return x
	}
	last := append(append([]dim{}, x.dims[:3]...), number(x.dims[3].number+n))
	in := []value{x, w.ints(0, 0, 0, 0, 0, 0, 0, n)}
	if w.one(2) {
		in = append(in, w.full(x.kind, func(int64) float64 { return 0 }))
	}
	return w.node("Pad", in, x.like(last...))
}

// scaled multiplies by a number, in one of several ways.
func (w *writer) scaled(x value, by float64, h heads) value {
	switch w.IntN(10) {
	case 0, 1:
		return w.node("Div", []value{x, w.scalar(x.kind, 1/by)}, x.like(x.dims...))
	case 2: // from the size of a head, when the model runs
		if h.q.dims[3].number > 0 && w.float == f32 {
			n := w.cast(w.lengthOf(h.q, 3), f32)
			root := w.unary("Sqrt", n)
			return w.node("Div", []value{x, root}, x.like(x.dims...))
		}
	case 3: // a number that is an input
		return w.binary("Mul", x,
			w.input("scale", x.kind, func(*randSource,
				[]int64) func(int64) float64 {
				return func(int64) float64 { return 0.5 }
			}))
	case 4: // one for each head
		if x.rank() == 4 {
			return w.binary("Mul", x,
				w.full(x.kind, func(i int64) float64 { return by * float64(i+1) }, 1, x.dims[1].number, 1, 1))
		}
	case 5: // negative, or one
		return w.binary("Mul", x, w.scalar(x.kind, pick(w, -by, 1)))
	}
	return w.binary("Mul", x, w.scalar(x.kind, by))
}

// joined brings heads back into one axis and into the width of the hidden states.
func (w *writer) joined(x, o value, h heads) value {
	back := w.transpose(o, 0, 2, 1, 3)
	flat := w.reshape(back, back.dims[0], back.dims[1], times(back.dims[2], back.dims[3]))
	if w.one(12) {
		w.leave(o)
	}
	return w.linear(flat, x.dims[2].number)
}
