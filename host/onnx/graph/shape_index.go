package graph

import (
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

func indexRules() map[string]func(*call) {
	return map[string]func(*call){
		"Slice":          sliceRule,
		"Gather":         gatherRule,
		"GatherND":       gatherNDRule,
		"GatherElements": func(c *call) { c.set(0, like(c.in(1), c.in(0).DType)) },
		"Compress":       compressRule,
		"Trilu":          func(c *call) { c.set(0, like(c.in(0), onnx.Tensor_UNDEFINED)) },
		"TopK":           topKRule,
		"ArgMax":         argRule,
		"ArgMin":         argRule,
		"NonZero":        func(c *call) { c.set(0, shaped(onnx.Tensor_INT64, rankOf(c.in(0)), Dim{})) },
		"Unique":         uniqueRule,
		"OneHot":         oneHotRule,
	}
}

// rankOf is the rank as a length.
func rankOf(f Fact) Dim {
	if f.Rank < 0 {
		return Dim{}
	}
	return DimInt(int64(f.Rank))
}

func gatherRule(c *call) {
	x, index := c.in(0), c.in(1)
	a, ok := axisOf(c.n.Int("axis", 0), x.Rank)
	if x.Rank < 0 || index.Rank < 0 || !ok {
		c.set(0, unranked(x.DType))
		return
	}
	f := shaped(x.DType)
	f.Dims = append(append(append(f.Dims, x.Dims[:a]...), index.Dims...), x.Dims[a+1:]...)
	f.Rank = len(f.Dims)
	rows, okRows := index.ints()
	own, okOwn := constants(x.Dims)
	if okRows && okOwn {
		step := strides(own)
		dims, _ := constants(index.Dims)
		places := strides(dims)
		f = f.shuffled(x, func(at []int64) (i int64) {
			for k := range a {
				i += at[k] * step[k]
			}
			row := int64(0)
			for k := range index.Rank {
				row += at[a+k] * places[k]
			}
			r := rows[row]
			if r < 0 {
				r += own[a]
			}
			if r < 0 || r >= own[a] {
				return -1
			}
			i += r * step[a]
			for k := a + 1; k < x.Rank; k++ {
				i += at[index.Rank+k-1] * step[k]
			}
			return i
		})
	}
	c.set(0, f)
}

func gatherNDRule(c *call) {
	x, index := c.in(0), c.in(1)
	batch := c.n.Int("batch_dims", 0)
	depth, ok := index.Dim(-1).Const()
	if x.Rank < 0 || index.Rank < 1 || !ok || batch < 0 || depth < 0 || batch >= int64(index.Rank) ||
		depth > int64(x.Rank)-batch {
		c.set(0, unranked(x.DType))
		return
	}
	f := shaped(x.DType)
	f.Dims = append(append(f.Dims, index.Dims[:index.Rank-1]...), x.Dims[batch+depth:]...)
	f.Rank = len(f.Dims)
	c.set(0, f)
}

func compressRule(c *call) {
	x := c.in(0)
	if c.n.Attr("axis") == nil {
		c.set(0, shaped(x.DType, Dim{}))
		return
	}
	c.set(0, c.replaced(x, c.n.Int("axis", 0), Dim{}, onnx.Tensor_UNDEFINED))
}

// replaced is x with another length on one axis.
func (c *call) replaced(x Fact, at int64, d Dim, t onnx.Tensor_DataType) Fact {
	f := like(x, t)
	a, ok := axisOf(at, x.Rank)
	if x.Rank < 0 || !ok {
		return unranked(f.DType)
	}
	f.Dims = append([]Dim(nil), x.Dims...)
	f.Dims[a] = d
	return f
}

func topKRule(c *call) {
	k := c.in(1).one()
	if a := c.n.Attr("k"); a != nil && !c.has(1) {
		k = DimInt(a.GetI())
	}
	x := c.in(0)
	c.set(0, c.replaced(x, c.n.Int("axis", -1), k, onnx.Tensor_UNDEFINED))
	c.set(1, c.replaced(x, c.n.Int("axis", -1), k, onnx.Tensor_INT64))
}

func argRule(c *call) {
	a, ok := axisOf(c.n.Int("axis", 0), c.in(0).Rank)
	if c.in(0).Rank < 0 || !ok {
		c.set(0, unranked(onnx.Tensor_INT64))
		return
	}
	c.set(0, reduced(c.in(0), []int{a}, c.n.Int("keepdims", 1) != 0, onnx.Tensor_INT64))
}

func uniqueRule(c *call) {
	x := c.in(0)
	if c.n.Attr("axis") == nil {
		c.set(0, shaped(x.DType, Dim{}))
	} else {
		c.set(0, c.replaced(x, c.n.Int("axis", 0), Dim{}, onnx.Tensor_UNDEFINED))
	}
	for i := 1; i < 4; i++ {
		c.set(i, shaped(onnx.Tensor_INT64, Dim{}))
	}
}

func oneHotRule(c *call) {
	x, depth := c.in(0), c.in(1).one()
	f := unranked(c.in(2).DType)
	if fl, ok := c.in(1).Scalar(); ok && fl >= 0 && fl < farAway {
		depth = DimInt(int64(fl))
	}
	if a, ok := axisOf(c.n.Int("axis", -1), x.Rank+1); ok && x.Rank >= 0 {
		f = shaped(f.DType)
		f.Dims = append(append(append(f.Dims, x.Dims[:a]...), depth), x.Dims[a:]...)
		f.Rank = len(f.Dims)
	}
	c.set(0, f)
}
