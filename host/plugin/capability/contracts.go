package capability

var contracts = []Contract{
	{
		Name: LinearPanels, Leads: LinearPanels, Needs: []string{PackPanels},
		Inputs: "x float32, weight float32, [bias float32], [residual float32], [norm_scale float32], " +
			"[norm_bias float32], [after_scale float32], [after_bias float32], [[weight_scale " +
			"bfloat16/float32]], [[weight_zero_point int8]]",
		Outputs: "y float32, [y1 float32], [y2 float32]",
		Attributes: "activation string, norm_epsilon float, norm_centred int, after_epsilon float, transposed int, " +
			"columns int, [[activations string]], parts int, gated int",
	},
	{
		Name: PackPanels, Leads: LinearPanels, Needs: []string{LinearPanels},
		Inputs:     "weight float32",
		Outputs:    "panels float32, [[scales bfloat16]], [[zero_points int8]]",
		Attributes: "transposed int, [[type string]], [[group int]], [[asymmetric int]]",
	},
	{
		Name: IntegerLinear, Leads: IntegerLinear,
		Inputs: "x float32/uint8, [x_scale float32], [x_zero_point uint8], weight int8/uint8, weight_scale " +
			"float32, [weight_zero_point int8/uint8], [bias float32], [weight2 int8/uint8], [weight_scale2 " +
			"float32], [weight_zero_point2 int8/uint8], [bias2 float32], [weight3 int8/uint8], " +
			"[weight_scale3 float32], [weight_zero_point3 int8/uint8], [bias3 float32], [residual float32], " +
			"[norm_scale float32], [norm_bias float32]",
		Outputs:    "y float32, [y2 float32], [y3 float32], [range float32]",
		Attributes: "heads int, x_layout int, layouts ints, activations ints, epsilon float",
	},
	{
		Name: NodewiseAttention, Leads: IntegerLinear, Needs: []string{IntegerLinear},
		Inputs:     "q float32, k float32, v float32, [mask float32]",
		Outputs:    "y float32",
		Attributes: "scale float",
	},
	{
		Name: PackedRows, Leads: PackedRows, Needs: []string{PackedAttention, PaddedRows},
		Inputs:     "mask bool/int32/int64/float32/float16, like any...",
		Outputs:    "keep bool, offsets int32, first int32, [hidden bool]",
		Attributes: "additive int, keep_first int, keep_last int, keep_whole int, keep_empty int",
	},
	{
		Name: PackedAttention, Leads: PackedRows, Needs: []string{PackedRows, PaddedRows},
		Inputs: "query float32/float16, [key float32/float16], [value float32/float16], offsets int32, [first " +
			"int32], [hidden bool], [attn_bias float32/float16]",
		Outputs: "output float32/float16",
		Attributes: "num_heads int, kv_num_heads int, scale float, softcap float, is_causal int, window int, " +
			"window_left int, window_right int, hidden_fill float, hidden_adds int, bias_after_fill int, " +
			"window_fill float, zero_masked_rows int, clear_nan int, query_layout string, key_layout " +
			"string, value_layout string, output_layout string, output_rank int, packed_qkv int",
	},
	{
		Name: PaddedRows, Leads: PackedRows, Needs: []string{PackedRows, PackedAttention},
		Inputs:  "packed any, rows int64, like bool/int32/int64/float32/float16, [hidden bool]",
		Outputs: "output any",
	},
	{
		Name: SelectTokens, Leads: SelectTokens,
		Inputs: "scores float32/float16/bfloat16, [groups int32], [warpers float32], [bias float32], " +
			"[edit_offsets int32], [edit_tokens int32], [edit_ops int32], [edit_values float32], " +
			"[random_numbers float32]",
		Outputs: "candidate_scores float32, candidate_rows int32, candidate_tokens int32, [fault int32]",
	},
	{
		Name: GELU, Leads: GELU, Many: true,
		Inputs:     "x float32",
		Outputs:    "y float32",
		Attributes: "approximate string",
	},
}
