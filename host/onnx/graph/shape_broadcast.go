package graph

// broadcast is the shape of an elementwise operator over these inputs, rank -1
// when it cannot be told.
func (s *Shapes) broadcast(in ...Fact) (rank int, dims []Dim) {
	for _, f := range in {
		if f.Rank < 0 {
			return -1, nil
		}
		rank = max(rank, f.Rank)
	}
	dims = make([]Dim, rank)
	for i := range dims {
		dims[i] = DimInt(1)
	}
	for _, f := range in {
		lead := rank - f.Rank
		for i, d := range f.Dims {
			dims[lead+i] = s.meet(dims[lead+i], d)
		}
	}
	return rank, dims
}

// meet is the length that two lengths of one axis broadcast to. Of a symbol
// and a constant other than one it is the constant, of two symbols it is
// unknown unless one of them certainly exceeds one, or the model calls them the
// same.
func (s *Shapes) meet(a, b Dim) Dim {
	s.suppose(a, b)
	a, b = s.now(a), s.now(b)
	one := DimInt(1)
	switch {
	case a.Is(1):
		return b
	case b.Is(1), a.Equal(b):
		return a
	}
	if _, ok := a.Const(); ok || a.sub(one).sign() > 0 {
		return a
	}
	if _, ok := b.Const(); ok || b.sub(one).sign() > 0 {
		return b
	}
	return Dim{}
}

// same is the better known of two lengths that must be equal.
func same(a, b Dim) Dim {
	if _, ok := b.Const(); ok || !a.Known() {
		return b
	}
	return a
}
