package engine

import (
	"slices"
	"unsafe"

	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/capability"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// BlockBytes is the size of a block of the decoder's own positions.
func (e *Engine) BlockBytes() int64 { return e.self.BlockBytes() }

// LastLinear is the node that makes an output, by its name and "" for none.
func LastLinear(g *graph.Graph, output string) string {
	if n := lastLinear(g, output); n != nil {
		return n.Proto.GetName()
	}
	return ""
}

// Dequantized are those weights of a graph that are to be integers, as the numbers that these stand for: float32, by
// name, as stored in the file. They are what the operator gives for the rows of the unit matrix, each of which
// picks one weight a column.
func Dequantized(of *prepare.Graph, o Options) (map[string][]float32, error) {
	p, lays, err := laysOut(of, o)
	if err != nil {
		return nil, err
	}
	at, err := quantizes(p, o.Weights)
	if err != nil {
		return nil, err
	}
	found, last := map[string][]float32{}, lastLinear(of.Graph, of.Logits)
	for _, w := range matrices(of.Graph) {
		as := o.Weights.Of(slices.Contains(w.nodes, last))
		if as == prepare.Float32Weights {
			continue
		}
		q := quantizableOf(w, as, o.Weights)
		if err := q.infer(p, lays); err != nil {
			return nil, err
		}
		for _, t := range []**tensor.Tensor{&q.packed, &q.scales, &q.zeros} {
			if *t == nil {
				continue
			}
			if *t, err = tensor.New((*t).DType, (*t).Shape...); err != nil {
				return nil, err
			}
		}
		if err := q.pack(of.Model, p, lays, make([]byte, w.bytes()), q.tensors(), q.attributes, 1); err != nil {
			return nil, err
		}
		y, err := multiply(p, q, at)
		if err != nil {
			return nil, err
		}
		if w.transposed {
			list := make([]float32, len(y))
			for k := range w.depth {
				for n := range w.columns {
					list[n*w.depth+k] = y[k*w.columns+n]
				}
			}
			y = list
		}
		found[w.value.Name] = y
	}
	return found, nil
}

// multiply gives the unit matrix times a weight.
func multiply(p *plugin.Plugin, w *quantizable, at integerInputs) ([]float32, error) {
	unit := make([]float32, w.depth*w.depth)
	for i := range w.depth {
		unit[i*w.depth+i] = 1
	}
	y := make([]float32, w.depth*w.columns)
	in := make([]*tensor.Tensor, max(at.scale, at.zero)+1)
	in[0] = &tensor.Tensor{DType: tensor.Float32, Shape: []int64{w.depth, w.depth}, Data: unsafe.Pointer(&unit[0])}
	in[weightOperand], in[at.scale], in[at.zero] = w.packed, w.scales, w.zeros
	out := []*tensor.Tensor{{DType: tensor.Float32, Shape: []int64{w.depth, w.columns}, Data: unsafe.Pointer(&y[0])}}
	k, err := p.Create(p.Manifest.Providing(capability.LinearPanels).Name,
		[]manifest.Attribute{{Name: "columns", Value: w.columns}, {Name: activationsAttribute, Value: "float32"}}, nil,
		tensor.CPU)
	if err != nil {
		return nil, err
	}
	defer k.Destroy()
	size, err := k.Workspace(in, out, 1)
	if err != nil {
		return nil, err
	}
	return y, k.Run(&plugin.RunContext{Workspace: plugin.NewWorkspace(size)}, in, out)
}

// States is how many recurrent states a decoder has.
func (e *Engine) States() int { return len(e.states.list) }

// State is a copy of one recurrent state of a sequence, all its rows, and SetState puts one in its place.
func (s *Sequence) State(i int) []float32 { return slices.Clone(s.states.data[i]) }

func (s *Sequence) SetState(i int, data []float32) { copy(s.states.data[i], data) }
