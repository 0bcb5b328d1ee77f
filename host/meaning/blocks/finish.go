package blocks

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/opgraft/graft/host/onnx/graph"
)

// finish follows query, key, value and result outward and states the facts.
func (f *finder) finish(b *Block, q, k, v, out view, scale float64) error {
	a, w := b.Attention, b.Wiring
	s, err := f.sides(q, k, v, out, false)
	if err != nil {
		return err
	}
	if !s.sameBatch() {
		if s, err = f.sides(q, k, v, out, true); err != nil || !s.sameBatch() {
			return errors.New("batch and heads are told apart on one side of it and not on another")
		}
	}
	query, key, value, result := s.query, s.key, s.value, s.result
	if (key.past == nil) != (value.past == nil) {
		return errors.New("only one of keys and values has a past")
	}
	if key.layout != value.layout {
		return fmt.Errorf("past keys lie as %s, past values as %s", key.layout, value.layout)
	}

	w.Query, w.QueryLayout = query.value, query.layout()
	w.Key, w.KeyLayout = key.fresh.value, key.fresh.layout()
	w.Value, w.ValueLayout = value.fresh.value, value.fresh.layout()
	w.PastKey, w.PastValue, w.PresentKey, w.PresentValue = key.past, value.past, key.present, value.present
	w.Output, w.OutputLayout, w.OutputRank, w.Filled = result.value, result.layout(), len(result.dims), s.filled
	w.Batch, _ = query.size("b")
	w.Queries, _ = query.size("s")
	w.NewKeys, w.PastKeys, w.AllKeys = key.length, graph.DimInt(0), key.length
	if key.past != nil {
		w.PastKeys, w.AllKeys = key.pastLength, key.pastLength.Add(key.length)
	}

	w.Scale = scale * query.scale * key.scale
	a.Scale = scale * s.end.scale * key.beyond
	a.PastLayout = key.layout
	if a.Heads, err = constant("query heads", query, "h"); err != nil {
		return err
	}
	if a.HeadSize, err = constant("head size", query, "d"); err != nil {
		return err
	}
	if !sharesBatch(query, key.fresh) || !sharesBatch(query, value.fresh) {
		return errors.New("its query and its keys or values have other batches, of which a product repeats the one of " +
			"length 1 and an operator does not")
	}
	a.KVHeads, _ = key.heads.Const()
	a.ValueSize, _ = value.size.Const()
	if g, _ := value.heads.Const(); g != a.KVHeads || a.KVHeads == 0 || a.Heads%a.KVHeads != 0 {
		return fmt.Errorf("its heads do not fit: %d of queries, %d of keys, %d of values", a.Heads, a.KVHeads, g)
	}
	if d, _ := key.size.Const(); d != a.HeadSize {
		return fmt.Errorf("the head size of its queries is %d, of its keys %d", a.HeadSize, d)
	}
	f.rotary(w, query, key.fresh)
	if key.past == nil {
		w.LeavingKey, w.LeavingValue = f.leaving(key.fresh, 8), f.leaving(value.fresh, 8)
	}
	f.pack(a, w)
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

// sides are query, key, value and result of a block where operators read and write them.
type sides struct {
	query, end view // the latter where the query's way ends
	key, value *cache
	result     view
	filled     int64 // zeros after the features of a value that each head of the result has
}

// sides follows them outward, when joined only to where batch and heads lie in one axis.
func (f *finder) sides(q, k, v, out view, joined bool) (s sides, err error) {
	as := operand{joined: joined}
	var ok bool
	if s.query, s.end, ok = f.up(q, true, as); !ok {
		return s, fmt.Errorf("the axes of its query could not be told apart after %s", describe(q.value))
	}
	if s.key, err = f.keyValue(k, operand{key: true, joined: joined}); err != nil {
		return s, fmt.Errorf("keys: %w", err)
	}
	as.turned = Columns(v.layout())
	if s.value, err = f.keyValue(v, as); err != nil {
		return s, fmt.Errorf("values: %w", err)
	}
	// A past of values alone is told from their heads, so they are not read otherwise.
	if h := s.key.heads; (s.key.past != nil || s.value.past == nil) && !h.Equal(s.value.heads) {
		as.heads = h
		if c, err := f.keyValue(v, as); err == nil {
			s.value = c
		}
	}
	// What one of them alone joins is no past: tokens of a prefix, say, whose keys have no position.
	if whole := (operand{key: true, joined: joined, whole: true}); s.key.past != nil && s.value.past == nil {
		if c, err := f.keyValue(k, whole); err == nil {
			s.key = c
		}
	} else if whole.key, whole.turned, whole.heads = false, as.turned, as.heads; s.key.past == nil && s.value.past != nil {
		if c, err := f.keyValue(v, whole); err == nil {
			s.value = c
		}
	}
	as.heads = graph.Dim{}
	if s.result, ok = f.down(out, s.value.size, as); ok {
		return s, nil
	}
	if s.filled, ok = f.filled(out, s.value.size, as); ok {
		s.result = out
		return s, nil
	}
	return s, fmt.Errorf("the axes of its result could not be told apart at %s", describe(out.value))
}

// sameBatch reports that all sides have batch and heads apart, or none has.
func (s sides) sameBatch() bool {
	_, joined := s.query.size("bh")
	for _, v := range []view{s.key.fresh, s.value.fresh, s.result} {
		if _, of := v.size("bh"); of != joined {
			return false
		}
	}
	return true
}

// sharesBatch reports two sides whose batches are not of two lengths, such as 1 and any other, as
// far as is known.
func sharesBatch(a, b view) bool {
	for _, role := range []string{"b", "bh"} {
		m, ok := a.size(role)
		n, both := b.size(role)
		_, constant := m.Const()
		_, constants := n.Const()
		if ok && both && !m.Equal(n) && (isOne(m) || isOne(n) || constant && constants) {
			return false
		}
	}
	return true
}

// pack recognises query, key and value as the three parts of one value, which
// an operator can read without the copies.
func (f *finder) pack(a *Attention, w *Wiring) {
	if w.QueryLayout != "bshd" || w.KeyLayout != "bshd" || w.ValueLayout != "bshd" {
		return
	}
	q, k, v := f.piece(w.Query), f.piece(w.Key), f.piece(w.Value)
	width := a.Heads * a.HeadSize
	kv := a.KVHeads * a.HeadSize
	if q == nil || k == nil || v == nil || q.of != k.of || q.of != v.of || a.HeadSize != a.ValueSize || kv != width ||
		q.offset != 0 || k.offset != width || v.offset != width+kv || !f.shapes.Of(q.of).Dim(-1).Is(width+2*kv) {
		return
	}
	w.Query, w.Key, w.Value, w.Packed = q.of, nil, nil, true
}

// describe states the facts that are read off the finished wiring.
func (f *finder) describe(b *Block) {
	a, w := b.Attention, b.Wiring
	a.DType = strings.ToLower(f.shapes.Of(w.Query).DType.String())
	if a.DType == "float" {
		a.DType = "float32"
	}
	if w.PastKey != nil {
		a.Past = &Past{Key: f.inputName(w.PastKey), Value: f.inputName(w.PastValue),
			PresentKey: f.outputName(w.PresentKey), PresentValue: f.outputName(w.PresentValue)}
	}
	a.Rotary, w.Grown = w.Rotary, f.grows(w.Key)
	a.Projections = f.projections(a, w)
	a.Type = f.selfOrCross(a, w)
	w.Input = f.input(a)
	a.Positions = f.positions(a, w)
	f.mask(a, w)
	if w.Wide = f.wide(w.Biases); w.Wide && w.BoolMask != nil && !math.IsInf(w.Fill, -1) {
		b.Obstacle = "its mask puts a number in place of scores, of which float16 has no digits for the sum that they are"
	}
}

// selfOrCross: in self attention keys come from where queries come from.
func (f *finder) selfOrCross(a *Attention, w *Wiring) string {
	if w.Packed {
		return "self"
	}
	p := a.Projections
	switch {
	case p != nil && p.Query != nil && p.Key != nil:
		if f.source(p.Query.From) == f.source(p.Key.From) {
			return "self"
		}
		return "cross"
	case w.PastKey != nil || w.Queries.Equal(w.NewKeys) || w.Grown:
		return "self"
	}
	return "cross"
}

// grows reports keys that are joined with those of an input, as a cache is with those of new tokens.
func (f *finder) grows(v *graph.Value) bool {
	n := f.maker(v)
	return v != nil && n.Is("Concat") && len(n.In) == 2 && f.in(n, 0).IsInput && !f.in(n, 1).IsInput
}

// source looks through nodes that keep the elements and their order.
func (f *finder) source(v *graph.Value) *graph.Value {
	for v = f.first(v); v != nil && (v.Producer.Is("Cast") || reshapes(v.Producer)); {
		v = f.in(v.Producer, 0)
	}
	return v
}

// inputName is the name of the graph input that a value is, or "".
func (f *finder) inputName(v *graph.Value) string {
	if v = f.source(v); v != nil && v.IsInput {
		return v.Name
	}
	return ""
}

// outputName is the name under which a value leaves the graph, or "".
func (f *finder) outputName(v *graph.Value) string {
	if o := f.output(v); o != nil {
		return o.Name
	}
	return ""
}
