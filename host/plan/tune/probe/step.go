package probe

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// stepColumns is the columns of an operator's steps.
const stepColumns = 8

// Step is the attention of one step at a shape.
type Step struct {
	of      *Layers
	inputs  [][]*tensor.Tensor // a layer's
	outputs []*tensor.Tensor
	first   []*tensor.Tensor // of the first layer, where another operator runs it
	context plugin.RunContext
	held    []any // what tensors point to
}

// Step makes the inputs of a step. Its shape may need no more than the largest one.
func (x *Layers) Step(s plan.Shape) (*Step, error) {
	t := &Step{of: x}
	l, rows := x.layers, s.Batch*s.Beams
	if rows < 1 || s.Keys < 0 || s.Own < 0 || s.Keys+s.Own < 1 {
		return nil, fmt.Errorf("a step of %+v has nothing to attend to", s)
	}
	if l.Type == "cross" {
		s.Own = 0
	}
	first, second := positions(l, x.candidate, s)
	for i, n := range []int64{first, second} {
		if i < len(x.pools) && n > x.pools[i].shape[0]*abi.CacheBlockSize || i >= len(x.pools) && n > 0 {
			return nil, fmt.Errorf("%s: a step of %+v needs more memory than was made for the largest", x.candidate, s)
		}
	}
	f, err := callOf(l, x.candidate, x.implementations)
	if err != nil {
		return nil, err
	}
	query := t.floats(rows, l.Heads*l.HeadSize)
	t.outputs = []*tensor.Tensor{t.floats(rows, l.Heads, 1, l.ValueSize)}
	hidden, kv := s, plan.Shape{Beams: s.Beams, Batch: s.Batch}
	if x.candidate.Inputs() == plan.PromptHiddenStates {
		hidden.Own, kv.Own = 0, s.Own
	}
	steps := t.lists(hidden)
	for i := range x.kernels {
		t.inputs = append(t.inputs, x.arguments(t, f, int64(i), query, steps, kv))
	}
	if x.first != nil {
		keys, err := callOf(l, plan.Candidate{Strategy: plan.Keys, Storage: x.candidate.Storage}, x.implementations)
		if err != nil {
			return nil, err
		}
		value := &tensor.Tensor{DType: tensor.Float32, Shape: keys.valueShape,
			Data: unsafe.Pointer(unsafe.SliceData(x.weights.Floats()))}
		t.first = []*tensor.Tensor{query, x.pools[0].tensor(), steps[0], steps[1], value, nil, nil, steps[2]}
	}
	return t, t.workspace()
}

// arguments are the inputs of one layer's operator.
func (x *Layers) arguments(t *Step, f *call, layer int64, query *tensor.Tensor, steps [3]*tensor.Tensor,
	kv plan.Shape) []*tensor.Tensor {
	cache := x.pools[0].tensor()
	if f.rows == 0 {
		return []*tensor.Tensor{query, nil, nil, cache, steps[0], steps[1], steps[2]}
	}
	at := x.weights.Floats()[layer*f.weights:]
	value := &tensor.Tensor{DType: tensor.Float32, Shape: f.valueShape, Data: unsafe.Pointer(&at[elements(f.keyShape)])}
	if f.keyShape == nil {
		return []*tensor.Tensor{query, cache, steps[0], steps[1], value, nil, nil, steps[2]}
	}
	key := &tensor.Tensor{DType: tensor.Float32, Shape: f.keyShape, Data: unsafe.Pointer(&at[0])}
	in := []*tensor.Tensor{query, cache, steps[0], steps[1], key, value, nil, nil, nil, steps[2]}
	if kv.Own > 0 {
		own := t.lists(kv)
		in = append(in, nil, nil, nil, nil, x.pools[1].tensor(), own[0], own[1], own[2])
	}
	return in
}

// lists are steps, shared slots and private slots of a shape: a request's shared positions
// lie together, and those of its rows after them, position by position.
func (t *Step) lists(s plan.Shape) [3]*tensor.Tensor {
	var steps, shared, own []int32
	slot, m := int32(0), s.Own
	for b := range s.Batch {
		keys := s.Keys
		if s.Beams == 1 { // a row alone shares all that it has
			keys, m = s.Keys+s.Own, 0
		}
		steps = append(steps, int32(b*s.Beams), int32(s.Beams), int32(len(shared)), int32(keys), int32(len(own)), int32(m), 0,
			0)
		for range keys {
			shared = append(shared, slot)
			slot++
		}
		for r := range s.Beams * min(m, 1) {
			for p := range m {
				own = append(own, slot+int32(p*s.Beams+r))
			}
		}
		slot += int32(m * s.Beams)
	}
	if own == nil {
		return [3]*tensor.Tensor{t.integers(steps, s.Batch, stepColumns), t.integers(shared, int64(len(shared))), nil}
	}
	return [3]*tensor.Tensor{t.integers(steps, s.Batch, stepColumns), t.integers(shared, int64(len(shared))),
		t.integers(own, int64(len(own)))}
}

func (t *Step) floats(shape ...int64) *tensor.Tensor {
	list := make([]float32, elements(shape))
	fill(list)
	return tensorOf(t, tensor.Float32, list, shape)
}

func (t *Step) integers(list []int32, shape ...int64) *tensor.Tensor {
	if len(list) == 0 {
		list = make([]int32, 1)
	}
	return tensorOf(t, tensor.Int32, list, shape)
}

func tensorOf[E any](t *Step, d tensor.DType, list []E, shape []int64) *tensor.Tensor {
	t.held = append(t.held, list)
	return &tensor.Tensor{DType: d, Shape: shape, Data: unsafe.Pointer(unsafe.SliceData(list))}
}

// workspace makes room for the operators' own needs.
func (t *Step) workspace() error {
	need := uint64(0)
	for i := range t.inputs {
		k, in := t.operator(i)
		n, err := k.Workspace(in, t.outputs, t.of.crew.Threads())
		if err != nil {
			return err
		}
		need = max(need, n)
	}
	if uint64(len(t.of.workspace)) < need {
		t.of.workspace = plugin.NewWorkspace(need)
	}
	t.context = plugin.RunContext{Pool: t.of.crew, Workspace: t.of.workspace}
	return nil
}

func (t *Step) operator(layer int) (*plugin.Kernel, []*tensor.Tensor) {
	if layer == 0 && t.first != nil {
		return t.of.first, t.first
	}
	return t.of.kernels[layer], t.inputs[layer]
}

// Layers is how many layers there are to run.
func (t *Step) Layers() int { return len(t.inputs) }

// Run runs the operator of one layer and says how long that took.
func (t *Step) Run(layer int) (time.Duration, error) {
	k, in := t.operator(layer)
	outputs := t.outputs
	start := time.Now()
	err := k.Run(&t.context, in, outputs)
	return time.Since(start), err
}
