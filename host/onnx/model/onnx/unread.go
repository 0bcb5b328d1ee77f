package onnx

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// NewestOpset is the newest operator set of ONNX whose operators are known: that of operators.txt.
const NewestOpset = 28

// reading is what graft reads of an operator. A node that says more means more than is read of it.
type reading struct {
	versions   []int64 // those of the operator sets that define it in a way that is read
	inputs     int     // the first ones are read
	attributes string  // names; one with a number or a word is read where it has that value, its default, alone
}

// read are the operators that mean more than a row of an elementwise or shape operator does: those that attend, turn,
// normalize, activate, or multiply integers. Of ONNX's other operators the schemas are known, all of them.
var read = map[string]reading{
	"Attention": {[]int64{23, 24, 25}, 7, "is_causal kv_num_heads q_num_heads qk_matmul_output_mode scale softcap " +
		"softmax_precision left_window_size=-1 right_window_size=-1"},
	"RotaryEmbedding":              {[]int64{23}, 4, "interleaved num_heads rotary_embedding_dim"},
	"RMSNormalization":             {[]int64{23}, 2, "axis epsilon stash_type=1"},
	"LayerNormalization":           {[]int64{17}, 3, "axis epsilon stash_type=1"},
	"SimplifiedLayerNormalization": {[]int64{1}, 2, "axis epsilon stash_type=1"},
	"Softmax":                      {[]int64{1, 11, 13}, 1, "axis"},
	"LogSoftmax":                   {[]int64{1, 11, 13}, 1, "axis"},
	"Gelu":                         {[]int64{20}, 1, "approximate"},
	"com.microsoft.Attention": {[]int64{1}, 7, "do_rotary mask_filter_value num_heads past_present_share_buffer " +
		"qkv_hidden_sizes rotary_embedding_dim scale unidirectional"},
	"com.microsoft.MultiHeadAttention": {[]int64{1}, 10, "mask_filter_value num_heads scale unidirectional"},
	"com.microsoft.GroupQueryAttention": {[]int64{1}, 12, "do_rotary kv_num_heads local_window_size num_heads " +
		"rotary_interleaved scale smooth_softmax softcap qk_output causal=1 k_quant_type=NONE v_quant_type=NONE " +
		"sliding_window_cache qk_norm_epsilon"},
	"com.microsoft.RotaryEmbedding": {[]int64{1}, 4, "interleaved num_heads rotary_embedding_dim " +
		"is_packed_batching=0 scale=1"},
	"com.microsoft.SkipLayerNormalization":           {[]int64{1}, 5, "epsilon"},
	"com.microsoft.SkipSimplifiedLayerNormalization": {[]int64{1}, 4, "epsilon"},
	"com.microsoft.EmbedLayerNormalization":          {[]int64{1}, 9, "epsilon mask_index_type"},
	"com.microsoft.LayerNormalization":               {[]int64{1}, 3, "axis epsilon stash_type=1"},
	"com.microsoft.MatMulNBits": {[]int64{1}, 6, "K N accuracy_level bits block_size " +
		"weight_prepacked=0"},
	"com.microsoft.FusedMatMul": {[]int64{1}, 2, "alpha transA transB transBatchA transBatchB"},
	"com.microsoft.BiasGelu":    {[]int64{1}, 2, ""},
	"com.microsoft.FastGelu":    {[]int64{1}, 2, ""},
	"com.microsoft.Gelu":        {[]int64{1}, 1, ""},
	"com.microsoft.QuickGelu":   {[]int64{1}, 1, "alpha"},
}

// Unread says what a node of these inputs says beyond what is read of its operator, in a model that imports a version
// of its domain: an attribute, an input or a definition of another operator set. Such a node means something else than
// is known, and is left alone. "" where all of it is read, and for operators that nothing is read of.
func Unread(n *Node, inputs []string, version int64) string {
	domain, op := n.GetDomain(), n.GetOpType()
	own := domain == "" || domain == "ai.onnx"
	if own && version > NewestOpset {
		return fmt.Sprintf("its opset %d is newer than %d, the newest that is known", version, NewestOpset)
	}
	if !own {
		op = domain + "." + op
	}
	r, known := read[op]
	if !own {
		if !known {
			return ""
		}
		if version > 1 {
			return fmt.Sprintf("its definition of version %d of %s is not known", version, domain)
		}
	}
	schema := (*Schema)(nil)
	if own {
		schema = SchemaOf(op, version)
	}
	switch {
	case schema != nil && known && !slices.Contains(r.versions, schema.Since):
		return fmt.Sprintf("its definition of opset %d is not known", schema.Since)
	case schema == nil && !known:
		return ""
	case !known:
		r.inputs = schema.MaxInputs
	}
	for i, name := range inputs {
		if i >= r.inputs && name != "" {
			return fmt.Sprintf("its input %d, %s, is not known", i+1, name)
		}
	}
	names := strings.Fields(r.attributes)
	for _, a := range n.GetAttribute() {
		if schema != nil && !known {
			if _, ok := schema.Attribute(a.GetName()); ok {
				continue
			}
		}
		at := slices.IndexFunc(names, func(s string) bool {
			name, _, _ := strings.Cut(s, "=")
			return name == a.GetName()
		})
		if at < 0 {
			return fmt.Sprintf("its attribute %s is not known", a.GetName())
		}
		if _, value, only := strings.Cut(names[at], "="); only && value != attributeText(a) {
			return fmt.Sprintf("its attribute %s is %s, of which %s alone is known", a.GetName(), attributeText(a), value)
		}
	}
	return ""
}

// attributeText is the value of an attribute that is a number or a word.
func attributeText(a *Attribute) string {
	switch a.GetType() {
	case Attribute_INT:
		return strconv.FormatInt(a.GetI(), 10)
	case Attribute_FLOAT:
		return strconv.FormatFloat(float64(a.GetF()), 'g', -1, 32)
	case Attribute_STRING:
		return string(a.GetS())
	}
	return "of another type"
}
