package graph

// Term is a coefficient before a product of symbols, repeated for powers; none
// for the constant term.
type Term struct {
	Coefficient int64
	Symbols     []string
}

// Terms are the parts whose sum the length is, the constant term last and only
// when it is not zero. The symbols must not be written.
func (d Dim) Terms() []Term {
	var list []Term
	for _, t := range d.terms {
		list = append(list, Term{t.coef, t.syms})
	}
	if d.c != 0 {
		list = append(list, Term{d.c, nil})
	}
	return list
}
