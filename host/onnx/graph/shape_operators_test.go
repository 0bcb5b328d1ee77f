package graph

import (
	"math"
	"testing"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

func TestMatMuls(t *testing.T) {
	runCases(t, []opCase{
		{"MatMul", nil, []string{"f32[batch, 12, seq, 64]", "f32[batch, 12, 64, total]"},
			[]string{"f32[batch, 12, seq, total]"}},
		{"MatMul", nil, []string{"f32[batch, seq, 64]", "f32[64, 256]"}, []string{"f32[batch, seq, 256]"}},
		{"MatMul", nil, []string{"f32[64]", "f32[b, 64, 3]"}, []string{"f32[b, 3]"}},
		{"MatMul", nil, []string{"f32[b, 3, 64]", "f32[64]"}, []string{"f32[b, 3]"}},
		{"MatMul", nil, []string{"f32[64]", "f32[64]"}, []string{"f32[]"}},
		{"MatMul", nil, []string{"f32[]", "f32[64]"}, []string{"f32*"}},
		{"MatMul", nil, []string{"f32*", "f32[64, 3]"}, []string{"f32*"}},
		{"MatMulInteger", nil, []string{"u8[batch, seq, 64]", "i8[64, 256]"}, []string{"i32[batch, seq, 256]"}},
		{"Gemm", attrs{"transB": 1}, []string{"f32[n, 64]", "f32[256, 64]", "f32[256]"}, []string{"f32[n, 256]"}},
		{"Gemm", attrs{"transA": 1}, []string{"f32[64, n]", "f32[64, 256]"}, []string{"f32[n, 256]"}},
		{"Gemm", nil, []string{"f32*", "f32[64, 256]"}, []string{"f32[?, 256]"}},
		{"Einsum", attrs{"equation": "bhsd, bhtd -> bhst"}, []string{"f32[b, 4, s, 16]", "f32[b, 4, t, 16]"},
			[]string{"f32[b, 4, s, t]"}},
		{"Einsum", attrs{"equation": "...ij,...jk->...ik"}, []string{"f32[b, 4, s, 16]", "f32[16, t]"},
			[]string{"f32[b, 4, s, t]"}},
		{"Einsum", attrs{"equation": "ij,jk"}, []string{"f32[a, n]", "f32[n, c]"}, []string{"f32[a, c]"}},
		{"Einsum", attrs{"equation": "ii->i"}, []string{"f32[n, n]"}, []string{"f32[n]"}},
		{"Einsum", attrs{"equation": "ij->"}, []string{"f32[a, b]"}, []string{"f32[]"}},
		{"Einsum", attrs{"equation": "ijk->"}, []string{"f32[a, b]"}, []string{"f32*"}},
		{"Einsum", attrs{"equation": "αβ->α"}, []string{"f32[a, b, c, d]"}, []string{"f32[a]"}},
	})
}

func TestNormalization(t *testing.T) {
	runCases(t, []opCase{
		{"LayerNormalization", nil, []string{"f32[b, s, 64]", "f32[64]"},
			[]string{"f32[b, s, 64]", "f32[b, s, 1]", "f32[b, s, 1]"}},
		{"RMSNormalization@23", nil, []string{"f16[b, s, 64]", "f16[64]"}, []string{"f16[b, s, 64]"}},
		{"SimplifiedLayerNormalization", nil, []string{"f32[b, s, 64]", "f32[64]"},
			[]string{"f32[b, s, 64]", "f32[b, s, 1]"}},
		{"BatchNormalization", nil, []string{"f32[n, 3, h, w]", "f32[3]", "f32[3]", "f32[3]", "f32[3]"},
			[]string{"f32[n, 3, h, w]"}},
	})
}

func TestConvolution(t *testing.T) {
	runCases(t, []opCase{
		{"Conv", attrs{"kernel_shape": []int64{3}, "pads": []int64{1, 1}}, []string{"f32[b, 80, n]", "f32[64, 80, 3]"},
			[]string{"f32[b, 64, n]"}},
		{"Conv", attrs{"strides": []int64{2}, "pads": []int64{1, 1}}, []string{"f32[b, 64, 3000]", "f32[64, 64, 3]"},
			[]string{"f32[b, 64, 1500]"}},
		{"Conv", attrs{"strides": []int64{2}}, []string{"f32[b, 64, n*2]", "f32[64, 64, 2]"}, []string{"f32[b, 64, n]"}},
		{"Conv", attrs{"strides": []int64{2}}, []string{"f32[b, 64, n]", "f32[64, 64, 3]"}, []string{"f32[b, 64, ?]"}},
		{"Conv", attrs{"dilations": []int64{2, 2}}, []string{"f32[b, 3, 9, 9]", "f32[8, 3, 3, 3]"},
			[]string{"f32[b, 8, 5, 5]"}},
		{"Conv", attrs{"auto_pad": "SAME_UPPER", "strides": []int64{2}}, []string{"f32[b, 3, 9]", "f32[8, 3, 3]"},
			[]string{"f32[b, 8, 5]"}},
		{"Conv", attrs{"strides": []int64{0}}, []string{"f32[b, 3, 9]", "f32[8, 3, 3]"}, []string{"f32[b, 8, ?]"}},
		{"Conv", nil, []string{"f32[b, 3, 2]", "f32[8, 3, 3]"}, []string{"f32[b, 8, ?]"}},
		{"ConvTranspose", attrs{"strides": []int64{2}}, []string{"f32[b, 8, n]", "f32[8, 3, 2]"}, []string{"f32[b, 3, n*2]"}},
		{"MaxPool", attrs{"kernel_shape": []int64{2, 2}, "strides": []int64{2, 2}, "ceil_mode": 1},
			[]string{"f32[b, 3, 7, 8]"}, []string{"f32[b, 3, 4, 4]"}},
		{"GlobalAveragePool", nil, []string{"f32[b, 3, h, w]"}, []string{"f32[b, 3, 1, 1]"}},
		{"Resize", nil, []string{"f32[b, 3, h, w]", "-", "f32[4](1, 1, 2, 2)"}, []string{"f32[b, 3, h*2, w*2]"}},
		{"Resize", nil, []string{"f32[b, 3, h, w]", "-", "-", "i64[4]{b, 3, 7, 9}"}, []string{"f32[b, 3, 7, 9]"}},
		{"LSTM", attrs{"hidden_size": 5, "direction": "bidirectional"}, []string{"f32[s, b, 3]", "f32[2, 20, 3]"},
			[]string{"f32[s, 2, b, 5]", "f32[2, b, 5]", "f32[2, b, 5]"}},
		{"GRU", nil, []string{"f32[s, b, 3]", "f32[1, 15, 3]"}, []string{"f32[s, 1, b, 5]", "f32[1, b, 5]"}},
	})
}

func TestQuantization(t *testing.T) {
	runCases(t, []opCase{
		{"QuantizeLinear", nil, []string{"f32[a, b]", "f32[]", "i8[]"}, []string{"i8[a, b]"}},
		{"QuantizeLinear", nil, []string{"f32[a, b]", "f32[]"}, []string{"u8[a, b]"}},
		{"DequantizeLinear", nil, []string{"i8[a, b]", "f16[]", "i8[]"}, []string{"f16[a, b]"}},
		{"DynamicQuantizeLinear", nil, []string{"f32[a, b]"}, []string{"u8[a, b]", "f32[]", "u8[]"}},
		{"com.microsoft:DynamicQuantizeMatMul", nil, []string{"f32[b, s, 64]", "u8[64, 256]"}, []string{"f32[b, s, 256]"}},
		{"com.microsoft:MatMulIntegerToFloat", nil, []string{"u8[b, s, 64]", "u8[64, 256]", "f32[]"},
			[]string{"f32[b, s, 256]"}},
		{"com.microsoft:MatMulNBits", attrs{"K": 64, "N": 256, "bits": 4}, []string{"f16[b, s, 64]", "u8[256, 2, 16]"},
			[]string{"f16[b, s, 256]"}},
		{"com.microsoft:GatherBlockQuantized", attrs{"bits": 4}, []string{"u8[1000, 32]", "i64[b, s]", "f16[1000, 2]"},
			[]string{"f16[b, s, 64]"}},
	})
}

func TestAttention(t *testing.T) {
	const ms = "com.microsoft:"
	heads := attrs{"num_heads": 12}
	runCases(t, []opCase{
		{"Attention@23", nil, []string{"f32[b, 12, s, 64]", "f32[b, 4, t, 64]", "f32[b, 4, t, 32]"},
			[]string{"f32[b, 12, s, 32]"}},
		{"Attention@23", attrs{"q_num_heads": 12, "kv_num_heads": 4},
			[]string{"f32[b, s, 768]", "f32[b, s, 256]", "f32[b, s, 128]", "-", "f32[b, 4, p, 64]", "f32[b, 4, p, 32]"},
			[]string{"f32[b, s, 384]", "f32[b, 4, p + s, 64]", "f32[b, 4, p + s, 32]", "f32[b, 12, s, p + s]"}},
		{"Attention@23", nil, []string{"f32*", "f32*", "f32*"}, []string{"f32*"}},
		{"RotaryEmbedding@23", nil, []string{"f32[b, 12, s, 64]"}, []string{"f32[b, 12, s, 64]"}},
		{ms + "Attention", heads, []string{"f32[b, s, 768]", "f32[768, 2304]", "f32[2304]", "-", "f32[2, b, 12, p, 64]"},
			[]string{"f32[b, s, 768]", "f32[2, b, 12, p + s, 64]"}},
		{ms + "Attention", attrs{"num_heads": 4, "qkv_hidden_sizes": []int64{64, 64, 32}},
			[]string{"f32[b, s, 768]", "f32[768, 160]", "f32[160]"},
			[]string{"f32[b, s, 32]"}},
		{ms + "MultiHeadAttention", heads,
			[]string{"f32[b, s, 768]", "f32[b, s, 768]", "f32[b, s, 384]", "-", "-", "-", "f32[b, 12, p, 64]",
				"f32[b, 12, p, 32]"},
			[]string{"f32[b, s, 384]", "f32[b, 12, p + s, 64]", "f32[b, 12, p + s, 32]"}},
		{ms + "MultiHeadAttention", heads, []string{"f32[b, s, 768]", "f32[b, 12, e, 64]", "f32[b, 12, e, 64]"},
			[]string{"f32[b, s, 768]"}},
		{ms + "MultiHeadAttention", heads, []string{"f32[b, s, 12, 3, 64]"}, []string{"f32[b, s, 768]"}},
		{ms + "MultiHeadAttention", heads, []string{"f32[b, s, 768]", "f32[b, e, 12, 2, 64]"},
			[]string{"f32[b, s, 768]", "f32[b, 12, e, 64]"}},
		{ms + "GroupQueryAttention", attrs{"num_heads": 12, "kv_num_heads": 4},
			[]string{"f32[b, s, 768]", "f32[b, s, 256]", "f32[b, s, 256]", "f32[b, 4, p, 64]", "f32[b, 4, p, 64]", "i32[b]",
				"i32[]{p + s}"},
			[]string{"f32[b, s, 768]", "f32[b, 4, p + s, 64]", "f32[b, 4, p + s, 64]"}},
		{ms + "GroupQueryAttention", attrs{"num_heads": 12, "kv_num_heads": 4},
			[]string{"f32[b, s, 1280]", "-", "-", "f32[b, 4, p, 64]", "f32[b, 4, p, 64]", "i32[b]", "i32[]"},
			[]string{"f32[b, s, 768]", "f32[b, 4, ?, 64]", "f32[b, 4, ?, 64]"}},
		{ms + "GroupQueryAttention", attrs{"num_heads": 12, "kv_num_heads": 4, "sliding_window_cache": 1,
			"local_window_size": 8},
			[]string{"f32[b, s, 1280]", "-", "-", "f32[b, 4, p, 64]", "f32[b, 4, p, 64]", "i32[b]", "i32[]{t}"},
			[]string{"f32[b, s, 768]", "f32[b, 4, p, 64]", "f32[b, 4, p, 64]"}},
		{ms + "DecoderMaskedMultiHeadAttention", attrs{"num_heads": 12, "past_present_share_buffer": 1},
			[]string{"f32[b, 1, 768]", "f32[b, 1, 768]", "f32[b, 1, 768]", "-", "-", "f32[b, 12, m, 64]", "f32[b, 12, m, 64]"},
			[]string{"f32[b, 1, 768]", "f32[b, 12, m, 64]", "f32[b, 12, m, 64]"}},
		{ms + "PackedAttention", heads, []string{"f32[tokens, 768]", "f32[768, 2304]"}, []string{"f32[tokens, 768]"}},
		{ms + "PackedMultiHeadAttention", heads, []string{"f32[tokens, 768]", "f32[tokens, 768]", "f32[tokens, 384]"},
			[]string{"f32[tokens, 384]"}},
		{ms + "RelativePositionBias", nil, []string{"f32[32, 12]", "i64[]{s}", "i64[]{t}"}, []string{"f32[1, 12, s, t]"}},
	})
}

func TestMicrosoft(t *testing.T) {
	const ms = "com.microsoft:"
	runCases(t, []opCase{
		{ms + "SkipLayerNormalization", nil, []string{"f32[b, s, 64]", "f32[b, s, 64]", "f32[64]"},
			[]string{"f32[b, s, 64]", "f32[b, s, 1]", "f32[b, s, 1]", "f32[b, s, 64]"}},
		{ms + "SkipSimplifiedLayerNormalization", nil, []string{"f16[b, s, 64]", "f16[b, s, 64]", "f16[64]"},
			[]string{"f16[b, s, 64]"}},
		{ms + "EmbedLayerNormalization", nil, []string{"i32[b, s]", "i32[b, s]", "f32[1000, 64]"},
			[]string{"f32[b, s, 64]", "i32[b]"}},
		{ms + "BiasSplitGelu", nil, []string{"f32[b, s, 128]", "f32[128]"}, []string{"f32[b, s, 64]"}},
		{ms + "FastGelu", nil, []string{"f32[b, s, 128]", "f32[128]"}, []string{"f32[b, s, 128]"}},
		{ms + "FusedMatMul", attrs{"transB": 1, "alpha": 0.125}, []string{"f32[b, 4, s, 16]", "f32[b, 4, t, 16]"},
			[]string{"f32[b, 4, s, t]"}},
		{ms + "FusedMatMul", attrs{"transBatchA": 1}, []string{"f32[b, 4, s, 16]", "f32[b, 4, 16, t]"}, []string{"f32*"}},
		{ms + "GemmFastGelu", nil, []string{"f32[b, s, 64]", "f32[64, 256]"}, []string{"f32[b, s, 256]"}},
		{ms + "QLinearAdd", nil, []string{"u8[b, s, 64]", "f32[]", "u8[]", "u8[64]", "f32[]", "u8[]"},
			[]string{"u8[b, s, 64]"}},
	})
}

func TestRare(t *testing.T) {
	runCases(t, []opCase{
		{"SwiGLU@28", nil, []string{"f32[b, s, 64]", "f32[b, s, 64]"}, []string{"f32[b, s, 64]"}},
		{"LinearAttention@27", attrs{"q_num_heads": 12, "kv_num_heads": 4},
			[]string{"f16[b, s, 768]", "f16[b, s, 256]", "f16[b, s, 128]", "f32[b, 4, 64, 32]"},
			[]string{"f16[b, s, 384]", "f32[b, 4, 64, 32]"}},
		{"ai.onnx.preview:FlexAttention", nil, []string{"f32[b, 12, s, 64]", "f32[b, 4, t, 64]", "f32[b, 4, t, 32]"},
			[]string{"f32[b, 12, s, 32]"}},
		{"CausalConvWithState@27", nil, []string{"f32[b, 64, s]", "f32[64, 1, 4]"},
			[]string{"f32[b, 64, s]", "f32[b, 64, 3]"}},
		{"com.microsoft:CausalConvWithState", nil, []string{"f32[b, 64, s]", "f32[64, 1, 4]", "f32[64]", "f32[rows, 64, 3]"},
			[]string{"f32[b, 64, s]", "f32[rows, 64, 3]"}},
		{"GridSample", nil, []string{"f32[b, 3, h, w]", "f32[b, 7, 9, 2]"}, []string{"f32[b, 3, 7, 9]"}},
		{"AffineGrid", nil, []string{"f32[b, 2, 3]", "i64[4]{b, 3, 7, 9}"}, []string{"f32[b, 7, 9, 2]"}},
		{"RoiAlign", attrs{"output_height": 5}, []string{"f32[b, 3, h, w]", "f32[n, 4]", "i64[n]"},
			[]string{"f32[n, 3, 5, 1]"}},
		{"CenterCropPad", attrs{"axes": []int64{-1}}, []string{"f32[a, b]", "i64[1]{7}"}, []string{"f32[a, 7]"}},
		{"NonMaxSuppression", nil, []string{"f32[b, n, 4]", "f32[b, c, n]"}, []string{"i64[?, 3]"}},
		{"SoftmaxCrossEntropyLoss", nil, []string{"f32[b, c]", "i64[b]"}, []string{"f32[]", "f32[b, c]"}},
		{"SoftmaxCrossEntropyLoss", attrs{"reduction": "none"}, []string{"f32[b, c, s]", "i64[b, s]"}, []string{"f32[b, s]"}},
		{"DFT", attrs{"onesided": 1}, []string{"f32[b, 10, 1]", "-", "i64[]{1}"}, []string{"f32[b, 6, 2]"}},
		{"DFT", nil, []string{"f32[b, n, 2]", "i64[]{16}"}, []string{"f32[b, 16, 2]"}},
		{"HannWindow", nil, []string{"i64[]{n}"}, []string{"f32[n]"}},
		{"StringConcat", nil, []string{"str[a]", "str[]"}, []string{"str[a]"}},
		{"SequenceLength", nil, []string{"?*"}, []string{"i64[]"}},
	})
}

func TestRounding(t *testing.T) {
	for _, c := range []struct {
		kind    onnx.Tensor_DataType
		x, want float64
	}{
		{onnx.Tensor_FLOAT16, 65519, 65504},
		{onnx.Tensor_FLOAT16, 65520, math.Inf(1)},
		{onnx.Tensor_FLOAT16, -1e9, math.Inf(-1)},
		{onnx.Tensor_FLOAT16, 0x1p-24, 0x1p-24},
		{onnx.Tensor_FLOAT16, 0x1p-25, 0},
		{onnx.Tensor_FLOAT16, 2049, 2048},
		{onnx.Tensor_FLOAT16, 2051, 2052},
		{onnx.Tensor_BFLOAT16, 257, 256},
		{onnx.Tensor_BFLOAT16, 259, 260},
		{onnx.Tensor_BFLOAT16, 3.4e38, math.Inf(1)},
		{onnx.Tensor_FLOAT, 0.1, float64(float32(0.1))},
		{onnx.Tensor_DOUBLE, 0.1, 0.1},
	} {
		must.Equal(t, rounded(c.kind, c.x), c.want, c.x, c.kind)
	}
}
