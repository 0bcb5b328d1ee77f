// Package pattern holds what a plugin's operator replaces, as a graph of ONNX nodes: the ways of writing it that one
// description stands for, and where they are in a model's graph.
package pattern

import (
	"encoding/json"
	"math"
	"strings"
)

// Pattern describes nodes to look for. It stands for one or more forms: plain graphs, of which one optional node, one
// alternative or one number of repetitions makes several.
type Pattern struct {
	Inputs []string `json:"inputs"`
	// Outputs end with ? where a replacement makes them only if something outside reads them.
	Outputs   []string   `json:"outputs"`
	Parts     []Part     `json:"nodes"`
	Constants []Constant `json:"constants"` // in the order of the file
	Shapes    []Shape    `json:"shapes,omitempty"`
	Types     []Type     `json:"types,omitempty"`
	Ranks     []Rank     `json:"ranks,omitempty"`
	// Recompute names inner values that something outside may read: the nodes that make them stay for it then.
	Recompute []string `json:"recompute,omitempty"`
}

// Part is a node, a choice, or a repetition: one of them is set.
type Part struct {
	Node   *Node
	AnyOf  []Alternative
	Repeat *Repeat
	Line   int // of the file
}

// MarshalJSON is what the file has: a node, {any_of: ...} or {repeat: ...}.
func (p Part) MarshalJSON() ([]byte, error) {
	switch {
	case p.Node != nil:
		return json.Marshal(p.Node)
	case p.Repeat != nil:
		return json.Marshal(map[string]any{"repeat": p.Repeat})
	}
	return json.Marshal(map[string]any{"any_of": p.AnyOf})
}

// Alternative is one of several ways of writing a part: nodes, or values that are others without any node between.
type Alternative struct {
	Parts []Part
	Same  map[string]string // what the value of a name is, of the names that it makes
}

// MarshalJSON is a list of nodes, or a mapping of values.
func (a Alternative) MarshalJSON() ([]byte, error) {
	if a.Same != nil {
		return json.Marshal(a.Same)
	}
	return json.Marshal(a.Parts)
}

// Repeat is a chain of equal parts: From is what the first reads, and each other reads what the one before it made as
// To.
type Repeat struct {
	Min   int      `json:"min"`
	Max   int      `json:"max"`
	From  string   `json:"from"`
	To    string   `json:"to"`
	Each  []string `json:"each,omitempty"` // inputs and constants of which each repetition has its own
	Parts []Part   `json:"nodes"`
}

// Node matches one ONNX node.
type Node struct {
	Op     string `json:"op"`
	Domain string `json:"domain,omitempty"` // "" is ai.onnx
	// In are names of values; "" where the optional input must be absent. In a pattern, not in a form, a name that ends
	// with ? may be absent.
	In  []string `json:"in"`
	Out []string `json:"out"` // value names; "" where the output is not looked at
	// Attributes must be equal on the node, which has ONNX's default of those that it leaves out. Those not
	// named must have their default. A value "?name" captures what the node has, for use in With; Any
	// stands for whatever it has.
	Attributes []Attribute `json:"attributes,omitempty"`
	// Optional is the input that stands for the output where the node is not there; "" for a node that must be.
	Optional string `json:"optional,omitempty"`
	// Commute says whether the first two inputs may be in either order; nil for what ONNX says of the operator.
	Commute *bool `json:"commute,omitempty"`

	Line int `json:"-"` // of the file
}

// Commutes are ONNX's operators of which all inputs may be in any order.
var Commutes = []string{"Add", "Mul", "And", "Or", "Xor", "Equal", "Max", "Min", "Sum", "Mean", "BitwiseAnd",
	"BitwiseOr", "BitwiseXor"}

// Attribute is a named value: int64, float64, string, []int64, []float64 or []string; in patterns and
// replacements also a Capture, in patterns also Any.
type Attribute struct {
	Name  string `json:"name"`
	Value any    `json:"value"`
}

// Capture is the name, without its question mark, of a value that a pattern captured.
type Capture string

// Any is the value, "any" in the file, of a pattern's attribute that may have any value or be absent.
type Any struct{}

// MarshalText is as the file has it.
func (Any) MarshalText() ([]byte, error) { return []byte("any"), nil }

// Constant matches an initializer (or a Constant node): one number in all elements, a number in a range, a list of
// numbers, or any tensor.
type Constant struct {
	Name string `json:"name"`
	// Value is what every element must be equal to within Tolerance, relative to Value where that is not zero.
	Value     *float64  `json:"value,omitempty"`
	Tolerance float64   `json:"tolerance,omitempty"`
	Values    []float64 `json:"values,omitempty"` // the elements, in their order
	Min       *float64  `json:"min,omitempty"`    // that every element must have at least
	Max       *float64  `json:"max,omitempty"`    // that every element may have at most
	Capture   Capture   `json:"capture,omitempty"`
	Any       bool      `json:"any,omitempty"`
	Rank      int       `json:"rank,omitempty"` // with Any: the number of dimensions; -1 for any number

	Line int `json:"-"` // of the file
}

// IsNumber reports a constant that stands for numbers that the pattern states, and not for a tensor of the model's own.
func (c *Constant) IsNumber() bool { return !c.Any }

// Matches reports whether an element of a tensor is what the constant allows everywhere.
func (c *Constant) Matches(element float64) bool {
	if c.Value != nil {
		return near(*c.Value, element, c.Tolerance)
	}
	return (c.Min == nil || element >= *c.Min) && (c.Max == nil || element <= *c.Max)
}

func near(want, element, tolerance float64) bool {
	scale := math.Abs(want)
	if scale == 0 {
		scale = 1
	}
	return math.Abs(element-want) <= tolerance*scale
}

// Shape is what a value of a pattern must be known to have: a match is none where it is not.
type Shape struct {
	Value string `json:"value"`
	// Dims are lengths: numbers, or names that stand for one length each. "..." in the first place stands for any
	// number of lengths before the others, the same ones in all shapes of the pattern.
	Dims []string `json:"dims"`
}

// Rest is what stands for any number of lengths in Shape.Dims.
const Rest = "..."

// Type is which element types a value may have: some, or a name that stands for one type wherever it is.
type Type struct {
	Value string   `json:"value"`
	OneOf []string `json:"one_of,omitempty"`
	Name  string   `json:"name,omitempty"`
}

// Rank bounds the number of dimensions of a value.
type Rank struct {
	Value string `json:"value"`
	Min   int    `json:"min"`
	Max   int    `json:"max"`
}

// Constant returns the constant of that name.
func (p *Pattern) Constant(name string) (*Constant, bool) {
	for i := range p.Constants {
		if p.Constants[i].Name == name {
			return &p.Constants[i], true
		}
	}
	return nil, false
}

// Captures are the names of all values that the pattern captures, once each, in the order of the file.
func (p *Pattern) Captures() (names []string) {
	p.Walk(func(n *Node) {
		for _, a := range n.Attributes {
			if c, ok := a.Value.(Capture); ok {
				names = append(names, string(c))
			}
		}
	})
	for _, c := range p.Constants {
		if c.Capture != "" {
			names = append(names, string(c.Capture))
		}
	}
	return unique(names)
}

// Values are the names of all inputs, constants and outputs of nodes, once each.
func (p *Pattern) Values() []string {
	names := append([]string{}, p.Inputs...)
	for _, c := range p.Constants {
		names = append(names, c.Name)
	}
	p.parts(p.Parts, func(part *Part) {
		if part.Node != nil {
			names = append(names, part.Node.Out...)
		}
		for _, a := range part.AnyOf {
			names = append(names, sortedKeys(a.Same)...)
		}
	})
	return unique(names)
}

// Walk calls f for each node, those of alternatives and repetitions included.
func (p *Pattern) Walk(f func(*Node)) {
	p.parts(p.Parts, func(part *Part) {
		if part.Node != nil {
			f(part.Node)
		}
	})
}

func (p *Pattern) parts(list []Part, f func(*Part)) {
	for i := range list {
		part := &list[i]
		f(part)
		for _, a := range part.AnyOf {
			p.parts(a.Parts, f)
		}
		if part.Repeat != nil {
			p.parts(part.Repeat.Parts, f)
		}
	}
}

// Plain is a name without the ? that says that it may be absent.
func Plain(name string) string { return strings.TrimSuffix(name, "?") }

// mayLack reports a name that ends with ?.
func mayLack(name string) bool { return strings.HasSuffix(name, "?") }
