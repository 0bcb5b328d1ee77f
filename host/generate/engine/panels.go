package engine

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/base/memory"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/capability"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
	"github.com/opgraft/graft/host/session/fold"
)

// weightOperand is the input of a linear layer's operator that holds its weights.
const weightOperand = 1

// panels are the weights of a session's linear layers, laid out anew in memory of the
// host's: the order in which they are multiplied is that in which they lie, in
// large pages. The session takes them as inputs.
type panels struct {
	memory    *memory.Region // those of float32
	quantized *fold.Result   // those of integers, with their scales
	given     *memory.Region // integers that the model holds, with their scales and zero points
	tensors   map[string]*ort.Value
	all       bool // no weight of a linear layer stays as stored
	counts    []LinearWeights
	refused   map[*graph.Value]string // why weights that were to be integers stay float32
	stored    bool                    // those of integers were quantised before
}

func (p *panels) close() {
	if p == nil {
		return
	}
	for _, v := range p.tensors {
		v.Close()
	}
	// Nothing can be done about a mapping that stays.
	_ = p.memory.Close()
	_ = p.given.Close()
	if p.quantized != nil {
		_ = p.quantized.Close()
	}
}

// size is the bytes that they take; 0 where there are none.
func (p *panels) size() (n int64) {
	if p == nil {
		return 0
	}
	n = p.memory.Size() + p.given.Size()
	if p.quantized != nil {
		n += p.quantized.Size()
	}
	return n
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

// floats are those of the panels, bytes those of the weight in its file.
func (m *matrix) floats() int64 { return abi.Panels(m.columns) * m.depth * abi.PanelColumns }
func (m *matrix) bytes() int64  { return 4 * m.depth * m.columns }

// pack lays out the weights of every linear layer of a graph: in fewer bits those that
// the model holds so or that Options.Weights says so of, and the others unless together they take more than
// Options.PanelBytes; then these stay as stored. The graph's linear layers
// are changed to read panels, from inputs that the result holds.
func pack(of *prepare.Graph, o Options) (_ *panels, err error) {
	g := of.Graph
	list := matrices(g)
	if len(list) == 0 {
		return nil, nil
	}
	if o.Threads == 0 {
		o.Threads = runtime.NumCPU()
	}
	made := &panels{tensors: map[string]*ort.Value{}, refused: map[*graph.Value]string{}, all: true}
	defer func() {
		if err != nil {
			made.close()
		}
	}()
	plain, err := made.exported(of, list, o)
	if err != nil {
		return nil, err
	}
	if o.Weights.Quantizes() && len(plain) > 0 {
		if plain, err = made.quantize(of, plain, o); err != nil {
			return nil, err
		}
	}
	total := int64(0)
	for _, w := range plain {
		total += 4 * w.floats()
	}
	if total > 0 && total <= o.PanelBytes-made.size() {
		err = made.layOut(of, plain, total, o)
	} else {
		made.all = len(plain) == 0
	}
	if err != nil {
		return nil, err
	}
	if len(made.tensors) == 0 && len(made.refused) == 0 {
		return nil, nil
	}
	g.Prune()
	if err := g.Sort(); err != nil { // linear layers that are one by now
		return nil, err
	}
	return made, g.Commit()
}

// layOut lays out weights as float32.
func (p *panels) layOut(of *prepare.Graph, list []*matrix, total int64, o Options) (err error) {
	by, lays, err := laysOut(of, o)
	if err != nil {
		return err
	}
	if p.memory, err = memory.Reserve(total); err != nil {
		return fmt.Errorf("weights in panels: %w", err)
	}
	buffer, err := readingBuffer(list)
	if err != nil {
		return err
	}
	defer buffer.Close()
	rest, count := p.memory.Floats(), LinearWeights{Type: string(prepare.Float32Weights)}
	for _, group := range beside(list, func(m *matrix) *matrix { return m }, func(*matrix) string { return "" }) {
		var laid []*tensor.Tensor
		for _, w := range group {
			to := rest[:w.floats()]
			rest = rest[w.floats():]
			out := &tensor.Tensor{DType: tensor.Float32, Shape: w.shape(), Data: unsafe.Pointer(unsafe.SliceData(to))}
			if err := w.pack(of.Model, by, lays, buffer.Bytes(), []*tensor.Tensor{out}, nil, o.Threads); err != nil {
				return err
			}
			laid = append(laid, out)
			if p.refused[w.value] == "" {
				count.add(w, int64(len(to))*4)
			}
		}
		if err := p.stand(of, o.Library, group, []operand{{weightOperand, "graft.panels.", laid}}); err != nil {
			return err
		}
	}
	if count.Matrices > 0 {
		p.counts = append(p.counts, count)
	}
	return nil
}

// readingBuffer has room for each of some weights, as stored in their file.
func readingBuffer(list []*matrix) (*memory.Region, error) {
	largest := slices.MaxFunc(list, func(a, b *matrix) int { return cmp.Compare(a.bytes(), b.bytes()) })
	buffer, err := memory.Reserve(largest.bytes())
	if err != nil {
		return nil, fmt.Errorf("weights in panels: %w", err)
	}
	return buffer, nil
}

// input makes a tensor an input of the graph, which the session is given in every run.
func (p *panels) input(l *ort.Library, g *graph.Graph, name string, t *tensor.Tensor) (*graph.Value, error) {
	element, err := elementOf(t.DType)
	if err != nil {
		return nil, err
	}
	dims := make([]any, len(t.Shape))
	for i, d := range t.Shape {
		dims[i] = int(d)
	}
	in, err := g.AddInput(g.FreshName(name), graph.TensorType(element, dims...))
	if err == nil {
		p.tensors[in.Name], err = l.NewTensorBytes(ort.ElementType(element), t.Shape, t.Bytes())
	}
	return in, err
}

// elementOf is ONNX's number of an element type.
func elementOf(t tensor.DType) (onnx.Tensor_DataType, error) {
	switch t {
	case tensor.Float32:
		return onnx.Tensor_FLOAT, nil
	case tensor.Float64:
		return onnx.Tensor_DOUBLE, nil
	}
	n, ok := onnx.Tensor_DataType_value[strings.ToUpper(string(t))]
	if !ok {
		return 0, fmt.Errorf("found the element type %q, which ONNX has not", t)
	}
	return onnx.Tensor_DataType(n), nil
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
		if !n.Provides(capability.LinearPanels) {
			continue
		}
		v := n.Input(weightOperand)
		if v == nil || v.Tensor == nil || len(v.Tensor.Dims) != 2 || slices.Contains(v.Tensor.Dims, 0) ||
			onnx.Tensor_DataType(v.Tensor.GetDataType()) != onnx.Tensor_FLOAT {
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

// pack lets the plugin make a weight's panels, and what belongs to them, of the weight, which is
// read into a buffer.
func (m *matrix) pack(from *model.Model, p *plugin.Plugin, operator string, buffer []byte, to []*tensor.Tensor,
	attributes []manifest.Attribute, threads int) error {
	fail := func(err error) error { return fmt.Errorf("weights %s: %w", m.value.Name, err) }
	data, err := from.DataIn(m.value.Tensor, buffer)
	if err != nil {
		return fail(err)
	}
	k, in, err := m.kernel(p, operator, attributes)
	if err != nil {
		return fail(err)
	}
	defer k.Destroy()
	in.Data = unsafe.Pointer(unsafe.SliceData(data))
	size, err := k.Workspace([]*tensor.Tensor{in}, to, threads)
	if err != nil {
		return fail(err)
	}
	if err := k.Run(&plugin.RunContext{Threads: threads, Workspace: plugin.NewWorkspace(size)}, []*tensor.Tensor{in},
		to); err != nil {
		return fail(err)
	}
	return nil
}

// laysOut is the plugin that lays weights out in panels for the linear layers of a graph, which are of the same plugin,
// and the name of the operator that does.
func laysOut(of *prepare.Graph, o Options) (*plugin.Plugin, string, error) {
	return plugin.Provider(o.Plugins.Plugins, capability.PackPanels,
		func(name string) bool { return !slices.Contains(of.Plugins, name) })
}

// kernel makes the operator that lays out a weight, and describes what it takes.
func (m *matrix) kernel(p *plugin.Plugin, operator string, attributes []manifest.Attribute) (*plugin.Kernel,
	*tensor.Tensor, error) {
	if m.transposed {
		attributes = append(slices.Clone(attributes), manifest.Attribute{Name: "transposed", Value: int64(1)})
	}
	k, err := p.Create(operator, attributes, nil, tensor.CPU)
	return k, &tensor.Tensor{DType: tensor.Float32, Shape: m.value.Tensor.Dims}, err
}

// words is an attribute of a node.
func words(name, v string) *onnx.Attribute {
	return &onnx.Attribute{Name: proto.String(name), Type: onnx.Attribute_STRING.Enum(), S: []byte(v)}
}

// integer is an attribute of a node.
func integer(name string, v int64) *onnx.Attribute {
	return &onnx.Attribute{Name: proto.String(name), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(v)}
}
