package graph

import (
	"math"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

func sliceRule(c *call) {
	x := c.in(0)
	f := like(x, onnx.Tensor_UNDEFINED)
	if x.Rank < 0 {
		c.set(0, f)
		return
	}
	starts, _ := c.list(1, "starts")
	ends, _ := c.list(2, "ends")
	var axes []int
	var given, ok bool
	if c.has(3) {
		axes, given, ok = c.orderedAxes(3, x.Rank)
	} else if list, has := c.n.Ints("axes"); has {
		given, ok = true, true
		for _, n := range list {
			a, inside := axisOf(n, x.Rank)
			axes, ok = append(axes, a), ok && inside
		}
	}
	f.Dims = make([]Dim, x.Rank)
	if !given {
		// All axes from the first one on, as many as there are bounds.
		n := len(starts)
		if starts == nil {
			bounds, known := c.in(1).Dim(0).Const()
			n = int(min(max(bounds, 0), maxRank))
			if !known {
				n = x.Rank
			}
		}
		for i := range n {
			axes = append(axes, i)
		}
		ok = n <= x.Rank
	}
	if !ok {
		c.set(0, f)
		return
	}
	copy(f.Dims, x.Dims)
	steps := c.in(4).Elems
	from, by := make([]int64, x.Rank), make([]int64, x.Rank)
	follow := true
	for i := range by {
		by[i] = 1
	}
	for i, a := range axes {
		step, s, e := DimInt(1), Dim{}, Dim{}
		if c.has(4) {
			step = at(steps, i)
		}
		s, e = at(starts, i), at(ends, i)
		c.s.suppose(x.Dims[a], e)
		e = c.s.now(e)
		x.Dims = c.s.currentList(x.Dims)
		f.Dims[a], from[a], ok = sliced(x.Dims[a], s, e, step)
		by[a], _ = step.Const()
		follow = follow && ok
	}
	if own, ok := constants(x.Dims); ok && follow {
		stride := strides(own)
		f = f.shuffled(x, func(at []int64) (i int64) {
			for k := range own {
				i += (from[k] + at[k]*by[k]) * stride[k]
			}
			return i
		})
	}
	c.set(0, f)
}

func at(list []Dim, i int) Dim {
	if i < len(list) {
		return list[i]
	}
	return Dim{}
}

// farAway is where bounds of a slice begin to mean "to the end".
const farAway = math.MaxInt32

// sliced is the length of d cut from s to e in steps, and where the cut starts
// if that is known as a number.
func sliced(d, s, e, step Dim) (length Dim, from int64, ok bool) {
	by, isConst := step.Const()
	if !isConst || by == 0 {
		return Dim{}, 0, false
	}
	n, okD := d.Const()
	start, okS := s.Const()
	end, okE := e.Const()
	switch {
	case okD && okS && okE:
		length, from := slicedConst(n, start, end, by)
		return DimInt(length), from, true
	case by == -1 && okS && okE && (start == -1 || start >= farAway) && end < -farAway:
		return d, 0, false
	case by > 1 && okS && okE && start >= 0 && start < by && end >= farAway:
		// Every by-th: exact when the length is a multiple.
		q, _ := d.Div(step)
		return q, 0, false
	case by != 1:
		return Dim{}, 0, false
	}
	if okS && okE && (end == start+1 && start != -1 || start == -1 && end >= farAway) {
		return DimInt(1), 0, false // one row, taken to be there
	}
	lo, hi := bound(d, s), bound(d, e)
	if !lo.Known() || !hi.Known() {
		return Dim{}, 0, false
	}
	length = hi.sub(lo)
	switch {
	case length.atLeastZero(),
		okS && okE && length.Add(DimInt(1)).Equal(d): // all but one row, of which there is one
		return length, 0, false
	case DimInt(0).sub(length).atLeastZero():
		return DimInt(0), 0, false
	}
	return Dim{}, 0, false
}

// bound is a bound of a slice as a position from 0 to d, when it is certain
// which that is.
func bound(d, b Dim) Dim {
	n, isConst := b.Const()
	if isConst && n >= farAway {
		return d
	}
	if isConst && n == 0 {
		return b
	}
	negative := DimInt(0).sub(b).atLeastZero()
	if negative {
		b = d.Add(b)
	} else if !b.atLeastZero() {
		return Dim{}
	}
	rows, _ := d.Const()
	switch {
	case !b.Known():
	case d.sub(b).atLeastZero() && b.atLeastZero():
		return b
	case b.sub(d).atLeastZero():
		return d
	case rows > 1 && !isConst && !negative, // a table is taken to be long enough
		isConst && (n == 1 || n == -1): // and anything to have a row
		return b
	case negative && DimInt(0).sub(b).atLeastZero():
		return DimInt(0)
	}
	return Dim{}
}

func slicedConst(d, start, end, by int64) (length, from int64) {
	clamp := func(b, lo, hi int64) int64 {
		if b < 0 {
			b += d // cannot overflow: d is not negative
		}
		return min(max(b, lo), hi)
	}
	if by > 0 {
		start, end = clamp(start, 0, d), clamp(end, 0, d)
		if end <= start {
			return 0, 0
		}
		return (end-start-1)/by + 1, start
	}
	start, end = clamp(start, -1, d-1), clamp(end, -1, d-1)
	if end >= start {
		return 0, 0
	}
	if by == math.MinInt64 {
		return 1, start
	}
	return (start-end-1)/-by + 1, start
}
