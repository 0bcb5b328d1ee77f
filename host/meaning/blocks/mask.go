package blocks

import (
	"math"
	"slices"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// mask states how keys are hidden, from the masks' own sources.
func (f *finder) mask(a *Attention, w *Wiring) {
	m := &Mask{Kinds: []string{}, Sources: []string{}, Zero: w.ZeroRows || w.ClearNaN}
	causal := w.Causal
	type side struct {
		v      *graph.Value
		kind   string
		joined bool
	}
	var sides []side
	for _, b := range w.Biases {
		sides = append(sides, side{b.Value, "additive", b.Joined})
	}
	for _, side := range append(sides, side{w.BoolMask, "boolean", false}, side{w.Lengths, "lengths", false}) {
		if side.v == nil {
			continue
		}
		if !slices.Contains(m.Kinds, side.kind) {
			m.Kinds = append(m.Kinds, side.kind)
		}
		up := f.ancestry(side.v)
		m.Sources = append(m.Sources, up.inputs...)
		causal = causal || up.triangular
		a.Window = max(a.Window, up.window)
		switch {
		case up.learned:
			m.Bias = "relative"
		case up.slopes:
			m.Bias = "alibi"
		}
		if side.joined {
			m.PerHead = a.Heads > 1
		} else if s := f.shapes.Of(side.v); s.Rank >= 4 || s.Rank == 3 && up.slopes { // of rank 3, heads come first
			if n, ok := s.Dims[s.Rank-3].Const(); ok && n > 1 {
				m.PerHead = true
			}
		}
	}
	m.Sources = sorted(m.Sources)
	if w.BoolMask != nil {
		fill := w.Fill
		if !math.IsInf(fill, 0) { // infinities have no JSON form; absent stands for them
			m.Fill = &fill
		}
	}
	// One query at the end of all keys has none after it.
	a.Causal = causal || a.Type == "self" && w.Queries.Is(1)
	if len(m.Kinds) > 0 || m.Zero {
		a.Mask = m
	}
}

// wide reports terms of float16 whose sum that type has no digits for: under a mask's -65504 it has none left. ONNX
// Runtime adds them in float32 on the CPU, where float16 has few operators.
func (f *finder) wide(terms []Bias) bool {
	return slices.ContainsFunc(terms, func(t Bias) bool {
		s := f.shapes.Of(t.Value)
		return s.DType == onnx.Tensor_FLOAT16 && s.Rank > 0 && !t.Hides &&
			(len(terms) > 1 || f.maker(t.Value).Is("Add", "Sub", "Sum"))
	})
}

// hidesBy reports a mask that adds 0 where a key is seen, and a number no higher than one where it is hidden.
func (f *finder) hidesBy(v *graph.Value, number float64) bool {
	for range maxDetour {
		n := f.maker(v)
		switch {
		case n.Is("Cast", "Expand", "Slice", "Transpose") || reshapes(n):
			v = n.Input(0)
			continue
		case !n.Is("Where"):
			return false
		}
		for _, side := range n.In[1:] {
			if x, ok := f.scalar(f.first(side)); !ok || x != 0 && x > number {
				return false
			}
		}
		return true
	}
	return false
}

// sorted lists each name once.
func sorted(names []string) []string {
	names = append([]string{}, names...)
	slices.Sort(names)
	return slices.Compact(names)
}

// origin is what lies upstream of a mask.
type origin struct {
	inputs     []string
	triangular bool // positions are compared with positions
	learned    bool // a learned table is looked up
	slopes     bool // a distance is multiplied by a constant for each head
	window     int64
}

// ancestry is what lies all the way up from a mask. Shapes end the way: a length is
// not a source.
func (f *finder) ancestry(v *graph.Value) origin {
	type step struct {
		v    *graph.Value
		o    origin         // of the value alone
		up   []*graph.Value // what it is made from
		gone bool           // they were looked at
	}
	to := f.first(v)
	for way := []step{{v: to}}; len(way) > 0; {
		at := &way[len(way)-1]
		if _, before := f.origins[at.v]; before || at.v == nil {
			way = way[:len(way)-1]
			continue
		}
		if !at.gone {
			at.o, at.up = f.origin(at.v)
			at.gone = true
			for _, in := range slices.Backward(at.up) {
				way = append(way, step{v: f.first(in)})
			}
			continue
		}
		o := at.o
		for _, in := range at.up {
			o = o.with(f.origins[f.first(in)])
			f.main.Spend(1 + len(o.inputs))
		}
		f.main.Hold(originBytes)
		f.origins[at.v], way = o, way[:len(way)-1]
	}
	return f.origins[to]
}

// originBytes are held in memory for each value above a mask.
const originBytes = 128

// with is an origin with what another adds to it.
func (o origin) with(up origin) origin {
	if len(o.inputs) == 0 {
		o.inputs = up.inputs
	} else if !slices.Equal(o.inputs, up.inputs) && len(up.inputs) > 0 {
		o.inputs = sorted(slices.Concat(o.inputs, up.inputs))
	}
	o.triangular, o.learned, o.slopes = o.triangular || up.triangular, o.learned || up.learned, o.slopes || up.slopes
	if up.window > 0 {
		o.window = up.window
	}
	return o
}

// origin is what a value alone says of a mask, and the values it is made from.
func (f *finder) origin(v *graph.Value) (o origin, up []*graph.Value) {
	if v.IsInput {
		o.inputs = []string{v.Name}
		return o, nil
	}
	n := v.Producer
	switch {
	case v.Tensor != nil && f.slopesTable(v):
		o.slopes = true
		return o, nil
	case n == nil || n.Is("Shape", "Size", "LayerNormalization", "Gemm") || isMatMul(n):
		return o, nil
	case n.Op() == "com.microsoft.EmbedLayerNormalization": // counts the ones of its mask
		return o, []*graph.Value{n.Input(7)}
	case n.Is("Trilu"):
		o.triangular = true
	case n.Is("LessOrEqual", "Less", "Greater", "GreaterOrEqual"):
		if f.counts(n.Input(0), 16) && f.counts(n.Input(1), 16) {
			if w := f.window(n); w > 0 {
				o.window = w
			} else {
				o.triangular = true
			}
		}
	case n.Is("Mul") && (f.isTable(n.Input(0)) && f.counts(n.Input(1), 16) ||
		f.isTable(n.Input(1)) && f.counts(n.Input(0), 16)):
		o.slopes = true
	case n.Is("Slice", "Gather") && f.triangularTable(n.Input(0)):
		o.triangular = true
	case n.Is("Gather") && f.floatTable(n.Input(0)):
		o.learned = true
	}
	return o, n.In
}

// maxDepthOfPlaces bounds how far an input is followed to what it places.
const maxDepthOfPlaces = 8

// places reports an input that says where tokens are: it indexes a table, or turns into the
// angles of a rotary embedding.
func (f *finder) places(v *graph.Value, depth int) bool {
	return f.within("places", v, depth, func() bool {
		f.main.Spend(len(v.Uses))
		for _, u := range v.Uses {
			n := u.Node
			switch {
			case n.Is("Gather") && u.Index == 1 && n.Input(0) != nil && n.Input(0).Tensor != nil, n.Is("Cos", "Sin"):
				return true
			case depth == 0 || n.Output(0) == nil ||
				!n.Is("Cast", "Unsqueeze", "Squeeze", "Reshape", "Expand", "Mul", "MatMul", "Transpose", "Concat", "Identity"):
			case f.places(n.Output(0), depth-1):
				return true
			}
		}
		return false
	})
}

// counts reports a value made by counting positions.
func (f *finder) counts(v *graph.Value, depth int) bool {
	if v = f.first(v); v == nil || depth == 0 {
		return false
	}
	return f.within("counts", v, depth, func() bool {
		n := v.Producer
		switch {
		case n == nil:
			return v.IsInput && f.places(v, maxDepthOfPlaces)
		case n.Is("Range", "CumSum"):
			return true
		case n.Is("Add", "Sub"):
			return f.counts(n.Input(0), depth-1) || f.counts(n.Input(1), depth-1)
		case n.Is("Expand", "Cast", "Transpose", "Gather", "Slice") || reshapes(n):
			return f.counts(n.Input(0), depth-1)
		}
		return false
	})
}

// window reads a comparison of key positions k with query positions q, in
// whatever way it is turned or inverted, as the W of q - W < k; it is 0 for the
// other border of what is visible, k <= q.
func (f *finder) window(n *graph.Node) int64 {
	key, query, op := n.Input(0), n.Input(1), n.Op()
	if f.shapes.Of(key).Dim(-1).Is(1) && !f.shapes.Of(query).Dim(-1).Is(1) { // keys run along the last axis
		key, query = query, key
		op = map[string]string{"Less": "Greater", "LessOrEqual": "GreaterOrEqual", "Greater": "Less",
			"GreaterOrEqual": "LessOrEqual"}[op]
	}
	distance := f.shift(key, 16) - f.shift(query, 16)
	switch {
	case distance <= 0:
		return 0
	case op == "Greater" || op == "LessOrEqual":
		return distance
	}
	return distance + 1
}

// shift is the constant that is added to counted positions.
func (f *finder) shift(v *graph.Value, depth int) int64 {
	v = f.first(v)
	n := f.maker(v)
	switch {
	case n == nil || depth == 0:
		return 0
	case n.Is("Add", "Sub"):
		for i := range 2 {
			list := f.shapes.Of(f.in(n, i)).Elems
			if len(list) != 1 {
				continue
			}
			c, ok := list[0].Const()
			if !ok || n.Is("Sub") && i == 0 {
				continue
			}
			if n.Is("Sub") {
				c = -c
			}
			return c + f.shift(n.Input(1-i), depth-1)
		}
	case n.Is("Expand", "Cast", "Transpose", "Gather", "Slice") || reshapes(n):
		return f.shift(n.Input(0), depth-1)
	}
	return 0
}

// isTable reports a constant with several elements.
func (f *finder) isTable(v *graph.Value) bool {
	n, ok := f.shapes.Of(v).Count().Const()
	return f.isConstant(v) && ok && n > 1
}

func (f *finder) floatTable(v *graph.Value) bool {
	t := f.first(v).Tensor
	return t != nil && len(t.Dims) == 2 && onnx.Tensor_DataType(t.GetDataType()) == onnx.Tensor_FLOAT
}

// maxSlopes is how many elements of a table are looked at.
const maxSlopes = 1 << 24

// slopesTable reports a constant (.., heads, 1, positions) that grows by the same
// step from each position to the next, by another one for each head: a bias of
// fixed slopes (Press et al. 2021) that an exporter has already multiplied out.
func (f *finder) slopesTable(v *graph.Value) bool {
	return f.content("slopes", v.Tensor, func() bool { return f.slopes(v) })
}

func (f *finder) slopes(v *graph.Value) bool {
	t := v.Tensor
	d := t.Dims
	if len(d) < 3 || onnx.Tensor_DataType(t.GetDataType()) != onnx.Tensor_FLOAT {
		return false
	}
	heads, positions := d[len(d)-3], d[len(d)-1]
	if heads < 2 || d[len(d)-2] != 1 || positions < 3 || heads > maxSlopes/positions {
		return false
	}
	list, err := v.Graph.Numbers(t, int(heads*positions))
	if err != nil || int64(len(list)) != heads*positions {
		return false
	}
	steps := map[float64]bool{}
	for h := range heads {
		line := list[h*positions : (h+1)*positions]
		step := (line[positions-1] - line[0]) / float64(positions-1)
		for i, x := range line {
			// Each product was rounded to float32.
			if off := math.Abs(x - line[0] - float64(i)*step); off > 1e-6*math.Abs(line[positions-1]-line[0]) {
				return false
			}
		}
		steps[step] = true
	}
	return !steps[0] && int64(len(steps)) == heads
}

// triangularTable reports a constant (1, 1, n, n) of booleans or bytes that is
// true on and below its diagonal only: the causal buffer of older exports.
func (f *finder) triangularTable(v *graph.Value) bool {
	v = f.first(v)
	if v == nil || v.Tensor == nil || len(v.Tensor.Dims) < 2 {
		return false
	}
	return f.content("triangle", v.Tensor, func() bool { return f.triangle(v) })
}

func (f *finder) triangle(v *graph.Value) bool {
	t := v.Tensor
	n := t.Dims[len(t.Dims)-1]
	if n < 2 || n != t.Dims[len(t.Dims)-2] {
		return false
	}
	raw, err := v.Graph.Data(t)
	if err != nil || int64(len(raw)) != n*n {
		return false
	}
	for i := int64(0); i < n; i++ {
		f.main.Spend(1)
		for j := int64(0); j < n; j++ {
			if (raw[i*n+j] != 0) != (j <= i) {
				return false
			}
		}
	}
	return true
}
