package plan

import (
	"fmt"
	"math"
	"slices"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/signature"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// NodeAttribute is an attribute of the node that stands for a block. One that Needed is false of changes nothing
// there: an operator that does not have it does the same.
type NodeAttribute struct {
	Name   string
	Value  any
	Needed bool
}

// AttentionInputs and AttentionOutputs are the names of what an attention operator takes and gives, in their order.
var (
	AttentionInputs = []string{"query", "key", "value", "past_key", "past_value", "attn_bias", "attn_mask", "key_lengths",
		"sinks"}
	AttentionOutputs = []string{"output", "present_key", "present_value", "scores"}
)

// AttentionAttributes are those of the node that stands for a block.
func AttentionAttributes(b *blocks.Block) []NodeAttribute {
	a, w := b.Attention, b.Wiring
	query, key, value, output := Operand(w.QueryLayout), Operand(w.KeyLayout), OperandRows(w.ValueLayout),
		OperandRows(w.OutputLayout)
	folded := query == "bshd" || key == "bshd" || value == "bshd" // of rank 3, heads may be told by their number alone
	masked := w.BoolMask != nil || w.Lengths != nil
	return []NodeAttribute{
		{"num_heads", a.Heads, folded},
		{"kv_num_heads", a.KVHeads, a.KVHeads != a.Heads},
		{"scale", w.Scale, math.Abs(w.Scale*math.Sqrt(float64(a.HeadSize))-1) > 1e-6},
		{"softcap", a.Softcap, a.Softcap != 0},
		{"is_causal", w.Compares(), w.Compares()},
		{"window", w.Window, w.Window > 0},
		{"mask_fill", w.Fill, w.BoolMask != nil && !math.IsInf(w.Fill, -1)},
		{"mask_after_bias", w.MaskAfterBias, w.MaskAfterBias && w.BoolMask != nil && len(w.Biases) > 0},
		{"zero_masked_rows", w.ZeroRows, w.ZeroRows && (masked || w.Compares())},
		{"clear_nan", w.ClearNaN, w.ClearNaN},
		{"query_layout", query, query != "bhsd"},
		{"key_layout", key, key != "bhsd" && w.Key != nil},
		{"value_layout", value, value != "bhsd" && w.Value != nil},
		{"output_layout", output, output != "bhsd"},
		{"output_rank", w.OutputRank, w.OutputRank != 4},
		{"packed_qkv", w.Packed, w.Packed},
		{"scores_mode", w.ScoresMode, w.Scores != nil && w.ScoresMode != 3},
	}
}

// Operand names a layout as operators know it: one head that was never told
// apart from the batch is heads of one in rank 3.
func Operand(layout string) string {
	switch layout {
	case "bs1d", "bd1s", "":
		return "bshd"
	}
	return layout
}

// OperandRows is an operator's layout of values or results, which are turned where they lie in columns.
func OperandRows(layout string) string {
	if layout == "bhds" {
		return "bhsd"
	}
	return Operand(layout)
}

// described is how a plugin's library describes an operator; nil where that is not known.
func (o Options) described(plugin, operator string) *signature.Operator {
	return signature.Find(o.Described[plugin], operator)
}

// cannotStand says why an operator cannot stand for a block, or "".
func (o Options) cannotStand(plugin, operator string, b *blocks.Block, shapes *graph.Shapes) string {
	d := o.described(plugin, operator)
	switch sinks := b.Attention.Sinks; {
	case sinks && o.Device != nil:
		return "its softmax counts sinks, which operators take on the CPU alone"
	case sinks && d == nil:
		return "its softmax counts sinks, and whether " + operator + " takes any is not known"
	case d == nil:
		return ""
	}
	return cannotAttend(d, b, shapes)
}

// cannotAttend says why an operator, as its library describes it, cannot stand for a block, or "".
func cannotAttend(d *signature.Operator, b *blocks.Block, shapes *graph.Shapes) string {
	w := b.Wiring
	bias := (*graph.Value)(nil)
	if len(w.Biases) > 0 {
		bias = w.Biases[0].Value
	}
	for i, v := range []*graph.Value{w.Query, w.Key, w.Value, w.PastKey, w.PastValue, bias, w.BoolMask, w.Lengths,
		w.Sinks} {
		at := slices.IndexFunc(d.Inputs, func(p signature.Parameter) bool { return p.Name == AttentionInputs[i] })
		switch {
		case at < 0 && v == nil:
		case at < 0:
			return fmt.Sprintf("%s takes no %s", d.Name, AttentionInputs[i])
		case v == nil && !d.Inputs[at].Optional:
			return fmt.Sprintf("%s needs an input %s, which the block has not", d.Name, AttentionInputs[i])
		case v != nil:
			if why := refusesType(d, &d.Inputs[at], shapes.Of(v).DType); why != "" {
				return why
			}
		}
	}
	if why := stranger(d, "input", d.Inputs, AttentionInputs); why != "" {
		return why
	}
	for i, v := range []*graph.Value{w.Output, w.PresentKey, w.PresentValue, w.Scores} {
		if v != nil && !slices.ContainsFunc(d.Outputs,
			func(p signature.Parameter) bool { return p.Name == AttentionOutputs[i] }) {
			return fmt.Sprintf("%s gives no %s", d.Name, AttentionOutputs[i])
		}
	}
	if why := stranger(d, "output", d.Outputs, AttentionOutputs); why != "" {
		return why
	}
	for _, a := range AttentionAttributes(b) {
		if a.Needed && !slices.ContainsFunc(d.Attributes, func(x signature.Attribute) bool { return x.Name == a.Name }) {
			return fmt.Sprintf("%s has no attribute %s, which would be %v", d.Name, a.Name, a.Value)
		}
	}
	for _, x := range d.Attributes {
		if x.Required && !slices.ContainsFunc(AttentionAttributes(b),
			func(a NodeAttribute) bool { return x.Name == a.Name }) {
			return fmt.Sprintf("%s needs the attribute %s, which is none of attention", d.Name, x.Name)
		}
	}
	return ""
}

// stranger names a parameter that attention has none of, and that is not optional, or "".
func stranger(d *signature.Operator, what string, list []signature.Parameter, known []string) string {
	for _, p := range list {
		if !p.Optional && !slices.Contains(known, p.Name) {
			return fmt.Sprintf("%s needs an %s %s, which is none of attention", d.Name, what, p.Name)
		}
	}
	return ""
}

// AtPlaces puts values that have names in the order of an operator's parameters, with what stands for none where
// there is no such value. An operator that is not described has them in the order in which they are.
func AtPlaces[T any](values []T, names []string, parameters []signature.Parameter) []T {
	if parameters == nil {
		return values
	}
	list := make([]T, len(parameters))
	for i, p := range parameters {
		if at := slices.Index(names, p.Name); at >= 0 && at < len(values) {
			list[i] = values[at]
		}
	}
	return list
}

// refusesType says why an input takes no tensors of a type, or "", also where the type is not known.
func refusesType(d *signature.Operator, p *signature.Parameter, t onnx.Tensor_DataType) string {
	if t == onnx.Tensor_UNDEFINED || slices.Contains(p.Types, tensor.DType(model.TypeName(t))) {
		return ""
	}
	return fmt.Sprintf("%s takes no %s as %s", d.Name, model.TypeName(t), p.Name)
}

// cannotReplace says why a plugin's operators, as its library describes them, cannot stand where a match was found,
// or "".
func (e *estimator) cannotReplace(plugin string, match *Match, o Options) string {
	for _, n := range match.With.Nodes {
		if version := match.Graph.Opset(""); n.Domain == "" && onnx.SchemaOf(n.Op, version) == nil &&
			onnx.SchemaOf(n.Op, onnx.Newest) != nil {
			return fmt.Sprintf("the model's operator set, of version %d, has no %s", version, n.Op)
		}
		if n.Domain != manifest.Domain {
			continue
		}
		d := o.described(plugin, n.Op)
		if d == nil {
			continue
		}
		if err := d.Accept(n); err != nil {
			return err.Error()
		}
		for _, a := range n.Attributes {
			if c, ok := a.Value.(manifest.Capture); ok && match.Captured[string(c)] != nil {
				if _, err := d.Attribute(a.Name, match.Captured[string(c)]); err != nil {
					return err.Error()
				}
			}
		}
		for i, name := range n.In {
			v := match.Values[name]
			if v == nil || len(d.Inputs) == 0 {
				continue
			}
			if why := refusesType(d, &d.Inputs[min(i, len(d.Inputs)-1)], e.shapes.Of(v).DType); why != "" {
				return why
			}
		}
	}
	return ""
}
