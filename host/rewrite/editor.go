// Package rewrite edits graphs for what is made of a plan: the graph of a session (package session), the graph of an
// engine (package engine), and the linear layers of both (package linear).
package rewrite

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plugin/manifest"
)

// DomainVersion is the version of the operator set that plugins' operators form.
const DomainVersion = 1

// Editor edits one graph. It knows what stands for values that were replaced, makes each length once, and tracks
// which nodes come before which.
type Editor struct {
	main    *graph.Graph
	shapes  *graph.Shapes
	order   order
	lengths map[lengthKey]*graph.Value
	block   *span                         // when set, lengths may be read off values before it
	instead map[*graph.Value]*graph.Value // what stands for a value that was replaced
}

// NewEditor edits a graph of known shapes.
func NewEditor(g *graph.Graph, shapes *graph.Shapes) *Editor {
	return &Editor{main: g, order: order{main: g}, shapes: shapes, lengths: map[lengthKey]*graph.Value{},
		instead: map[*graph.Value]*graph.Value{}}
}

// Replace lets an operator's output stand for a value of the model.
func (e *Editor) Replace(old, to *graph.Value) {
	e.stand(old, to)
	e.Declare(to, old, true)
}

// ReplaceUnnamed is Replace where ONNX Runtime is not to know which lengths are equal: what it fuses with what depends
// on that, and fused nodes round otherwise.
func (e *Editor) ReplaceUnnamed(old, to *graph.Value) {
	e.stand(old, to)
	e.Declare(to, old, false)
}

func (e *Editor) stand(old, to *graph.Value) {
	old.Graph.Replace(old, to)
	e.order.moved(to)
	e.shapes.Know(to, e.shapes.Of(old))
	e.instead[old] = to
}

// Fill puts zeros after the last axis of a value.
func (e *Editor) Fill(v *graph.Value, rank int, zeros int64) (*graph.Value, error) {
	pads := make([]int64, 2*rank)
	pads[2*rank-1] = zeros
	n, err := e.AddNode(v.Graph, "", "Pad",
		[]*graph.Value{v, v.Graph.AddInitializer(graph.Int64Tensor("", []int64{int64(len(pads))}, pads...))},
		[]string{v.Graph.FreshName("graft_filled")})
	if err != nil {
		return nil, err
	}
	return n.Out[0], nil
}

// Current is what stands for a value: one block may read what another made.
func (e *Editor) Current(v *graph.Value) *graph.Value {
	if to := e.instead[v]; to != nil {
		return to
	}
	return v
}

// Latest is what stands for a value after all replacements.
func (e *Editor) Latest(v *graph.Value) *graph.Value {
	for v != nil && e.instead[v] != nil {
		v = e.instead[v]
	}
	return v
}

// NodesVanish notes nodes that nothing will read any more, wherever they stand.
func (e *Editor) NodesVanish(nodes ...*graph.Node) { e.order.vanish(nodes...) }

// ReadersMoved notes that other nodes than before read a value.
func (e *Editor) ReadersMoved(v *graph.Value) { e.order.moved(v) }

// Attribute makes an attribute from int64, float64, string or lists of them.
func Attribute(name string, value any) (*onnx.Attribute, error) {
	a := &onnx.Attribute{Name: proto.String(name)}
	switch v := value.(type) {
	case int64:
		a.Type, a.I = onnx.Attribute_INT.Enum(), proto.Int64(v)
	case int:
		a.Type, a.I = onnx.Attribute_INT.Enum(), proto.Int64(int64(v))
	case bool:
		a.Type, a.I = onnx.Attribute_INT.Enum(), proto.Int64(0)
		if v {
			a.I = proto.Int64(1)
		}
	case float64:
		a.Type, a.F = onnx.Attribute_FLOAT.Enum(), proto.Float32(float32(v))
	case string:
		a.Type, a.S = onnx.Attribute_STRING.Enum(), []byte(v)
	case []int64:
		a.Type, a.Ints = onnx.Attribute_INTS.Enum(), v
	case []float64:
		a.Type = onnx.Attribute_FLOATS.Enum()
		for _, x := range v {
			a.Floats = append(a.Floats, float32(x))
		}
	case []string:
		a.Type = onnx.Attribute_STRINGS.Enum()
		for _, s := range v {
			a.Strings = append(a.Strings, []byte(s))
		}
	default:
		return nil, fmt.Errorf("attribute %q is a %T, which ONNX has no attribute for", name, value)
	}
	return a, nil
}

// AddNode adds a node with attributes given as name, value pairs.
func (e *Editor) AddNode(g *graph.Graph, domain, op string, in []*graph.Value, outputs []string,
	attributes ...any) (*graph.Node, error) {
	p := &onnx.Node{OpType: proto.String(op)}
	if domain != "" {
		p.Domain = proto.String(domain)
	}
	for i := 0; i+1 < len(attributes); i += 2 {
		a, err := Attribute(attributes[i].(string), attributes[i+1])
		if err != nil {
			return nil, err
		}
		p.Attribute = append(p.Attribute, a)
	}
	n, err := g.AddNode(p, in, outputs)
	if err == nil {
		e.order.added(n)
	}
	return n, err
}

// AddOperator adds a node of the operator of which the plan takes a capability.
func (e *Editor) AddOperator(g *graph.Graph, capability string, in []*graph.Value, outputs []string,
	attributes ...any) (*graph.Node, error) {
	op, ok := strings.CutPrefix(g.Provider(capability), manifest.Domain+".")
	if !ok {
		return nil, fmt.Errorf("the plan has no operator that provides %s: this is a bug", capability)
	}
	return e.AddNode(g, manifest.Domain, op, in, outputs, attributes...)
}

// Declare states what is known of a new value's shape, as it was known of the
// value it stands for: ONNX Runtime cannot see through a plugin's operator
// before it runs. A length that is not known gets a name that nothing else has, which
// ONNX Runtime prefers to what a library infers: two libraries of one model may
// give two lengths one name, and it would lay one where the other was. Without
// names no length has that of another value.
func (e *Editor) Declare(v, as *graph.Value, names bool) {
	s := e.shapes.Of(as)
	if s.Rank < 0 || s.DType == onnx.Tensor_UNDEFINED || v.IsOutput {
		return
	}
	shape := &onnx.Shape{}
	for _, d := range s.Dims {
		dim := &onnx.Shape_Dim{}
		if n, ok := d.Const(); ok {
			dim.Value = &onnx.Shape_Dim_DimValue{DimValue: n}
		} else if symbols := d.Symbols(); names && len(symbols) == 1 && d.Equal(graph.DimSym(symbols[0])) &&
			e.shapes.Declarable(symbols[0]) {
			dim.Value = &onnx.Shape_Dim_DimParam{DimParam: symbols[0]}
		} else {
			name := v.Graph.FreshName("graft_length")
			for e.shapes.Names(name) {
				name = v.Graph.FreshName("graft_length")
			}
			dim.Value = &onnx.Shape_Dim_DimParam{DimParam: name}
		}
		shape.Dim = append(shape.Dim, dim)
	}
	v.Type = &onnx.Type{Value: &onnx.Type_TensorType_{TensorType: &onnx.Type_TensorType{
		ElemType: proto.Int32(int32(s.DType)), Shape: shape}}}
	v.Graph.Proto.ValueInfo = append(v.Graph.Proto.ValueInfo, &onnx.ValueInfo{Name: proto.String(v.Name), Type: v.Type})
}

// SameDims reports two shapes whose lengths are known and the same.
func SameDims(a, b []graph.Dim) bool {
	return slices.EqualFunc(a, b, func(x, y graph.Dim) bool { return x.Known() && x.Equal(y) })
}

// IsConstant reports a value that is left out, or that holds the same whatever is run.
func IsConstant(v *graph.Value) bool { return v == nil || v.Tensor != nil || v.Producer.Is("Constant") }
