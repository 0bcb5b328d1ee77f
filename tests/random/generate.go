package random

import (
	"math/rand/v2"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// Limits make graphs smaller. The zero value is no limit.
type Limits struct {
	Layers   int  // at most; 0 for any
	Straight bool // no branches
	Closed   bool // nothing leaves but the last hidden states
	Float32  bool
}

// Graph is a model with arrays for its inputs.
type Graph struct {
	Model *onnx.Model
	Runs  []Feed
	// Rows are the axes of the values of an encoder, in which sequences and tokens are told; nil for other graphs.
	Rows map[string][]dim
}

// Feed is what the inputs of one run hold.
type Feed map[string]Array

// Array is a tensor as bytes.
type Array struct {
	Kind  onnx.Tensor_DataType
	Shape []int64
	Data  []byte
}

// Make writes the graph of a seed, and arrays for one or more runs of it.
func Make(seed uint64, o Limits) *Graph {
	w := newWriter(seed, 0x67726170)
	w.opset += int64(w.IntN(11))
	if w.one(4) && !o.Float32 {
		w.float = f16
	}
	w.domains = w.one(3)
	w.width = pick(w, int64(1), 2, 3, 4, 5, 7, 8, 8, 13, 16, 24, 31)
	w.batch, w.tokens = symbol("batch"), symbol("tokens")
	if w.one(5) {
		w.batch = number(pick(w, int64(1), 2))
	}
	if w.one(5) {
		w.tokens = number(pick(w, int64(1), 4, 7))
	}
	x := w.stream()
	layers := 1 + w.IntN(3)
	if o.Layers > 0 {
		layers = min(layers, o.Layers)
	}
	for range layers {
		x = w.layer(x, o)
	}
	for w.one(3) && !o.Closed {
		w.leave(w.seen[w.IntN(len(w.seen))])
	}
	if o.Closed {
		w.main.Output, w.left = nil, map[string]bool{}
	}
	w.leave(w.unary("Identity", x))
	p := &onnx.Model{IrVersion: proto.Int64(8), Graph: w.main, ProducerName: proto.String("random"),
		OpsetImport: []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(w.opset)}}}
	if w.opset > 20 {
		p.IrVersion = proto.Int64(10)
	}
	if w.domains {
		p.OpsetImport = append(p.OpsetImport,
			&onnx.OperatorSet{Domain: proto.String("com.microsoft"), Version: proto.Int64(1)})
	}
	if w.one(16) && !w.branched { // as models of old were written, whose constants were inputs
		p.IrVersion = proto.Int64(3)
		for _, c := range w.main.Initializer {
			dims := make([]any, len(c.Dims))
			for i, d := range c.Dims {
				dims[i] = int(d)
			}
			w.main.Input = append(w.main.Input,
				&onnx.ValueInfo{Name: c.Name, Type: graph.TensorType(onnx.Tensor_DataType(c.GetDataType()), dims...)})
		}
	}
	return &Graph{Model: p, Runs: w.feeds()}
}

// newWriter is one of an empty graph.
func newWriter(seed, of uint64) *writer {
	w := &writer{Rand: rand.New(rand.NewPCG(seed, of)), left: map[string]bool{}, opset: 13, float: f32,
		main: &onnx.Graph{Name: proto.String("random")}}
	w.g = w.main
	return w
}

// feeds are arrays for the inputs at two sets of lengths, one with a length of zero now and then.
func (w *writer) feeds() (runs []Feed) {
	for range 2 {
		at := map[string]int64{
			"batch": pick(w, int64(1), 1, 2, 3), "tokens": pick(w, int64(1), 1, 2, 3, 5, 7, 13, 33),
			"past": pick(w, int64(0), 1, 4, 11), "encoded": pick(w, int64(1), 2, 6, 11),
		}
		if w.one(16) {
			at[pick(w, "batch", "tokens", "encoded")] = 0
		}
		runs = append(runs, w.feedAt(at))
	}
	return runs
}

// feedAt are arrays for the inputs at some lengths.
func (w *writer) feedAt(at map[string]int64) Feed {
	feed := Feed{}
	for _, in := range w.inputs {
		a := Array{Kind: in.kind, Shape: []int64{}, Data: []byte{}}
		n := int64(1)
		for _, d := range in.dims {
			a.Shape = append(a.Shape, d.at(at))
			n *= d.at(at)
		}
		number := in.fill(w.Rand, a.Shape)
		for i := range n {
			a.Data = appendNumber(a.Data, in.kind, number(i))
		}
		feed[in.name] = a
	}
	return feed
}

// stream begins the hidden states: as an input, or as rows of a table.
func (w *writer) stream() value {
	if w.one(3) {
		rows := pick(w, int64(1), 5, 11)
		ids := w.input("ids", i64, below(rows), w.batch, w.tokens)
		return w.node("Gather", []value{w.weight(1, rows, w.width), ids},
			value{kind: w.float, dims: []dim{w.batch, w.tokens, number(w.width)}})
	}
	return w.input("hidden", w.float, normal, w.batch, w.tokens, number(w.width))
}

// leave makes a value an output of the model, where it is one of the main graph that is none yet.
func (w *writer) leave(v value) {
	if w.g != w.main || w.left[v.name] || v.name == "" ||
		slices.ContainsFunc(w.inputs, func(in input) bool { return in.name == v.name }) {
		return
	}
	w.left[v.name] = true
	info := &onnx.ValueInfo{Name: proto.String(v.name)}
	if w.one(2) {
		open := make([]any, v.rank())
		for i, d := range v.dims {
			if d.constant() {
				open[i] = int(d.number)
			}
		}
		info.Type = graph.TensorType(v.kind, open...)
	}
	w.main.Output = append(w.main.Output, info)
}

// layer is a norm with something after it, and the hidden states added to that.
func (w *writer) layer(x value, o Limits) value {
	before := x
	if !w.one(3) {
		x = w.norm(x)
	}
	part := func() value {
		switch w.IntN(6) {
		case 0:
			return w.feed(x)
		case 1:
			return w.linear(x, w.width)
		}
		return w.attention(x)
	}
	y := value{}
	if w.one(6) && !o.Straight {
		y = w.branch(x, part)
	} else {
		y = part()
	}
	if w.one(12) {
		w.leave(y)
	}
	switch w.IntN(6) {
	case 0:
		return y
	case 1: // each position's own part
		return w.binary("Add", y, w.input("added", w.float, normal, pick(w, []dim{w.batch, number(1), number(w.width)},
			[]dim{w.tokens, number(w.width)}, []dim{w.batch, w.tokens, number(1)}, []dim{number(w.width)})...))
	case 2:
		return w.norm(w.binary("Add", before, y))
	}
	return w.binary("Add", before, y)
}

// branch writes what part writes into both sides of an If, or the hidden states themselves into one.
func (w *writer) branch(x value, part func() value) value {
	w.branched = true
	condition := value{}
	if w.one(3) {
		condition = w.full(boolean, func(int64) float64 { return 1 })
	} else {
		condition = w.input("condition", boolean, below(2))
	}
	side := func(f func() value) *onnx.Graph {
		outer, before := w.g, len(w.seen)
		w.g = &onnx.Graph{Name: proto.String(w.name("branch"))}
		defer func() { w.g = outer }()
		y := f()
		y = w.unary("Identity", y)
		w.g.Output = append(w.g.Output,
			&onnx.ValueInfo{Name: proto.String(y.name), Type: graph.TensorType(y.kind, nil, nil, int(w.width))})
		after := w.seen[before:]
		w.seen = slices.Clone(w.seen[:before])
		for _, v := range after { // what is declared inside is of the whole graph nevertheless
			if slices.ContainsFunc(w.inputs, func(in input) bool { return in.name == v.name }) {
				w.seen = append(w.seen, v)
			}
		}
		return w.g
	}
	if w.one(4) { // one inside of another
		inner := part
		part = func() value { return w.branch(x, inner) }
	}
	one := side(part)
	other := side(func() value {
		if w.one(2) {
			return part()
		}
		return x
	})
	if w.one(2) {
		one, other = other, one
	}
	return w.node("If", []value{condition}, x.like(x.dims...), "then_branch", one, "else_branch", other)
}
