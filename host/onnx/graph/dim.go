package graph

import (
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

const (
	maxDimTerms  = 32 // longer polynomials become unknown
	maxDimDegree = 12
)

// Dim is a length, or another integer that lengths make, as a polynomial with
// integer coefficients over named symbols: 64, batch_size*12, past + seq.
// Symbols are lengths of tensors and so never negative. The zero value is an
// unknown length; what is computed from an unknown length, what overflows 64
// bits and what grows beyond 32 terms is unknown too.
type Dim struct {
	known bool
	c     int64  // the constant term
	terms []term // the others, highest first, no zero coefficients; never written once made
}

// term is a coefficient before a product of symbols, which stand in order and
// are repeated for powers.
type term struct {
	coef int64
	syms []string
}

// DimInt is a length known as a number.
func DimInt(n int64) Dim { return Dim{known: true, c: n} }

// DimSym is the length that goes by a name.
func DimSym(name string) Dim {
	return Dim{known: true, terms: []term{{1, []string{name}}}}
}

// Known reports whether anything is known of the length.
func (d Dim) Known() bool { return d.known }

// Const is the length as a number; ok is false when it depends on symbols or is
// unknown.
func (d Dim) Const() (n int64, ok bool) { return d.c, d.known && len(d.terms) == 0 }

// Is reports whether the length is this number whatever the symbols are.
func (d Dim) Is(n int64) bool { return d.known && len(d.terms) == 0 && d.c == n }

// Equal reports whether two lengths are the same whatever the symbols are. It
// is false when either is unknown.
func (d Dim) Equal(o Dim) bool {
	return d.known && o.known && d.c == o.c && slices.EqualFunc(d.terms, o.terms, func(a, b term) bool {
		return a.coef == b.coef && compareSyms(a.syms, b.syms) == 0
	})
}

// compareSyms orders products of symbols by degree, then by name (the graded
// lexicographic order, in which polynomials can be divided).
func compareSyms(a, b []string) int {
	if len(a) != len(b) {
		return len(b) - len(a)
	}
	return slices.Compare(a, b)
}

// Add is d + o.
func (d Dim) Add(o Dim) Dim {
	if !d.known || !o.known {
		return Dim{}
	}
	c, ok := addInt(d.c, o.c)
	if !ok {
		return Dim{}
	}
	if len(d.terms) == 0 {
		return Dim{true, c, o.terms}
	}
	if len(o.terms) == 0 {
		return Dim{true, c, d.terms}
	}
	sum := make([]term, 0, len(d.terms)+len(o.terms))
	a, b := d.terms, o.terms
	for len(a) > 0 && len(b) > 0 {
		switch order := compareSyms(a[0].syms, b[0].syms); {
		case order < 0:
			sum, a = append(sum, a[0]), a[1:]
		case order > 0:
			sum, b = append(sum, b[0]), b[1:]
		default:
			k, ok := addInt(a[0].coef, b[0].coef)
			if !ok {
				return Dim{}
			}
			if k != 0 {
				sum = append(sum, term{k, a[0].syms})
			}
			a, b = a[1:], b[1:]
		}
	}
	sum = append(append(sum, a...), b...)
	if len(sum) > maxDimTerms {
		return Dim{}
	}
	return Dim{true, c, sum}
}

// sub is d - o.
func (d Dim) sub(o Dim) Dim { return d.Add(o.Mul(DimInt(-1))) }

// Mul is d * o. The product with zero is zero even when the other is unknown.
func (d Dim) Mul(o Dim) Dim {
	if d.Is(0) || o.Is(0) {
		return DimInt(0)
	}
	if !d.known || !o.known {
		return Dim{}
	}
	if len(o.terms) == 0 {
		return d.times(term{coef: o.c})
	}
	sum := d.times(term{coef: o.c})
	for _, t := range o.terms {
		if !sum.known {
			return Dim{}
		}
		sum = sum.Add(d.times(t))
	}
	return sum
}

// times multiplies by one term, which leaves the order of terms.
func (d Dim) times(t term) Dim {
	if t.coef == 0 {
		return DimInt(0)
	}
	if t.coef == 1 && len(t.syms) == 0 {
		return d
	}
	p := Dim{known: true}
	for _, u := range d.all() {
		k, ok := mulInt(u.coef, t.coef)
		if !ok || len(u.syms)+len(t.syms) > maxDimDegree {
			return Dim{}
		}
		if len(u.syms)+len(t.syms) == 0 {
			p.c = k
			continue
		}
		syms := slices.Concat(u.syms, t.syms)
		slices.Sort(syms)
		p.terms = append(p.terms, term{k, syms})
	}
	return p
}

// all lists the terms with the constant one, if it is not zero, as the last.
func (d Dim) all() []term {
	if d.c == 0 {
		return d.terms
	}
	return append(slices.Clip(d.terms), term{coef: d.c})
}

// Div is d / o where that is a polynomial with integer coefficients; ok is
// false where it is not, or o is zero.
func (d Dim) Div(o Dim) (q Dim, ok bool) {
	if !d.known || !o.known || o.Is(0) {
		return Dim{}, false
	}
	if d.Is(0) {
		return d, true
	}
	lead := o.all()[0]
	q, rest := DimInt(0), d
	for range maxDimTerms + 1 {
		if !rest.known {
			return Dim{}, false
		}
		if rest.Is(0) {
			return q, true
		}
		top := rest.all()[0]
		syms, ok := without(top.syms, lead.syms)
		if !ok || top.coef == math.MinInt64 || top.coef%lead.coef != 0 {
			return Dim{}, false
		}
		t := term{top.coef / lead.coef, syms}
		q = q.Add(DimInt(1).times(t))
		rest = rest.sub(o.times(t))
	}
	return Dim{}, false
}

// without takes the symbols of b out of a; ok is false when a lacks any.
func without(a, b []string) (rest []string, ok bool) {
	for _, s := range a {
		if len(b) > 0 && b[0] == s {
			b = b[1:]
			continue
		}
		rest = append(rest, s)
	}
	return rest, len(b) == 0
}

// sign is what is certain about a length when no symbol is negative: 1 for
// always above zero, -1 for always below, 0 for anything else.
func (d Dim) sign() int {
	switch {
	case d.c > 0 && d.atLeastZero():
		return 1
	case d.c < 0 && d.known && !slices.ContainsFunc(d.terms, func(t term) bool { return t.coef > 0 }):
		return -1
	}
	return 0
}

// atLeastZero reports whether the length is certain not to be negative.
func (d Dim) atLeastZero() bool {
	return d.known && d.c >= 0 && !slices.ContainsFunc(d.terms, func(t term) bool { return t.coef < 0 })
}

// symbol is the name when the length is one symbol and nothing else.
func (d Dim) symbol() (name string, ok bool) {
	if d.known && d.c == 0 && len(d.terms) == 1 && d.terms[0].coef == 1 && len(d.terms[0].syms) == 1 {
		return d.terms[0].syms[0], true
	}
	return "", false
}

// Eval is the length with the symbols given; ok is false when one is missing,
// the length is unknown, or 64 bits do not hold it.
func (d Dim) Eval(at map[string]int64) (n int64, ok bool) {
	if !d.known {
		return 0, false
	}
	n = d.c
	for _, t := range d.terms {
		p := t.coef
		for _, s := range t.syms {
			v, ok := at[s]
			if !ok {
				return 0, false
			}
			if p, ok = mulInt(p, v); !ok {
				return 0, false
			}
		}
		if n, ok = addInt(n, p); !ok {
			return 0, false
		}
	}
	return n, true
}

// Symbols lists the names that the length depends on, in order.
func (d Dim) Symbols() []string {
	var list []string
	for _, t := range d.terms {
		list = append(list, t.syms...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// String is the length for people, such as "past + seq" or "batch*64"; an
// unknown one is "?".
func (d Dim) String() string {
	if !d.known {
		return "?"
	}
	if len(d.terms) == 0 {
		return strconv.FormatInt(d.c, 10)
	}
	var b strings.Builder
	for i, t := range d.all() {
		text, minus := t.String(), t.coef < 0
		switch {
		case i > 0 && minus:
			b.WriteString(" - ")
			text = text[1:]
		case i > 0:
			b.WriteString(" + ")
		}
		b.WriteString(text)
	}
	return b.String()
}

func (t term) String() string {
	product := strings.Join(t.syms, "*")
	switch {
	case product == "":
		return strconv.FormatInt(t.coef, 10)
	case t.coef == 1:
		return product
	case t.coef == -1:
		return "-" + product
	case t.coef < 0:
		// The sign leads, so that a sum can print it as a minus.
		return "-" + product + "*" + strconv.FormatUint(uint64(-t.coef), 10)
	}
	return product + "*" + strconv.FormatInt(t.coef, 10)
}

func addInt(a, b int64) (int64, bool) {
	s := a + b
	return s, (s > a) == (b > 0)
}

func mulInt(a, b int64) (int64, bool) {
	hi, lo := bits.Mul64(magnitude(a), magnitude(b))
	if hi != 0 || lo > math.MaxInt64 {
		return 0, false // the smallest integer counts as overflow: its negation does
	}
	if (a < 0) != (b < 0) {
		return -int64(lo), true
	}
	return int64(lo), true
}

func magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}
