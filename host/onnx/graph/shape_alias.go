package graph

import (
	"slices"
	"strconv"
)

// What a model calls a length is a claim, not a fact: exporters give one name to
// lengths that differ, and two names to one length. So each axis has a symbol of
// its own, and two symbols are one length where the graph shows it: where an
// operator takes nothing else (a concatenation, the inner lengths of a matmul),
// and where lengths are broadcast or copied that the model calls the same.

// scope holds the symbols that were found to be other lengths. What a subgraph
// shows holds inside it: it may not run.
type scope struct {
	up *scope
	is map[string]Dim // in older symbols only
}

func (s *Shapes) enter() { s.scope = &scope{up: s.scope, is: map[string]Dim{}} }

// leave settles what is known of a subgraph's values. What only it shows counts no
// more, but for In.
func (s *Shapes) leave(g *Graph) {
	if len(s.scope.is) > 0 {
		s.settle(g)
	}
	s.shorten()
	s.within[g] = s.scope
	s.scope = s.scope.up
}

// In is what is known of a value where a graph reads it: a value of a graph around
// g has its lengths in the symbols that are left in g.
func (s *Shapes) In(g *Graph, v *Value) Fact {
	f := s.Of(v)
	at := s.within[g]
	if at == nil || v == nil || v.Graph == g {
		return f
	}
	f.Dims, f.Elems = at.resolveAll(f.Dims), at.resolveAll(f.Elems)
	return f
}

func (at *scope) resolveAll(list []Dim) []Dim {
	out := make([]Dim, len(list))
	for i, d := range list {
		out[i] = at.resolve(d)
	}
	return out
}

// resolve is a length in the symbols that are left in a scope. It changes nothing.
func (at *scope) resolve(d Dim) Dim {
	changed := false
	to := d.replace(func(name string) Dim {
		for in := at; in != nil; in = in.up {
			if is, ok := in.is[name]; ok {
				changed = true
				return at.resolve(is)
			}
		}
		return DimSym(name)
	})
	if !changed {
		return d
	}
	return to
}

func (s *Shapes) settle(g *Graph) {
	if len(s.scope.is) == 0 && s.scope.up == nil {
		return
	}
	for _, v := range g.values {
		if f, ok := s.recall(v); ok {
			s.Know(v, s.current(f))
		}
	}
	for _, n := range g.Nodes {
		for _, sub := range n.Subgraphs {
			s.settle(sub)
		}
	}
}

// current is a fact in the symbols that are left.
func (s *Shapes) current(f Fact) Fact {
	f.Dims, f.Elems = s.currentList(f.Dims), s.currentList(f.Elems)
	return f
}

func (s *Shapes) currentList(list []Dim) []Dim {
	copied := false
	for i, d := range list {
		if !s.stale(d) {
			continue
		}
		if !copied {
			list, copied = slices.Clone(list), true
		}
		list[i] = s.now(d)
	}
	return list
}

func (s *Shapes) stale(d Dim) bool {
	for _, t := range d.terms {
		for _, name := range t.syms {
			if _, ok := s.found(name); ok {
				return true
			}
		}
	}
	return false
}

func (s *Shapes) found(name string) (d Dim, ok bool) {
	for at := s.scope; at != nil; at = at.up {
		if d, ok = at.is[name]; ok {
			return d, true
		}
	}
	return Dim{}, false
}

// now is a length in the symbols that are left. Rows of symbols that are one another are as
// long as a model makes them: they are followed without recursion, and made short.
func (s *Shapes) now(d Dim) Dim {
	if !s.stale(d) {
		return d
	}
	for open := s.gone(nil, d); len(open) > 0; {
		name := open[len(open)-1]
		to, _ := s.found(name)
		if before := len(open); s.stale(to) {
			for _, older := range s.gone(nil, to) {
				if is, _ := s.found(older); s.stale(is) {
					open = append(open, older)
				}
			}
			if len(open) > before {
				continue
			}
			to = s.replaced(to)
		}
		s.scope.is[name], open = to, open[:len(open)-1]
		s.main.Spend(1)
	}
	return s.replaced(d)
}

// replaced is a length with each symbol that is another length replaced once.
func (s *Shapes) replaced(d Dim) Dim {
	return d.replace(func(name string) Dim {
		if to, ok := s.found(name); ok {
			return to
		}
		return DimSym(name)
	})
}

// gone appends the symbols of a length that are other lengths.
func (s *Shapes) gone(list []string, d Dim) []string {
	for _, t := range d.terms {
		for _, name := range t.syms {
			if _, ok := s.found(name); ok {
				list = append(list, name)
			}
		}
	}
	return list
}

// shorten lets no symbol of the scope be a length that has to be followed further.
func (s *Shapes) shorten() {
	for name := range s.scope.is {
		s.now(DimSym(name))
	}
}

// replace puts other lengths in the places of symbols.
func (d Dim) replace(by func(name string) Dim) Dim {
	sum := DimInt(d.c)
	for _, t := range d.terms {
		p := DimInt(t.coef)
		for _, name := range t.syms {
			p = p.Mul(by(name))
		}
		sum = sum.Add(p)
	}
	if !d.known {
		return Dim{}
	}
	return sum
}

// equate notes that two lengths are one, as an operator needs them to be.
func (s *Shapes) equate(a, b Dim) {
	a, b = s.now(a), s.now(b)
	if s.scope == nil || !a.known || !b.known || a.Equal(b) {
		return
	}
	// Solved for the youngest symbol, the others being older.
	difference := a.sub(b)
	youngest, at := "", -1
	for _, t := range difference.terms {
		for _, name := range t.syms {
			if order, ok := s.order[name]; ok && order > at {
				youngest, at = name, order
			}
		}
	}
	if at < 0 {
		return
	}
	rest, coef := Dim{known: true, c: difference.c}, int64(0)
	for _, t := range difference.terms {
		switch {
		case len(t.syms) == 1 && t.syms[0] == youngest:
			coef = t.coef
		case slices.Contains(t.syms, youngest):
			return
		default:
			rest.terms = append(rest.terms, t)
		}
	}
	switch coef {
	case 1:
		rest = rest.Mul(DimInt(-1))
	case -1:
	default:
		return
	}
	if n, ok := rest.Const(); rest.known && (!ok || n >= 0) {
		s.scope.is[youngest] = rest
	}
}

// suppose notes that two lengths are one where the model calls them the same and
// an operator lets them be.
func (s *Shapes) suppose(a, b Dim) {
	if a, b = s.now(a), s.now(b); a.Equal(b) {
		return
	}
	if x, y := s.Claimed(a), s.Claimed(b); x.Equal(y) {
		s.equate(a, b)
	}
}

// believed is what is believed of the name of an axis: one that an input gives to
// several axes says something of the axes at one place only, and nothing in a sum.
func (s *Shapes) believed(claim Dim, index int) Dim {
	if !slices.ContainsFunc(claim.Symbols(), func(name string) bool { return s.doubted[name] }) {
		return claim
	}
	name, single := claim.symbol()
	if !single {
		return Dim{}
	}
	return DimSym(name + "@" + strconv.Itoa(index))
}

// called are the symbols of lengths by what the model calls them; "" where it calls
// two the same.
func (s *Shapes) called(dims []Dim) map[string]string {
	by := map[string]string{}
	for _, d := range dims {
		for _, symbol := range d.Symbols() {
			name := s.claims[symbol].String()
			if before, ok := by[name]; ok && before != symbol {
				symbol = ""
			}
			by[name] = symbol
		}
	}
	return by
}

// doubt finds the names that one input gives to two of its axes, but for the square
// that a mask of queries and keys may be.
func (s *Shapes) doubt(g *Graph) {
	for _, v := range g.Inputs {
		seen := map[string]int{}
		dims := v.Type.GetTensorType().GetShape().GetDim()
		for i, d := range dims {
			name, ok := named(d.GetDimParam()).symbol()
			if !ok {
				continue
			}
			if before, ok := seen[name]; ok && !(len(dims) > 2 && before == len(dims)-2 && i == len(dims)-1) {
				s.doubted[name] = true
			}
			seen[name] = i
		}
	}
}

// honour finds the names that mean one length wherever an input has them.
func (s *Shapes) honour(g *Graph) {
	means := map[string]Dim{}
	for _, v := range g.Inputs {
		declared, f := fromType(v.Type), s.Of(v)
		for i, d := range declared.Dims {
			name, ok := d.symbol()
			if !ok || i >= len(f.Dims) {
				continue
			}
			if before, ok := means[name]; ok && !before.Equal(f.Dims[i]) {
				s.doubted[name] = true
			}
			means[name] = f.Dims[i]
		}
	}
}
