package blocks

import (
	"slices"
	"strings"

	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/model/onnx"
)

// mask states how keys are hidden, from the masks' own sources.
func (f *finder) mask(a *Attention, w *Wiring) {
	m := &Mask{Kinds: []string{}, Sources: []string{}, Zero: w.ZeroRows}
	causal := w.Causal
	for _, side := range []struct {
		v    *graph.Value
		kind string
	}{{w.Bias, "additive"}, {w.Keep, "boolean"}, {w.Lengths, "lengths"}} {
		if side.v == nil {
			continue
		}
		m.Kinds = append(m.Kinds, side.kind)
		up := f.ancestry(side.v)
		m.Sources = append(m.Sources, up.inputs...)
		causal = causal || up.triangular
		if up.learned {
			m.Bias = "relative"
		}
		if s := f.shapes.Of(side.v); s.Rank == 4 {
			if n, ok := s.Dims[1].Const(); ok && n > 1 {
				m.PerHead = true
			}
		}
	}
	slices.Sort(m.Sources)
	m.Sources = slices.Compact(m.Sources)
	if w.Keep != nil {
		fill := w.Fill
		if fill > -3.4e38 { // infinities have no JSON form; absent stands for them
			m.Fill = &fill
		}
	}
	a.Causal = causal
	if len(m.Kinds) > 0 || m.Zero {
		a.Mask = m
	}
}

// origin is what lies upstream of a mask.
type origin struct {
	inputs     []string
	triangular bool // positions are compared with positions
	learned    bool // a learned table is looked up
}

// ancestry walks all the way up from a mask. Shapes end the walk: a length is
// not a source.
func (f *finder) ancestry(v *graph.Value) origin {
	var o origin
	seen := map[*graph.Value]bool{}
	var visit func(v *graph.Value)
	visit = func(v *graph.Value) {
		if v = f.first(v); v == nil || seen[v] {
			return
		}
		seen[v] = true
		if v.IsInput {
			o.inputs = append(o.inputs, v.Name)
			return
		}
		n := v.Producer
		switch {
		case n == nil || n.Is("Shape", "Size", "LayerNormalization", "Gemm") || isProduct(n):
			return
		case n.Op() == "com.microsoft.EmbedLayerNormalization": // counts the ones of its mask
			visit(n.Input(7))
			return
		case n.Is("Trilu"):
			o.triangular = true
		case n.Is("LessOrEqual", "Less", "Greater", "GreaterOrEqual"):
			o.triangular = o.triangular || f.counts(n.Input(0), 16) && f.counts(n.Input(1), 16)
		case n.Is("Slice", "Gather") && f.triangularTable(n.Input(0)):
			o.triangular = true
		case n.Is("Gather") && f.floatTable(n.Input(0)):
			o.learned = true
		}
		for _, in := range n.In {
			visit(in)
		}
	}
	visit(v)
	return o
}

// counts reports a value made by counting positions.
func (f *finder) counts(v *graph.Value, depth int) bool {
	if v = f.first(v); v == nil || depth == 0 {
		return false
	}
	n := v.Producer
	switch {
	case n == nil:
		return strings.Contains(v.Name, "position")
	case n.Is("Range", "CumSum"):
		return true
	case n.Is("Add", "Sub"):
		return f.counts(n.Input(0), depth-1) || f.counts(n.Input(1), depth-1)
	case n.Is("Unsqueeze", "Reshape", "Expand", "Cast", "Squeeze", "Transpose", "Gather", "Slice"):
		return f.counts(n.Input(0), depth-1)
	}
	return false
}

func (f *finder) floatTable(v *graph.Value) bool {
	t := f.first(v).Tensor
	return t != nil && len(t.Dims) == 2 && onnx.Tensor_DataType(t.GetDataType()) == onnx.Tensor_FLOAT
}

// triangularTable reports a constant (1, 1, n, n) of booleans or bytes that is
// true on and below its diagonal only: the causal buffer of older exports.
func (f *finder) triangularTable(v *graph.Value) bool {
	v = f.first(v)
	t := v.Tensor
	if t == nil || len(t.Dims) < 2 {
		return false
	}
	n := t.Dims[len(t.Dims)-1]
	if n < 2 || n != t.Dims[len(t.Dims)-2] {
		return false
	}
	raw, err := v.Graph.Data(t)
	if err != nil || int64(len(raw)) != n*n {
		return false
	}
	for i := int64(0); i < n; i++ {
		for j := int64(0); j < n; j++ {
			if (raw[i*n+j] != 0) != (j <= i) {
				return false
			}
		}
	}
	return true
}
