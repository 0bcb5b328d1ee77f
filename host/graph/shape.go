package graph

import (
	"maps"
	"slices"
	"strconv"

	"github.com/opgraft/graft/host/model/onnx"
)

// Limits that keep a hostile model from costing time or memory.
const (
	maxRank        = 64
	maxElems       = 4096    // elements of an integer tensor that are followed
	maxFloats      = 256     // elements of a floating tensor that are followed
	elementsBudget = 1 << 20 // elements that are followed in one model
	maxNameLength  = 256     // longer names of lengths are replaced
)

// Fact is what is known of a value.
type Fact struct {
	DType onnx.Tensor_DataType // UNDEFINED when unknown, or when the value is no tensor
	Rank  int                  // -1 when unknown
	Dims  []Dim                // one for each axis; some may be unknown

	// Elems are the elements, in row-major order, of a small tensor of integers
	// or booleans (0 and 1), as shape arithmetic makes them: they may depend
	// on symbols, and single ones may be unknown. Nil when nothing is known.
	Elems []Dim
	// Floats are the elements of a small floating tensor whose content does not
	// depend on what the model is given, computed ones included, rounded as
	// the type rounds. Nil when they are not known.
	Floats []float64
}

// Scalar is the only element of a floating tensor with one element whose
// content is known.
func (f Fact) Scalar() (x float64, ok bool) {
	if len(f.Floats) != 1 {
		return 0, false
	}
	return f.Floats[0], true
}

// Dim is the length of an axis, counted from the end when negative; it is
// unknown when there is no such axis or the rank is unknown.
func (f Fact) Dim(axis int) Dim {
	if axis < 0 {
		axis += len(f.Dims)
	}
	if f.Rank < 0 || axis < 0 || axis >= len(f.Dims) {
		return Dim{}
	}
	return f.Dims[axis]
}

// Count is the number of elements, unknown when any length is.
func (f Fact) Count() Dim {
	if f.Rank < 0 {
		return Dim{}
	}
	n := DimInt(1)
	for _, d := range f.Dims {
		n = n.Mul(d)
	}
	return n
}

// Shapes is what is known of the values of a model: shapes over symbolic
// lengths, types, and the content of small tensors.
//
// The lengths that inputs declare by name are symbols, one for each name, and
// sums and products of names are read as such; unnamed lengths get a symbol of
// their own, named after value and axis. A model is taken at its word: equal
// names are equal lengths. Where an operator's result cannot be expressed, the
// declared length stands, and failing that a new symbol, so that what is
// derived from it can still be compared. A slice between symbolic bounds of a
// table with a constant number of rows is taken to lie inside the table, and a
// slice of one row to find it. Calls of functions that the model defines have
// unknown results.
type Shapes struct {
	facts    map[*Value]Fact
	declared map[string]bool // symbols that the model names
	invented map[string]bool // symbols made here, for lengths of inputs
	results  map[string]bool // symbols made here, for results that could not be expressed
	order    []string
	elements int // elements followed so far
}

// Infer finds what can be known of every value of a model from its main graph,
// subgraphs included. It never fails: what is wrong or not understood is
// unknown.
func Infer(g *Graph) *Shapes {
	s := &Shapes{
		facts:    map[*Value]Fact{},
		declared: map[string]bool{},
		invented: map[string]bool{},
		results:  map[string]bool{},
	}
	s.reserveNames(g)
	for _, v := range g.Inputs {
		f := s.fromType(v.Type)
		for i, d := range f.Dims {
			if !d.Known() {
				f.Dims[i] = s.invent(v, i, s.invented)
			}
		}
		s.facts[v] = f
	}
	s.graph(g, 0)
	return s
}

// Of is what is known of a value; of one that came after Infer, nothing is.
func (s *Shapes) Of(v *Value) Fact {
	if f, ok := s.facts[v]; ok {
		return f
	}
	if v != nil && v.Tensor != nil {
		return s.fromTensor(v)
	}
	return Fact{Rank: -1}
}

// Symbols lists the names that lengths depend on, those the model declares
// first.
func (s *Shapes) Symbols() []string {
	list := slices.Sorted(maps.Keys(s.declared))
	return append(list, s.order...)
}

// Invented reports whether a symbol is not the model's but made here, for a
// length without a name or a result that could not be expressed.
func (s *Shapes) Invented(name string) bool { return s.invented[name] || s.results[name] }

// reserveNames collects the names that the model gives to lengths anywhere, so
// that none of them is invented.
func (s *Shapes) reserveNames(g *Graph) {
	for _, v := range g.values {
		for _, d := range v.Type.GetTensorType().GetShape().GetDim() {
			if name := d.GetDimParam(); name != "" {
				for _, sym := range s.named(name).Symbols() {
					s.declared[sym] = true
				}
			}
		}
	}
	for _, n := range g.Nodes {
		for _, sub := range n.Subgraphs {
			s.reserveNames(sub)
		}
	}
}

// named is the length that a model gives by name, unknown when the name is
// empty or too long to be handled.
func (s *Shapes) named(name string) Dim {
	if name == "" || len(name) > maxNameLength {
		return Dim{}
	}
	return ParseDim(name)
}

// invent makes a symbol for an axis of a value.
func (s *Shapes) invent(v *Value, axis int, kind map[string]bool) Dim {
	stem := v.Name
	if len(stem) > maxNameLength {
		stem = stem[:maxNameLength]
	}
	name := stem + "." + strconv.Itoa(axis)
	for i := 1; s.declared[name] || s.invented[name] || s.results[name]; i++ {
		name = stem + "." + strconv.Itoa(axis) + "." + strconv.Itoa(len(s.order)+i)
	}
	kind[name] = true
	s.order = append(s.order, name)
	return DimSym(name)
}

// fromType is what a declaration says.
func (s *Shapes) fromType(t *onnx.Type) Fact {
	tensor := t.GetTensorType()
	f := Fact{Rank: -1, DType: onnx.Tensor_DataType(tensor.GetElemType())}
	if tensor.GetShape() == nil || len(tensor.Shape.Dim) > maxRank {
		return f
	}
	f.Rank = len(tensor.Shape.Dim)
	f.Dims = make([]Dim, f.Rank)
	for i, d := range tensor.Shape.Dim {
		switch v := d.GetValue().(type) {
		case *onnx.Shape_Dim_DimValue:
			if v.DimValue >= 0 {
				f.Dims[i] = DimInt(v.DimValue)
			}
		case *onnx.Shape_Dim_DimParam:
			f.Dims[i] = s.named(v.DimParam)
		}
	}
	return f
}

// fromTensor is what a constant says.
func (s *Shapes) fromTensor(v *Value) Fact {
	t := v.Tensor
	f := Fact{DType: onnx.Tensor_DataType(t.GetDataType()), Rank: -1}
	count, err := Elements(t)
	if err != nil || len(t.Dims) > maxRank {
		return f
	}
	f.Rank = len(t.Dims)
	f.Dims = dimInts(t.Dims...)
	switch {
	case isFloating(f.DType) && count <= maxFloats:
		f.Floats, _ = v.Floats()
	case !isFloating(f.DType) && count <= maxElems:
		if list, ok := v.Ints(); ok {
			f.Elems = dimInts(list...)
		}
	}
	return f
}

func dimInts(list ...int64) []Dim {
	dims := make([]Dim, len(list))
	for i, n := range list {
		dims[i] = DimInt(n)
	}
	return dims
}

func isFloating(t onnx.Tensor_DataType) bool {
	switch t {
	case onnx.Tensor_FLOAT, onnx.Tensor_DOUBLE, onnx.Tensor_FLOAT16, onnx.Tensor_BFLOAT16:
		return true
	}
	return false
}

// call is one operator call whose outputs are to be found.
type call struct {
	s   *Shapes
	n   *Node
	out []Fact
}

// graph goes through the nodes of a graph whose inputs are known.
func (s *Shapes) graph(g *Graph, depth int) {
	for _, v := range g.values {
		if v.Tensor != nil && v.Producer == nil {
			s.facts[v] = s.fromTensor(v)
		}
	}
	for _, n := range g.Nodes {
		s.node(n, depth)
	}
}

// node finds what a node's outputs are.
func (s *Shapes) node(n *Node, depth int) {
	c := &call{s: s, n: n, out: make([]Fact, len(n.Out))}
	for i := range c.out {
		c.out[i] = Fact{Rank: -1}
	}
	for _, sub := range n.Subgraphs {
		s.graph(sub, depth+1)
	}
	if rule := rules[n.Op()]; rule != nil {
		rule(c)
	}
	for i, v := range n.Out {
		if v == nil {
			continue
		}
		if v.Tensor != nil {
			s.facts[v] = s.fromTensor(v)
			continue
		}
		s.facts[v] = s.settle(v, c.out[i])
	}
}

// settle completes what a rule found by what is declared, and by new symbols
// for lengths of which nothing is known.
func (s *Shapes) settle(v *Value, f Fact) Fact {
	declared := s.fromType(v.Type)
	if f.DType == onnx.Tensor_UNDEFINED {
		f.DType = declared.DType
	}
	if f.Rank < 0 {
		f.Rank, f.Dims = declared.Rank, declared.Dims
	}
	if f.Rank > maxRank || f.Rank != len(f.Dims) {
		f.Rank, f.Dims = -1, nil
	}
	if f.Rank < 0 {
		return f
	}
	for i, d := range f.Dims {
		name, single := d.symbol()
		if d.Known() && !(single && s.results[name]) {
			continue
		}
		if declared.Rank == f.Rank && declared.Dims[i].Known() {
			if _, ok := declared.Dims[i].Const(); ok || !d.Known() {
				f.Dims[i] = declared.Dims[i]
			}
		}
		if !f.Dims[i].Known() {
			f.Dims[i] = s.invent(v, i, s.results)
		}
	}
	return f
}

// rules tells, for each operator, how to find its outputs.
var rules = map[string]func(*call){
	"Identity": func(c *call) { c.out[0] = c.in(0) },
}

// in is what is known of an input; of one left out, nothing is.
func (c *call) in(i int) Fact { return c.s.Of(c.n.Input(i)) }
