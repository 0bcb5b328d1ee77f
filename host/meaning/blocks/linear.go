package blocks

import (
	"strconv"

	"github.com/opgraft/graft/host/onnx/graph"
)

// at is a value whose layout is known, as a view of n heads of a size.
func (f *finder) at(v *graph.Value, layout string, heads, size int64) (view, bool) {
	if v == nil {
		return view{}, false
	}
	dims := f.shapes.Of(v).Dims
	h, d := graph.DimInt(heads), graph.DimInt(size)
	switch {
	case len(dims) == 3 && (layout == "bshd" || layout == "bs1d"):
		return view{v, folded(dims[0], h, dims[1], d), 1}, true
	case len(dims) == 4 && len(layout) == 4:
		out := view{value: v, scale: 1}
		for i, role := range layout {
			out.dims = append(out.dims, []axis{{role: string(role), size: dims[i]}})
		}
		return out, true
	}
	return view{}, false
}

// linear recognises x W + b through reshapes, transposes, splits and scales, where
// columns of W are features of a head, head after head.
func (f *finder) linear(v view, ok bool) *Linear {
	if !ok {
		return nil
	}
	offset, width := int64(0), int64(-1)
	bias, biasOffset := "", int64(0)
	factor, biasFactor := 1.0, 1.0
	for {
		v.value = f.first(v.value)
		n := v.value.Producer
		switch {
		case n.Is("Cast"):
			v.value = n.Input(0)
		case n.Is("Transpose") || reshapes(n) || f.copies(n):
			if v, ok = f.rearranged(v); !ok {
				return nil
			}
		case n.Is("Mul", "Div"):
			x, c, ok := f.scalarFactor(n)
			if !ok {
				return nil
			}
			v.value = x
			if factor *= c; bias == "" {
				biasFactor *= c
			}
		case n.Is("Split", "Slice"):
			p := f.piece(v.value)
			if p == nil || !v.inColumns() {
				return nil
			}
			if offset += p.offset; width < 0 {
				width = p.width
			}
			v = f.columns(p.of)
		case n.Is("Add"):
			x, c := f.offset(n)
			if c == nil || bias != "" || !f.oneForEach(v, c) {
				return nil
			}
			v.value, bias, biasOffset = x, c.Name, offset
		case n.Is("MatMul", "Gemm"):
			l := f.weight(n)
			if l == nil || !v.inColumns() {
				return nil
			}
			if width >= 0 {
				l.Offset, l.Width = offset, width
			}
			switch {
			case bias != "" && l.Bias != "":
				return nil // two biases
			case bias != "":
				l.Bias, l.BiasOffset, l.BiasFactor = bias, biasOffset, biasFactor
			case l.Bias != "":
				l.BiasOffset = l.Offset
				l.BiasFactor *= biasFactor
			}
			l.Factor *= factor
			return l
		default:
			return nil
		}
	}
}

// columns is a value of which only the last axis matters: columns of a linear layer.
func (f *finder) columns(v *graph.Value) view {
	return f.lastAxis(v, []axis{{role: "c", size: f.shapes.Of(v).Dim(-1)}})
}

// lastAxis is a value of which the last axis is known.
func (f *finder) lastAxis(v *graph.Value, last []axis) view {
	out := view{value: v, scale: 1}
	dims := f.shapes.Of(v).Dims
	for i, d := range dims {
		out.dims = append(out.dims, []axis{{role: strconv.Itoa(i), size: d}})
	}
	out.dims[len(dims)-1] = last
	return out
}

// inColumns reports that the last axis holds the features of all heads, head after
// head, or columns of a linear layer.
func (v view) inColumns() bool {
	last := view{dims: v.dims[len(v.dims)-1:]}
	switch last.text() {
	case "hd", "c":
		return true
	case "d":
		h, ok := v.size("h")
		return !ok || isOne(h)
	}
	return false
}

// rearranged takes a step up through a node that moves axes. Where lengths are not
// known well enough to follow all of them, the last one may still be the same.
func (f *finder) rearranged(v view) (view, bool) {
	n := v.value.Producer
	if up, ok := f.stepUp(v, false); ok {
		return up, true
	}
	width := f.shapes.Of(v.value).Dim(-1)
	for reshapes(n) {
		x := n.Input(0)
		if f.shapes.Of(x).Rank > 0 && f.shapes.Of(x).Dim(-1).Equal(width) {
			return f.lastAxis(x, v.dims[len(v.dims)-1]), true
		}
		n = x.Producer
	}
	return view{}, false
}

// oneForEach reports a constant with an element for each feature of each head.
func (f *finder) oneForEach(v view, c *graph.Value) bool {
	count, ok := f.shapes.Of(c).Count().Const()
	if !ok {
		return false
	}
	length := graph.DimInt(1)
	dims := v.dims[len(v.dims)-1:]
	if !v.inColumns() {
		if len(v.dims) < 2 || (view{dims: v.dims[len(v.dims)-2:]}).text() != "h d" {
			return false
		}
		dims = v.dims[len(v.dims)-2:]
	}
	for _, d := range dims {
		for _, a := range d {
			length = length.Mul(a.size)
		}
	}
	return length.Is(count)
}
