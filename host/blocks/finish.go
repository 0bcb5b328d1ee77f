package blocks

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/model/onnx"
)

// finish follows query, key, value and result outward and states the facts.
func (f *finder) finish(b *Block, q, k, v, out view, scale float64) error {
	a, w := b.Attention, b.Wiring
	query, _, ok := f.up(q, true)
	if !ok {
		return fmt.Errorf("the axes of its query could not be told apart behind %s", describe(q.value))
	}
	key, err := f.keyValue(k, true)
	if err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	value, err := f.keyValue(v, false)
	if err != nil {
		return fmt.Errorf("values: %w", err)
	}
	result, ok := f.down(out)
	if !ok {
		return fmt.Errorf("the axes of its result could not be told apart at %s", describe(out.value))
	}
	if (key.past == nil) != (value.past == nil) {
		return errors.New("only one of keys and values has a past")
	}
	if key.layout != value.layout {
		return fmt.Errorf("past keys lie as %s, past values as %s", key.layout, value.layout)
	}

	w.setQuery(query)
	w.Key, w.KeyLayout = key.fresh.value, key.fresh.layout()
	w.Value, w.ValueLayout = value.fresh.value, value.fresh.layout()
	w.PastKey, w.PastValue, w.PresentKey, w.PresentValue = key.past, value.past, key.present, value.present
	w.Output, w.OutputLayout, w.OutputRank = result.value, result.layout(), len(result.dims)
	w.Batch, _ = query.size("b")
	w.Queries, _ = query.size("s")
	w.NewKeys, w.PastKeys, w.AllKeys = key.length, graph.DimInt(0), key.length
	if key.past != nil {
		w.PastKeys, w.AllKeys = key.pastLength, key.pastLength.Add(key.length)
	}

	a.Scale = scale * query.scale * key.scale
	a.PastLayout = key.layout
	if a.Heads, err = constant("query heads", query, "h"); err != nil {
		return err
	}
	if a.HeadSize, err = constant("head size", query, "d"); err != nil {
		return err
	}
	a.KVHeads, _ = key.heads.Const()
	a.ValueSize, _ = value.size.Const()
	if g, _ := value.heads.Const(); g != a.KVHeads || a.KVHeads == 0 || a.Heads%a.KVHeads != 0 {
		return fmt.Errorf("its heads do not fit: %d of queries, %d of keys, %d of values", a.Heads, a.KVHeads, g)
	}
	if d, _ := key.size.Const(); d != a.HeadSize {
		return fmt.Errorf("the head size of its queries is %d, of its keys %d", a.HeadSize, d)
	}
	w.pack(a)
	f.describe(b)
	return nil
}

// constant is the length of an axis that must be known at load time; a query
// without an axis of heads has one.
func constant(what string, v view, role string) (int64, error) {
	d, ok := v.size(role)
	if !ok {
		if role == "h" {
			return 1, nil
		}
		return 0, fmt.Errorf("its %s was not found", what)
	}
	n, ok := d.Const()
	if !ok || n <= 0 {
		return 0, fmt.Errorf("its %s is not a constant (%s)", what, d)
	}
	return n, nil
}

func (w *Wiring) setQuery(q view) { w.Query, w.QueryLayout = q.value, q.layout() }

// pack recognises query, key and value as the three parts of one Split, which
// an operator can read without the copies.
func (w *Wiring) pack(a *Attention) {
	n := w.Query.Producer
	if !n.Is("Split") || len(n.Out) != 3 || w.Key != n.Out[1] || w.Value != n.Out[2] || w.Query != n.Out[0] ||
		a.HeadSize != a.ValueSize || w.QueryLayout != "bshd" || w.KeyLayout != "bshd" || w.ValueLayout != "bshd" {
		return
	}
	w.Query, w.Key, w.Value, w.Packed = n.Input(0), nil, nil, true
}

// describe states the facts that are read off the finished wiring.
func (f *finder) describe(b *Block) {
	a, w := b.Attention, b.Wiring
	a.DType = strings.ToLower(f.shapes.Of(w.Query).DType.String())
	if a.DType == "float" {
		a.DType = "float32"
	}
	if w.PastKey != nil {
		a.Past = &Past{Key: faceName(w.PastKey), Value: faceName(w.PastValue),
			PresentKey: outputName(w.PresentKey), PresentValue: outputName(w.PresentValue)}
	}
	a.Projections = f.projections(w)
	a.Type = f.selfOrCross(a, w)
	a.Positions = f.positions(a, w)
	f.mask(a, w)
}

// selfOrCross: in self attention keys come from where queries come from.
func (f *finder) selfOrCross(a *Attention, w *Wiring) string {
	if w.Packed {
		return "self"
	}
	p := a.Projections
	switch {
	case p != nil && p.Query != nil && p.Key != nil:
		if sameSource(p.Query.from, p.Key.from) {
			return "self"
		}
		return "cross"
	case w.PastKey != nil || w.Queries.Equal(w.NewKeys):
		return "self"
	}
	return "cross"
}

// sameSource looks through nodes that copy.
func sameSource(a, b *graph.Value) bool {
	return source(a) == source(b)
}

func source(v *graph.Value) *graph.Value {
	for v.Producer.Is("Identity", "Dropout", "Reshape", "Cast", "Flatten") {
		v = v.Producer.Input(0)
	}
	return v
}

// faceName is the name of the graph input behind a value, or "".
func faceName(v *graph.Value) string {
	if v = source(v); v.IsInput {
		return v.Name
	}
	return ""
}

// outputName is the name under which a value leaves the graph, or "".
func outputName(v *graph.Value) string {
	if v == nil {
		return ""
	}
	if v.IsOutput {
		return v.Name
	}
	for _, u := range v.Uses {
		if u.Node.Is("Identity") {
			if name := outputName(u.Node.Output(0)); name != "" {
				return name
			}
		}
	}
	return ""
}

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
		up := ancestry(side.v)
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
func ancestry(v *graph.Value) origin {
	var o origin
	seen := map[*graph.Value]bool{}
	var visit func(v *graph.Value)
	visit = func(v *graph.Value) {
		if v == nil || seen[v] {
			return
		}
		seen[v] = true
		if v.IsInput {
			o.inputs = append(o.inputs, v.Name)
			return
		}
		n := v.Producer
		if n == nil || n.Is("Shape", "Size", "LayerNormalization", "Gemm") || isProduct(n) {
			return
		}
		switch {
		case n.Is("Trilu"):
			o.triangular = true
		case n.Is("LessOrEqual", "Less", "Greater", "GreaterOrEqual"):
			if counts(n.Input(0)) && counts(n.Input(1)) {
				o.triangular = true
			}
		case n.Is("Slice", "Gather") && triangularTable(n.Input(0)):
			o.triangular = true
		case n.Is("Gather") && floatTable(n.Input(0)):
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
func counts(v *graph.Value) bool {
	for depth := 0; v != nil && depth < 16; depth++ {
		n := v.Producer
		switch {
		case n == nil:
			return strings.Contains(v.Name, "position")
		case n.Is("Range", "CumSum"):
			return true
		case n.Is("Add", "Sub"):
			if counts(n.Input(1)) {
				return true
			}
			v = n.Input(0)
		case n.Is("Unsqueeze", "Reshape", "Expand", "Cast", "Identity", "Squeeze", "Transpose", "Gather", "Slice"):
			v = n.Input(0)
		default:
			return false
		}
	}
	return false
}

func floatTable(v *graph.Value) bool {
	return v.Tensor != nil && len(v.Tensor.Dims) == 2 && onnx.Tensor_DataType(v.Tensor.GetDataType()) == onnx.Tensor_FLOAT
}

// triangularTable reports a constant (1, 1, n, n) of booleans or bytes that is
// true on and below its diagonal only: the causal buffer of older exports.
func triangularTable(v *graph.Value) bool {
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
