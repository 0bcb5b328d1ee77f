// Package roles decides what the inputs of a model mean and what their axes count:
// from what the graph does with them, and by name only where the graph says nothing.
package roles

import (
	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/onnx/graph"
)

// Input is what an input of a model holds.
type Input string

// The inputs of language and vision models.
const (
	Tokens         Input = "tokens"         // rows of the largest table that integers index
	Types          Input = "types"          // rows of a small table: segments of a text
	Positions      Input = "positions"      // index a table of positions, or are turned into angles
	Mask           Input = "mask"           // hides keys from queries
	KeyLengths     Input = "key lengths"    // index of each row's last key
	Total          Input = "total length"   // past and new together, a number
	Count          Input = "count"          // how many of the last logits are made
	Past           Input = "past"           // joined to the keys or values of self attention, or in their place
	EncoderPast    Input = "encoder past"   // keys or values of cross attention
	EncoderOutput  Input = "encoder output" // what cross attention makes its keys from
	UseCacheBranch Input = "use cache"      // chooses the branch with a past
	State          Input = "state"          // recurrent: of one size for each row, comes back as an output
	Image          Input = "image"          // what a convolution reads
	Other          Input = ""
)

// Length is what an axis counts.
type Length string

// The lengths of language models.
const (
	Batch   Length = "batch"
	New     Length = "new"     // tokens, or queries, of this run
	Cached  Length = "past"    // tokens of the runs before
	All     Length = "total"   // both
	Encoder Length = "encoder" // tokens that the encoder read
	Unknown Length = ""
)

// Roles are the meanings of a model's inputs and of the symbols of its shapes.
type Roles struct {
	// HasPast is set where the model goes on from a past of its own.
	HasPast bool
	// Positions is the number of positions that the model's tables have; 0 for no
	// limit.
	Positions int64

	main    *graph.Graph
	shapes  *graph.Shapes
	inputs  map[*graph.Value]Input
	axes    map[*graph.Value][]Axis
	symbols map[string]Length
	states  map[*graph.Value]*graph.Value
	report  *blocks.Report
	// outputs as which inputs come back; nil before they are asked for
	presents map[*graph.Value]*graph.Value

	rows      walk[int64]
	decides   walk[bool]
	turns     walk[bool]
	convolved walk[*graph.Node]
}

// Axis is one axis of an input.
type Axis struct {
	Length Length
	Fixed  int64 // the length that the model's operators need; 0 for any
}

// Find decides the roles of the inputs of a main graph. Graph.Bounded stops it.
func Find(g *graph.Graph, shapes *graph.Shapes, report *blocks.Report) *Roles {
	r := &Roles{main: g, shapes: shapes, report: report, inputs: map[*graph.Value]Input{}, axes: map[*graph.Value][]Axis{},
		symbols: map[string]Length{}, states: map[*graph.Value]*graph.Value{},
		rows: walk[int64]{}, decides: walk[bool]{}, turns: walk[bool]{}, convolved: walk[*graph.Node]{}}
	r.attention(g, report)
	r.tables(g)
	r.recurrent(g)
	for _, v := range g.Inputs {
		if r.inputs[v] == Other {
			r.inputs[v] = r.used(v)
		}
	}
	r.masks(g, report)
	for _, v := range g.Inputs {
		if in := named(v.Name); r.inputs[v] == Other && r.possible(v, in) {
			r.inputs[v] = in
		}
		r.HasPast = r.HasPast || r.inputs[v] == Past
	}
	r.lengths(g)
	r.Positions = r.positions(g)
	return r
}

// Of is what an input holds.
func (r *Roles) Of(v *graph.Value) Input { return r.inputs[v] }

// Axis is what an axis of an input counts.
func (r *Roles) Axis(v *graph.Value, axis int) Axis {
	if list := r.axes[v]; axis >= 0 && axis < len(list) {
		return list[axis]
	}
	return Axis{}
}

// Symbol is what a symbol of the model's shapes counts; where no input has it as an
// axis of known meaning, what its name says.
func (r *Roles) Symbol(name string) Length {
	if l := r.symbols[name]; l != Unknown {
		return l
	}
	return Named(r.shapes.Claimed(graph.DimSym(name)).String())
}

// HasInput reports a model that has such an input.
func (r *Roles) HasInput(in Input) bool {
	r.main.Spend(len(r.inputs))
	for _, is := range r.inputs {
		if is == in {
			return true
		}
	}
	return false
}
