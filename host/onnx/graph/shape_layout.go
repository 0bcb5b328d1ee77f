package graph

import (
	"slices"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

func layoutRules() map[string]func(*call) {
	return map[string]func(*call){
		"Reshape":      reshapeRule,
		"Flatten":      flattenRule,
		"Transpose":    transposeRule,
		"Squeeze":      squeezeRule,
		"Unsqueeze":    unsqueezeRule,
		"Expand":       expandRule,
		"Tile":         tileRule,
		"Pad":          padRule,
		"DepthToSpace": func(c *call) { c.blocks(true) },
		"SpaceToDepth": func(c *call) { c.blocks(false) },
	}
}

// list reads a list of integers that newer operator sets take as an input and
// older ones as an attribute. given is false when there is neither; the list is
// nil when its content is not known.
func (c *call) list(input int, attr string) (list []Dim, given bool) {
	if c.has(input) {
		return c.in(input).Elems, true
	}
	if ints, ok := c.n.Ints(attr); ok {
		if len(ints) > maxElems {
			return nil, true
		}
		return dimInts(ints), true
	}
	return nil, false
}

// axes is list for axes of a tensor of this rank: in order, none twice. ok is
// false when they are not known or wrong.
func (c *call) axes(input int, attr string, rank int) (axes []int, given, ok bool) {
	list, given := c.list(input, attr)
	if !given || list == nil || rank < 0 {
		return nil, given, false
	}
	for _, d := range list {
		n, isConst := d.Const()
		a, inside := axisOf(n, rank)
		if !isConst || !inside || slices.Contains(axes, a) || len(axes) > maxRank {
			return nil, given, false
		}
		axes = append(axes, a)
	}
	slices.Sort(axes)
	return axes, given, true
}

func reshapeRule(c *call) {
	x := c.in(0)
	want, given := c.list(1, "shape")
	f := unranked(x.DType)
	switch {
	case want != nil:
		x, want = c.counted(x, want)
		want = c.numbered(want)
		f = shaped(x.DType, reshaped(x, want, c.n.Int("allowzero", 0) != 0)...)
	case given:
		if n, ok := c.in(1).Dim(0).Const(); ok && n >= 0 && n <= maxRank {
			f = shaped(x.DType, reshaped(x, make([]Dim, n), false)...)
		}
	}
	if _, ok := constants(f.Dims); ok && f.Count().Equal(x.Count()) {
		f = f.holding(x)
	}
	c.set(0, f)
}

// counted notes that the lengths of what Reshape makes are those of what it is
// given where the model calls them the same and the number of elements, which
// must be, is the same under these names.
func (c *call) counted(x Fact, want []Dim) (Fact, []Dim) {
	from, to := c.s.Claimed(x.Count()), DimInt(1)
	open := 0
	for i, d := range want {
		if n, ok := d.Const(); ok && n <= 0 || !d.Known() {
			if n == 0 && ok && i < x.Rank {
				to = to.Mul(c.s.Claimed(x.Dims[i]))
				continue
			}
			open++
			continue
		}
		to = to.Mul(c.s.Claimed(d))
	}
	rest, divides := from.Div(to)
	if open > 1 || open == 1 && !divides || open == 0 && !from.Equal(to) {
		return x, want
	}
	// Lengths that the model names by numbers are those where the elements beside one other length are just as many.
	if _, single := rest.symbol(); single || open == 0 {
		for _, d := range x.Dims {
			if n, ok := c.s.Claimed(d).Const(); ok {
				c.s.suppose(d, DimInt(n))
			}
		}
	}
	given := c.s.called(x.Dims)
	for name, symbol := range c.s.called(want) {
		if other := given[name]; other != "" && symbol != "" {
			c.s.suppose(DimSym(symbol), DimSym(other))
		}
	}
	return c.s.current(x), c.s.currentList(want)
}

// numbered puts the numbers that the model declares in place of lengths that a list leaves open, where these are more
// than one: the last of them follows from the number of elements.
func (c *call) numbered(want []Dim) []Dim {
	open := func(d Dim) bool {
		n, constant := d.Const()
		return !d.Known() || constant && n < 0
	}
	if i := slices.IndexFunc(want, open); i < 0 || !slices.ContainsFunc(want[i+1:], open) {
		return want
	}
	declared := fromType(c.n.Out[0].Type)
	if declared.Rank != len(want) {
		return want
	}
	want = slices.Clone(want)
	for i, d := range declared.Dims {
		if _, constant := d.Const(); constant && open(want[i]) {
			want[i] = d
		}
	}
	return want
}

// reshaped are the lengths that Reshape makes. One length that the list leaves
// open, be it -1 or unknown, follows from the number of elements.
func reshaped(x Fact, want []Dim, allowZero bool) []Dim {
	dims := make([]Dim, len(want))
	open := -1
	rest := DimInt(1)
	for i, d := range want {
		if d.Is(0) && !allowZero {
			d = Dim{}
			if i < x.Rank {
				d = x.Dims[i]
			}
		}
		if n, ok := d.Const(); ok && n < 0 {
			d = Dim{}
		}
		if !d.Known() {
			if open >= 0 {
				open = len(want) // more than one
			} else {
				open = i
			}
			continue
		}
		dims[i] = d
		rest = rest.Mul(d)
	}
	if open >= 0 && open < len(want) {
		dims[open], _ = x.Count().Div(rest)
	}
	return dims
}

func flattenRule(c *call) {
	x := c.in(0)
	f := shaped(x.DType, Dim{}, Dim{})
	if a := c.n.Int("axis", 1); x.Rank >= 0 && a <= int64(x.Rank) && a >= -int64(x.Rank) {
		if a < 0 {
			a += int64(x.Rank)
		}
		f = shaped(x.DType, product(x.Dims[:a]), product(x.Dims[a:])).holding(x)
	}
	c.set(0, f)
}

func transposeRule(c *call) {
	x := c.in(0)
	perm, given := c.n.Ints("perm")
	if x.Rank < 0 && given && len(perm) <= maxRank {
		c.set(0, shaped(x.DType, make([]Dim, len(perm))...))
		return
	}
	if !given {
		for i := range x.Rank {
			perm = append(perm, int64(x.Rank-1-i))
		}
	}
	c.set(0, transposed(x, perm))
}

func transposed(x Fact, perm []int64) Fact {
	if x.Rank < 0 || len(perm) != x.Rank {
		return unranked(x.DType)
	}
	f := shaped(x.DType, make([]Dim, x.Rank)...)
	seen := make([]bool, x.Rank)
	for i, p := range perm {
		if p < 0 || p >= int64(x.Rank) || seen[p] {
			return unranked(x.DType)
		}
		seen[p] = true
		f.Dims[i] = x.Dims[p]
	}
	if own, ok := constants(x.Dims); ok {
		step := strides(own)
		f = f.shuffled(x, func(at []int64) (i int64) {
			for k, p := range perm {
				i += at[k] * step[p]
			}
			return i
		})
	}
	return f
}

func squeezeRule(c *call) {
	x := c.in(0)
	axes, given, ok := c.axes(1, "axes", x.Rank)
	if !given && x.Rank >= 0 {
		// Without axes every length of one goes, which a symbol may be too.
		_, ok = constants(x.Dims)
		for i, d := range x.Dims {
			if d.Is(1) {
				axes = append(axes, i)
			}
		}
	}
	if !ok {
		c.set(0, unranked(x.DType))
		return
	}
	f := shaped(x.DType)
	for i, d := range x.Dims {
		if !slices.Contains(axes, i) {
			f.Dims = append(f.Dims, d)
		}
	}
	f.Rank = len(f.Dims)
	c.set(0, f.holding(x))
}

func unsqueezeRule(c *call) {
	x := c.in(0)
	list, _ := c.list(1, "axes")
	if x.Rank < 0 || list == nil {
		c.set(0, unranked(x.DType))
		return
	}
	axes, _, ok := c.axes(1, "axes", x.Rank+len(list))
	if !ok {
		c.set(0, unranked(x.DType))
		return
	}
	f := shaped(x.DType)
	rest := x.Dims
	for i := range x.Rank + len(axes) {
		if slices.Contains(axes, i) {
			f.Dims = append(f.Dims, DimInt(1))
		} else {
			f.Dims, rest = append(f.Dims, rest[0]), rest[1:]
		}
	}
	f.Rank = len(f.Dims)
	c.set(0, f.holding(x))
}

func expandRule(c *call) {
	x, shape := c.in(0), c.in(1)
	want := shape.Elems
	if want == nil {
		n, ok := shape.Dim(0).Const()
		if !ok || n < 0 || n > maxRank {
			c.set(0, unranked(x.DType))
			return
		}
		want = make([]Dim, n)
	}
	f := Fact{DType: x.DType}
	f.Rank, f.Dims = c.s.broadcast(x, shaped(x.DType, want...))
	if _, ok := constants(f.Dims); ok && f.Rank >= 0 {
		f = spread(x, f.Dims)
	}
	c.set(0, f)
}

func tileRule(c *call) {
	x := c.in(0)
	times := c.in(1).Elems
	if x.Rank < 0 {
		c.set(0, unranked(x.DType))
		return
	}
	f := shaped(x.DType, make([]Dim, x.Rank)...)
	if len(times) == x.Rank {
		for i, d := range x.Dims {
			f.Dims[i] = d.Mul(times[i])
		}
	}
	if own, ok := constants(x.Dims); ok {
		step := strides(own)
		f = f.shuffled(x, func(at []int64) (i int64) {
			for k, d := range own {
				if d > 0 {
					i += at[k] % d * step[k]
				}
			}
			return i
		})
	}
	c.set(0, f)
}

func padRule(c *call) {
	x := c.in(0)
	pads, _ := c.list(1, "pads")
	f := like(x, onnx.Tensor_UNDEFINED)
	if x.Rank < 0 {
		c.set(0, f)
		return
	}
	f.Dims = make([]Dim, x.Rank)
	axes, given, ok := c.orderedAxes(3, x.Rank)
	if !given {
		for i := range x.Rank {
			axes = append(axes, i)
		}
		ok = true
	}
	if ok && len(pads) == 2*len(axes) {
		copy(f.Dims, x.Dims)
		for i, a := range axes {
			f.Dims[a] = f.Dims[a].Add(pads[i]).Add(pads[len(axes)+i])
		}
	}
	c.set(0, f)
}

// orderedAxes are axes that an input gives, in its order.
func (c *call) orderedAxes(input, rank int) (axes []int, given, ok bool) {
	if !c.has(input) {
		return nil, false, false
	}
	list := c.in(input).Elems
	if list == nil {
		return nil, true, false
	}
	for _, d := range list {
		n, isConst := d.Const()
		a, inside := axisOf(n, rank)
		if !isConst || !inside || slices.Contains(axes, a) {
			return nil, true, false
		}
		axes = append(axes, a)
	}
	return axes, true, true
}

// blocks is DepthToSpace (grow) and SpaceToDepth.
func (c *call) blocks(grow bool) {
	x := c.in(0)
	size := DimInt(c.n.Int("blocksize", 0))
	if x.Rank != 4 {
		c.set(0, shaped(x.DType, make([]Dim, 4)...))
		return
	}
	area := size.Mul(size)
	var depth, h, w Dim
	if grow {
		depth, _ = x.Dims[1].Div(area)
		h, w = x.Dims[2].Mul(size), x.Dims[3].Mul(size)
	} else {
		depth = x.Dims[1].Mul(area)
		h, _ = x.Dims[2].Div(size)
		w, _ = x.Dims[3].Div(size)
	}
	c.set(0, shaped(x.DType, x.Dims[0], depth, h, w))
}
