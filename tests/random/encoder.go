package random

import (
	"math"
	"math/rand/v2"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// encoder writes a model of tokens whose mask hides some of them as keys.
type encoder struct {
	*writer
	ids, mask value // (B, S); the mask of type kind is 1 where a token is visible
	added     value // a mask that is added to scores as it is given; without a name where there is none
	count     int64 // heads
	size      int64
	form      int  // how the mask hides keys
	window    bool // keys are near their queries
	shared    map[int]value
	finite    bool // a row that sees nothing has numbers nevertheless
	mixed     bool // a layer may let a row see others besides by attention
}

// longest is how many tokens a sequence has at most.
const longest = 40

// MakeEncoder writes the encoder of a seed, with masks of its runs. What it is made of are the forms in which
// exporters write masks, positions and heads, and forms near them in which a row sees what it must not.
func MakeEncoder(seed uint64, o Limits) *Graph {
	w := newWriter(seed, 0x656e636f)
	w.opset = pick(w, int64(13), 14, 15, 17, 18, 20, 21, 23)
	if w.one(6) && !o.Float32 {
		w.float = f16
	}
	w.batch, w.tokens, w.named = symbol("batch"), symbol("tokens"), !w.one(8)
	e := &encoder{writer: w, count: pick(w, int64(1), 2, 2, 3, 4), size: pick(w, int64(2), 4, 8, 8, 16),
		form: w.IntN(forms), window: w.one(5), shared: map[int]value{}, finite: w.one(2), mixed: w.one(4)}
	w.width = pick(w, e.count*e.size, 7, 8, 16, 24)
	e.takeMask()
	x := e.embedded()
	layers := 1 + w.IntN(2)
	if o.Layers > 0 {
		layers = min(layers, o.Layers)
	}
	rows := []value{x}
	for range layers {
		x = e.encoded(x)
		rows = append(rows, x)
	}
	for range pick(w, 1, 1, 1, 2, 3) {
		e.head(rows[len(rows)-1-w.IntN(min(2, len(rows)))])
	}
	if len(e.main.Output) == 0 {
		e.leave(e.unary("Identity", x))
	}
	return e.graph()
}

// takeMask declares the mask: (B, S), or as scores have it, or what is added to them.
func (e *encoder) takeMask() {
	one := number(1)
	kind := pick(e.writer, i64, i64, onnx.Tensor_INT32, boolean, f32, e.float)
	shapes := [][]dim{{e.batch, e.tokens}, {e.batch, e.tokens}, {e.batch, e.tokens}, {e.batch, one, one, e.tokens},
		{e.batch, one, e.tokens}}
	shape := pick(e.writer, shapes...)
	if e.one(10) {
		low := e.lowest()
		if low > -1e4 {
			low = -1e4
		}
		e.added = e.input("mask", e.float, func(r *randSource, shape []int64) func(int64) float64 {
			sees := padded(r, shape, false)
			return func(i int64) float64 {
				if sees(i) {
					return 0
				}
				return low
			}
		}, e.batch, one, one, e.tokens)
		return
	}
	m := e.input("mask", kind, func(r *randSource, shape []int64) func(int64) float64 {
		sees := padded(r, shape, true)
		return func(i int64) float64 {
			if sees(i) {
				return 1
			}
			return 0
		}
	}, shape...)
	for m.rank() > 2 {
		m = e.node("Squeeze", []value{m, e.ints(1)}, m.like(append([]dim{m.dims[0]}, m.dims[2:]...)...))
	}
	e.mask = m
}

// padded says which tokens of a batch a mask shows: of each sequence all, those at its beginning, at its end or
// between, some of them, a single one or, where that may be, none.
func padded(r *rand.Rand, shape []int64, empty bool) func(i int64) bool {
	n := max(shape[len(shape)-1], 1)
	rows := map[int64][]bool{}
	return func(i int64) bool {
		row := rows[i/n]
		if row == nil {
			row = make([]bool, n)
			from, to := int64(0), n
			switch r.IntN(9) {
			case 0, 1, 2:
				to = 1 + r.Int64N(n)
			case 3:
				from = r.Int64N(n)
			case 4:
				from = r.Int64N(n)
				to = from + 1 + r.Int64N(n-from)
			case 5:
				from = r.Int64N(n)
				to = from + 1
			case 6:
				for i := range row {
					row[i] = r.IntN(3) > 0
				}
				from = r.Int64N(n)
				to = from + 1
			case 7:
				if empty {
					to = 0
				}
			}
			for i := from; i < to; i++ {
				row[i] = true
			}
			rows[i/n] = row
		}
		return row[i%n]
	}
}

// embedded begins the rows: of tables, or as an input.
func (e *encoder) embedded() value {
	row := []dim{e.batch, e.tokens, number(e.width)}
	rows := pick(e.writer, int64(1), 5, 11)
	e.ids = e.input("ids", pick(e.writer, i64, i64, onnx.Tensor_INT32), below(rows), e.batch, e.tokens)
	x := value{}
	if e.one(5) {
		x = e.input("hidden", e.float, normal, row...)
	} else {
		x = e.node("Gather", []value{e.weight(1, rows, e.width), e.ids}, value{kind: e.float, dims: row})
	}
	table := func() value { return e.weight(1, longest+4, e.width) }
	switch e.IntN(8) {
	case 0: // learned positions
		at := e.node("Gather", []value{table(), e.steps(e.tokens)}, value{kind: e.float, dims: row[1:]})
		if e.one(2) {
			at = e.unsqueeze(at, 0)
		}
		x = e.binary("Add", x, at)
	case 1: // a table of positions that is cut off
		all := e.weight(1, 1, longest+4, e.width)
		at := e.node("Slice", []value{all, e.ints(0), e.length(e.tokens), e.ints(1)},
			all.like(number(1), e.tokens, number(e.width)))
		x = e.binary("Add", x, at)
	case 2: // positions that are given
		at := e.input("positions", i64, below(longest), e.batch, e.tokens)
		x = e.binary("Add", x, e.node("Gather", []value{table(), at}, x.like(x.dims...)))
	case 3, 4: // positions that are counted from the mask, or from what is no padding
		seen := e.mask
		if seen.name == "" || e.one(3) {
			pad := e.full(e.ids.kind, func(int64) float64 { return 0 })
			seen = e.unary("Not", e.node("Equal", []value{e.ids, pad}, value{kind: boolean, dims: e.ids.dims}))
		}
		x = e.binary("Add", x, e.node("Gather", []value{table(), e.counted(seen)}, x.like(x.dims...)))
	case 5: // types
		at := e.input("types", i64, below(2), e.batch, e.tokens)
		x = e.binary("Add", x, e.node("Gather", []value{e.weight(1, 2, e.width), at}, x.like(x.dims...)))
	}
	if e.one(2) {
		x = e.norm(x)
	}
	if e.one(8) {
		x = e.cleared(x)
	}
	return x
}

// counted numbers the tokens that are visible, beginning with a number above that of those which are not.
func (e *encoder) counted(seen value) value {
	kind := pick(e.writer, i64, onnx.Tensor_INT32)
	seen = e.cast(seen, kind)
	axis := e.full(i64, func(int64) float64 { return 1 })
	up := e.node("CumSum", []value{seen, axis}, seen.like(seen.dims...))
	if e.one(2) {
		up = e.binary("Mul", up, seen)
	}
	at := e.cast(up, i64)
	if e.one(2) {
		at = e.binary("Add", at, e.full(i64, func(int64) float64 { return 1 }))
	}
	return at
}

// cleared is rows that are zeros where the mask hides a token, and are not where there is no mask of ones.
func (e *encoder) cleared(x value) value {
	if e.mask.name == "" {
		return x
	}
	m := e.unsqueeze(e.mask, 2)
	if e.one(3) {
		m = e.expand(m, x.dims...)
	}
	if e.one(3) {
		return e.node("Where", []value{e.cast(m, boolean), x, e.scalar(x.kind, 0)}, x.like(x.dims...))
	}
	return e.binary("Mul", x, e.cast(m, x.kind))
}

// encoded is a layer: attention and a part for each row, with norms before or after.
func (e *encoder) encoded(x value) value {
	before := e.one(2)
	for _, part := range []func(value) value{e.attend, e.rowwise} {
		y := x
		if before {
			y = e.norm(y)
		}
		y = e.binary("Add", x, part(y))
		if !before && !e.one(4) {
			y = e.norm(y)
		}
		x = y
	}
	if e.one(12) {
		x = e.cleared(x)
	}
	return x
}

// layered is a linear layer, mostly in a form that every exporter writes.
func (e *encoder) layered(x value, to int64) value {
	if e.one(16) {
		return e.linear(x, to)
	}
	from := x.axis(-1).number
	scale := 1 / math.Sqrt(float64(from))
	out := x.like(append(append([]dim{}, x.dims[:x.rank()-1]...), number(to))...)
	if e.one(8) {
		flat := e.reshape(x, times(x.dims[0], x.dims[1]), number(from))
		y := e.node("Gemm", []value{flat, e.weight(scale, to, from), e.weight(0.1, to)}, x.like(flat.dims[0], number(to)),
			"transB", 1)
		return e.reshape(y, out.dims...)
	}
	y := e.node("MatMul", []value{x, e.weight(scale, from, to)}, out)
	if e.one(4) {
		return y
	}
	return e.binary("Add", y, e.weight(0.1, to))
}

// rowwise is what is computed for each row alone; now and then it is not.
func (e *encoder) rowwise(x value) value {
	if e.mixed && e.one(3) {
		return e.mixing(x)
	}
	if e.one(4) {
		return e.feed(x)
	}
	return e.layered(e.activation(e.layered(x, 2*e.width)), e.width)
}

// attend is self attention whose keys the mask hides.
func (e *encoder) attend(x value) value {
	h := heads{count: e.count, kv: e.count, size: e.size, valueSize: e.size}
	split := func(y value) value {
		return e.transpose(e.reshape(y, e.batch, e.tokens, number(e.count), number(e.size)), 0, 2, 1, 3)
	}
	if e.one(4) {
		parts := e.split(e.layered(x, 3*e.count*e.size), 2, e.count*e.size, e.count*e.size, e.count*e.size)
		h.q, h.k, h.v = split(parts[0]), split(parts[1]), split(parts[2])
	} else {
		h.q, h.k, h.v = split(e.layered(x, e.count*e.size)), split(e.layered(x, e.count*e.size)),
			split(e.layered(x, e.count*e.size))
	}
	if e.one(5) {
		e.rotate(&h)
	}
	if o, ok := e.asOperator(h); ok {
		return e.joined(x, o, h)
	}
	scale := e.scalar(x.kind, 1/math.Sqrt(float64(e.size)))
	late := e.one(2)
	q := h.q
	if !late {
		q = e.binary("Mul", q, scale)
	}
	square := []dim{e.batch, number(e.count), e.tokens, e.tokens}
	joint := e.one(12)
	k, v := e.transpose(h.k, 0, 1, 3, 2), h.v
	flat := func(y value) value {
		return e.reshape(y, times(e.batch, number(e.count)), y.dims[2], y.dims[3])
	}
	if joint {
		q, k, v = flat(q), flat(k), flat(v)
	}
	s := e.node("MatMul", []value{q, k}, q.like(append(append([]dim{}, q.dims[:q.rank()-1]...), e.tokens)...))
	if late {
		s = e.binary("Mul", s, scale)
	}
	if joint {
		s = e.reshape(s, square...)
	}
	if e.one(24) {
		e.leave(s)
	}
	if e.one(12) && !joint && e.mask.name != "" {
		s = e.binary("Add", s, e.disentangled(s, h))
	}
	s = e.hide(s)
	if joint {
		s = flat(s)
	}
	p := e.unary("Softmax", s, "axis", pick(e.writer, -1, s.rank()-1))
	if e.one(16) {
		nan := e.node("IsNaN", []value{p}, value{kind: boolean, dims: p.dims})
		p = e.node("Where", []value{nan, e.scalar(p.kind, 0), p}, p.like(p.dims...))
	}
	if e.one(24) {
		e.leave(p)
	}
	o := e.node("MatMul", []value{p, v}, p.like(append(append([]dim{}, p.dims[:p.rank()-1]...), number(e.size))...))
	if joint {
		o = e.reshape(o, e.batch, number(e.count), e.tokens, number(e.size))
	}
	return e.joined(x, o, h)
}

// graph is what was written, with arrays for some runs.
func (e *encoder) graph() *Graph {
	p := &onnx.Model{IrVersion: proto.Int64(8), Graph: e.main, ProducerName: proto.String("random"),
		OpsetImport: []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(e.opset)}}}
	if e.opset > 20 {
		p.IrVersion = proto.Int64(10)
	}
	if e.domains {
		p.OpsetImport = append(p.OpsetImport,
			&onnx.OperatorSet{Domain: proto.String("com.microsoft"), Version: proto.Int64(1)})
	}
	g := &Graph{Model: p, Rows: map[string][]dim{}}
	for _, v := range e.seen {
		g.Rows[v.name] = v.dims
	}
	for range 4 {
		at := map[string]int64{"batch": pick(e.writer, int64(1), 1, 2, 3, 4),
			"tokens": 1 + e.Int64N(pick(e.writer, int64(5), 12, longest-2))}
		if e.one(24) { // of sequences without positions a run may be an error, which the model's own session answers
			at["batch"] = 0
		}
		g.Runs = append(g.Runs, e.feedAt(at))
	}
	return g
}
