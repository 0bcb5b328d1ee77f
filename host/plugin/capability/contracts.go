package capability

func needed(name string, types ...string) Parameter { return Parameter{Name: name, Types: types} }

func optional(name string, types ...string) Parameter {
	return Parameter{Name: name, Types: types, Optional: true}
}

func extra(name string, types ...string) Parameter {
	return Parameter{Name: name, Types: types, Optional: true, Extra: true}
}

func intAttributes(names ...string) []Attribute    { return attributes("int", names) }
func floatAttributes(names ...string) []Attribute  { return attributes("float", names) }
func stringAttributes(names ...string) []Attribute { return attributes("string", names) }

func attributes(kind string, names []string) (list []Attribute) {
	for _, name := range names {
		list = append(list, Attribute{Name: name, Kind: kind})
	}
	return list
}

func join(lists ...[]Attribute) (all []Attribute) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// Elements of rows that are only moved.
var anyElement = []string{"float32", "float16", "bfloat16", "float64", "int64", "int32", "int16", "int8", "uint64",
	"uint32", "uint16", "uint8", "bool"}

var maskElement = []string{"bool", "int32", "int64", "float32", "float16"}

var contracts = []Contract{
	{
		Name: LinearPanels, Leads: LinearPanels, Needs: []string{PackPanels},
		Promise: "y = activation(x weight + bias) + residual for rows x of any number of axes, normalized before " +
			"(norm_) and after (after_) where those inputs are given. With columns above 0 the weight lies in panels of " +
			"16 columns, else as [depth, columns], or the reverse with transposed. Up to three parts side by side are " +
			"outputs of their own; gated multiplies the activated first half of the columns by the second",
		Error: "1e-5 absolute and 1e-4 relative with float32 weights",
		Inputs: []Parameter{needed("x", "float32"), needed("weight", "float32"), optional("bias", "float32"),
			optional("residual", "float32"), optional("norm_scale", "float32"), optional("norm_bias", "float32"),
			optional("after_scale", "float32"), optional("after_bias", "float32"),
			extra("weight_scale", "bfloat16", "float32"), extra("weight_zero_point", "int8")},
		Outputs: []Parameter{needed("y", "float32"), optional("y1", "float32"), optional("y2", "float32")},
		Attributes: join(stringAttributes("activation"), floatAttributes("norm_epsilon"), intAttributes("norm_centred"), floatAttributes("after_epsilon"),
			intAttributes("transposed", "columns"), []Attribute{{Name: "activations", Kind: "string", Extra: true}},
			intAttributes("parts", "gated")),
	},
	{
		Name: PackPanels, Leads: LinearPanels, Needs: []string{LinearPanels},
		Promise: "the panels of a weight [depth, columns], or the reverse with transposed, for linear-panels/1 of the " +
			"same plugin: float32, or as type says int8, int4 (two to a byte) or bfloat16, integers with a scale, and " +
			"asymmetric ones with a zero point, for each group of rows of a column",
		Error:   "none for float32; half a step of the scale, or of bfloat16, for other types",
		Inputs:  []Parameter{needed("weight", "float32")},
		Outputs: []Parameter{needed("panels", "float32"), extra("scales", "bfloat16"), extra("zero_points", "int8")},
		Attributes: join(intAttributes("transposed"), []Attribute{{Name: "type", Kind: "string", Extra: true},
			{Name: "group", Kind: "int", Extra: true}, {Name: "asymmetric", Kind: "int", Extra: true}}),
	},
	{
		Name: IntegerLinear, Leads: IntegerLinear,
		Promise: "up to three matmuls of one x of eight bits with weights of eight bits, scaled, with bias and GELU; of " +
			"one matmul also a sum with a residual and its layer normalization. x of float32 is rounded as " +
			"DynamicQuantizeLinear does, in range where x_scale is that. Heads are split and joined as the layouts say",
		Error: "none: the bits of ONNX Runtime's nodes on the same machine, which the host compares before it lets GELU " +
			"and normalizations in",
		Inputs: []Parameter{needed("x", "float32", "uint8"), optional("x_scale", "float32"),
			optional("x_zero_point", "uint8"),
			needed("weight", "int8", "uint8"), needed("weight_scale", "float32"),
			optional("weight_zero_point", "int8", "uint8"), optional("bias", "float32"),
			optional("weight2", "int8", "uint8"), optional("weight_scale2", "float32"),
			optional("weight_zero_point2", "int8", "uint8"), optional("bias2", "float32"),
			optional("weight3", "int8", "uint8"), optional("weight_scale3", "float32"),
			optional("weight_zero_point3", "int8", "uint8"), optional("bias3", "float32"),
			optional("residual", "float32"), optional("norm_scale", "float32"), optional("norm_bias", "float32")},
		Outputs: []Parameter{needed("y", "float32"), optional("y2", "float32"), optional("y3", "float32"),
			optional("range", "float32")},
		Attributes: join(intAttributes("heads", "x_layout"), attributes("ints", []string{"layouts", "activations"}),
			floatAttributes("epsilon")),
	},
	{
		Name: NodewiseAttention, Leads: IntegerLinear, Needs: []string{IntegerLinear},
		Promise: "softmax(scale q k + mask) v for heads [batch, heads, rows, size], keys transposed",
		Error:   "none: the bits of ONNX Runtime's nodes on the same machine, which the host compares",
		Inputs: []Parameter{needed("q", "float32"), needed("k", "float32"), needed("v", "float32"),
			optional("mask", "float32")},
		Outputs:    []Parameter{needed("y", "float32")},
		Attributes: floatAttributes("scale"),
	},
	{
		Name: PackedRows, Leads: PackedRows, Needs: []string{PackedAttention, PaddedRows},
		Promise: "which tokens of a batch its mask [batch, positions] shows: keep, the first row of each sequence " +
			"(offsets, one more than there are sequences), how many hidden tokens each begins with (first), and those " +
			"kept that are hidden. like are values of which only the lengths count",
		Error:  "none",
		Inputs: []Parameter{needed("mask", maskElement...), {Name: "like", Types: anyElement, Variadic: true}},
		Outputs: []Parameter{needed("keep", "bool"), needed("offsets", "int32"), needed("first", "int32"),
			optional("hidden", "bool")},
		Attributes: intAttributes("additive", "keep_first", "keep_last", "keep_whole", "keep_empty"),
	},
	{
		Name: PackedAttention, Leads: PackedRows, Needs: []string{PackedRows, PaddedRows},
		Promise: "attention within each sequence of the rows [1, rows, ..] that packed-rows/1 keeps, with the attributes " +
			"of blocks of attention, and a number in the place of the scores of keys that are hidden or beyond the window",
		Error: "1e-5 absolute and 1e-4 relative in float32, 2.5e-3 and 1e-3 in float16",
		Inputs: []Parameter{needed("query", "float32", "float16"), optional("key", "float32", "float16"),
			optional("value", "float32", "float16"), needed("offsets", "int32"), optional("first", "int32"),
			optional("hidden", "bool"), optional("attn_bias", "float32", "float16")},
		Outputs: []Parameter{needed("output", "float32", "float16")},
		Attributes: join(intAttributes("num_heads", "kv_num_heads"), floatAttributes("scale", "softcap"),
			intAttributes("is_causal", "window", "window_left", "window_right"), floatAttributes("hidden_fill"),
			intAttributes("hidden_adds", "bias_after_fill"), floatAttributes("window_fill"), intAttributes("zero_masked_rows", "clear_nan"),
			stringAttributes("query_layout", "key_layout", "value_layout", "output_layout"), intAttributes("output_rank", "packed_qkv")),
	},
	{
		Name: PaddedRows, Leads: PackedRows, Needs: []string{PackedRows, PackedAttention},
		Promise: "rows [1, N, ..] in their places of the batch whose lengths like has, zeros elsewhere and where they " +
			"are hidden",
		Error: "none",
		Inputs: []Parameter{needed("packed", anyElement...), needed("rows", "int64"), needed("like", maskElement...),
			optional("hidden", "bool")},
		Outputs: []Parameter{needed("output", anyElement...)},
	},
	{
		Name: SelectTokens, Leads: SelectTokens,
		Promise: "the candidates of a search out of a step's logits: edited, warped, as log-probabilities, the best or " +
			"sampled ones of each group. fault says what was wrong with a request",
		Error: "1e-5 absolute and 1e-4 relative; the order of equal scores is that of rows and tokens",
		Inputs: []Parameter{needed("scores", "float32", "float16", "bfloat16"), optional("groups", "int32"),
			optional("warpers", "float32"), optional("bias", "float32"), optional("edit_offsets", "int32"),
			optional("edit_tokens", "int32"), optional("edit_ops", "int32"), optional("edit_values", "float32"),
			optional("random_numbers", "float32")},
		Outputs: []Parameter{needed("candidate_scores", "float32"), needed("candidate_rows", "int32"),
			needed("candidate_tokens", "int32"), optional("fault", "int32")},
	},
	{
		Name: GELU, Leads: GELU, Many: true,
		Promise: "x / 2 (1 + erf(x / sqrt(2))), or with approximate = tanh the form of tanh; the host may let a linear " +
			"layer before it compute that",
		Error:      "1e-5 absolute and 1e-4 relative in float32, 2.5e-3 and 1e-3 in float16",
		Inputs:     []Parameter{needed("x", "float32")},
		Outputs:    []Parameter{needed("y", "float32")},
		Attributes: stringAttributes("approximate"),
	},
}
