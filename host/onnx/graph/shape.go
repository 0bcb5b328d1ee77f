package graph

import (
	"slices"
	"sync/atomic"

	"github.com/opgraft/graft/host/onnx/model/onnx"
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
// Each axis of an input has a symbol. The first axis that a model calls by a name
// goes by it, any other by value and axis ("mask.1"). Names are not believed:
// two symbols are one where the graph shows it (shape_alias.go). An operator's
// result that cannot be expressed is a new symbol, so that what is derived from
// it can still be compared. Three things are taken for
// granted that no graph states: a slice between symbolic bounds of a table with
// a constant number of rows lies inside the table, a slice of one row (or of
// all but one) finds that row, and a computed length that a Reshape is given is
// neither 0 nor -1 by chance.
//
// A value inside the body of a Loop or Scan has the shape that holds in every
// iteration. Calls of functions that the model itself defines, and values that
// are not tensors, are unknown.
type Shapes struct {
	main      *Graph
	facts     []known           // by the numbers of values
	reserved  map[string]bool   // symbols that the model names anywhere
	declared  []string          // symbols with a name of the model's, in order of appearance
	invented  map[string]bool   // symbols with another; true for results that could not be expressed
	own       []string          // the same, in order
	order     map[string]int    // when each symbol was made
	claims    map[string]Dim    // what the model calls the axis of a symbol; unknown for nothing
	doubted   map[string]bool   // names that are not one length
	scope     *scope            // symbols that are other lengths; nil when nothing more is found
	within    map[*Graph]*scope // the same, where a subgraph ended
	made      map[axis]string   // the symbol made for an axis
	origin    map[string]axis   // the same, the other way
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
// unknown. Graph.Bounded stops it.
func Infer(g *Graph) *Shapes {
	inferences.Add(1)
	s := &Shapes{
		main:      g,
		facts:     make([]known, g.root.made),
		reserved:  map[string]bool{},
		invented:  map[string]bool{},
		order:     map[string]int{},
		claims:    map[string]Dim{},
		doubted:   map[string]bool{},
		made:      map[axis]string{},
		origin:    map[string]axis{},
		inside:    map[string]*Graph{},
		within:    map[*Graph]*scope{},
		functions: map[string]bool{},
	}
	for _, f := range g.Model().GetFunctions() {
		s.functions[opName(f.GetDomain(), f.GetName())] = true
	}
	s.reserveNames(g)
	s.doubt(g)
	s.enter()
	for _, v := range g.Inputs {
		s.Know(v, s.input(v, Fact{Rank: -1}))
	}
	s.graph(g, 0)
	s.settle(g)
	s.honour(g)
	s.shorten()
	left := func(name string) bool { _, gone := s.scope.is[name]; return gone }
	s.declared, s.own = slices.DeleteFunc(s.declared, left), slices.DeleteFunc(s.own, left)
	s.scope = nil
	return s
}

// Of is what is known of a value. Nothing is known of a value that a node made
// after Infer ran, but of a new constant what it says.
func (s *Shapes) Of(v *Value) Fact {
	if f, ok := s.recall(v); ok {
		if s.scope != nil {
			f = s.current(f)
		}
		return f
	}
	if v != nil && v.Tensor != nil {
		return fromTensor(v)
	}
	return Fact{Rank: -1}
}

// Know states what is known of a value that was made after Infer ran, or was changed.
func (s *Shapes) Know(v *Value, f Fact) {
	for int(v.number) >= len(s.facts) {
		s.facts = append(s.facts, known{})
	}
	s.facts[v.number] = known{v, f}
}

// known is what was found of a value.
type known struct {
	value *Value
	fact  Fact
}

func (s *Shapes) recall(v *Value) (Fact, bool) {
	if v == nil || int(v.number) >= len(s.facts) || s.facts[v.number].value != v {
		return Fact{}, false
	}
	return s.facts[v.number].fact, true
}

// Symbols lists the names that lengths may depend on, those that the model gives
// first. Each kind stands in the order in which the graph brings it up.
func (s *Shapes) Symbols() []string { return slices.Concat(s.declared, s.own) }

// Invented reports whether a symbol's name is not the model's but made here, for an
// input's length without a name of its own or a result that could not be expressed.
func (s *Shapes) Invented(name string) bool {
	_, ok := s.invented[name]
	return ok
}

// Names reports whether the model gives a length that name anywhere.
func (s *Shapes) Names(name string) bool { return s.reserved[name] }

// Origin is the value and axis that a symbol was made for; nil for none.
func (s *Shapes) Origin(name string) (v *Value, index int) {
	at := s.origin[name]
	return at.value, at.index
}

// Claimed is a length in the model's own names; unknown where it has none, or none to be believed. It may be wrong.
func (s *Shapes) Claimed(d Dim) Dim {
	return d.replace(func(name string) Dim {
		return s.claims[name] // unknown without one
	})
}

// Claims are what the model calls the axes of a value, unknown where they have no
// name. They may be wrong.
func (v *Value) Claims() []Dim { return fromType(v.Type).Dims }

// Declarable reports whether all axes of inputs that the model calls by a symbol's
// name have that length, so that the name may be given to others.
func (s *Shapes) Declarable(name string) bool { return !s.Invented(name) && !s.doubted[name] }
