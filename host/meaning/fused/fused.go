// Package fused takes operators of ONNX Runtime's own domain apart that stand for several parts, as its optimizer for
// transformers writes them: the projections and the mask inside an attention, and the counting of a mask inside an
// embedding. A matmul with integers of a few bits is one with the numbers that they stand for. What recognises and
// replaces parts of a graph then finds them as exporters write them, and Parts.PutBack makes one operator again of
// those that nothing took.
//
// Attention itself stays an operator, MultiHeadAttention, which has a kernel of its own where nothing takes it.
package fused

import (
	"encoding/binary"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// Names of operators.
const (
	Attention = "com.microsoft.Attention"
	MultiHead = "com.microsoft.MultiHeadAttention"
	Embedding = "com.microsoft.EmbedLayerNormalization"
)

// minOpset is the first version of ONNX's operators that has all that parts are written with.
const minOpset = 11

// Parts are the operators of a graph that were taken apart, by names that a rewritten graph retains.
type Parts struct {
	attentions []attention
	embeddings []embedding
	integers   []string // last nodes of products with integers
}

// Any says that something was taken apart.
func (p *Parts) Any() bool {
	return p != nil && len(p.attentions)+len(p.embeddings)+len(p.integers) > 0
}

// Were are the operators that nodes were in the model, by name, where these are others now.
func (p *Parts) Were() map[string]string {
	list := map[string]string{}
	if p != nil {
		for _, a := range p.attentions {
			list[a.node] = a.before.GetDomain() + "." + a.before.GetOpType()
		}
	}
	return list
}

// And are these parts and others, of one graph.
func (p *Parts) And(other *Parts) *Parts {
	if p == nil || other == nil {
		if p == nil {
			return other
		}
		return p
	}
	return &Parts{slices.Concat(p.attentions, other.attentions), slices.Concat(p.embeddings, other.embeddings),
		slices.Concat(p.integers, other.integers)}
}

// TakeApart edits the view of a graph, and adds constants to its model; nodes of the model change when the view is
// committed. Shapes are those of the graph before: where something was taken apart they are to be inferred anew.
func TakeApart(g *graph.Graph, shapes *graph.Shapes) (*Parts, error) {
	p := &Parts{}
	if g.Opset("") < minOpset {
		return p, nil
	}
	t := &taker{g: g, shapes: shapes, terms: map[termKey]*graph.Value{}, keys: map[*graph.Value]*graph.Value{}}
	nodes := slices.Clone(g.Nodes)
	for _, n := range nodes {
		g.Spend(1)
		switch n.Op() {
		case Embedding:
			if Whole(n, shapes) == "" {
				p.embeddings = append(p.embeddings, t.embedding(n))
			}
		case Attention:
			if Whole(n, shapes) == "" {
				p.attentions = append(p.attentions, t.attention(n))
			}
		case NBits:
			if t.integers(n) {
				p.integers = append(p.integers, n.Proto.GetName())
			}
		case MultiHead:
			if Whole(n, shapes) == "" && (n.Input(3) != nil || n.Input(4) != nil) {
				p.attentions = append(p.attentions, t.multiHead(n))
			}
		}
		if t.err != nil {
			return nil, fmt.Errorf("%s: %w", n.Path(), t.err)
		}
	}
	if !p.Any() {
		return p, nil
	}
	return p, g.Sort()
}

// taker adds nodes to a graph. After an error it adds nothing.
type taker struct {
	g      *graph.Graph
	shapes *graph.Shapes
	terms  map[termKey]*graph.Value
	keys   map[*graph.Value]*graph.Value // by a mask of lengths: 1 where a key is seen
	tokens *graph.Value                  // of the last embedding
	err    error
}

// node adds a node of ONNX. Attributes are names and values: int64, []int64.
func (t *taker) node(op string, in []*graph.Value, outputs int, attributes ...any) []*graph.Value {
	if t.err != nil {
		return make([]*graph.Value, outputs)
	}
	p := &onnx.Node{OpType: proto.String(op)}
	for i := 0; i+1 < len(attributes); i += 2 {
		a := &onnx.Attribute{Name: proto.String(attributes[i].(string))}
		switch v := attributes[i+1].(type) {
		case int64:
			a.Type, a.I = onnx.Attribute_INT.Enum(), proto.Int64(v)
		case []int64:
			a.Type, a.Ints = onnx.Attribute_INTS.Enum(), v
		}
		p.Attribute = append(p.Attribute, a)
	}
	names := make([]string, outputs)
	for i := range names {
		names[i] = t.g.FreshName("graft_part")
	}
	n, err := t.g.AddNode(p, in, names)
	if err != nil {
		t.err = err
		return make([]*graph.Value, outputs)
	}
	return n.Out
}

func (t *taker) op(op string, in ...*graph.Value) *graph.Value { return t.node(op, in, 1)[0] }

func (t *taker) cast(v *graph.Value, to onnx.Tensor_DataType) *graph.Value {
	return t.node("Cast", []*graph.Value{v}, 1, "to", int64(to))[0]
}

// longs is a constant list.
func (t *taker) longs(list ...int64) *graph.Value {
	return t.g.AddInitializer(graph.Int64Tensor("", []int64{int64(len(list))}, list...))
}

// number is a constant of float32.
func (t *taker) number(x float64) *graph.Value {
	return t.g.AddInitializer(graph.FloatTensor("", nil, float32(x)))
}

// whole is a constant of int32.
func (t *taker) whole(x int32) *graph.Value {
	return t.g.AddInitializer(
		&onnx.Tensor{Name: proto.String(""), DataType: proto.Int32(int32(onnx.Tensor_INT32)),
			RawData: binary.LittleEndian.AppendUint32(nil, uint32(x))})
}

// onAxes is an operator that has had its axes in an input since version 13.
func (t *taker) onAxes(op string, v *graph.Value, axes []int64, attributes ...any) *graph.Value {
	if t.g.Opset("") >= 13 {
		return t.node(op, []*graph.Value{v, t.longs(axes...)}, 1, attributes...)[0]
	}
	return t.node(op, []*graph.Value{v}, 1, append(attributes, "axes", axes)...)[0]
}

// split cuts the last axis of a value of rank 3.
func (t *taker) split(v *graph.Value, sizes []int64) []*graph.Value {
	if t.g.Opset("") >= 13 {
		return t.node("Split", []*graph.Value{v, t.longs(sizes...)}, len(sizes), "axis", int64(2))
	}
	return t.node("Split", []*graph.Value{v}, len(sizes), "axis", int64(2), "split", sizes)
}

// counted counts along an axis of a value: 0, 1, .. and how many these are.
func (t *taker) counted(v *graph.Value, axis int64) (each, count *graph.Value) {
	number := func(x int64) *graph.Value { return t.g.AddInitializer(graph.Int64Tensor("", nil, x)) }
	count = t.node("Gather", []*graph.Value{t.op("Shape", v), number(axis)}, 1, "axis", int64(0))[0]
	return t.op("Range", number(0), count, number(1)), count
}

// positions counts those of a value (B, S, ..): (1, S) of int32.
func (t *taker) positions(v *graph.Value) *graph.Value {
	each, _ := t.counted(v, 1)
	return t.onAxes("Unsqueeze", t.cast(each, onnx.Tensor_INT32), []int64{0})
}

// own gives a node a proto that is not the model's.
func own(n *graph.Node) (before *onnx.Node) {
	before = n.Proto
	n.Proto = proto.CloneOf(before)
	return before
}

// read lets a node read a value at a place that it may not have yet; nil for none.
func read(n *graph.Node, at int, v *graph.Value) {
	for len(n.In) <= at {
		n.In = append(n.In, nil)
	}
	n.SetInput(at, v)
}

// shorten takes inputs off a node's end that are none.
func shorten(n *graph.Node) {
	for len(n.In) > 0 && n.In[len(n.In)-1] == nil {
		n.In = n.In[:len(n.In)-1]
	}
}
