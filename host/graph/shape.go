package graph

import (
	"slices"
	"sync/atomic"

	"github.com/opgraft/graft/host/model/onnx"
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
	return product(f.Dims)
}

// Shapes is what is known of the values of a model: shapes over symbolic
// lengths, types, and the content of small tensors.
//
// The lengths that inputs declare by name are symbols, one for each name, and
// sums and products of names are read as such; unnamed lengths get a symbol of
// their own, named after value and axis ("mask.1"). A model is taken at its
// word: equal names are equal lengths. Where an operator's result cannot be
// expressed, the declared length stands, and failing that a new symbol, so that
// what is derived from it can still be compared. Three things are taken for
// granted that no graph states: a slice between symbolic bounds of a table with
// a constant number of rows lies inside the table, a slice of one row (or of
// all but one) finds that row, and a computed length that a Reshape is given is
// neither 0 nor -1 by chance.
//
// A value inside the body of a Loop or Scan has the shape that holds in every
// iteration. Calls of functions that the model itself defines, and values that
// are not tensors, are unknown.
type Shapes struct {
	facts     map[*Value]Fact
	reserved  map[string]bool   // symbols that the model names anywhere
	seen      map[string]bool   // those of them that facts name
	declared  []string          // the same, in order of appearance
	invented  map[string]bool   // symbols made here; true for results that could not be expressed
	own       []string          // the same, in order
	made      map[axis]string   // the symbol made for an axis
	inside    map[string]*Graph // the graph of that axis
	functions map[string]bool   // operators that the model itself defines
	elements  int               // elements followed so far
	work      int               // elements looked at so far
}

// axis is one axis of a value.
type axis struct {
	value *Value
	index int
}

// inferences counts calls of Infer.
var inferences atomic.Int64

// Inferred is how often this process inferred the shapes of a model: to tell work that
// is done twice.
func Inferred() int64 { return inferences.Load() }

// Infer finds what can be known of every value of a model from its main graph,
// subgraphs included. It never fails: what is wrong or not understood is
// unknown.
func Infer(g *Graph) *Shapes {
	inferences.Add(1)
	s := &Shapes{
		facts:     map[*Value]Fact{},
		reserved:  map[string]bool{},
		seen:      map[string]bool{},
		invented:  map[string]bool{},
		made:      map[axis]string{},
		inside:    map[string]*Graph{},
		functions: map[string]bool{},
	}
	for _, f := range g.Model().GetFunctions() {
		s.functions[opName(f.GetDomain(), f.GetName())] = true
	}
	s.reserveNames(g)
	for _, v := range g.Inputs {
		s.facts[v] = s.input(v, Fact{Rank: -1})
	}
	s.graph(g, 0)
	return s
}

// Of is what is known of a value. Nothing is known of a value that a node made
// after Infer ran, but of a new constant what it says.
func (s *Shapes) Of(v *Value) Fact {
	if f, ok := s.facts[v]; ok {
		return f
	}
	if v != nil && v.Tensor != nil {
		return fromTensor(v)
	}
	return Fact{Rank: -1}
}

// Know states what is known of a value that was made after Infer ran, or was changed.
func (s *Shapes) Know(v *Value, f Fact) { s.facts[v] = f }

// Symbols lists the names that lengths may depend on, those the model declares
// first. Each kind stands in the order in which the graph brings it up.
func (s *Shapes) Symbols() []string { return slices.Concat(s.declared, s.own) }

// Invented reports whether a symbol is not the model's but made here, for an
// input's length without a name or a result that could not be expressed.
func (s *Shapes) Invented(name string) bool {
	_, ok := s.invented[name]
	return ok
}
