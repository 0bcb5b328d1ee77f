package padding

import (
	"math"
	"testing"
)

// TestBands: a comparison of positions is one band, in whatever way it is written. Queries count along axis 0, keys
// along 1.
func TestBands(t *testing.T) {
	q, k := term{kind: count, i: 0}, term{kind: count, i: 1}
	less := func(a, b term) term { return binary("Sub", a, b) }
	is := func(left, right int64) term {
		return term{kind: band, i: 0, j: 1, left: left, right: right, yes: 1}
	}
	outside := func(left, right int64) term {
		b := is(left, right)
		b.yes, b.no = 0, 1
		return b
	}
	for _, c := range []struct {
		name      string
		got, want term
	}{
		{"distance at most", compare("LessOrEqual", unary("Abs", less(q, k)), number(4)), is(4, 4)},
		{"distance below", compare("Less", unary("Abs", less(k, q)), number(4)), is(3, 3)},
		{"distance above", compare("Greater", unary("Abs", less(q, k)), number(4)), outside(4, 4)},
		{"distance at least", compare("GreaterOrEqual", unary("Abs", less(q, k)), number(4)), outside(3, 3)},
		{"no later key", compare("LessOrEqual", k, q), is(unbounded, 0)},
		{"no later key, by the query", compare("GreaterOrEqual", q, k), is(unbounded, 0)},
		{"keys at most 3 before", compare("LessOrEqual", less(q, k), number(3)), is(3, unbounded)},
		{"keys less than 3 before", compare("Less", less(q, k), number(3)), is(2, unbounded)},
		{"the number first", compare("GreaterOrEqual", number(3), less(q, k)), is(3, unbounded)},
		{"a query that is moved", compare("LessOrEqual", less(binary("Add", q, number(1)), k), number(3)), is(2, unbounded)},
		{"both ends", binary("And", compare("LessOrEqual", less(q, k), number(3)),
			compare("LessOrEqual", less(k, q), number(1))), is(3, 1)},
		{"both ends, by what is left out",
			unary("Not", binary("Or", unary("Not", compare("LessOrEqual", less(q, k), number(3))),
				compare("Greater", less(k, q), number(1)))), term{}},
		{"a query that does not see itself", compare("Less", k, q), term{}},
		{"no whole number", compare("LessOrEqual", less(q, k), number(0.5)), term{}},
		{"positions of one axis", compare("LessOrEqual", q, q), term{}},
	} {
		if c.got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, c.got, c.want)
		}
	}
}

// TestTerms: what masks are written with.
func TestTerms(t *testing.T) {
	lowest := number(-math.MaxFloat32)
	window := term{kind: band, i: 0, j: 1, left: 4, right: 4, yes: 1}
	unseen := term{kind: opaque}
	for _, c := range []struct {
		name      string
		got, want term
	}{
		{"1 - mask, of a hidden token", binary("Sub", number(1), number(0)), number(1)},
		{"times the lowest number", binary("Mul", number(1), lowest), lowest},
		{"a bias beside it", binary("Add", lowest, unseen), lowest},
		{"a bias where the token is visible", binary("Add", unseen, number(0)), unseen},
		{"a bias times anything", binary("Mul", unseen, number(2)), term{}},
		{"hidden by either", binary("And", number(0), unseen), number(0)},
		{"visible by one", binary("And", number(1), window), window},
		{"visible by one of two", binary("Or", number(1), unseen), number(1)},
		{"in place of what is outside the window", where(window, number(0), lowest),
			term{kind: band, i: 0, j: 1, left: 4, right: 4, yes: 0, no: lowest.number}},
		{"alike inside and outside", where(window, lowest, lowest), lowest},
		{"a choice that is known", where(number(1), lowest, unseen), lowest},
		{"a choice that is not", where(unseen, lowest, number(0)), term{}},
	} {
		if c.got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, c.got, c.want)
		}
	}
}
