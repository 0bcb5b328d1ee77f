package probe

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/base/memory"
	"github.com/opgraft/graft/host/base/threads"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// Projections are the linear layers that make keys and values of what a kind of attention
// reads, as an engine runs them. They are not for concurrent use.
type Projections struct {
	depth, columns int64
	crew           *threads.Pool
	kernel         *plugin.Kernel
	weights        *memory.Region
	layers         int64
	workspace      []byte
}

// NewProjections makes those of n layers, with an operator that provides linear-panels/1.
func NewProjections(p *plugin.Plugin, operator string, l plan.Layers, layers int64,
	crew *threads.Pool) (_ *Projections, err error) {
	x := &Projections{depth: l.Width, columns: l.KeyWidth() + l.ValueWidth(), crew: crew, layers: layers}
	defer func() {
		if err != nil {
			x.Close()
			err = fmt.Errorf("projections of keys and values: %w", err)
		}
	}()
	if x.weights, err = memory.Reserve(4 * layers * x.floats()); err != nil {
		return nil, err
	}
	fill(x.weights.Floats())
	x.kernel, err = p.Create(operator, []manifest.Attribute{{Name: "columns", Value: x.columns}}, nil,
		tensor.CPU)
	return x, err
}

func (x *Projections) panels() int64 { return abi.Panels(x.columns) }

// floats are those of one layer.
func (x *Projections) floats() int64 { return x.panels() * x.depth * abi.PanelColumns }

// Close frees the kernel and memory.
func (x *Projections) Close() {
	if x.kernel != nil {
		x.kernel.Destroy()
	}
	if x.weights != nil {
		_ = x.weights.Close() // nothing can be done about a mapping that stays
	}
}

// Projection is the linear layers with some number of rows.
type Projection struct {
	of      *Projections
	inputs  [][]*tensor.Tensor // a layer's
	outputs []*tensor.Tensor
	context plugin.RunContext
}

// Rows makes the inputs of linear layers with n rows.
func (x *Projections) Rows(rows int64) (*Projection, error) {
	t := &Projection{of: x}
	in, err := tensor.New(tensor.Float32, rows, x.depth)
	if err != nil {
		return nil, err
	}
	out, err := tensor.New(tensor.Float32, rows, x.columns)
	if err != nil {
		return nil, err
	}
	t.outputs = []*tensor.Tensor{out}
	for i := range x.layers {
		list := x.weights.Floats()[i*x.floats():][:x.floats()]
		t.inputs = append(t.inputs,
			[]*tensor.Tensor{in, {DType: tensor.Float32, Shape: []int64{x.panels(), x.depth, abi.PanelColumns},
				Data: unsafe.Pointer(unsafe.SliceData(list))}})
	}
	need, err := x.kernel.Workspace(t.inputs[0], t.outputs, x.crew.Threads())
	if err != nil {
		return nil, err
	}
	if uint64(len(x.workspace)) < need {
		x.workspace = plugin.NewWorkspace(need)
	}
	t.context = plugin.RunContext{Pool: x.crew, Workspace: x.workspace}
	return t, nil
}

// Layers is how many layers there are to run.
func (t *Projection) Layers() int { return len(t.inputs) }

// Run multiplies with the weights of one layer and says how long that took.
func (t *Projection) Run(layer int) (time.Duration, error) {
	start := time.Now()
	err := t.of.kernel.Run(&t.context, t.inputs[layer], t.outputs)
	return time.Since(start), err
}
