package prepare

import (
	"encoding/binary"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// microsoft is the domain of ONNX Runtime's own operators.
const microsoft = "com.microsoft"

// matMulNBits are positions of what MatMulNBits reads.
const (
	nbitsWeight = 1
	nbitsBias   = model.NBitsBias
)

// takeIntegers lets linear layers whose weights somebody quantised be those of the numbers that the integers stand
// for: what recognises and replaces linear layers finds them as others are, and [model.Model.IntegersOf] knows the
// integers of their weights. Taken are MatMulNBits of 4 and 8 bits in float32, and DequantizeLinear of matrices that
// MatMul and Gemm alone multiply with. Others stay.
func takeIntegers(file *model.Model, p *onnx.Model) error {
	g := p.GetGraph()
	t := &integerTaker{file: file, graph: g, constants: map[string]*onnx.Tensor{}, names: map[string]bool{},
		readers: map[string][]reader{}}
	for _, x := range g.GetInitializer() {
		t.constants[x.GetName()] = x
		t.names[x.GetName()] = true
	}
	for _, in := range g.GetInput() { // callers may give these
		delete(t.constants, in.GetName())
		t.names[in.GetName()] = true
	}
	for _, out := range g.GetOutput() {
		t.readers[out.GetName()] = append(t.readers[out.GetName()], reader{})
	}
	t.look(g)
	var nodes []*onnx.Node
	for _, n := range g.GetNode() {
		made, err := t.take(n)
		if err != nil {
			return err
		}
		nodes = append(nodes, made...)
	}
	g.Node = nodes
	return nil
}

// reader is a node that reads a value, and where; nil for an output of the graph or for one in a subgraph.
type reader struct {
	node *onnx.Node
	at   int
}

type integerTaker struct {
	file      *model.Model
	graph     *onnx.Graph
	constants map[string]*onnx.Tensor
	names     map[string]bool
	readers   map[string][]reader
}

// look finds who reads what, and all names.
func (t *integerTaker) look(g *onnx.Graph) {
	for _, n := range g.GetNode() {
		for i, name := range n.GetInput() {
			r := reader{n, i}
			if g != t.graph {
				r.node = nil
			}
			t.readers[name] = append(t.readers[name], r)
		}
		for _, name := range n.GetOutput() {
			t.names[name] = true
		}
		for _, a := range n.GetAttribute() {
			for _, s := range append(slices.Clone(a.GetGraphs()), a.GetG()) {
				if s == nil {
					continue
				}
				for _, x := range s.GetInitializer() {
					t.names[x.GetName()] = true
				}
				for _, out := range s.GetOutput() {
					t.readers[out.GetName()] = append(t.readers[out.GetName()], reader{})
				}
				t.look(s)
			}
		}
	}
}

// take is what stands for a node: itself where it stays.
func (t *integerTaker) take(n *onnx.Node) ([]*onnx.Node, error) {
	stays := []*onnx.Node{n}
	switch {
	case n.GetDomain() == microsoft && n.GetOpType() == "MatMulNBits":
		q := t.packed(n)
		if q == nil {
			return stays, nil
		}
		w, err := t.weight(n.Input[nbitsWeight], q)
		if err != nil {
			return nil, err
		}
		return t.matMul(n, w), nil
	case n.GetOpType() == "DequantizeLinear" && (n.GetDomain() == "" || n.GetDomain() == microsoft):
		w, err := t.bias(n)
		if q := t.matrix(n); err == nil && q != nil {
			w, err = t.file.Dequantized(n.Output[0], *q)
		}
		if err != nil {
			return nil, err
		}
		if w == nil {
			return stays, nil
		}
		t.graph.Initializer = append(t.graph.Initializer, w)
		t.graph.ValueInfo = slices.DeleteFunc(t.graph.ValueInfo,
			func(v *onnx.ValueInfo) bool { return v.GetName() == n.Output[0] })
		return nil, nil
	}
	return stays, nil
}

// weight adds the numbers of a weight to the graph, with a name of its own.
func (t *integerTaker) weight(like string, q *model.Integers) (string, error) {
	w, err := t.file.Dequantized(t.fresh(like), *q)
	if err != nil {
		return "", err
	}
	t.graph.Initializer = append(t.graph.Initializer, w)
	return w.GetName(), nil
}

// fresh is a name like another.
func (t *integerTaker) fresh(like string) string {
	name := like + "_numbers"
	for t.names[name] {
		name += "_"
	}
	t.names[name] = true
	return name
}

// matMul is a MatMulNBits that multiplies with a matrix.
func (t *integerTaker) matMul(n *onnx.Node, weight string) []*onnx.Node {
	product := &onnx.Node{Name: n.Name, OpType: proto.String("MatMul"), Input: []string{n.Input[0], weight},
		Output: n.Output}
	bias := input(n, nbitsBias)
	if bias == "" {
		return []*onnx.Node{product}
	}
	product.Output = []string{t.fresh(n.Output[0])}
	sum := &onnx.Node{Name: proto.String(t.fresh(n.GetName())), OpType: proto.String("Add"),
		Input: []string{product.Output[0], bias}, Output: n.Output}
	return []*onnx.Node{product, sum}
}

// input is a node's input by its place, "" for none.
func input(n *onnx.Node, at int) string {
	if at < len(n.GetInput()) {
		return n.Input[at]
	}
	return ""
}

// attributeOf is an integer of a node.
func attributeOf(n *onnx.Node, name string, otherwise int64) int64 {
	for _, a := range n.GetAttribute() {
		if a.GetName() == name {
			return a.GetI()
		}
	}
	return otherwise
}

// packed are the integers of a MatMulNBits, or nil where it stays.
func (t *integerTaker) packed(n *onnx.Node) *model.Integers {
	q, _ := model.NBits(n, func(name string) *onnx.Tensor { return t.constants[name] })
	return q
}

// matrix are the integers of a DequantizeLinear, or nil where it stays: that of rows of x, of scales along K one by
// one, or of a weight that something else reads too.
func (t *integerTaker) matrix(n *onnx.Node) *model.Integers {
	q := &model.Integers{Quantized: t.constants[input(n, 0)], Scales: t.constants[input(n, 1)], Node: n}
	if len(n.GetOutput()) != 1 || q.Quantized == nil || q.Scales == nil || len(q.Quantized.GetDims()) != 2 ||
		onnx.Tensor_DataType(q.Scales.GetDataType()) != onnx.Tensor_FLOAT {
		return nil
	}
	if name := input(n, 2); name != "" {
		if q.Zeros = t.constants[name]; q.Zeros == nil {
			return nil
		}
	}
	switch onnx.Tensor_DataType(q.Quantized.GetDataType()) {
	case onnx.Tensor_INT8, onnx.Tensor_UINT8:
		q.Bits = 8
	case onnx.Tensor_INT4, onnx.Tensor_UINT4:
		q.Bits = 4
	default:
		return nil
	}
	if attributeOf(n, "output_dtype", 0) != 0 {
		return nil
	}
	readers := t.readers[n.Output[0]]
	for i, r := range readers {
		transposed := false
		switch {
		case r.node == nil || r.at != 1 || r.node.GetDomain() != "" ||
			r.node.GetOpType() != "MatMul" && r.node.GetOpType() != "Gemm":
			return nil
		case r.node.GetOpType() == "Gemm":
			transposed = attributeOf(r.node, "transB", 0) != 0
		}
		if i > 0 && transposed != q.Transposed {
			return nil
		}
		q.Transposed = transposed
	}
	if len(readers) == 0 {
		return nil
	}
	dims, axis, block := q.Quantized.Dims, attributeOf(n, "axis", 1), attributeOf(n, "block_size", 0)
	if axis < 0 {
		axis += 2
	}
	q.Depth, q.Columns = dims[0], dims[1]
	along := int64(0) // the axis of K
	if q.Transposed {
		q.Depth, q.Columns, along = dims[1], dims[0], 1
	}
	q.Block = q.Depth
	scales, err := model.NumElements(q.Scales)
	switch {
	case err != nil || q.Depth == 0 || q.Columns == 0:
		return nil
	case block > 0 && axis == along:
		q.Block = block
	case block == 0 && (scales == 1 || axis != along):
	default:
		return nil
	}
	return q
}

// bias are the numbers of a bias of int32 that Gemm adds, or nil for another value.
func (t *integerTaker) bias(n *onnx.Node) (*onnx.Tensor, error) {
	q, scales := t.constants[input(n, 0)], t.constants[input(n, 1)]
	if len(n.GetOutput()) != 1 || q == nil || scales == nil || len(q.GetDims()) != 1 ||
		onnx.Tensor_DataType(q.GetDataType()) != onnx.Tensor_INT32 ||
		onnx.Tensor_DataType(scales.GetDataType()) != onnx.Tensor_FLOAT || attributeOf(n, "output_dtype", 0) != 0 {
		return nil, nil
	}
	for _, r := range t.readers[n.Output[0]] {
		if r.node == nil || r.at != 2 || r.node.GetDomain() != "" || r.node.GetOpType() != "Gemm" {
			return nil, nil
		}
	}
	if name := input(n, 2); name != "" { // of int32 it is 0
		zeros := t.constants[name]
		if zeros == nil {
			return nil, nil
		}
		b, err := t.file.Data(zeros)
		if err != nil || slices.ContainsFunc(b, func(x byte) bool { return x != 0 }) {
			return nil, err
		}
	}
	numbers, err := t.file.Data(q)
	if err != nil {
		return nil, err
	}
	by, err := t.file.Data(scales)
	if err != nil || len(by) != 4 && len(by) != len(numbers) || len(numbers) == 0 {
		return nil, err
	}
	made := make([]float32, len(numbers)/4)
	for i := range made {
		scale := by
		if len(by) > 4 {
			scale = by[4*i:]
		}
		made[i] = float32(int32(binary.LittleEndian.Uint32(numbers[4*i:]))) * math.Float32frombits(
			binary.LittleEndian.Uint32(scale))
	}
	return graph.FloatTensor(n.Output[0], q.Dims, made...), nil
}

// giveBack lets linear layers of integers that nothing took be what they were.
func giveBack(file *model.Model, g *graph.Graph) error {
	for _, n := range slices.Clone(g.Nodes) {
		if !n.Is("MatMul", "Gemm") || n.Input(1) == nil || n.Input(1).Tensor == nil {
			continue
		}
		q := file.IntegersOf(n.Input(1).Tensor)
		if q == nil {
			continue
		}
		in := make([]*graph.Value, len(q.Node.Input))
		if q.Packed {
			in[0] = n.Input(0)
		} else {
			in[0] = constantOf(g, q.Quantized)
		}
		for i, name := range q.Node.Input[1:] {
			for _, t := range []*onnx.Tensor{q.Quantized, q.Scales, q.Zeros} {
				if name != "" && t.GetName() == name {
					in[i+1] = constantOf(g, t)
				}
			}
		}
		made := &onnx.Node{OpType: q.Node.OpType, Domain: q.Node.Domain, Attribute: q.Node.Attribute}
		name := g.FreshName("graft_given_back")
		if q.Packed {
			in = in[:min(len(in), nbitsBias)] // the sum with it stands apart
		}
		back, err := g.AddNode(made, in, []string{name})
		if err != nil {
			return err
		}
		if q.Packed {
			g.Replace(n.Out[0], back.Out[0])
		} else {
			n.SetInput(1, back.Out[0])
		}
	}
	g.Prune()
	if err := g.Sort(); err != nil {
		return err
	}
	return g.Commit()
}

// constantOf is a tensor of the graph, which may have been dropped.
func constantOf(g *graph.Graph, t *onnx.Tensor) *graph.Value {
	if v := g.Lookup(t.GetName()); v != nil && v.Tensor != nil {
		return v
	}
	return g.AddInitializer(proto.CloneOf(t))
}
