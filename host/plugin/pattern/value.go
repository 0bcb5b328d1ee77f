package pattern

import (
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// elements are what a constant holds, as far as numbers of a pattern ask for it.
type elements struct {
	count    int
	min, max float64
	list     []float64 // nil where there are more than listed
	whole    bool      // of a type of integers
	readable bool
}

// listed is how many elements of a constant are looked at one by one.
const listed = 64

// elements reads a constant once, however many nodes read it.
func (f *Finder) elements(v *graph.Value) *elements {
	if e := f.numbers[v]; e != nil {
		return e
	}
	e := &elements{min: math.Inf(1), max: math.Inf(-1)}
	f.numbers[v] = e
	list, ok := v.Floats()
	if integers, is := v.Ints(); is {
		ok, e.whole = true, true
		for _, i := range integers {
			list = append(list, float64(i))
		}
	}
	f.main.Spend(1 + len(list)/listed)
	e.count, e.readable = len(list), ok && len(list) > 0
	for _, x := range list {
		if math.IsNaN(x) {
			e.readable = false
		}
		e.min, e.max = min(e.min, x), max(e.max, x)
	}
	if len(list) <= listed {
		e.list = list
	}
	return e
}

// fits reports a constant that is what the pattern asks for: numbers of any type by their value. axes says that it
// names axes of a value of a rank, where -1 and the last are one; 0 says that it does not.
func (s *search) fits(k *Constant, v *graph.Value, axes int64) bool {
	if v.Tensor == nil {
		return false
	}
	if k.Any {
		return k.Rank < 0 || k.Rank == len(v.Tensor.Dims)
	}
	e := s.finder.elements(v)
	switch {
	case !e.readable:
		return false
	case k.Values != nil:
		return e.list != nil && slices.EqualFunc(k.Values, e.list, func(want, x float64) bool {
			return near(want, x, k.Tolerance) ||
				axes != 0 && (near(want, x+float64(axes), k.Tolerance) || near(want, x-float64(axes), k.Tolerance))
		})
	case axes == 0 || e.list == nil:
		return k.Matches(e.min) && k.Matches(e.max)
	}
	return !slices.ContainsFunc(e.list, func(x float64) bool {
		return !k.Matches(x) && !k.Matches(x+float64(axes)) && !k.Matches(x-float64(axes))
	})
}

// captures notes the number that a constant is, where the pattern captures it.
func (s *search) captures(k *Constant, v *graph.Value) bool {
	if k.Capture == "" {
		return true
	}
	e := s.finder.elements(v)
	switch {
	case !e.readable || e.min != e.max:
		return false
	case e.whole:
		return s.capture(string(k.Capture), int64(e.min))
	}
	return s.capture(string(k.Capture), e.min)
}

// axesInput is which input of ONNX's operators lists axes.
var axesInput = map[string]int{"Squeeze": 1, "Unsqueeze": 1, "CumSum": 1, "Slice": 3, "Pad": 3}

// axes is the rank of what a node's axes are of: its input, or its output where it adds axes. 0 where that is not
// known.
func (s *search) axes(n *graph.Node) int64 {
	of := n.Input(0)
	if n.Is("Unsqueeze", "OneHot") {
		of = n.Output(0)
	}
	if rank := s.finder.shapes.Of(of).Rank; rank > 0 && n.Proto.GetDomain() == "" &&
		!strings.HasPrefix(n.Proto.GetOpType(), "Sequence") {
		return int64(rank)
	}
	return 0
}

// axesOf is axes where an input of a node lists them, else 0.
func (s *search) axesOf(n *graph.Node, input int) int64 {
	at, ok := axesInput[n.Op()]
	if !ok && strings.HasPrefix(n.Op(), "Reduce") {
		at, ok = 1, true
	}
	if !ok || at != input {
		return 0
	}
	return s.axes(n)
}

// attributes reports that a node has the attributes that the pattern names, and of those that it does not name the
// defaults: what the newest ONNX says that an absent one is.
func (s *search) attributes(p *Node, n *graph.Node) bool {
	if n.Unread() != "" {
		return false
	}
	var own, newest onnx.Schema
	if d := n.Proto.GetDomain(); d == "" || d == "ai.onnx" {
		if found := onnx.SchemaOf(n.Proto.GetOpType(), s.version); found != nil {
			own, newest = *found, *onnx.SchemaOf(n.Proto.GetOpType(), onnx.Newest)
		}
	} else if d == "com.microsoft" {
		own = onnx.OfMicrosoft[n.Proto.GetOpType()]
		newest = own
	}
	names := map[string]bool{}
	for _, want := range p.Attributes {
		names[want.Name] = true
		got := s.attributeOf(n, &own, want.Name)
		switch value := want.Value.(type) {
		case Any:
		case Capture:
			if got == nil || !s.capture(string(value), got) {
				return false
			}
		default:
			if !s.same(n, want.Name, value, got) {
				return false
			}
		}
	}
	for _, a := range n.Proto.GetAttribute() {
		name := a.GetName()
		if names[name] {
			continue
		}
		names[name] = true
		usual, known := newest.Attribute(name)
		if !known {
			usual, _ = own.Attribute(name)
		}
		if usual.Default == nil {
			usual.Default = s.reversed(n, name)
		}
		if !s.same(n, name, usual.Default, s.attributeOf(n, &own, name)) {
			return false
		}
	}
	for _, usual := range newest.Attributes { // absent, and of another default in the model's version
		if a, ok := own.Attribute(usual.Name); ok && !names[usual.Name] && !s.same(n, usual.Name, usual.Default, a.Default) {
			return false
		}
	}
	return true
}

// attributeOf is a node's attribute, or what ONNX says that an absent one is; nil for neither.
func (s *search) attributeOf(n *graph.Node, own *onnx.Schema, name string) any {
	if a := n.Attr(name); a != nil {
		value, ok := attributeValue(a)
		if !ok {
			return a // of a type that equals nothing
		}
		return value
	}
	if a, _ := own.Attribute(name); a.Default != nil {
		return a.Default
	}
	return s.reversed(n, name)
}

// reversed is the default that depends on a rank: a Transpose without perm reverses the axes. nil for any other
// attribute.
func (s *search) reversed(n *graph.Node, name string) any {
	rank := s.axes(n)
	if name != "perm" || !n.Is("Transpose") || rank == 0 {
		return nil
	}
	perm := make([]int64, rank)
	for i := range perm {
		perm[i] = rank - 1 - int64(i)
	}
	return perm
}

// same reports that two values of an attribute are one: numbers by value, and axes whether they are counted from the
// front or the back.
func (s *search) same(n *graph.Node, name string, want, got any) bool {
	if want == nil || got == nil {
		return want == got
	}
	if a, ok := numbers(want); ok {
		b, ok := numbers(got)
		if !ok || len(a) != len(b) || isList(want) != isList(got) {
			return false
		}
		rank := 0.0
		if name == "axis" || name == "axes" {
			rank = float64(s.axes(n))
		}
		for i, x := range a {
			y := b[i]
			close := math.Abs(x-y) <= 1e-6*math.Abs(x) && !math.IsInf(x, 0)
			other := rank > 0 && math.Abs(x-y) == rank && min(x, y) >= -rank && max(x, y) < rank
			if x != y && !close && !other {
				return false
			}
		}
		return true
	}
	return equal(want, got)
}

func equal(a, b any) bool { return reflect.DeepEqual(a, b) }

func isList(value any) bool { return reflect.ValueOf(value).Kind() == reflect.Slice }

// numbers are those of an attribute's value; false where it is text.
func numbers(value any) ([]float64, bool) {
	switch v := value.(type) {
	case int64:
		return []float64{float64(v)}, true
	case float64:
		return []float64{v}, true
	case []float64:
		return v, true
	case []int64:
		list := make([]float64, len(v))
		for i, x := range v {
			list[i] = float64(x)
		}
		return list, true
	}
	return nil, false
}

func attributeValue(a *onnx.Attribute) (any, bool) {
	switch a.GetType() {
	case onnx.Attribute_INT:
		return a.GetI(), true
	case onnx.Attribute_FLOAT:
		return float64(a.GetF()), true
	case onnx.Attribute_STRING:
		return string(a.GetS()), true
	case onnx.Attribute_INTS:
		return a.GetInts(), true
	case onnx.Attribute_FLOATS:
		list := make([]float64, len(a.GetFloats()))
		for i, x := range a.GetFloats() {
			list[i] = float64(x)
		}
		return list, true
	case onnx.Attribute_STRINGS:
		list := make([]string, len(a.GetStrings()))
		for i, x := range a.GetStrings() {
			list[i] = string(x)
		}
		return list, true
	}
	return nil, false
}
