// Package graph is a use-def view over an ONNX model: nodes know the values
// they read and write, values know who makes and who uses them, across the
// borders of subgraphs (If, Loop, Scan) whose nodes may read values of the
// graphs around them. It carries the edits that rewriting needs and, in
// shape.go, what is known about each value's shape.
package graph

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// Tensors reads the elements of constants, wherever they lie.
type Tensors interface {
	// Data returns the elements as little-endian bytes in row-major order.
	// The slice belongs to the model and must not be written.
	Data(*onnx.Tensor) ([]byte, error)
	// Float64s and Int64s widen a constant of at most the given elements.
	Float64s(t *onnx.Tensor, limit int) ([]float64, error)
	Int64s(t *onnx.Tensor, limit int) ([]int64, error)
}

// Graph is one graph of a model: the main one, or the body of an attribute.
type Graph struct {
	Proto  *onnx.Graph
	Parent *Graph // the graph around this one; nil for the main graph
	Owner  *Node  // the node that holds this graph in an attribute; nil for the main graph

	Nodes   []*Node
	Inputs  []*Value
	Outputs []*Value

	root    *root
	values  map[string]*Value
	waiting []*onnx.Tensor // of AddConstant
	attr    string         // the attribute that holds this graph
}

// root is what all graphs of one model share.
type root struct {
	proto   *onnx.Model
	tensors Tensors
	names   map[string]bool // every value and node name in the model
	opsets  map[string]int64
	fresh   int
	made    int // values made so far
	bounds  bounds
	stands  map[*Value]string // what values were put in the place of, by name
	provide map[string][]string
}

// Node is one operator call. In holds nil where an optional input is left out,
// Out where an optional output is.
type Node struct {
	Proto     *onnx.Node
	Graph     *Graph
	In        []*Value
	Out       []*Value
	Subgraphs []*Graph
}

// Value is a named edge of the graph.
type Value struct {
	Name     string
	Graph    *Graph
	Producer *Node        // nil for inputs and initializers
	Tensor   *onnx.Tensor // the value's constant, or nil
	Type     *onnx.Type   // as declared, or nil
	IsInput  bool
	Default  bool  // an input that callers may leave out: an initializer holds what it is then
	IsOutput bool  // a graph output, of its own graph
	number   int32 // among those that the model's graphs made, from 0
	Uses     []Use
	handed   []place
}

// place is where a graph hands a value out.
type place struct {
	graph *Graph
	index int // among its outputs
}

// Use is one place where a value is read.
type Use struct {
	Node  *Node
	Index int
}

// New builds the view of a model. The model is edited in place by the methods
// of Graph once Commit is called.
func New(m *onnx.Model, tensors Tensors) (*Graph, error) {
	return NewWithin(context.Background(), m, tensors)
}

// NewWithin is New until the context ends: after that it is an error of kind ErrBounds.
func NewWithin(ctx context.Context, m *onnx.Model, tensors Tensors) (*Graph, error) {
	if m.GetGraph() == nil {
		return nil, fmt.Errorf("the model has no graph")
	}
	r := &root{proto: m, tensors: tensors, names: make(map[string]bool, len(m.Graph.Node)), opsets: map[string]int64{}}
	r.bounds.parts = 1
	for _, o := range m.OpsetImport {
		d := domainName(o.GetDomain())
		if _, twice := r.opsets[d]; !twice {
			r.opsets[d] = o.GetVersion()
		}
	}
	defer r.bounds.begin(ctx)()
	return build(m.Graph, nil, nil, "", r)
}

// overridable is the IR version from which on an initializer may be an input too,
// or not, and is a default that callers may override if it is. Before, every
// initializer had to be listed among the inputs and none could be fed.
const overridable = 4

func build(p *onnx.Graph, parent *Graph, owner *Node, attribute string, r *root) (*Graph, error) {
	g := &Graph{Proto: p, Parent: parent, Owner: owner, attr: attribute, root: r,
		values: make(map[string]*Value, len(p.Node)+len(p.Initializer)+len(p.Input))}
	constants := map[string]bool{}
	if r.proto.GetIrVersion() < overridable {
		for _, t := range p.Initializer {
			constants[t.GetName()] = true
		}
	}
	for _, in := range p.Input {
		if constants[in.GetName()] {
			continue
		}
		v, err := g.define(in.GetName())
		if err != nil {
			return nil, err
		}
		v.IsInput, v.Type = true, in.Type
		g.Inputs = append(g.Inputs, v)
	}
	for _, t := range p.Initializer {
		// An initializer that is also an input is a default, which the
		// caller may override: not a constant.
		if v := g.values[t.GetName()]; v != nil {
			if !v.IsInput {
				return nil, fmt.Errorf("initializer %q is defined twice", t.GetName())
			}
			v.Default = true
			continue
		}
		v, err := g.define(t.GetName())
		if err != nil {
			return nil, err
		}
		v.Tensor = t
	}
	for _, s := range p.SparseInitializer {
		if _, err := g.define(s.GetValues().GetName()); err != nil {
			return nil, err
		}
	}
	sorted := false
	for i := range p.Node {
		if !sorted && g.missing(p.Node[i]) {
			if err := inOrder(p.Node[i:]); err != nil {
				return nil, err
			}
			sorted = true
		}
		if err := g.adopt(p.Node[i]); err != nil {
			return nil, err
		}
	}
	for _, out := range p.Output {
		v := g.Lookup(out.GetName())
		if v == nil {
			return nil, fmt.Errorf("output %q is made by no node", out.GetName())
		}
		if v.Graph == g {
			v.IsOutput = true
			if v.Type == nil {
				v.Type = out.Type
			}
		}
		g.handOut(v)
	}
	for _, vi := range p.ValueInfo {
		if v := g.values[vi.GetName()]; v != nil && v.Type == nil {
			v.Type = vi.Type
		}
	}
	return g, nil
}

// adopt appends the node of a proto that already stands in the graph's proto.
func (g *Graph) adopt(np *onnx.Node) error {
	if len(g.Nodes)%betweenLook == 0 {
		if err := g.root.bounds.ended(); err != nil {
			return err
		}
	}
	n := &Node{Proto: np, Graph: g}
	g.root.names[np.GetName()] = true
	g.root.bounds.parts += int64(1 + len(np.Input) + len(np.Output))
	for i, name := range np.Input {
		if name == "" {
			n.In = append(n.In, nil)
			continue
		}
		v := g.Lookup(name)
		if v == nil {
			return fmt.Errorf("node %q (%s) reads %q, which nothing before it makes", np.GetName(), np.GetOpType(), name)
		}
		v.Uses = append(v.Uses, Use{n, i})
		n.In = append(n.In, v)
	}
	for _, a := range np.Attribute {
		for _, sub := range subgraphs(a) {
			s, err := build(sub, g, n, a.GetName(), g.root)
			if err != nil {
				return fmt.Errorf("%s of node %q (%s): %w", a.GetName(), np.GetName(), np.GetOpType(), err)
			}
			n.Subgraphs = append(n.Subgraphs, s)
		}
	}
	for _, name := range np.Output {
		if name == "" {
			n.Out = append(n.Out, nil)
			continue
		}
		v, err := g.define(name)
		if err != nil {
			return fmt.Errorf("node %q (%s): %w", np.GetName(), np.GetOpType(), err)
		}
		v.Producer = n
		v.Tensor = constantTensor(np)
		n.Out = append(n.Out, v)
	}
	g.Nodes = append(g.Nodes, n)
	return nil
}

func subgraphs(a *onnx.Attribute) []*onnx.Graph {
	if a.G != nil {
		return append([]*onnx.Graph{a.G}, a.Graphs...)
	}
	return a.Graphs
}

func (g *Graph) define(name string) (*Value, error) {
	if name == "" {
		return nil, fmt.Errorf("a value has no name")
	}
	if g.values[name] != nil {
		return nil, fmt.Errorf("value %q is defined twice", name)
	}
	g.root.names[name] = true
	return g.make(name), nil
}

// make adds a value of a name that no other has.
func (g *Graph) make(name string) *Value {
	v := &Value{Name: name, Graph: g, number: int32(g.root.made)}
	g.root.made++
	g.values[name] = v
	return v
}

// Lookup finds a value by name in this graph or the ones around it.
func (g *Graph) Lookup(name string) *Value {
	for s := g; s != nil; s = s.Parent {
		if v := s.values[name]; v != nil {
			return v
		}
	}
	return nil
}

// Source is what reads the elements of constants.
func (g *Graph) Source() Tensors { return g.root.tensors }

// Model is the proto this view was made from.
func (g *Graph) Model() *onnx.Model { return g.root.proto }

// Opset is the version of an operator set that the model imports; zero when it
// imports none. The default domain is "".
func (g *Graph) Opset(domain string) int64 {
	return g.root.opsets[domain]
}

func domainName(d string) string {
	if d == "ai.onnx" {
		return ""
	}
	return d
}

// Walk calls f for every node of the graph and its subgraphs, outer first.
func (g *Graph) Walk(f func(*Node)) {
	for _, n := range g.Nodes {
		f(n)
		for _, s := range n.Subgraphs {
			s.Walk(f)
		}
	}
}

// Op is the operator's name, with its domain before it unless that is ONNX's own.
func (n *Node) Op() string {
	if d := n.Proto.GetDomain(); d != "" && d != "ai.onnx" {
		return d + "." + n.Proto.GetOpType()
	}
	return n.Proto.GetOpType()
}

// Is reports whether the node is one of ONNX's own operators by these names.
func (n *Node) Is(ops ...string) bool {
	if n == nil {
		return false
	}
	op := n.Op()
	for _, o := range ops {
		if o == op {
			return true
		}
	}
	return false
}

// Unread says what a node says beyond what is read of its operator, and so why it is left alone; "" for nothing. See
// [onnx.Unread].
func (n *Node) Unread() string {
	inputs := make([]string, len(n.In)) // as edited, where those of Proto are those of the file
	for i, v := range n.In {
		if v != nil {
			inputs[i] = v.Name
		}
	}
	return onnx.Unread(n.Proto, inputs, n.Graph.Opset(domainName(n.Proto.GetDomain())))
}

// Input is the i-th input, or nil when it is left out.
func (n *Node) Input(i int) *Value {
	if i < 0 || i >= len(n.In) {
		return nil
	}
	return n.In[i]
}

// Output is the i-th output, or nil when it is left out.
func (n *Node) Output(i int) *Value {
	if i < 0 || i >= len(n.Out) {
		return nil
	}
	return n.Out[i]
}

// Attr is the attribute by that name, or nil.
func (n *Node) Attr(name string) *onnx.Attribute {
	for _, a := range n.Proto.Attribute {
		if a.GetName() == name {
			return a
		}
	}
	return nil
}

// Int is an integer attribute, or def when the node has none by that name.
func (n *Node) Int(name string, def int64) int64 {
	if a := n.Attr(name); a != nil && a.I != nil {
		return *a.I
	}
	return def
}

// Float is a floating-point attribute, or def.
func (n *Node) Float(name string, def float32) float32 {
	if a := n.Attr(name); a != nil && a.F != nil {
		return *a.F
	}
	return def
}

// Ints is a list attribute; ok is false when the node has none by that name.
func (n *Node) Ints(name string) (list []int64, ok bool) {
	if a := n.Attr(name); a != nil {
		return a.Ints, true
	}
	return nil, false
}

// str is a string attribute, or def.
func (n *Node) str(name, def string) string {
	if a := n.Attr(name); a != nil && a.S != nil {
		return string(a.S)
	}
	return def
}

// String names a node for people: its name, or its operator and first output.
func (n *Node) String() string {
	if name := n.Proto.GetName(); name != "" {
		return name
	}
	for _, o := range n.Out {
		if o != nil {
			return n.Op() + " -> " + o.Name
		}
	}
	return n.Op()
}

// Path is the node's place among nested graphs, outermost first, such as
// "optimum::if/then_branch: /attn/Softmax".
func (n *Node) Path() string {
	var parts []string
	for g := n.Graph; g.Owner != nil; g = g.Parent {
		parts = append(parts, g.Owner.String()+"/"+g.attr+": ")
	}
	slices.Reverse(parts)
	return strings.Join(parts, "") + n.String()
}
