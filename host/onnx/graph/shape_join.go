package graph

import (
	"slices"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

func joinRules() map[string]func(*call) {
	return map[string]func(*call){
		"Concat": concatRule,
		"Split":  splitRule,
	}
}

func concatRule(c *call) {
	f := c.in(0)
	if len(c.n.In) > maxElems {
		c.set(0, unranked(f.DType))
		return
	}
	parts := make([]Fact, len(c.n.In))
	rank := -1
	for i := range parts {
		parts[i] = c.in(i)
		rank = max(rank, parts[i].Rank)
	}
	a, ok := axisOf(c.n.Int("axis", 1), rank)
	if rank < 0 || !ok {
		c.set(0, unranked(f.DType))
		return
	}
	f = shaped(f.DType, make([]Dim, rank)...)
	sum := DimInt(0)
	for _, p := range parts {
		if f.DType == onnx.Tensor_UNDEFINED {
			f.DType = p.DType
		}
		if p.Rank != rank {
			sum = Dim{}
			continue
		}
		sum = sum.Add(p.Dims[a])
		for i, d := range p.Dims {
			if i != a {
				c.s.equate(f.Dims[i], d)
			}
			f.Dims[i] = same(f.Dims[i], d)
		}
	}
	f.Dims[a] = sum
	c.set(0, joined(f, parts, a))
}

// joined adds the content of a concatenation, unknown elements included as long
// as any is known.
func joined(f Fact, parts []Fact, a int) Fact {
	dims, ok := constants(f.Dims)
	n, fits := f.size()
	ints := slices.ContainsFunc(parts, func(p Fact) bool { return p.Elems != nil })
	floats := !slices.ContainsFunc(parts, func(p Fact) bool { return p.Floats == nil })
	if !ok || !fits || n > maxElems || n < 0 || !ints && !floats {
		return f
	}
	if n == 0 {
		if ints {
			f.Elems = []Dim{}
		}
		return f
	}
	outer := int64(1)
	for _, d := range dims[:a] {
		outer *= d
	}
	chunks := make([]int64, len(parts))
	for i, p := range parts {
		count, ok := p.size()
		if !ok || count > n || p.Rank != f.Rank {
			return f // the parts do not fit the whole
		}
		chunks[i] = count / outer
	}
	parts = slices.DeleteFunc(parts, func(p Fact) bool { return p.Count().Is(0) })
	chunks = slices.DeleteFunc(chunks, func(n int64) bool { return n == 0 })
	for o := range outer {
		for i, p := range parts {
			from, to := o*chunks[i], (o+1)*chunks[i]
			switch {
			case floats:
				f.Floats = append(f.Floats, p.Floats[from:to]...)
			case p.Elems != nil:
				f.Elems = append(f.Elems, p.Elems[from:to]...)
			default:
				f.Elems = append(f.Elems, make([]Dim, to-from)...)
			}
		}
	}
	return f
}

func splitRule(c *call) {
	x := c.in(0)
	parts := len(c.n.Out)
	sizes, given := c.list(1, "split")
	count := DimInt(c.n.Int("num_outputs", int64(parts)))
	if c.n.Graph.Opset("") < 18 || c.n.Attr("num_outputs") == nil {
		count = DimInt(int64(parts))
	}
	a, ok := axisOf(c.n.Int("axis", 0), x.Rank)
	if x.Rank < 0 || !ok {
		for i := range parts {
			c.set(i, unranked(x.DType))
		}
		return
	}
	own, tracked := constants(x.Dims)
	step := strides(own)
	from := int64(0)
	for i := range parts {
		var size Dim
		if given {
			size = at(sizes, i)
		} else {
			size = splitSize(x.Dims[a], count, i)
		}
		f := c.replaced(x, int64(a), size, onnx.Tensor_UNDEFINED)
		n, isConst := size.Const()
		if tracked && isConst && from >= 0 {
			start := from
			f = f.shuffled(x, func(at []int64) (i int64) {
				for k := range own {
					i += at[k] * step[k]
				}
				return i + start*step[a]
			})
			from, _ = addInt(from, n)
		} else {
			from = -1
		}
		c.set(i, f)
	}
}

// splitSize is the size of the i-th part when a length is split evenly: the
// last part is smaller when it does not divide.
func splitSize(d, parts Dim, i int) Dim {
	n, ok := d.Const()
	k, okK := parts.Const()
	if !ok || !okK || k <= 0 {
		q, _ := d.Div(parts)
		return q
	}
	chunk := (n-1)/k + 1
	if n == 0 {
		chunk = 0
	}
	return DimInt(max(0, min(chunk, n-int64(i)*chunk)))
}
