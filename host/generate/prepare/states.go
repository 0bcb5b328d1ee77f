package prepare

import (
	"context"
	"slices"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// sizeStates declares how large the recurrent states are that a graph of steps takes: exporters leave it open there,
// and the graph that reads prompts hands them out in their size.
func (m *Model) sizeStates(ctx context.Context) error {
	open := m.openStates()
	if m.Files.First == "" || m.Files.First == m.Files.Decoder || m.Files.Encoder != "" || len(open) == 0 {
		return nil
	}
	first, err := m.withoutPast(ctx)
	if err != nil {
		return err
	}
	sizes := map[*graph.Value][]any{}
	for _, v := range open {
		from, err := m.source(ctx, v.Name)
		if err != nil {
			continue // what it is shows later
		}
		if dims := sized(v, first.Shapes.Of(first.Graph.Lookup(from)).Dims); dims != nil {
			sizes[v] = dims
		}
	}
	if len(sizes) == 0 {
		return nil
	}
	x := m.decoder
	return x.Within(ctx, func() error {
		for v, dims := range sizes {
			if err := x.Graph.SetInputDims(v, dims...); err != nil {
				return err
			}
		}
		x.Shapes = graph.Infer(x.Graph)
		x.Report = blocks.Find(x.Graph, x.Shapes)
		return nil
	})
}

// openStates are inputs of numbers that no recognised attention reads as keys or values, and whose size is open.
func (m *Model) openStates() (list []*graph.Value) {
	pasts := roles.Pasts(m.decoder.Report)
	for _, v := range m.decoder.Graph.Inputs {
		f := m.decoder.Shapes.Of(v)
		if _, past := pasts[v]; past || v.Tensor != nil || f.DType != onnx.Tensor_FLOAT || f.Rank < 2 {
			continue
		}
		if slices.ContainsFunc(f.Dims[1:], func(d graph.Dim) bool { _, known := d.Const(); return !known }) {
			list = append(list, v)
		}
	}
	return list
}

// sized are the axes of an input with the sizes that another value's axes after the first have; nil where one of these
// has none.
func sized(in *graph.Value, from []graph.Dim) []any {
	claims := in.Claims()
	if len(claims) != len(from) {
		return nil
	}
	dims := []any{claims[0].String()}
	for _, d := range from[1:] {
		n, ok := d.Const()
		if !ok {
			return nil
		}
		dims = append(dims, int(n))
	}
	return dims
}
