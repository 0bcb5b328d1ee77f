package engine

import (
	"fmt"

	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// State is a recurrent state of each row: an input that begins at zero, and the output that a step makes of it.
type State struct {
	Input, Output string
	Shape         []int64 // of a row
}

// Floats is how many numbers a row has.
func (s *State) Floats() int {
	n := int64(1)
	for _, d := range s.Shape {
		n *= d
	}
	return int(n)
}

// state is one as values of the graph.
type state struct{ in, out *graph.Value }

// Recurrent reports a decoder with recurrent states.
func (d *Decoder) Recurrent() bool { return len(d.states()) > 0 }

// states are those that the decoder has, in the order of its inputs.
func (d *Decoder) states() (list []state) {
	r := roles.Find(d.Graph, d.Shapes, d.Report)
	for _, v := range d.Graph.Inputs {
		if out := r.State(v); out != nil {
			list = append(list, state{v, out})
		}
	}
	return list
}

// checkStates reports a state that an engine cannot keep.
func (d *Decoder) checkStates() error {
	for _, s := range d.states() {
		if t := d.Shapes.Of(s.in).DType; t != onnx.Tensor_FLOAT {
			return fmt.Errorf("the state %s is of type %s; the engine's is float32", s.in.Name, t)
		}
	}
	return nil
}

// keepStates declares states as the rows' own.
func (s *builder) keepStates() error {
	for _, x := range s.states {
		state := State{Input: x.in.Name, Output: x.out.Name}
		dims := []any{rowsSymbol}
		for _, d := range s.Shapes.Of(x.in).Dims[1:] {
			n, _ := d.Const()
			state.Shape, dims = append(state.Shape, n), append(dims, int(n))
		}
		if err := s.Graph.SetInputDims(x.in, dims...); err != nil {
			return err
		}
		s.engine.States = append(s.engine.States, state)
	}
	return nil
}

// afterState reports a node whose window reaches from a token back to a state that stands before it.
func (s *builder) afterState(n *graph.Node) bool {
	v := n.Input(0)
	for range maxWalk {
		if v == nil || v.Producer == nil {
			return false
		}
		p := v.Producer
		switch {
		case p.Is("Concat"):
			v = p.Input(0)
			for _, x := range s.states {
				if v == x.in {
					return true
				}
			}
		case p.Is("Identity", "Cast", "Transpose", "Reshape", "Unsqueeze", "Squeeze", "Slice"):
			v = p.Input(0)
		default:
			return false
		}
	}
	return false
}

// maxWalk bounds how far a window is followed back.
const maxWalk = 8
