package padding

import (
	"math"

	"github.com/opgraft/graft/host/onnx/graph"
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

// told is what is known of a term without a value that has it.
func (t term) told() term {
	if t.kind == opaque {
		return term{}
	}
	return t
}

var unaries = map[string]bool{"Cast": true, "Identity": true, "Not": true, "Abs": true, "Neg": true}

// unary applies an operator of one input; Bool is a cast to booleans.
func unary(op string, t term) term {
	f := func(x float64) float64 {
		switch op {
		case "Not":
			return truth(x == 0)
		case "Bool":
			return truth(x != 0)
		case "Abs":
			return math.Abs(x)
		case "Neg":
			return -x
		}
		return x
	}
	switch t.kind {
	case constant:
		return number(f(t.number))
	case band:
		t.yes, t.no = f(t.yes), f(t.no)
		return t
	case count:
		if op == "Cast" || op == "Identity" {
			return t
		}
	case difference:
		switch {
		case op == "Cast" || op == "Identity":
			return t
		case op == "Abs" && t.number == 0:
			return term{kind: distance, i: t.i, j: t.j}
		case op == "Neg":
			return term{kind: difference, i: t.j, j: t.i, number: -t.number}
		}
	case distance:
		if op != "Not" && op != "Bool" && op != "Neg" {
			return t
		}
	case opaque:
		if op == "Identity" {
			return t
		}
	}
	return term{}
}

var binaries = map[string]bool{"Add": true, "Sub": true, "Mul": true, "Div": true, "Min": true, "Max": true,
	"And": true, "Or": true,
	"Equal": true, "Less": true, "LessOrEqual": true, "Greater": true, "GreaterOrEqual": true}

var mirrored = map[string]string{"Less": "Greater", "LessOrEqual": "GreaterOrEqual", "Greater": "Less",
	"GreaterOrEqual": "LessOrEqual"}

// binary applies an operator of two inputs.
func binary(op string, a, b term) term {
	switch {
	case a.kind == constant && b.kind == constant:
		return number(arithmetic(op, a.number, b.number))
	case op == "Add" || op == "And" || op == "Or" || op == "Mul" || op == "Min":
		if b.kind == constant {
			a, b = b, a
		}
		switch {
		case op == "Add" && a.is(0), op == "And" && a.kind == constant && a.number != 0, op == "Or" && a.is(0),
			op == "Mul" && a.is(1):
			return b
		case op == "And" && a.is(0), op == "Or" && a.kind == constant && a.number != 0:
			return number(truth(op == "Or"))
		case (op == "Add" || op == "Min") && a.kind == constant && a.number <= swallows && b.kind != band:
			return a // whatever is added to it, or below it, hides as it does
		}
	case op == "Sub" && b.is(0):
		return a
	}
	if op == "Sub" && a.kind == count && b.kind == count && a.i != b.i {
		return term{kind: difference, i: a.i, j: b.i, number: a.number - b.number}
	}
	if (op == "Sub" || op == "Add") && (a.kind == count || a.kind == difference) && b.kind == constant {
		a.number = arithmetic(op, a.number, b.number)
		return a
	}
	if op == "Add" && a.kind == constant && (b.kind == count || b.kind == difference) {
		b.number += a.number
		return b
	}
	if mirrored[op] != "" {
		return compare(op, a, b)
	}
	f := func(x, y float64) float64 { return arithmetic(op, x, y) }
	switch {
	case a.kind == band && b.kind == constant:
		a.yes, a.no = f(a.yes, b.number), f(a.no, b.number)
		return a.same()
	case a.kind == constant && b.kind == band:
		b.yes, b.no = f(a.number, b.yes), f(a.number, b.no)
		return b.same()
	case a.kind == band && b.kind == band && a.i == b.i && a.j == b.j:
		if op == "Or" { // of what both leave out
			return unary("Not", binary("And", unary("Not", a), unary("Not", b)))
		}
		if op == "And" && a.yes == 1 && a.no == 0 && b.yes == 1 && b.no == 0 {
			a.left, a.right = min(a.left, b.left), min(a.right, b.right)
			return a
		}
	}
	return term{}
}

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

func arithmetic(op string, x, y float64) float64 {
	switch op {
	case "Add":
		return single(x + y)
	case "Sub":
		return single(x - y)
	case "Mul":
		return single(x * y)
	case "Div":
		return x / y
	case "Min":
		return math.Min(x, y)
	case "Max":
		return math.Max(x, y)
	case "And":
		return truth(x != 0 && y != 0)
	case "Or":
		return truth(x != 0 || y != 0)
	case "Equal":
		return truth(x == y)
	case "Less":
		return truth(x < y)
	case "LessOrEqual":
		return truth(x <= y)
	case "Greater":
		return truth(x > y)
	}
	return truth(x >= y)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
