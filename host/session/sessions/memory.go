package sessions

import (
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// memory is how a session holds what it computes with: without blocks that are planned for each combination of input
// shapes, and in an arena that it shares with other sessions.
//
// A planned block lies beside what the first run of its shapes took without one, so that an arena becomes twice as
// large, and grows with every larger combination. Where lengths vary that gains nothing.
func (s *Patcher) memory(r session.Request, g *onnx.Graph, device tensor.Device) (unplanned, shared bool) {
	asked, own := s.BoundMemory, s.OwnArenas
	if v, ok := r.Config(ConfigMemory); ok {
		asked = v != "" && v != "0"
		own = !asked
	}
	host := device == tensor.CPU && !own
	return asked || host && varies(g), host
}

// varies reports that a model has an input of which a length is not fixed.
func varies(g *onnx.Graph) bool {
	weights := map[string]bool{}
	for _, w := range g.GetInitializer() {
		weights[w.GetName()] = true
	}
	for _, in := range g.GetInput() {
		if weights[in.GetName()] {
			continue
		}
		shape := in.GetType().GetTensorType().GetShape()
		if shape == nil {
			return true
		}
		for _, d := range shape.GetDim() {
			if _, fixed := d.GetValue().(*onnx.Shape_Dim_DimValue); !fixed {
				return true
			}
		}
	}
	return false
}
