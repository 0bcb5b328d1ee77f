package engine

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/abi"
	"github.com/opgraft/graft/host/defaults"
	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/loaded"
	"github.com/opgraft/graft/host/memory"
	"github.com/opgraft/graft/host/model"
	"github.com/opgraft/graft/host/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// weightOperand is the input of a linear layer's operator that holds its weights.
const weightOperand = 1

// panels are the weights of a session's linear layers, laid out anew in memory of the
// host's: the order in which they are multiplied is that in which they lie, in
// large pages. The session takes them as inputs.
type panels struct {
	memory  *memory.Region
	tensors map[string]*ort.Value
}

func (p *panels) close() {
	if p == nil {
		return
	}
	for _, v := range p.tensors {
		v.Close()
	}
	_ = p.memory.Close() // nothing can be done about a mapping that stays
}

// size is the bytes that they take; 0 where there are none.
func (p *panels) size() int64 {
	if p == nil {
		return 0
	}
	return p.memory.Size()
}

// matrix is one weight, and the linear layers that read it.
type matrix struct {
	value          *graph.Value
	transposed     bool
	depth, columns int64
	nodes          []*graph.Node
}

// shape is that of the panels.
func (m *matrix) shape() []int64 {
	return []int64{abi.Panels(m.columns), m.depth, abi.PanelColumns}
}

// floats are those of the panels.
func (m *matrix) floats() int64 { return abi.Panels(m.columns) * m.depth * abi.PanelColumns }

// pack lays out the weights of every linear layer of a graph, unless together they
// take more than limit bytes: then all stay as they lie. The graph's linear layers
// are changed to read panels, from inputs that the result holds.
func pack(l *ort.Library, m *model.Model, g *graph.Graph, plugins []*plugin.Plugin, limit int64, threads int) (_ *panels, err error) {
	list := matrices(g)
	total := int64(0)
	for _, w := range list {
		total += w.floats()
	}
	if total == 0 || 4*total > limit {
		return nil, nil
	}
	p, err := loaded.Named(plugins, defaults.Panels.Plugin)
	if err != nil {
		return nil, err
	}
	if threads == 0 {
		threads = runtime.NumCPU()
	}
	made := &panels{tensors: map[string]*ort.Value{}}
	defer func() {
		if err != nil {
			made.close()
		}
	}()
	if made.memory, err = memory.Reserve(4 * total); err != nil {
		return nil, fmt.Errorf("weights in panels: %w", err)
	}
	rest := made.memory.Floats()
	at := map[*matrix][]float32{}
	for _, w := range list {
		at[w], rest = rest[:w.floats()], rest[w.floats():]
	}
	largest := slices.MaxFunc(list, func(a, b *matrix) int { return cmp.Compare(a.depth*a.columns, b.depth*b.columns) })
	buffer, err := memory.Reserve(4 * largest.depth * largest.columns)
	if err != nil {
		return nil, fmt.Errorf("weights in panels: %w", err)
	}
	defer buffer.Close()
	for _, w := range list {
		if err := w.pack(m, p, buffer.Bytes(), at[w], w.shape(), threads); err != nil {
			return nil, fmt.Errorf("weights %s: %w", w.value.Name, err)
		}
	}
	for _, w := range list {
		shape := w.shape()
		name := g.FreshName("graft.panels." + w.value.Name)
		in, err := g.AddInput(name, graph.TensorType(onnx.Tensor_FLOAT, int(shape[0]), int(shape[1]), int(shape[2])))
		if err != nil {
			return nil, err
		}
		if made.tensors[name], err = ort.NewTensor(l, shape, at[w]); err != nil {
			return nil, err
		}
		for _, n := range w.nodes {
			n.SetInput(weightOperand, in)
			n.Proto.Attribute = slices.DeleteFunc(n.Proto.Attribute, func(a *onnx.Attribute) bool { return a.GetName() == "transposed" })
			n.Proto.Attribute = append(n.Proto.Attribute, integer("columns", w.columns))
		}
	}
	g.Prune()
	return made, g.Commit()
}

// matrices are the constant weights of a graph's linear layers.
func matrices(g *graph.Graph) []*matrix {
	type key struct {
		value      *graph.Value
		transposed bool
	}
	found := map[key]*matrix{}
	var list []*matrix
	for _, n := range g.Nodes {
		if !n.Is(manifest.Domain + "." + defaults.Linear.Name) {
			continue
		}
		v := n.Input(weightOperand)
		if v == nil || v.Tensor == nil || len(v.Tensor.Dims) != 2 || onnx.Tensor_DataType(v.Tensor.GetDataType()) != onnx.Tensor_FLOAT {
			continue
		}
		k := key{v, n.Int("transposed", 0) == 1}
		w := found[k]
		if w == nil {
			w = &matrix{value: v, transposed: k.transposed, depth: v.Tensor.Dims[0], columns: v.Tensor.Dims[1]}
			if k.transposed {
				w.depth, w.columns = w.columns, w.depth
			}
			found[k], list = w, append(list, w)
		}
		w.nodes = append(w.nodes, n)
	}
	return list
}

// pack fills the panels of one matrix, which is read into a buffer.
func (w *matrix) pack(m *model.Model, p *plugin.Plugin, buffer []byte, to []float32, shape []int64, threads int) error {
	data, err := m.DataIn(w.value.Tensor, buffer)
	if err != nil {
		return err
	}
	if len(data) == 0 || len(to) == 0 {
		return errors.New("a matrix without elements")
	}
	var attributes []manifest.Attribute
	if w.transposed {
		attributes = append(attributes, manifest.Attribute{Name: "transposed", Value: int64(1)})
	}
	k, err := p.Create(defaults.Panels.Name, attributes, nil, tensor.CPU)
	if err != nil {
		return err
	}
	defer k.Destroy()
	in := &tensor.Tensor{DType: tensor.Float32, Shape: w.value.Tensor.Dims, Data: unsafe.Pointer(unsafe.SliceData(data))}
	out := &tensor.Tensor{DType: tensor.Float32, Shape: shape, Data: unsafe.Pointer(unsafe.SliceData(to))}
	return k.Run(&plugin.RunContext{Threads: threads}, []*tensor.Tensor{in}, []*tensor.Tensor{out})
}

// integer is an attribute of a node.
func integer(name string, v int64) *onnx.Attribute {
	return &onnx.Attribute{Name: proto.String(name), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(v)}
}
