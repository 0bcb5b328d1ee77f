// Package rewrite applies a plan to a graph: operators take the places of the
// blocks they implement, what only fed those blocks goes, and inputs and outputs of
// the model stay exactly as they were.
package rewrite

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
)

// domainVersion is the version of the operator set that plugins' operators form.
const domainVersion = 1

// Apply edits the graph, and its model, as the plan says. A block that
// turns out to be tied to the rest of the graph is left unchanged, and its choice in
// the plan then says why.
func Apply(g *graph.Graph, shapes *graph.Shapes, p *plan.Plan) error {
	r := &rewriter{main: g, order: order{main: g}, shapes: shapes, lengths: map[lengthKey]*graph.Value{},
		instead: map[*graph.Value]*graph.Value{}, sums: map[string]*graph.Value{}}
	r.named = fusedValues(g, p.Fusions)
	for i, c := range p.Choices {
		if c.Operator == nil {
			continue
		}
		var err error
		switch {
		case c.Block != nil:
			err = r.attention(c)
		case c.Match != nil:
			err = r.pattern(c)
		}
		var tied *tiedError
		if errors.As(err, &tied) {
			p.Choices[i].Leave(tied.Error())
			continue
		}
		if err != nil {
			return fmt.Errorf("%s in place of %s: %w", c.Operator.Name, c.Node, err)
		}
	}
	r.settleReshapes()
	g.Prune() // of what only read shapes
	if err := r.joinQuantized(p.Fusions); err != nil {
		return err
	}
	g.ImportOpset(manifest.Domain, domainVersion)
	if err := g.Sort(); err != nil {
		return err
	}
	g.Prune()
	return g.Commit()
}

type rewriter struct {
	main    *graph.Graph
	shapes  *graph.Shapes
	order   order
	lengths map[lengthKey]*graph.Value
	block   *span                         // when set, lengths may be read off values before it
	instead map[*graph.Value]*graph.Value // what stands for a value that was replaced
	sums    map[string]*graph.Value       // what several blocks add to their scores, made once
	named   map[string]*graph.Value       // of fusedValues
	gelus   map[*graph.Value]*graph.Value // of matmuls of integers
	norms   map[*graph.Value]*norm        // of a sum with a matmul of integers
}

// replace lets an operator's output stand for what the model drew.
func (r *rewriter) replace(old, to *graph.Value) {
	r.stand(old, to)
	r.declare(to, old, true)
}

// replaceApart is replace where ONNX Runtime is not to know which lengths are equal: what it fuses with what depends
// on that, and fused nodes round otherwise.
func (r *rewriter) replaceApart(old, to *graph.Value) {
	r.stand(old, to)
	r.declare(to, old, false)
}

func (r *rewriter) stand(old, to *graph.Value) {
	old.Graph.Replace(old, to)
	r.order.moved(to)
	r.shapes.Know(to, r.shapes.Of(old))
	r.instead[old] = to
}

// now is what stands for a value: one block may read what another made.
func (r *rewriter) now(v *graph.Value) *graph.Value {
	if to := r.instead[v]; to != nil {
		return to
	}
	return v
}

// attribute makes an attribute from int64, float64, string or lists of them.
func attribute(name string, value any) (*onnx.Attribute, error) {
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

// node adds a node with attributes given as name, value pairs.
func (r *rewriter) node(g *graph.Graph, domain, op string, in []*graph.Value, outputs []string,
	attributes ...any) (*graph.Node, error) {
	p := &onnx.Node{OpType: proto.String(op)}
	if domain != "" {
		p.Domain = proto.String(domain)
	}
	for i := 0; i+1 < len(attributes); i += 2 {
		a, err := attribute(attributes[i].(string), attributes[i+1])
		if err != nil {
			return nil, err
		}
		p.Attribute = append(p.Attribute, a)
	}
	n, err := g.AddNode(p, in, outputs)
	if err == nil {
		r.order.added(n)
	}
	return n, err
}

// declare states what is known of a new value's shape, as it was known of the
// value it stands for: ONNX Runtime cannot see through a plugin's operator
// before it runs. A length that is not known gets a name that nothing else has, which
// ONNX Runtime prefers to what a library infers: two libraries of one model may
// give two lengths one name, and it would lay one where the other was. Without
// names no length has that of another value.
func (r *rewriter) declare(v, as *graph.Value, names bool) {
	s := r.shapes.Of(as)
	if s.Rank < 0 || s.DType == onnx.Tensor_UNDEFINED || v.IsOutput {
		return
	}
	shape := &onnx.Shape{}
	for _, d := range s.Dims {
		dim := &onnx.Shape_Dim{}
		if n, ok := d.Const(); ok {
			dim.Value = &onnx.Shape_Dim_DimValue{DimValue: n}
		} else if symbols := d.Symbols(); names && len(symbols) == 1 && d.Equal(graph.DimSym(symbols[0])) &&
			r.shapes.Declarable(symbols[0]) {
			dim.Value = &onnx.Shape_Dim_DimParam{DimParam: symbols[0]}
		} else {
			name := v.Graph.FreshName("graft_length")
			for r.shapes.Names(name) {
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
