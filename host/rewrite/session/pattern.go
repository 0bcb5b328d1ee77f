package session

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/pattern"
	"github.com/opgraft/graft/host/plugin/signature"
	"github.com/opgraft/graft/host/plugin/tensor"
	"github.com/opgraft/graft/host/rewrite"
)

// pattern puts the nodes of a plugin's replacement in place of those it matched.
func (r *rewriter) pattern(c plan.Choice) error {
	m, g := c.Match, c.Match.Graph
	p, with := m.Form, m.With
	env := map[string]*graph.Value{}
	for _, name := range p.Inputs {
		env[name] = r.Current(m.Values[name])
	}
	var made []*graph.Value
	for _, name := range p.Outputs {
		if !m.Leaves(name) {
			made = append(made, m.Values[name])
		}
	}
	if len(made) > 1 { // with one, whoever reads it reads no part of the match
		if err := r.CheckIndependent(slices.Collect(maps.Values(env)), made, true); err != nil {
			return err
		}
	}
	for _, k := range p.Constants {
		env[k.Name] = m.Values[k.Name]
	}
	for _, name := range with.Fold {
		folded, ok := m.Folded[name]
		if !ok {
			return fmt.Errorf("its fold made no constant %q", name)
		}
		t, err := narrow(folded, r.foldType(p, m))
		if err != nil {
			return fmt.Errorf("constant %q: %w", name, err)
		}
		t.Name = proto.String(g.FreshName("graft_" + name))
		env[name] = g.AddInitializer(t)
	}
	for _, w := range with.Nodes {
		in := make([]*graph.Value, len(w.In))
		for i, name := range w.In {
			in[i] = env[name]
		}
		outputs := make([]string, len(w.Out))
		for i, name := range w.Out {
			if name != "" && !m.Leaves(name) {
				outputs[i] = g.FreshName("graft_" + name)
			}
		}
		var attributes []any
		for _, a := range w.Attributes {
			value := a.Value
			if name, ok := value.(manifest.Capture); ok {
				if value = m.Captured[string(name)]; value == nil {
					continue // of a part that this form has not
				}
			}
			kind := onnx.AttributeKind(w.Op, a.Name)
			if w.Domain != "" {
				kind = signature.Find(c.Described, w.Op).Kind(a.Name)
			}
			if as, ok := signature.As(kind, value); ok {
				value = as // a whole number where others stand
			}
			attributes = append(attributes, a.Name, value)
		}
		if w.Domain != "" {
			g.ImportOpset(w.Domain, rewrite.DomainVersion)
		}
		n, err := r.AddNode(g, w.Domain, w.Op, in, outputs, attributes...)
		if err != nil {
			return err
		}
		for i, name := range w.Out {
			if name != "" && n.Out[i] != nil {
				env[name] = n.Out[i]
			}
		}
	}
	for _, name := range p.Outputs {
		if m.Leaves(name) {
			continue
		}
		if m.Operator.SameBits {
			r.ReplaceUnnamed(m.Values[name], env[name])
			continue
		}
		r.Replace(m.Values[name], env[name])
	}
	return nil
}

// foldType is the type that folded constants take in the graph: that of the
// first constant that was captured.
func (r *rewriter) foldType(p *pattern.Form, m *plan.Match) onnx.Tensor_DataType {
	i := slices.IndexFunc(p.Constants, func(k pattern.Constant) bool { return k.Any })
	if i < 0 {
		return onnx.Tensor_FLOAT
	}
	return onnx.Tensor_DataType(m.Values[p.Constants[i].Name].Tensor.GetDataType())
}

// narrow rounds a folded constant to the type it takes in the graph.
func narrow(c tensor.Weight, to onnx.Tensor_DataType) (*onnx.Tensor, error) {
	if c.Floats == nil {
		return graph.Int64Tensor("", c.Shape, c.Ints...), nil
	}
	t := &onnx.Tensor{Dims: c.Shape, DataType: proto.Int32(int32(to))}
	for _, x := range c.Floats {
		switch to {
		case onnx.Tensor_FLOAT:
			t.RawData = binary.LittleEndian.AppendUint32(t.RawData, math.Float32bits(float32(x)))
		case onnx.Tensor_DOUBLE:
			t.RawData = binary.LittleEndian.AppendUint64(t.RawData, math.Float64bits(x))
		default:
			return nil, fmt.Errorf("folded weights of type %s have no rounding here; float32 and float64 have", to)
		}
	}
	return t, nil
}
