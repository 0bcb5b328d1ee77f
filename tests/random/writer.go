package random

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/half"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

const (
	f32     = onnx.Tensor_FLOAT
	f16     = onnx.Tensor_FLOAT16
	f64     = onnx.Tensor_DOUBLE
	i64     = onnx.Tensor_INT64
	boolean = onnx.Tensor_BOOL
)

// dim is a length: a number, one that is known when the model runs, or a product or sum.
type dim struct {
	text   string // equal for equal lengths
	number int64  // of a constant
	op     byte   // '*' or '+' of parts, 'n' of a number, 's' of a symbol
	parts  []dim
}

func number(n int64) dim       { return dim{text: fmt.Sprint(n), number: n, op: 'n'} }
func symbol(name string) dim   { return dim{text: name, op: 's'} }
func (d dim) constant() bool   { return d.op == 'n' }
func (d dim) is(n int64) bool  { return d.op == 'n' && d.number == n }
func (d dim) equal(e dim) bool { return d.text == e.text }

func times(a, b dim) dim {
	switch {
	case a.constant() && b.constant():
		return number(a.number * b.number)
	case a.is(1):
		return b
	case b.is(1):
		return a
	}
	return dim{text: "(" + a.text + "*" + b.text + ")", op: '*', parts: []dim{a, b}}
}

func plus(a, b dim) dim {
	if a.constant() && b.constant() {
		return number(a.number + b.number)
	}
	return dim{text: "(" + a.text + "+" + b.text + ")", op: '+', parts: []dim{a, b}}
}

// at is the length where the symbols are these.
func (d dim) at(symbols map[string]int64) int64 {
	switch d.op {
	case 'n':
		return d.number
	case 's':
		return symbols[d.text]
	case '*':
		return d.parts[0].at(symbols) * d.parts[1].at(symbols)
	}
	return d.parts[0].at(symbols) + d.parts[1].at(symbols)
}

// value is what a node or an input gives.
type value struct {
	name string
	kind onnx.Tensor_DataType
	dims []dim
}

func (v value) rank() int      { return len(v.dims) }
func (v value) axis(i int) dim { return v.dims[(i+len(v.dims))%len(v.dims)] }

// like is a value of other lengths and the same type, still to be made.
func (v value) like(dims ...dim) value { return value{kind: v.kind, dims: dims} }

// writer writes a graph.
type writer struct {
	*rand.Rand
	opset    int64
	float    onnx.Tensor_DataType // of the hidden states
	main, g  *onnx.Graph          // the whole, and the graph that nodes are written into: the main one or a branch
	fresh    int
	seen     []value // what may be read here, in the order it was made
	weights  []value // constants of the main graph, for other layers
	inputs   []input
	left     map[string]bool // names that are outputs
	domains  bool            // whether operators of com.microsoft may be written
	branched bool            // there is an If
	named    bool            // every length of an input has its name
	batch    dim
	tokens   dim
	width    int64
}

// pick is one of a list.
func pick[T any](w *writer, list ...T) T { return list[w.IntN(len(list))] }

// one is true once in n times.
func (w *writer) one(n int) bool { return w.IntN(n) == 0 }

func (w *writer) name(of string) string {
	w.fresh++
	return fmt.Sprintf("%s_%d", of, w.fresh)
}

// attribute makes one of int, float64, string, []int64 or a graph.
func attribute(name string, of any) *onnx.Attribute {
	a := &onnx.Attribute{Name: proto.String(name)}
	switch of := of.(type) {
	case int:
		a.Type, a.I = onnx.Attribute_INT.Enum(), proto.Int64(int64(of))
	case float64:
		a.Type, a.F = onnx.Attribute_FLOAT.Enum(), proto.Float32(float32(of))
	case string:
		a.Type, a.S = onnx.Attribute_STRING.Enum(), []byte(of)
	case []int64:
		a.Type, a.Ints = onnx.Attribute_INTS.Enum(), of
	case *onnx.Graph:
		a.Type, a.G = onnx.Attribute_GRAPH.Enum(), of
	case *onnx.Tensor:
		a.Type, a.T = onnx.Attribute_TENSOR.Enum(), of
	}
	return a
}

// nodes writes a node of several outputs; an empty name is an input left out. Attributes are names and values.
func (w *writer) nodes(op string, in []value, out []value, attributes ...any) []value {
	n := &onnx.Node{OpType: proto.String(op), Name: proto.String(w.name("node"))}
	if w.one(8) {
		n.Name = nil
	}
	for i, c := range op {
		if c == '/' {
			n.Domain, n.OpType = proto.String(op[:i]), proto.String(op[i+1:])
		}
	}
	for _, v := range in {
		n.Input = append(n.Input, v.name)
	}
	for i := range out {
		out[i].name = w.name(n.GetOpType())
		n.Output = append(n.Output, out[i].name)
	}
	for i := 0; i < len(attributes); i += 2 {
		n.Attribute = append(n.Attribute, attribute(attributes[i].(string), attributes[i+1]))
	}
	w.g.Node = append(w.g.Node, n)
	w.seen = append(w.seen, out...)
	return out
}

// node writes a node of one output of this type and these lengths.
func (w *writer) node(op string, in []value, out value, attributes ...any) value {
	return w.nodes(op, in, []value{out}, attributes...)[0]
}

// unary writes a node that changes no shape.
func (w *writer) unary(op string, x value, attributes ...any) value {
	return w.node(op, []value{x}, x.like(x.dims...), attributes...)
}

// binary writes a node of two inputs that broadcast, in either order where it commutes.
func (w *writer) binary(op string, a, b value) value {
	out := a.like(broadcast(a.dims, b.dims)...)
	if (op == "Add" || op == "Mul") && w.one(2) {
		a, b = b, a
	}
	return w.node(op, []value{a, b}, out)
}

// broadcast is the shape of two that broadcast.
func broadcast(a, b []dim) []dim {
	if len(a) < len(b) {
		a, b = b, a
	}
	out := slices.Clone(a)
	for i, d := range b {
		if at := len(a) - len(b) + i; out[at].is(1) {
			out[at] = d
		}
	}
	return out
}

// put makes a constant of the graph: an initializer or a node.
func (w *writer) put(t *onnx.Tensor) value {
	v := value{kind: onnx.Tensor_DataType(t.GetDataType())}
	for _, n := range t.Dims {
		v.dims = append(v.dims, number(n))
	}
	if w.one(4) {
		return w.node("Constant", nil, v, "value", t)
	}
	v.name = w.name("constant")
	t.Name = proto.String(v.name)
	to := w.g
	if w.one(2) {
		to = w.main
	}
	to.Initializer = append(to.Initializer, t)
	if to == w.main {
		w.weights = append(w.weights, v)
	}
	return v
}

func (w *writer) ints(list ...int64) value {
	return w.put(graph.Int64Tensor("", []int64{int64(len(list))}, list...))
}

// full makes a constant of the numbers that f gives.
func (w *writer) full(kind onnx.Tensor_DataType, f func(i int64) float64, dims ...int64) value {
	t := &onnx.Tensor{DataType: proto.Int32(int32(kind)), Dims: dims, RawData: []byte{}}
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	for i := range n {
		t.RawData = appendNumber(t.RawData, kind, f(i))
	}
	return w.put(t)
}

// scalar is a number, as a tensor of rank 0 or of one element.
func (w *writer) scalar(kind onnx.Tensor_DataType, x float64) value {
	return w.full(kind, func(int64) float64 { return x }, pick(w, nil, nil, []int64{1})...)
}

// weight is a constant of small random numbers, now and then one that is there already.
func (w *writer) weight(scale float64, dims ...int64) value {
	if w.one(4) {
		for _, v := range w.weights {
			if v.kind == w.float && slices.EqualFunc(v.dims, dims, func(d dim, n int64) bool { return d.is(n) }) {
				return v
			}
		}
	}
	return w.full(w.float, func(int64) float64 { return scale * w.NormFloat64() }, dims...)
}

// cast changes the type of a value's elements.
func (w *writer) cast(x value, to onnx.Tensor_DataType) value {
	if x.kind == to {
		return x
	}
	return w.node("Cast", []value{x}, value{kind: to, dims: x.dims}, "to", int(to))
}

// transpose permutes axes.
func (w *writer) transpose(x value, perm ...int64) value {
	dims := make([]dim, len(perm))
	for i, p := range perm {
		dims[i] = x.dims[p]
	}
	return w.node("Transpose", []value{x}, x.like(dims...), "perm", perm)
}

// appendNumber appends x as an element of the type.
func appendNumber(b []byte, kind onnx.Tensor_DataType, x float64) []byte {
	switch kind {
	case f16:
		return append16(b, half.FromFloat(x))
	case f32:
		return append32(b, float32(x))
	case boolean:
		return append(b, byte(x))
	case onnx.Tensor_INT32:
		return append(b, byte(int32(x)), byte(int32(x)>>8), byte(int32(x)>>16), byte(int32(x)>>24))
	}
	return append64(b, int64(x))
}
