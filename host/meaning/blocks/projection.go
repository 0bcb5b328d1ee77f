package blocks

import (
	"github.com/opgraft/graft/host/onnx/graph"
)

// projections looks for the linear layers that make query, key and value and that
// take the result; nil parts were exported in another way.
func (f *finder) projections(a *Attention, w *Wiring) *Projections {
	p := &Projections{}
	if w.Packed {
		full := f.linear(f.at(w.Query, "bshd", a.Heads+2*a.KVHeads, a.HeadSize))
		if full == nil {
			return nil
		}
		third := *full
		third.Width /= 3
		k, v := third, third
		k.move(third.Width)
		v.move(2 * third.Width)
		p.Query, p.Key, p.Value = &third, &k, &v
	} else {
		p.Query = f.linear(f.at(w.RawQuery, w.RawQueryLayout, a.Heads, a.HeadSize))
		p.Key = f.linear(f.at(w.RawKey, w.RawKeyLayout, a.KVHeads, a.HeadSize))
		p.Value = f.linear(f.at(w.Value, w.ValueLayout, a.KVHeads, a.ValueSize))
	}
	p.Output = f.consumer(w.Output)
	if *p == (Projections{}) {
		return nil
	}
	return p
}

// move shifts which columns are meant.
func (l *Linear) move(by int64) {
	l.Offset += by
	if l.Bias != "" {
		l.BiasOffset += by
	}
}

// piece is a run of the last axis of another value.
type piece struct {
	of            *graph.Value
	offset, width int64
}

// piece recognises what a Split or a Slice cuts from the last axis.
func (f *finder) piece(v *graph.Value) *piece {
	v = f.first(v)
	n := f.maker(v)
	if !n.Is("Split", "Slice") {
		return nil
	}
	whole := f.in(n, 0)
	from, part := f.shapes.Of(whole), f.shapes.Of(v)
	p := &piece{of: whole}
	var ok bool
	if p.width, ok = part.Dim(-1).Const(); !ok {
		return nil
	}
	if n.Is("Split") {
		if ax := n.Int("axis", 0); ax != -1 && ax != int64(from.Rank-1) {
			return nil
		}
		for _, o := range n.Out {
			if o == v {
				return p
			}
			size, ok := f.shapes.Of(o).Dim(-1).Const()
			if !ok {
				return nil
			}
			p.offset += size
		}
		return nil
	}
	starts, axes, steps := f.numbers(n, 1, "starts"), f.numbers(n, 3, "axes"), f.numbers(n, 4, "steps")
	length, known := from.Dim(-1).Const()
	if len(starts) != 1 || len(axes) != 1 || axes[0] != -1 && axes[0] != int64(from.Rank-1) || !known ||
		len(steps) > 0 && steps[0] != 1 {
		return nil
	}
	if p.offset = starts[0]; p.offset < 0 {
		p.offset += length
	}
	return p
}

// numbers are the integers of an input, or of the attribute that it was before;
// nil when they are not known.
func (f *finder) numbers(n *graph.Node, i int, attribute string) []int64 {
	if list, ok := n.Ints(attribute); ok {
		return list
	}
	if n.Input(i) == nil {
		return nil
	}
	var list []int64
	for _, d := range f.shapes.Of(n.Input(i)).Elems {
		x, ok := d.Const()
		if !ok {
			return nil
		}
		list = append(list, x)
	}
	return list
}

// offset splits x + c into x and the constant c; c is nil when neither is constant.
func (f *finder) offset(n *graph.Node) (x, c *graph.Value) {
	x, c = f.in(n, 0), f.in(n, 1)
	if x.Tensor != nil {
		x, c = c, x
	}
	if c.Tensor == nil {
		return nil, nil
	}
	return x, c
}

// weight reads a MatMul or Gemm with a constant matrix on its right.
func (f *finder) weight(n *graph.Node) *Linear {
	m, transposed := f.in(n, 1), false
	if t := f.maker(m); t.Is("Transpose") {
		m, transposed = f.in(t, 0), true
	}
	if m == nil || m.Tensor == nil || len(m.Tensor.Dims) != 2 {
		return nil
	}
	l := &Linear{Weight: m.Name, From: f.first(n.Input(0)), Factor: 1, BiasFactor: 1}
	if n.Is("Gemm") {
		if n.Int("transA", 0) != 0 {
			return nil
		}
		l.Factor, l.BiasFactor = float64(n.Float("alpha", 1)), float64(n.Float("beta", 1))
		transposed = transposed != (n.Int("transB", 0) != 0)
		if c := f.in(n, 2); c != nil && c.Tensor != nil {
			l.Bias = c.Name
		}
	} else {
		l.Rows = n.Output(0)
	}
	l.Inputs, l.Width, l.Transposed = m.Tensor.Dims[0], m.Tensor.Dims[1], transposed
	if transposed {
		l.Inputs, l.Width = l.Width, l.Inputs
	}
	return l
}

// consumer recognises the output projection that reads a result.
func (f *finder) consumer(result *graph.Value) *Linear {
	n := f.soleReader(result)
	for range maxDetour {
		if !n.Is("Identity", "Dropout", "Cast", "Transpose") && !reshapes(n) {
			break
		}
		n = f.soleReader(n.Output(0))
	}
	if !n.Is("MatMul", "Gemm") {
		return nil
	}
	l := f.weight(n)
	for range maxDetour {
		if l == nil || l.Bias != "" {
			break
		}
		readers := f.readers(n.Output(0))
		if len(readers) != 1 {
			break
		}
		n = readers[0].Node
		var c *graph.Value
		switch n.Op() {
		case "Add":
			_, c = f.offset(n)
		case "com.microsoft.SkipLayerNormalization":
			c = f.in(n, 4)
		}
		if c != nil {
			l.Bias = c.Name
		}
		if !f.copies(n) && !reshapes(n) {
			break
		}
	}
	return l
}
