package prepare

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/session/patch"
)

// side is a key or a value of cross attention that the decoder makes of the encoder's output.
type side struct {
	made        *graph.Value
	layout      string
	flat        bool // heads and size are one axis
	heads, size int64
	past, from  string // the input that is to hold it, the output that it comes from
}

// storeCross gives a decoder that makes keys and values of the encoder's output in every step, as GPT-2 beside an
// encoder is exported, the form of those with a past of them: inputs hold them, and m.cross makes them.
func (m *Model) storeCross(ctx context.Context) error {
	x := m.decoder
	sides := remade(x)
	if len(sides) == 0 {
		return nil
	}
	m.cross = proto.Clone(x.Model.Proto()).(*onnx.Model)
	m.sources = map[string]string{}
	for _, s := range sides {
		s.handOut(m.cross.Graph)
		m.sources[s.past] = s.from
	}
	if err := x.Within(ctx, func() error {
		for _, s := range sides {
			if err := s.take(x.Graph); err != nil {
				return err
			}
		}
		x.Graph.Prune()
		for _, in := range slices.Clone(x.Graph.Inputs) {
			if len(in.Uses) == 0 {
				x.Graph.RemoveInput(in)
			}
		}
		return x.Graph.Commit()
	}); err != nil {
		return err
	}
	var err error
	m.decoder, err = patch.View(ctx, x.Model, x.Graph.Model())
	return err
}

// remade are keys and values of cross attention, in every layer, that are made of one input (batch, positions,
// width); none where a layer's are not.
func remade(x *patch.Analysis) (sides []*side) {
	var from *graph.Value
	layers := 0
	for _, b := range x.Report.Blocks {
		a, w := b.Attention, b.Wiring
		if a == nil || a.Type != "cross" {
			continue
		}
		if w.Graph != x.Graph || w.Key == nil || w.Value == nil || w.PastKey != nil || w.Key.Producer == nil ||
			w.Value.Producer == nil {
			return nil
		}
		for _, s := range []*side{
			{made: w.Key, layout: w.KeyLayout, heads: a.KVHeads, size: a.HeadSize, past: "key"},
			{made: w.Value, layout: w.ValueLayout, heads: a.KVHeads, size: a.ValueSize, past: "value"},
		} {
			s.flat = x.Shapes.Of(s.made).Rank == 3
			in := onlyInput(s.made)
			if in == nil || from != nil && in != from || x.Shapes.Of(in).Rank != 3 ||
				x.Shapes.Of(in).DType != onnx.Tensor_FLOAT || s.toHeads() == nil {
				return nil
			}
			from, s.from = in, fmt.Sprintf("present.%d.encoder.%s", layers, s.past)
			s.past = fmt.Sprintf("past_key_values.%d.encoder.%s", layers, s.past)
			sides = append(sides, s)
		}
		layers++
	}
	return sides
}

// onlyInput is the one input that a value is made of, or nil.
func onlyInput(v *graph.Value) (in *graph.Value) {
	seen := map[*graph.Value]bool{}
	one := true
	var walk func(v *graph.Value)
	walk = func(v *graph.Value) {
		if v == nil || seen[v] || !one {
			return
		}
		v.Graph.Spend(1)
		seen[v] = true
		switch {
		case v.Producer != nil:
			one = one && len(v.Producer.Subgraphs) == 0
			for _, in := range v.Producer.In {
				walk(in)
			}
		case v.IsInput:
			one = in == nil
			in = v
		}
	}
	if walk(v); !one {
		return nil
	}
	return in
}

// toHeads is the permutation between a layout and that of a past, (batch, heads, positions, size), which is its own
// inverse; nil for one that a past has not.
func (s *side) toHeads() []int64 {
	return map[string][]int64{"bshd": {0, 2, 1, 3}, "bhsd": {0, 1, 2, 3}, "bhds": {0, 1, 3, 2}}[s.layout]
}

// handOut adds nodes that make the side in the layout of a past, under the name of the output that a past comes from.
func (s *side) handOut(g *onnx.Graph) {
	from, to := s.made.Name, s.from
	g.Output = append(g.Output, &onnx.ValueInfo{Name: proto.String(to), Type: graph.TensorType(onnx.Tensor_FLOAT)})
	add := func(op, out string, in []string, attributes ...*onnx.Attribute) {
		g.Node = append(g.Node, &onnx.Node{OpType: proto.String(op), Name: proto.String(out), Input: in,
			Output: []string{out}, Attribute: attributes})
	}
	if s.flat {
		shape := graph.Int64Tensor(to+".shape", []int64{4}, 0, 0, s.heads, s.size)
		g.Initializer = append(g.Initializer, shape)
		add("Reshape", to+".heads", []string{from, shape.GetName()})
		from = to + ".heads"
	}
	add("Transpose", to, []string{from},
		&onnx.Attribute{Name: proto.String("perm"), Type: onnx.Attribute_INTS.Enum(), Ints: s.toHeads()})
}

// take lets an input stand in for the side.
func (s *side) take(g *graph.Graph) error {
	in, err := g.AddInput(s.past,
		graph.TensorType(onnx.Tensor_FLOAT, "batch_size", int(s.heads), "encoder_sequence_length", int(s.size)))
	if err != nil {
		return err
	}
	add := func(n *onnx.Node, in ...*graph.Value) (*graph.Value, error) {
		made, err := g.AddNode(n, in, []string{g.FreshName("graft_cross")})
		if err != nil {
			return nil, err
		}
		return made.Out[0], nil
	}
	v, err := add(&onnx.Node{OpType: proto.String("Transpose"),
		Attribute: []*onnx.Attribute{{Name: proto.String("perm"), Type: onnx.Attribute_INTS.Enum(), Ints: s.toHeads()}}}, in)
	if err == nil && s.flat {
		shape := g.AddInitializer(graph.Int64Tensor("", []int64{3}, 0, 0, s.heads*s.size))
		v, err = add(&onnx.Node{OpType: proto.String("Reshape")}, v, shape)
	}
	if err == nil {
		g.Replace(s.made, v)
	}
	return err
}
