package padding

import (
	"math"
	"slices"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// term is what is known of elements that are alike but for their positions.
type term struct {
	kind   kind
	number float64
	i, j   int // axes: that of a count; those whose counts are subtracted, i less j; those of queries and keys of a band
	// A band is yes where a key is at most left before and at most right after its query, and no elsewhere.
	left, right int64
	yes, no     float64
	value       *graph.Value // of opaque
}

type kind int

const (
	unknown    kind = iota
	constant        // number
	count           // the index along axis i, plus number
	difference      // the index along i less that along j, plus number
	distance        // the same, without its sign and without number
	band
	opaque // what value has there
)

// unbounded is the bound of a band that has none.
const unbounded = math.MaxInt64

func number(x float64) term { return term{kind: constant, number: x} }

// as is a term's number.
func (t term) as() (x float64, ok bool) { return t.number, t.kind == constant }

// inside is the number that a term is within its band, if it has one.
func (t term) inside() (x float64, ok bool) {
	if t.kind == band {
		return t.yes, true
	}
	return t.as()
}

// outside is the number that a term is beyond its band; 0 for one that is no number.
func (t term) outside() float64 {
	switch t.kind {
	case band:
		return t.no
	case constant:
		return t.number
	}
	return 0
}

// along reports bands of the same positions.
func (t term) along(other term) bool {
	return t.kind == other.kind && t.i == other.i && t.j == other.j && t.left == other.left && t.right == other.right
}

func (t term) is(x float64) bool { return t.kind == constant && t.number == x }

func (t term) moved(to func(int) int) term {
	switch t.kind {
	case count:
		if t.i = to(t.i); t.i < 0 {
			return term{}
		}
	case difference, distance, band:
		if t.i, t.j = to(t.i), to(t.j); t.i < 0 || t.j < 0 {
			return term{}
		}
		if t.kind == band && t.i > t.j {
			t.i, t.j, t.left, t.right = t.j, t.i, t.right, t.left
		}
	}
	return t
}

// of is a term in elements of a type: whole numbers are rounded towards zero.
func (t term) of(kind onnx.Tensor_DataType) term {
	if !whole[kind] {
		return t
	}
	switch t.kind {
	case constant:
		t.number = math.Trunc(t.number)
	case band:
		t.yes, t.no = math.Trunc(t.yes), math.Trunc(t.no)
		return t.same()
	}
	return t
}

var whole = map[onnx.Tensor_DataType]bool{onnx.Tensor_INT4: true, onnx.Tensor_INT8: true, onnx.Tensor_INT16: true,
	onnx.Tensor_INT32: true, onnx.Tensor_INT64: true, onnx.Tensor_UINT4: true, onnx.Tensor_UINT8: true,
	onnx.Tensor_UINT16: true, onnx.Tensor_UINT32: true, onnx.Tensor_UINT64: true}

// told is what is known of a term without a value that has it.
func (t term) told() term {
	if t.kind == opaque {
		return term{}
	}
	return t
}

// unaryRule is an operator of one input.
type unaryRule struct {
	number    func(float64) float64
	unchanged []kind // terms that stay as they are
	// difference is what it makes of one; nil where that is not known, or it stays as it is.
	difference func(term) term
}

func itself(x float64) float64 { return x }

// toBool is a cast to booleans, which ONNX has no operator of its own for.
const toBool = "Bool"

var unaryRules = map[string]unaryRule{
	"Cast":     {number: itself, unchanged: []kind{count, difference, distance}},
	"Identity": {number: itself, unchanged: []kind{count, difference, distance, opaque}},
	"Not":      {number: func(x float64) float64 { return truth(x == 0) }},
	toBool:     {number: func(x float64) float64 { return truth(x != 0) }},
	"Abs":      {number: math.Abs, unchanged: []kind{distance}, difference: distanceOf},
	"Neg":      {number: func(x float64) float64 { return -x }, difference: negated},
}

func distanceOf(t term) term {
	if t.number != 0 {
		return term{}
	}
	return term{kind: distance, i: t.i, j: t.j}
}

func negated(t term) term { return term{kind: difference, i: t.j, j: t.i, number: -t.number} }

// unary applies an operator of one input.
func unary(op string, t term) term {
	rule := unaryRules[op]
	switch {
	case t.kind == constant:
		return number(rule.number(t.number))
	case t.kind == band:
		t.yes, t.no = rule.number(t.yes), rule.number(t.no)
		return t
	case slices.Contains(rule.unchanged, t.kind):
		return t
	case t.kind == difference && rule.difference != nil:
		return rule.difference(t)
	}
	return term{}
}

// binaryRule is an operator of two inputs.
type binaryRule struct {
	number func(x, y float64) float64
	// either says that it is the same for inputs that change places: the number is then the first, if there is one.
	either bool
	// terms is what it makes of two of which one is no number, unless a band in one of them tells more.
	terms func(a, b term) (term, bool)
}

var binaryRules = map[string]binaryRule{
	"Add": {number: func(x, y float64) float64 { return single(x + y) }, either: true, terms: addTerms},
	"Sub": {number: func(x, y float64) float64 { return single(x - y) }, terms: subtractTerms},
	"Mul": {number: func(x, y float64) float64 { return single(x * y) }, either: true,
		terms: func(a, b term) (term, bool) { return b, a.is(1) }},
	"Div": {number: func(x, y float64) float64 { return x / y }},
	"Min": {number: math.Min, either: true, terms: func(a, b term) (term, bool) { return a, a.outweighs(b) }},
	"Max": {number: math.Max},
	"And": {number: func(x, y float64) float64 { return truth(x != 0 && y != 0) }, either: true,
		terms: allTerms},
	"Or": {number: func(x, y float64) float64 { return truth(x != 0 || y != 0) }, either: true,
		terms: anyTerm},
	"Equal":          {number: func(x, y float64) float64 { return truth(x == y) }},
	"Less":           {number: func(x, y float64) float64 { return truth(x < y) }, terms: comparing("Less")},
	"LessOrEqual":    {number: func(x, y float64) float64 { return truth(x <= y) }, terms: comparing("LessOrEqual")},
	"Greater":        {number: func(x, y float64) float64 { return truth(x > y) }, terms: comparing("Greater")},
	"GreaterOrEqual": {number: func(x, y float64) float64 { return truth(x >= y) }, terms: comparing("GreaterOrEqual")},
}

var mirrored = map[string]string{"Less": "Greater", "LessOrEqual": "GreaterOrEqual", "Greater": "Less",
	"GreaterOrEqual": "LessOrEqual"}

// outweighs reports a number so low that it hides whatever is added to it, or is above it, but for a band.
func (t term) outweighs(other term) bool {
	return t.kind == constant && t.number <= swallows && other.kind != band
}

// countable reports positions that a number may be added to.
func (t term) countable() bool { return t.kind == count || t.kind == difference }

func addTerms(a, b term) (term, bool) {
	switch {
	case a.is(0):
		return b, true
	case a.outweighs(b):
		return a, true
	case a.kind == constant && b.countable():
		b.number += a.number
		return b, true
	}
	return term{}, false
}

func subtractTerms(a, b term) (term, bool) {
	switch {
	case b.is(0):
		return a, true
	case a.kind == count && b.kind == count && a.i != b.i:
		return term{kind: difference, i: a.i, j: b.i, number: a.number - b.number}, true
	case a.countable() && b.kind == constant:
		a.number = single(a.number - b.number)
		return a, true
	}
	return term{}, false
}

func allTerms(a, b term) (term, bool) {
	if a.kind != constant {
		return term{}, false
	}
	if a.number != 0 {
		return b, true
	}
	return number(0), true
}

func anyTerm(a, b term) (term, bool) {
	if a.kind != constant {
		return term{}, false
	}
	if a.number == 0 {
		return b, true
	}
	return number(1), true
}

func comparing(op string) func(a, b term) (term, bool) {
	return func(a, b term) (term, bool) { return compare(op, a, b), true }
}

// binary applies an operator of two inputs.
func binary(op string, a, b term) term {
	rule := binaryRules[op]
	if a.kind == constant && b.kind == constant {
		return number(rule.number(a.number, b.number))
	}
	if rule.either && b.kind == constant {
		a, b = b, a
	}
	if rule.terms != nil {
		if t, ok := rule.terms(a, b); ok {
			return t
		}
	}
	switch {
	case a.kind == band && b.kind == constant:
		a.yes, a.no = rule.number(a.yes, b.number), rule.number(a.no, b.number)
		return a.same()
	case a.kind == constant && b.kind == band:
		b.yes, b.no = rule.number(a.number, b.yes), rule.number(a.number, b.no)
		return b.same()
	case a.kind == band && b.kind == band && a.i == b.i && a.j == b.j:
		return bands(op, a, b)
	}
	return term{}
}

// bands joins two bands of the same axes.
func bands(op string, a, b term) term {
	switch op {
	case "Or": // of what both leave out
		return unary("Not", binary("And", unary("Not", a), unary("Not", b)))
	case "And":
		if a.isMask() && b.isMask() {
			a.left, a.right = min(a.left, b.left), min(a.right, b.right)
			return a
		}
	}
	return term{}
}

// isMask reports a band of yes and no.
func (t term) isMask() bool { return t.yes == 1 && t.no == 0 }

// compare makes a band of positions that are compared, in whatever way that is written.
func compare(op string, a, b term) term {
	if a.kind == constant {
		a, b, op = b, a, mirrored[op]
	}
	if a.kind == count && b.kind == count && a.i != b.i {
		a, b = term{kind: difference, i: a.i, j: b.i, number: a.number - b.number}, number(0)
	}
	c, ok := b.as()
	if !ok || c != math.Trunc(c) || math.Abs(c) > 1<<40 || a.number != math.Trunc(a.number) {
		return term{}
	}
	bound := int64(c) - int64(a.number)
	out := term{kind: band, i: min(a.i, a.j), j: max(a.i, a.j), left: unbounded, right: unbounded, yes: 1}
	if a.kind == distance {
		switch op {
		case "Less":
			bound--
		case "Greater":
			out.yes, out.no = 0, 1
		case "GreaterOrEqual":
			bound--
			out.yes, out.no = 0, 1
		}
		out.left, out.right = bound, bound
		return out.sound()
	}
	if a.kind != difference {
		return term{}
	}
	queryFirst := a.i < a.j // the query's position less the key's
	switch op {
	case "Less", "LessOrEqual":
		if op == "Less" {
			bound--
		}
		if queryFirst {
			out.left = bound
		} else {
			out.right = bound
		}
	default:
		if op == "Greater" {
			bound++
		}
		if queryFirst {
			out.right = -bound
		} else {
			out.left = -bound
		}
	}
	return out.sound()
}

// sound is a band in which each query sees itself.
func (t term) sound() term {
	if t.left < 0 || t.right < 0 {
		return term{}
	}
	return t
}

// same is a band, or the number that it is inside and outside.
func (t term) same() term {
	if t.yes == t.no {
		return number(t.yes)
	}
	return t
}

// single rounds what is too large for a number of 32 bits.
func single(x float64) float64 {
	if math.Abs(x) > math.MaxFloat32 {
		return math.Copysign(math.Inf(1), x)
	}
	return x
}

// where chooses between two terms.
func where(c, a, b term) term {
	switch {
	case c.kind == constant && c.number != 0:
		return a
	case c.kind == constant:
		return b
	case c.kind == band && a.kind == constant && b.kind == constant:
		pick := func(x float64) float64 {
			if x != 0 {
				return a.number
			}
			return b.number
		}
		c.yes, c.no = pick(c.yes), pick(c.no)
		return c.same()
	}
	return term{}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
