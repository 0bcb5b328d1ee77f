package prepare

import (
	"slices"

	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// sizeStates declares how large the recurrent states are that a graph of steps takes: exporters leave it open there,
// and the graph that reads prompts hands them out in their size.
func (m *Model) sizeStates(decoder *onnx.Model) error {
	if m.Files.First == "" || m.Files.First == m.Files.Decoder || m.Files.Encoder != "" {
		return nil
	}
	file, err := m.open(m.Files.First)
	if err != nil {
		return err
	}
	m.sized = file
	for _, in := range decoder.GetGraph().GetInput() {
		shared, _ := roles.Cache(in.GetName())
		for _, out := range file.Proto().GetGraph().GetOutput() {
			if same, _ := roles.Cache(out.GetName()); same == shared {
				takeSizes(in.GetType().GetTensorType().GetShape().GetDim(), out.GetType().GetTensorType().GetShape().GetDim())
			}
		}
	}
	return nil
}

// takeSizes gives the axes after the first the sizes that others have, where all of them have one.
func takeSizes(to, from []*onnx.Shape_Dim) {
	open := func(d *onnx.Shape_Dim) bool { return d.GetDimValue() <= 0 }
	if len(to) != len(from) || len(to) < 2 || slices.ContainsFunc(from[1:], open) {
		return
	}
	for i := range to[1:] {
		if open(to[i+1]) {
			to[i+1].Value = from[i+1].Value
		}
	}
}
