package conformance

import (
	"fmt"
	"math"
	"slices"

	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// references are the operators that the host computes in float64 for conformance cases: inputs by name,
// result by output name.
var references = map[string]func(inputs map[string]*tensor.Tensor,
	attributes []manifest.Attribute) (map[string][]float64, error){
	"attention":        referenceAttention,
	"cached-attention": referenceCached,
	"linear":           referenceLinear,
}

// attributeOr gives an attribute's value or its default.
func attributeOr[T any](attributes []manifest.Attribute, name string, otherwise T) T {
	for _, a := range attributes {
		if a.Name == name {
			if v, ok := a.Value.(T); ok {
				return v
			}
			// A whole number in the manifest stands for a decimal one too.
			if i, ok := a.Value.(int64); ok {
				if v, ok := any(float64(i)).(T); ok {
					return v
				}
			}
		}
	}
	return otherwise
}

// view reads a tensor as (batch, heads, positions, features), whatever its layout.
type view struct {
	data                       []float64
	size                       [4]int64
	batch, head, position, one int64 // strides
}

func (v *view) at(b, h, i, f int64) float64 {
	return v.data[b*v.batch+h*v.head+i*v.position+f*v.one]
}

// viewOf sees a tensor of rank 4 in a layout, or of rank 3 with the heads folded into the last axis.
func viewOf(name string, t *tensor.Tensor, layout string, heads int64) (*view, error) {
	v := &view{data: t.Floats()}
	s := t.Shape
	if len(s) == 3 {
		if heads <= 0 || s[2]%heads != 0 {
			return nil, fmt.Errorf("found %s of shape %v, needed a last axis that %d heads divide", name, s, heads)
		}
		v.size = [4]int64{s[0], heads, s[1], s[2] / heads}
		v.batch, v.position, v.head, v.one = s[1]*s[2], s[2], v.size[3], 1
		return v, nil
	}
	if len(s) != 4 {
		return nil, fmt.Errorf("found %s of shape %v, needed rank 3 or 4", name, s)
	}
	strides := [4]int64{s[1] * s[2] * s[3], s[2] * s[3], s[3], 1}
	axes, ok := map[string][4]int{"bhsd": {0, 1, 2, 3}, "bshd": {0, 2, 1, 3}, "bhds": {0, 1, 3, 2}}[layout]
	if !ok {
		return nil, fmt.Errorf("found the layout %q of %s, needed bhsd, bshd or bhds", layout, name)
	}
	for i, axis := range axes {
		v.size[i] = s[axis]
	}
	v.batch, v.head, v.position, v.one = strides[axes[0]], strides[axes[1]], strides[axes[2]], strides[axes[3]]
	return v, nil
}

// broadcastOf sees a tensor of rank 1 to 4 as broadcast to (B, H, S, T).
func broadcastOf(name string, t *tensor.Tensor, to [4]int64) (*view, error) {
	if t == nil {
		return nil, nil
	}
	if len(t.Shape) < 1 || len(t.Shape) > 4 {
		return nil, fmt.Errorf("found %s of shape %v, needed rank 1 to 4", name, t.Shape)
	}
	v := &view{data: t.Floats(), size: to}
	strides := []*int64{&v.batch, &v.head, &v.position, &v.one}
	step := int64(1)
	for i := len(t.Shape) - 1; i >= 0; i-- {
		axis := i + 4 - len(t.Shape)
		switch t.Shape[i] {
		case to[axis]:
			*strides[axis] = step
		case 1: // a stride of 0
		default:
			return nil, fmt.Errorf("found %s of shape %v, needed one that broadcasts to %v", name, t.Shape, to)
		}
		step *= t.Shape[i]
	}
	return v, nil
}

// attention is one problem of the canonical attention operator.
type attention struct {
	query, key, value              *view     // key and value: the new ones; may be nil
	pastKey, pastValue             *view     // may be nil
	bias, mask                     *view     // may be nil
	lengths, sinks                 []float64 // may be nil
	past, fresh, total             int64
	scale, softcap, fill           float64
	causal, window                 int64
	fromLengths                    bool
	maskAfterBias, zeros, clearNaN bool
	scoresMode                     int64 // 0 scaled product, 1 after softcap, 2 after masks, 3 after softmax
}

// referenceAttention is the operator that replaces blocks of kind attention, one loop a formula:
// softmax(mask(softcap(scale Q K^T))) V (Vaswani et al. 2017, eq. 1), with past keys before the new ones.
func referenceAttention(inputs map[string]*tensor.Tensor, attributes []manifest.Attribute) (map[string][]float64,
	error) {
	a, err := newAttention(inputs, attributes)
	if err != nil {
		return nil, err
	}
	b, h, s, e := a.query.size[0], a.query.size[1], a.query.size[2], a.valueSize()
	g := int64(1)
	for _, v := range []*view{a.key, a.pastKey} {
		if v != nil {
			g = v.size[1]
		}
	}
	if g == 0 || h%g != 0 {
		return nil, fmt.Errorf("found %d query heads over %d key heads, needed a multiple", h, g)
	}
	output, scores := make([]float64, b*h*s*e), make([]float64, b*h*s*a.total)
	row := make([]float64, a.total)
	folded := attributeOr(attributes, "output_layout", "bhsd") == "bshd" ||
		attributeOr(attributes, "output_rank", int64(4)) == 3
	for batch := range b {
		for head := range h {
			for i := range s {
				a.row(batch, head, head/(h/g), i, row, scores[((batch*h+head)*s+i)*a.total:][:a.total])
				base := ((batch*h+head)*s + i) * e
				if folded {
					base = ((batch*s+i)*h + head) * e
				}
				for f := range e {
					output[base+f] = a.weighted(batch, head/(h/g), row, f)
				}
			}
		}
	}
	result := map[string][]float64{"output": output, "scores": scores}
	result["present_key"] = present(a.pastKey, a.key, g, b)
	result["present_value"] = present(a.pastValue, a.value, g, b)
	return result, nil
}

func (a *attention) valueSize() int64 {
	if a.value != nil {
		return a.value.size[3]
	}
	return a.pastValue.size[3]
}

func newAttention(inputs map[string]*tensor.Tensor, attributes []manifest.Attribute) (*attention, error) {
	heads := attributeOr(attributes, "num_heads", int64(0))
	kvHeads := attributeOr(attributes, "kv_num_heads", heads)
	a := &attention{
		scale: attributeOr(attributes, "scale", 0.0), softcap: attributeOr(attributes, "softcap", 0.0),
		fill: attributeOr(attributes, "mask_fill", math.Inf(-1)), causal: attributeOr(attributes, "is_causal", int64(0)),
		window:        attributeOr(attributes, "window", int64(0)),
		fromLengths:   attributeOr(attributes, "causal_from_lengths", int64(0)) != 0,
		maskAfterBias: attributeOr(attributes, "mask_after_bias", int64(0)) != 0,
		zeros:         attributeOr(attributes, "zero_masked_rows", int64(0)) != 0,
		clearNaN:      attributeOr(attributes, "clear_nan", int64(0)) != 0,
		scoresMode:    attributeOr(attributes, "scores_mode", int64(3)),
	}
	query := inputs["query"]
	if query == nil {
		return nil, fmt.Errorf("found no input query, needed it")
	}
	if attributeOr(attributes, "packed_qkv", int64(0)) != 0 {
		all := heads + 2*kvHeads
		packed, err := viewOf("query", query, "", all)
		if err != nil {
			return nil, err
		}
		part := func(first, count int64) *view {
			v := *packed
			v.data, v.size[1] = packed.data[min(first*packed.head, int64(len(packed.data))):], count
			return &v
		}
		a.query, a.key, a.value = part(0, heads), part(heads, kvHeads), part(heads+kvHeads, kvHeads)
	} else {
		var err error
		if a.query, err = viewOf("query", query, attributeOr(attributes, "query_layout", "bhsd"), heads); err != nil {
			return nil, err
		}
		for _, x := range []struct {
			name, layout string
			to           **view
		}{{"key", attributeOr(attributes, "key_layout", "bhsd"), &a.key},
			{"value", attributeOr(attributes, "value_layout", "bhsd"), &a.value}} {
			if t := inputs[x.name]; t != nil {
				if *x.to, err = viewOf(x.name, t, x.layout, kvHeads); err != nil {
					return nil, err
				}
			}
		}
	}
	return a, a.addKeys(inputs)
}

// addKeys adds what depends on the number of keys.
func (a *attention) addKeys(inputs map[string]*tensor.Tensor) error {
	var err error
	for name, to := range map[string]**view{"past_key": &a.pastKey, "past_value": &a.pastValue} {
		if t := inputs[name]; t != nil {
			if *to, err = viewOf(name, t, "bhsd", 0); err != nil {
				return err
			}
		}
	}
	if (a.key == nil && a.pastKey == nil) || (a.value == nil && a.pastValue == nil) {
		return fmt.Errorf("found no keys or no values, needed new ones or past ones")
	}
	if a.pastKey != nil {
		a.past = a.pastKey.size[2]
	}
	if a.key != nil {
		a.fresh = a.key.size[2]
	}
	a.total = a.past + a.fresh
	if a.scale == 0 {
		a.scale = 1 / math.Sqrt(float64(a.query.size[3]))
	}
	to := [4]int64{a.query.size[0], a.query.size[1], a.query.size[2], a.total}
	if a.bias, err = broadcastOf("attn_bias", inputs["attn_bias"], to); err != nil {
		return err
	}
	if a.mask, err = broadcastOf("attn_mask", inputs["attn_mask"], to); err != nil {
		return err
	}
	if t := inputs["sinks"]; t != nil {
		if a.sinks = t.Floats(); int64(len(a.sinks)) != to[1] {
			return fmt.Errorf("found sinks of shape %v, needed one a query head", t.Shape)
		}
	}
	if t := inputs["key_lengths"]; t != nil {
		a.lengths = t.Floats()
		if int64(len(a.lengths)) != to[0] {
			return fmt.Errorf("found key_lengths of shape %v, needed one a batch row", t.Shape)
		}
	}
	return nil
}

// row computes the weights of one query over all keys, and the scores in the state that is asked for.
func (a *attention) row(b, h, g, i int64, weights, scores []float64) {
	for j := range a.total {
		s := 0.0
		for f := range a.query.size[3] {
			s += a.query.at(b, h, i, f) * joined(a.pastKey, a.key, a.past, b, g, j, f)
		}
		s *= a.scale
		if a.scoresMode == 0 {
			scores[j] = s
		}
		if a.softcap > 0 {
			s = a.softcap * math.Tanh(s/a.softcap)
		}
		if a.scoresMode == 1 {
			scores[j] = s
		}
		s = a.masked(s, b, h, i, j)
		if a.scoresMode == 2 {
			scores[j] = s
		}
		weights[j] = s
	}
	softmax(weights, sinkOf(a.sinks, h), a.zeros)
	if a.clearNaN && slices.ContainsFunc(weights, math.IsNaN) {
		clear(weights)
	}
	if a.scoresMode == 3 {
		copy(scores, weights)
	}
}

// masked applies bias and masks to one score.
func (a *attention) masked(s float64, b, h, i, j int64) float64 {
	if a.bias != nil && a.maskAfterBias {
		s += a.bias.at(b, h, i, j)
	}
	if a.mask != nil && a.mask.at(b, h, i, j) == 0 {
		s = a.fill
	}
	if a.bias != nil && !a.maskAfterBias {
		s += a.bias.at(b, h, i, j)
	}
	diagonal := a.past // query i stands at position i + diagonal
	if a.fromLengths && a.lengths != nil {
		diagonal = int64(a.lengths[b]) - a.query.size[2]
	}
	hidden := a.causal != 0 && j > i+diagonal || a.window > 0 && i+diagonal-j >= a.window ||
		a.lengths != nil && float64(j) >= a.lengths[b]
	if hidden {
		return math.Inf(-1)
	}
	return s
}

// sinkOf is the score of a head that has no value; without sinks it has no weight.
func sinkOf(sinks []float64, head int64) float64 {
	if sinks == nil {
		return math.Inf(-1)
	}
	return sinks[head]
}

// softmax is in place, and counts one more score; a row that masks everything is NaN, or 0 with zeros.
func softmax(row []float64, sink float64, zeros bool) {
	if len(row) == 0 {
		return
	}
	top := max(slices.Max(row), sink)
	sum := math.Exp(sink - top)
	for j, s := range row {
		row[j] = math.Exp(s - top)
		sum += row[j]
	}
	for j := range row {
		row[j] /= sum
		if zeros && math.IsInf(top, -1) {
			row[j] = 0
		}
	}
}

// weighted is one feature of the output. Keys of weight 0 may hold anything.
func (a *attention) weighted(b, g int64, weights []float64, f int64) float64 {
	total := 0.0
	for j, w := range weights {
		if w != 0 {
			total += w * joined(a.pastValue, a.value, a.past, b, g, int64(j), f)
		}
	}
	return total
}

// joined reads past and new keys, or values, as one tensor.
func joined(past, fresh *view, n, b, g, j, f int64) float64 {
	if j < n {
		return past.at(b, g, j, f)
	}
	return fresh.at(b, g, j-n, f)
}

// present is past and new keys, or values, as (batch, heads, positions, features).
func present(past, fresh *view, heads, batch int64) []float64 {
	var n, more, features int64
	if past != nil {
		n, features = past.size[2], past.size[3]
	}
	if fresh != nil {
		more, features = fresh.size[2], fresh.size[3]
	}
	out := make([]float64, 0, batch*heads*(n+more)*features)
	for b := range batch {
		for g := range heads {
			for j := range n + more {
				for f := range features {
					out = append(out, joined(past, fresh, n, b, g, j, f))
				}
			}
		}
	}
	return out
}
