package engine

import (
	"fmt"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// Folded is a weight that a plugin computed, float32.
type Folded struct {
	Shape []int64
	Data  []float32
}

// projection is y = x W + b with constants: W is (Inputs, Width), row-major.
type projection struct {
	Inputs int64
	Width  int64 // columns
	Weight []float64
	Bias   []float64 // nil: none
	// From is x, as it was before its rows were shaped for the linear layer.
	From *graph.Value
	// Rows is the value x W without the bias, by name; "" where the graph has none.
	Rows string
}

func (p *projection) weight(name string) tensor.Weight {
	return tensor.Weight{Name: name, Shape: []int64{p.Inputs, p.Width}, Floats: p.Weight}
}

// maxElements bounds a weight that is widened to float64.
const maxElements = 1 << 27

// readProjection reads a linear layer that blocks found, with what its result is
// multiplied by on its way.
func readProjection(g *graph.Graph, l *blocks.Linear) (*projection, error) {
	w := g.Lookup(l.Weight)
	if w == nil || w.Tensor == nil {
		return nil, refuse("its weights %s are not constant", l.Weight)
	}
	if n := w.Tensor.Dims[0] * w.Tensor.Dims[1]; n > maxElements {
		return nil, refuse("its weights %s have %d elements, at most %d can be folded", l.Weight, n, maxElements)
	}
	all, err := g.Numbers(w.Tensor, maxElements)
	if err != nil {
		return nil, err
	}
	p := &projection{Inputs: l.Inputs, Width: l.Width, Weight: make([]float64, l.Inputs*l.Width), From: unshaped(l.From)}
	columns := int64(len(all)) / l.Inputs
	for i := range l.Inputs {
		for j := range l.Width {
			at := i*columns + l.Offset + j
			if l.Transposed {
				at = (l.Offset+j)*l.Inputs + i
			}
			p.Weight[i*l.Width+j] = l.Factor * all[at]
		}
	}
	if l.Factor == 1 && l.Width == columns && l.Rows != nil {
		p.Rows = l.Rows.Name
	}
	if l.Bias == "" {
		return p, nil
	}
	b := g.Lookup(l.Bias)
	if b == nil || b.Tensor == nil {
		return nil, refuse("its bias %s is not constant", l.Bias)
	}
	bias, err := g.Numbers(b.Tensor, maxElements)
	if err != nil {
		return nil, err
	}
	if int64(len(bias)) < l.BiasOffset+l.Width {
		return nil, refuse("its bias %s has %d elements, of which %d are read from %d on", l.Bias, len(bias), l.Width,
			l.BiasOffset)
	}
	for _, x := range bias[l.BiasOffset : l.BiasOffset+l.Width] {
		p.Bias = append(p.Bias, l.BiasFactor*x)
	}
	return p, nil
}

// unshaped looks through what leaves rows as they are.
func unshaped(v *graph.Value) *graph.Value {
	for v != nil && v.Producer != nil && v.Producer.Is("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze") {
		v = v.Producer.Input(0)
	}
	return v
}

// source is what a block's keys and values are projected from, and how.
type source struct {
	input      *graph.Value
	key, value *projection
}

// forget lets go of the weights, which are large and needed for the fold alone.
func (f *source) forget() { f.key.Weight, f.value.Weight = nil, nil }

// projections reads the weights of a block's keys and values.
func (d *Decoder) projections(b *blocks.Block) (*source, error) {
	w, p := b.Wiring, b.Attention.Projections
	if p == nil || p.Key == nil || p.Value == nil {
		return nil, refuse("its keys and values have no linear layers with constant weights")
	}
	if w.Input == nil {
		return nil, refuse("its keys and values are not projected from one value")
	}
	return d.read(p, w.Input)
}

func (d *Decoder) read(p *blocks.Projections, input *graph.Value) (from *source, err error) {
	from = &source{input: input}
	if from.key, err = readProjection(d.Graph, p.Key); err != nil {
		return nil, err
	}
	from.value, err = readProjection(d.Graph, p.Value)
	return from, err
}

// sources is projections for attention that works on what keys are projected from:
// nothing may stand between the projection and the matmul.
func (d *Decoder) sources(b *blocks.Block) (*source, error) {
	if b.Attention.Positions == "rotary" {
		return nil, refuse("a rotary embedding stands between the projection of keys and their matmul with queries")
	}
	return d.projections(b)
}

// crossSources are the projections of keys and values of an encoder's output, which the
// decoder without a past has.
func (d *Decoder) crossSources(b *blocks.Block) (*source, error) {
	if d.First == nil {
		return nil, refuse("the weights of its keys and values are not there: no decoder without a past was given")
	}
	origin := roles.Origin(b, d.Report, d.First.Report)
	if origin == nil || origin.Attention.Projections == nil || origin.Attention.Projections.Key == nil ||
		origin.Attention.Projections.Value == nil {
		return nil, refuse("found no linear layers that make its keys and values")
	}
	from, err := d.First.read(origin.Attention.Projections, nil)
	if err == nil && (from.key.From != from.value.From || from.key.Inputs != from.value.Inputs) {
		err = refuse("its keys and values are not projected from one value")
	}
	return from, err
}

// Fold is what the operator's plugin folds for a layer.
type Fold struct {
	Implementation plan.Implementation
	Constants      []tensor.Weight
	Attributes     []manifest.Attribute
}

// fold computes the weights of an operator. keyBias is what cached keys carry, or nil.
func (d *Decoder) fold(strategy plan.Strategy, b *blocks.Block, from *source, keyBias []float64) *Fold {
	key, value := from.key, from.value
	constants := []tensor.Weight{key.weight("key_weight"), value.weight("value_weight")}
	if keyBias != nil {
		constants = append(constants, tensor.Weight{Name: "key_bias", Shape: []int64{key.Width}, Floats: keyBias})
	}
	if value.Bias != nil {
		constants = append(constants, tensor.Weight{Name: "value_bias", Shape: []int64{value.Width}, Floats: value.Bias})
	}
	return d.foldOf(strategy, b, constants)
}

// foldFrom is fold for layers that read the keys of another layer.
func (d *Decoder) foldFrom(strategy plan.Strategy, b *blocks.Block, from *source, base *projection) *Fold {
	return d.foldOf(strategy, b,
		[]tensor.Weight{from.key.weight("key_weight"), from.value.weight("value_weight"), base.weight("base_key_weight")})
}

func (d *Decoder) foldOf(strategy plan.Strategy, b *blocks.Block, constants []tensor.Weight) *Fold {
	a := b.Attention
	f := &Fold{Implementation: d.Implementations.Of(strategy), Constants: constants,
		Attributes: []manifest.Attribute{{Name: "num_heads", Value: a.Heads}, {Name: "kv_num_heads", Value: a.KVHeads},
			{Name: "head_size", Value: a.HeadSize}, {Name: "value_size", Value: a.ValueSize}}}
	if d.Storage != "" {
		f.Attributes = append(f.Attributes, manifest.Attribute{Name: "storage", Value: string(d.Storage)})
	}
	return f
}

// weights are a layer's folded weights as inputs: key_weight and value_weight, or, of
// operators that store keys, value_weight and value_bias.
func (s *builder) weights(l *Layer) (list [2]*graph.Value, err error) {
	names := [2]string{"key_weight", "value_weight"}
	if l.Weights["key_weight"] == nil {
		names = [2]string{"value_weight", "value_bias"}
	}
	for i, name := range names {
		w := l.Weights[name]
		if w == nil && name == "value_bias" {
			continue
		}
		if w == nil {
			return list, fmt.Errorf("the fold of %s gives no %s", s.Implementations.Of(l.Strategy).Operator, name)
		}
		input := s.Graph.FreshName("graft.weights." + name)
		var dims []any
		for _, n := range w.Shape {
			dims = append(dims, int(n))
		}
		if list[i], err = s.input(input, onnx.Tensor_FLOAT, dims...); err != nil {
			return list, err
		}
		s.engine.Weights[input] = w
	}
	return list, nil
}

// row is a constant list, or nil for none.
func (s *builder) row(list []float64) *graph.Value {
	if list == nil {
		return nil
	}
	return s.Graph.AddInitializer(graph.FloatTensor("graft_bias", []int64{int64(len(list))}, rounded(list)...))
}

// seenBias is a bias of keys where a softmax sees it: after a softcap.
func (s *builder) seenBias(b *blocks.Block, key *projection) *graph.Value {
	if b.Attention.Softcap == 0 {
		return nil
	}
	return s.row(key.Bias)
}

// rounded are floats of 32 bits.
func rounded(list []float64) []float32 {
	short := make([]float32, len(list))
	for i, x := range list {
		short[i] = float32(x)
	}
	return short
}

// linear adds x W + b for columns of several projections side by side. Reads of x are
// of rows, whatever its rank is.
func (s *builder) linear(x *graph.Value, parts ...*projection) (*graph.Value, error) {
	inputs, width := parts[0].Inputs, int64(0)
	biased := false
	for _, p := range parts {
		width += p.Width
		biased = biased || p.Bias != nil
	}
	weight, bias := make([]float32, inputs*width), make([]float32, width)
	at := int64(0)
	for _, p := range parts {
		n := p.Width
		for i := range inputs {
			copy(weight[i*width+at:], rounded(p.Weight[i*n:(i+1)*n]))
		}
		copy(bias[at:], rounded(p.Bias))
		at += n
	}
	w := s.Graph.AddInitializer(graph.FloatTensor("graft_weight", []int64{inputs, width}, weight...))
	n, err := s.AddNode(s.Graph, "", "MatMul", []*graph.Value{x, w}, []string{s.Graph.FreshName("graft_product")})
	if err != nil || !biased {
		return n.Out[0], err
	}
	b := s.Graph.AddInitializer(graph.FloatTensor("graft_bias", []int64{width}, bias...))
	if n, err = s.AddNode(s.Graph, "", "Add", []*graph.Value{n.Out[0], b},
		[]string{s.Graph.FreshName("graft_product")}); err != nil {
		return nil, err
	}
	return n.Out[0], nil
}

// queryOf is a block's query alone.
func (s *builder) queryOf(b *blocks.Block) (*graph.Value, error) {
	if !b.Wiring.Packed {
		return s.Current(b.Wiring.Query), nil
	}
	p, err := readProjection(s.Graph, b.Attention.Projections.Query)
	if err != nil {
		return nil, err
	}
	return s.linear(s.Current(b.Wiring.Input), p)
}

// queryAndKey are a block's query and its key before a rotary embedding, without the
// key's bias where none turns it.
func (s *builder) queryAndKey(b *blocks.Block, biased bool) (query, key *graph.Value, err error) {
	w, p := b.Wiring, b.Attention.Projections
	if biased && !w.Packed {
		return s.Current(w.Query), s.Current(w.RawKey), nil
	}
	x := s.Current(w.Input)
	if !w.Packed {
		k, err := readProjection(s.Graph, p.Key)
		if err != nil {
			return nil, nil, err
		}
		if k.Bias == nil {
			return s.Current(w.Query), s.Current(w.Key), nil
		}
		if k.Rows != "" {
			return s.Current(w.Query), s.Current(s.Graph.Lookup(k.Rows)), nil
		}
		k.Bias = nil
		key, err = s.linear(x, k)
		return s.Current(w.Query), key, err
	}
	q, err := readProjection(s.Graph, p.Query)
	if err != nil {
		return nil, nil, err
	}
	k, err := readProjection(s.Graph, p.Key)
	if err != nil {
		return nil, nil, err
	}
	if !biased {
		k.Bias = nil
	}
	both, err := s.linear(x, q, k)
	if err != nil {
		return nil, nil, err
	}
	sizes := s.Graph.AddInitializer(graph.Int64Tensor("", []int64{2}, q.Width, k.Width))
	n, err := s.AddNode(s.Graph, "", "Split", []*graph.Value{both, sizes},
		[]string{s.Graph.FreshName("graft_query"), s.Graph.FreshName("graft_key")}, "axis", -1)
	if err != nil {
		return nil, nil, err
	}
	return n.Out[0], n.Out[1], nil
}

// turning are the tables of a rotary embedding, by position.
type turning struct {
	cos, sin *graph.Value // (positions, half of the features that are turned)
	style    string
}

// rotary is a block's rotary embedding as tables, or nil where it has none.
func (s *builder) rotary(b *blocks.Block) (*turning, error) {
	if b.Attention.Positions != "rotary" {
		return nil, nil
	}
	r := b.Wiring.Rotary
	t := &turning{style: r.Style}
	for _, side := range []struct {
		v  *graph.Value
		to **graph.Value
	}{{r.Cos, &t.cos}, {r.Sin, &t.sin}} {
		if *side.to = s.angles[side.v]; *side.to != nil {
			continue
		}
		list, err := s.anglesOf(r, side.v)
		if err != nil {
			return nil, err
		}
		half := r.Size / 2
		*side.to = s.Graph.AddInitializer(graph.FloatTensor("graft_angles", []int64{int64(len(list)) / half, half}, list...))
		s.angles[side.v] = *side.to
	}
	return t, nil
}

// turns refuses a rotary embedding that cannot be had as tables.
func (d *Decoder) turns(b *blocks.Block) error {
	if b.Attention.Positions != "rotary" {
		return nil
	}
	r := b.Wiring.Rotary
	if r == nil || b.Wiring.RawKey == nil {
		return refuse("its rotary embedding is not understood")
	}
	for _, v := range []*graph.Value{r.Cos, r.Sin} {
		if _, err := d.anglesOf(r, v); err != nil {
			return refuse("the angles of its rotary embedding cannot be tabulated: %v", err)
		}
	}
	return nil
}

// anglesOf are the angles of every position, a line each.
func (d *Decoder) anglesOf(r *blocks.Rotary, v *graph.Value) ([]float32, error) {
	if r.Rows != nil { // a table already
		if v.Tensor == nil {
			return nil, fmt.Errorf("%s is not constant", v.Name)
		}
		list, err := d.Graph.Numbers(v.Tensor, maxElements)
		return rounded(list), err
	}
	values, err := d.Answers.of(d.angleQuestion(v.Name))
	if err != nil {
		return nil, err
	}
	return r.Angles(values[0].Shape, values[0].Data)
}
