package blocks

import (
	"github.com/opgraft/graft/host/graph"
)

// projections looks for the products that make query, key and value and that
// take the result; nil parts were drawn in another way.
func (f *finder) projections(w *Wiring) *Projections {
	p := &Projections{}
	if w.Packed {
		full := f.linear(w.Query)
		if full == nil {
			return nil
		}
		third := *full
		third.Width /= 3
		k, v := third, third
		k.Offset, v.Offset = third.Width, 2*third.Width
		p.Query, p.Key, p.Value = &third, &k, &v
	} else {
		p.Query, p.Key, p.Value = f.linear(unrotate(w.Query)), f.linear(unrotate(w.Key)), f.linear(w.Value)
	}
	if n := soleReader(w.Output); n != nil {
		p.Output = f.consumer(n)
	}
	if *p == (Projections{}) {
		return nil
	}
	return p
}

// linear recognises x W + b behind reshapes, transposes, splits and scales.
func (f *finder) linear(v *graph.Value) *Linear {
	offset, width := int64(0), int64(-1)
	var bias *graph.Value
	for v != nil {
		n := v.Producer
		switch {
		case n.Is("Reshape", "Transpose", "Identity", "Squeeze", "Unsqueeze", "Dropout", "Cast"):
			v = n.Input(0)
		case n.Is("Mul", "Div"):
			x, _, ok := f.scalarFactor(n)
			if !ok {
				return nil
			}
			v = x
		case n.Is("Split"):
			for _, o := range n.Out {
				s := f.shapes.Of(o)
				if s.Rank < 1 {
					return nil
				}
				size, ok := s.Dims[s.Rank-1].Const()
				if !ok {
					return nil
				}
				if o == v {
					width = size
					break
				}
				offset += size
			}
			v = n.Input(0)
		case n.Is("Add"):
			a, b := n.Input(0), n.Input(1)
			if a.Tensor != nil {
				a, b = b, a
			}
			if b.Tensor == nil || bias != nil {
				return nil
			}
			bias, v = b, a
		case n.Is("MatMul", "Gemm"):
			l := weighted(n)
			if l == nil {
				return nil
			}
			if bias != nil {
				l.Bias = bias.Name
			}
			if width >= 0 {
				l.Offset, l.Width = offset, width
			}
			return l
		default:
			return nil
		}
	}
	return nil
}

// weighted reads a MatMul or Gemm with a constant matrix on its right.
func weighted(n *graph.Node) *Linear {
	m := n.Input(1)
	if m == nil || m.Tensor == nil || len(m.Tensor.Dims) != 2 {
		return nil
	}
	l := &Linear{Weight: m.Name, Inputs: m.Tensor.Dims[0], Width: m.Tensor.Dims[1], from: n.Input(0)}
	if n.Is("Gemm") {
		if n.Int("transB", 0) != 0 {
			l.Inputs, l.Width, l.Transposed = l.Width, l.Inputs, true
		}
		if c := n.Input(2); c != nil && c.Tensor != nil {
			l.Bias = c.Name
		}
	}
	return l
}

// consumer recognises the output projection that reads a result.
func (f *finder) consumer(n *graph.Node) *Linear {
	for n.Is("Reshape", "Identity", "Dropout", "Cast", "Transpose") {
		if n = soleReader(n.Output(0)); n == nil {
			return nil
		}
	}
	if !n.Is("MatMul", "Gemm") {
		return nil
	}
	l := weighted(n)
	if l == nil || l.Bias != "" {
		return l
	}
	if add := anyReader(n.Output(0)); add.Is("Add") {
		for _, in := range add.In {
			if in.Tensor != nil {
				l.Bias = in.Name
			}
		}
	}
	return l
}

func anyReader(v *graph.Value) *graph.Node {
	if len(v.Uses) != 1 {
		return nil
	}
	return v.Uses[0].Node
}
