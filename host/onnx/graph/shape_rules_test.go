package graph

import (
	"testing"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

func TestElementwise(t *testing.T) {
	runCases(t, []opCase{
		{"Add", nil, []string{"f32[batch, seq, 64]", "f32[64]"}, []string{"f32[batch, seq, 64]"}},
		{"Add", nil, []string{"f32[batch, 1, seq, 1]", "f32[4, 1, past + seq]"}, []string{"f32[batch, 4, seq, past + seq]"}},
		{"Add", nil, []string{"f32[a]", "f32[b]"}, []string{"f32[?]"}},
		{"Add", nil, []string{"f32[a]", "f32[7]"}, []string{"f32[7]"}},
		{"Add", nil, []string{"f32[a]", "f32[0]"}, []string{"f32[0]"}},
		{"Add", nil, []string{"f32[a]", "f32[b + 2]"}, []string{"f32[b + 2]"}},
		{"Add", nil, []string{"f32*", "f32[a]"}, []string{"f32*"}},
		{"Add", nil, []string{"i64[2]{batch, 3}", "i64[]{1}"}, []string{"i64[2]{batch + 1, 4}"}},
		{"Sub", nil, []string{"i64[]{past + seq}", "i64[1]{past}"}, []string{"i64[1]{seq}"}},
		{"Mul", nil, []string{"i64[2]{batch, ?}", "i64[1]{4}"}, []string{"i64[2]{batch*4, ?}"}},
		{"Mul", nil, []string{"f32[](0.5)", "f32[2](3, 4)"}, []string{"f32[2](1.5, 2)"}},
		{"Div", nil, []string{"i64[]{batch*12}", "i64[]{batch}"}, []string{"i64[]{12}"}},
		{"Div", nil, []string{"i64[3]{-7, 7, 7}", "i64[3]{2, -2, 0}"}, []string{"i64[3]{-3, -3, ?}"}},
		{"Div", nil, []string{"i64[]{seq}", "i64[]{2}"}, []string{"i64[]{?}"}},
		{"Div", nil, []string{"f32[](1)", "f32[](3)"}, []string{"f32[](0.3333333432674408)"}},
		{"Div", nil, []string{"f64[](1)", "f64[](3)"}, []string{"f64[](0.3333333333333333)"}},
		{"Div", nil, []string{"f16[](1)", "f16[](3)"}, []string{"f16[](0.333251953125)"}},
		{"Mod", nil, []string{"i64[4]{-7, 7, seq*4 + 3, seq}", "i64[4]{3, -3, 2, 2}"}, []string{"i64[4]{2, -2, 1, ?}"}},
		{"Mod", attrs{"fmod": 1}, []string{"i64[2]{-7, 7}", "i64[2]{3, -3}"}, []string{"i64[2]{-1, 1}"}},
		{"Pow", nil, []string{"f32[](64)", "f32[](0.5)"}, []string{"f32[](8)"}},
		{"Pow", nil, []string{"i64[]{seq}", "i64[]{2}"}, []string{"i64[]{seq*seq}"}},
		{"Pow", nil, []string{"f32[seq]", "i64[]{2}"}, []string{"f32[seq]"}},
		{"Max", nil, []string{"i64[2]{3, seq}", "i64[2]{5, past + seq}"}, []string{"i64[2]{5, past + seq}"}},
		{"Min", nil, []string{"i64[3]{3, seq, a}", "i64[3]{5, past + seq, b}"}, []string{"i64[3]{3, seq, ?}"}},
		{"Max", nil, []string{"f32[a]", "f32[b, 1]", "f32[1, a]"}, []string{"f32[b, a]"}},
		{"Neg", nil, []string{"i64[2]{seq, 4}"}, []string{"i64[2]{-seq, -4}"}},
		{"Abs", nil, []string{"i64[3]{-3, seq, -seq}"}, []string{"i64[3]{3, seq, seq}"}},
		{"Sqrt", nil, []string{"f32[](64)"}, []string{"f32[](8)"}},
		{"Sqrt", nil, []string{"f32[batch]"}, []string{"f32[batch]"}},
		{"Reciprocal", nil, []string{"f32[](8)"}, []string{"f32[](0.125)"}},
		{"Softmax", attrs{"axis": -1}, []string{"f32[batch, 4, seq, total]"}, []string{"f32[batch, 4, seq, total]"}},
		{"Clip", nil, []string{"i64[2]{-3, seq}", "i64[]{0}", "-"}, []string{"i64[2]{0, seq}"}},
		{"Clip", nil, []string{"f32[a]", "f32[](0)", "f32[](6)"}, []string{"f32[a]"}},
		{"Dropout", nil, []string{"f32[a]"}, []string{"f32[a]", "bool[a]"}},
		{"IsNaN", nil, []string{"f16[a, b]"}, []string{"bool[a, b]"}},
		{"Identity", nil, []string{"i64[1]{seq}"}, []string{"i64[1]{seq}"}},
		{"com.microsoft:NoSuchOperator", nil, []string{"f32[a]"}, []string{"?*"}},
	})
}

func TestComparison(t *testing.T) {
	runCases(t, []opCase{
		{"Equal", nil, []string{"i64[4]{batch, 1, -1, seq}", "i64[]{-1}"}, []string{"bool[4]{0, 0, 1, 0}"}},
		{"Equal", nil, []string{"i64[2]{batch, seq}", "i64[2]{1, seq}"}, []string{"bool[2]{?, 1}"}},
		{"Greater", nil, []string{"i64[2]{past + 1, past}", "i64[]{0}"}, []string{"bool[2]{1, ?}"}},
		{"GreaterOrEqual", nil, []string{"i64[2]{past + seq, 3}", "i64[2]{past, 4}"}, []string{"bool[2]{1, 0}"}},
		{"Less", nil, []string{"i64[2]{past + seq, past}", "i64[2]{past, 4}"}, []string{"bool[2]{0, ?}"}},
		{"LessOrEqual", nil, []string{"i64[]{past}", "i64[]{past + seq}"}, []string{"bool[]{1}"}},
		{"Less", nil, []string{"f32[](1)", "f32[](2)"}, []string{"bool[]{1}"}},
		{"Equal", nil, []string{"f32[a, 1]", "f32[b]"}, []string{"bool[a, b]"}},
		{"And", nil, []string{"bool[3]{1, 0, ?}", "bool[3]{1, ?, ?}"}, []string{"bool[3]{1, 0, ?}"}},
		{"Or", nil, []string{"bool[3]{?, 0, ?}", "bool[3]{1, 0, 0}"}, []string{"bool[3]{1, 0, ?}"}},
		{"Xor", nil, []string{"bool[2]{1, ?}", "bool[2]{1, 1}"}, []string{"bool[2]{0, ?}"}},
		{"Not", nil, []string{"bool[2]{1, ?}"}, []string{"bool[2]{0, ?}"}},
	})
}

func TestCastAndWhere(t *testing.T) {
	const f32, f16, i64, i32, boolean = int(onnx.Tensor_FLOAT), int(onnx.Tensor_FLOAT16), int(onnx.Tensor_INT64),
		int(onnx.Tensor_INT32), int(onnx.Tensor_BOOL)
	runCases(t, []opCase{
		{"Cast", attrs{"to": f32}, []string{"i64[]{64}"}, []string{"f32[](64)"}},
		{"Cast", attrs{"to": f32}, []string{"i64[]{seq}"}, []string{"f32[]"}},
		{"Cast", attrs{"to": f32}, []string{"i64[]{16777217}"}, []string{"f32[](1.6777216e+07)"}},
		{"Cast", attrs{"to": i32}, []string{"i64[3]{seq, 5, 4294967296}"}, []string{"i32[3]{seq, 5, ?}"}},
		{"Cast", attrs{"to": boolean}, []string{"i64[4]{0, 5, seq, seq + 1}"}, []string{"bool[4]{0, 1, ?, 1}"}},
		{"Cast", attrs{"to": i64}, []string{"f32[4](-1.7, 2.5, 1e30, nan)"}, []string{"i64[4]{-1, 2, ?, ?}"}},
		{"Cast", attrs{"to": f16}, []string{"f32[3](0.1, 70000, 1e-7)"},
			[]string{"f16[3](0.0999755859375, +Inf, 1.1920928955078125e-07)"}},
		{"Cast", attrs{"to": f32}, []string{"f16*"}, []string{"f32*"}},
		{"CastLike", nil, []string{"i64[]{64}", "f16[batch]"}, []string{"f16[](64)"}},
		{"Where", nil, []string{"bool[2]{1, 0}", "i64[]{1}", "i64[2]{a, b}"}, []string{"i64[2]{1, b}"}},
		{"Where", nil, []string{"bool[2]{?, ?}", "i64[2]{a, 1}", "i64[2]{a, b}"}, []string{"i64[2]{a, ?}"}},
		{"Where", nil, []string{"bool[]{0}", "f32[](1)", "f32[](2)"}, []string{"f32[](2)"}},
		{"Where", nil, []string{"bool[1, 1, seq, total]", "f32[batch, 4, seq, total]", "f32[]"},
			[]string{"f32[batch, 4, seq, total]"}},
	})
}

func TestReshape(t *testing.T) {
	runCases(t, []opCase{
		{"Reshape", nil, []string{"f32[batch, seq, 768]", "i64[4]{0, 0, 12, 64}"}, []string{"f32[batch, seq, 12, 64]"}},
		{"Reshape", nil, []string{"f32[batch, seq, 768]", "i64[4]{0, 0, 12, -1}"}, []string{"f32[batch, seq, 12, 64]"}},
		{"Reshape", nil, []string{"f32[batch, seq, 768]", "i64[2]{-1, 768}"}, []string{"f32[batch*seq, 768]"}},
		{"Reshape", nil, []string{"f32[batch*seq, 768]", "i64[3]{batch, -1, 768}"}, []string{"f32[batch, seq, 768]"}},
		{"Reshape", nil, []string{"f32[batch*seq, 768]", "i64[3]{batch, seq, 768}"}, []string{"f32[batch, seq, 768]"}},
		{"Reshape", nil, []string{"f32[batch, 12, past + seq, 64]", "i64[3]{-1, past + seq, 64}"},
			[]string{"f32[batch*12, past + seq, 64]"}},
		{"Reshape", nil, []string{"f32[batch, seq, 768]", "i64[3]{batch, ?, 768}"}, []string{"f32[batch, seq, 768]"}},
		{"Reshape", nil, []string{"f32[batch, seq, 768]", "i64[3]{?, ?, 768}"}, []string{"f32[?, ?, 768]"}},
		{"Reshape", nil, []string{"f32[batch, seq, 768]", "i64[3]"}, []string{"f32[?, ?, ?]"}},
		{"Reshape", nil, []string{"f32[batch]", "i64[n]"}, []string{"f32*"}},
		{"Reshape", nil, []string{"f32*", "i64[2]{-1, 64}"}, []string{"f32[?, 64]"}},
		{"Reshape", attrs{"allowzero": 1}, []string{"f32[batch, 0]", "i64[2]{0, batch}"}, []string{"f32[0, batch]"}},
		{"Reshape", nil, []string{"i64[]{seq}", "i64[1]{-1}"}, []string{"i64[1]{seq}"}},
		{"Reshape", nil, []string{"i64[2, 3]{1, 2, 3, 4, 5, 6}", "i64[2]{3, -1}"}, []string{"i64[3, 2]{1, 2, 3, 4, 5, 6}"}},
		{"Reshape", nil, []string{"f32[6]", "i64[2]{4, -1}"}, []string{"f32[4, ?]"}},
		{"Reshape@1", attrs{"shape": []int64{0, -1}}, []string{"f32[a, b, c]"}, []string{"f32[a, b*c]"}},
		{"Flatten", attrs{"axis": 2}, []string{"f32[a, b, c, 4]"}, []string{"f32[a*b, c*4]"}},
		{"Flatten", attrs{"axis": 0}, []string{"f32[a, b]"}, []string{"f32[1, a*b]"}},
		{"Flatten", nil, []string{"f32*"}, []string{"f32[?, ?]"}},
	})
}

func TestLayout(t *testing.T) {
	runCases(t, []opCase{
		{"Transpose", attrs{"perm": []int64{0, 2, 1, 3}}, []string{"f32[batch, seq, 12, 64]"},
			[]string{"f32[batch, 12, seq, 64]"}},
		{"Transpose", nil, []string{"i64[2, 3]{1, 2, 3, 4, 5, 6}"}, []string{"i64[3, 2]{1, 4, 2, 5, 3, 6}"}},
		{"Transpose", attrs{"perm": []int64{0, 0}}, []string{"f32[a, b]"}, []string{"f32*"}},
		{"Transpose", attrs{"perm": []int64{1, 0}}, []string{"f32*"}, []string{"f32[?, ?]"}},
		{"Squeeze", nil, []string{"i64[1]{seq}", "i64[1]{0}"}, []string{"i64[]{seq}"}},
		{"Squeeze", nil, []string{"f32[1, a, 1]", "i64[2]{0, -1}"}, []string{"f32[a]"}},
		{"Squeeze", nil, []string{"f32[1, 4, 1]"}, []string{"f32[4]"}},
		{"Squeeze", nil, []string{"f32[1, a, 1]"}, []string{"f32*"}},
		{"Squeeze@11", attrs{"axes": []int64{0}}, []string{"f32[1, a, 1]"}, []string{"f32[a, 1]"}},
		{"Unsqueeze", nil, []string{"f32[a, b]", "i64[2]{3, 1}"}, []string{"f32[a, 1, b, 1]"}},
		{"Unsqueeze", nil, []string{"i64[]{seq}", "i64[1]{0}"}, []string{"i64[1]{seq}"}},
		{"Unsqueeze", nil, []string{"f32[a, b]", "i64[1]{-1}"}, []string{"f32[a, b, 1]"}},
		{"Unsqueeze", nil, []string{"f32[a, b]", "i64[1]"}, []string{"f32*"}},
		{"Unsqueeze", nil, []string{"f32[a, b]", "i64[1]{7}"}, []string{"f32*"}},
		{"Unsqueeze@11", attrs{"axes": []int64{0}}, []string{"f32[a]"}, []string{"f32[1, a]"}},
		{"Expand", nil, []string{"f32[1, 4, 1]", "i64[3]{batch, 1, seq}"}, []string{"f32[batch, 4, seq]"}},
		{"Expand", nil, []string{"f32[2, 1]", "i64[3]"}, []string{"f32[?, 2, ?]"}},
		{"Expand", nil, []string{"f32[2]", "i64[n]"}, []string{"f32*"}},
		{"Expand", nil, []string{"i64[1]{a}", "i64[1]{3}"}, []string{"i64[3]{a, a, a}"}},
		{"Tile", nil, []string{"f32[a, 3]", "i64[2]{2, seq}"}, []string{"f32[a*2, seq*3]"}},
		{"Tile", nil, []string{"i64[2]{a, b}", "i64[1]{2}"}, []string{"i64[4]{a, b, a, b}"}},
		{"Tile", nil, []string{"f32[a, 3]", "i64[2]"}, []string{"f32[?, ?]"}},
		{"Pad", nil, []string{"f32[a, 3]", "i64[4]{0, 1, seq, 2}"}, []string{"f32[a + seq, 6]"}},
		{"Pad", nil, []string{"f32[a, 3]", "i64[2]{1, 2}", "-", "i64[1]{-1}"}, []string{"f32[a, 6]"}},
		{"Pad@2", attrs{"pads": []int64{0, 0, 1, 1}}, []string{"f32[a, 3]"}, []string{"f32[a + 1, 4]"}},
		{"Pad", nil, []string{"f32[a, 3]", "i64[4]"}, []string{"f32[?, ?]"}},
		{"DepthToSpace", attrs{"blocksize": 2}, []string{"f32[a, 8, h, w]"}, []string{"f32[a, 2, h*2, w*2]"}},
		{"SpaceToDepth", attrs{"blocksize": 2}, []string{"f32[a, 2, 6, w]"}, []string{"f32[a, 8, 3, ?]"}},
	})
}

func TestSlice(t *testing.T) {
	cut := func(x, from, to, axis, want string) opCase {
		return opCase{"Slice", nil, []string{x, "i64[1]{" + from + "}", "i64[1]{" + to + "}", "i64[1]{" + axis + "}"},
			[]string{want}}
	}
	stepped := func(x, from, to, step, want string) opCase {
		return opCase{"Slice", nil,
			[]string{x, "i64[1]{" + from + "}", "i64[1]{" + to + "}", "i64[1]{0}", "i64[1]{" + step + "}"},
			[]string{want}}
	}
	const end, far = "9223372036854775807", "2147483647"
	runCases(t, []opCase{
		// Constant lengths.
		cut("f32[10]", "2", "5", "0", "f32[3]"),
		cut("f32[10]", "-3", end, "0", "f32[3]"),
		cut("f32[10]", "-30", "-8", "0", "f32[2]"),
		cut("f32[10]", "5", "2", "0", "f32[0]"),
		cut("f32[10]", "7", "100", "0", "f32[3]"),
		stepped("f32[10]", "1", end, "3", "f32[3]"),
		stepped("f32[10]", "-1", "-9223372036854775808", "-1", "f32[10]"),
		stepped("f32[10]", "8", "2", "-2", "f32[3]"),
		stepped("f32[10]", "8", "2", "-9223372036854775808", "f32[1]"),
		// Rows of a table between symbolic bounds.
		cut("f32[1, 1, 1024, 1024]", "past", "past + seq", "2", "f32[1, 1, seq, 1024]"),
		cut("f32[1, 1, 1024, 1024]", "0", "past + seq", "-1", "f32[1, 1, 1024, past + seq]"),
		cut("f32[1, 4]", "0", "seq", "0", "f32[?, 4]"), // may be broadcast: one row is no table
		// Symbolic lengths.
		cut("f32[past + seq]", "past", "past + seq", "0", "f32[seq]"),
		cut("f32[past + seq]", "past", end, "0", "f32[seq]"),
		cut("f32[past + seq]", "-seq", far, "0", "f32[seq]"),
		cut("f32[past + seq]", "0", "-seq", "0", "f32[past]"),
		cut("f32[seq]", "0", end, "0", "f32[seq]"),
		cut("f32[seq]", "0", "past + seq", "0", "f32[seq]"),
		cut("f32[seq]", "past + seq", end, "0", "f32[0]"),
		cut("f32[seq]", "-1", end, "0", "f32[1]"),
		cut("f32[seq]", "3", "4", "0", "f32[1]"),
		cut("f32[seq]", "1", end, "0", "f32[seq - 1]"),
		cut("f32[seq]", "0", "-1", "0", "f32[seq - 1]"),
		cut("f32[seq]", "-5", end, "0", "f32[?]"),     // five, or fewer when there are fewer
		cut("f32[seq + 5]", "-5", end, "0", "f32[5]"), // there are five
		cut("f32[seq]", "0", "5", "0", "f32[?]"),
		cut("f32[seq]", "0", "past", "0", "f32[?]"),
		cut("f32[seq]", "?", end, "0", "f32[?]"),
		cut("f32[a, b]", "0", "1", "?", "f32[?, ?]"),
		cut("f32[a, b]", "0", "1", "5", "f32[?, ?]"),
		stepped("f32[seq]", "-1", "-9223372036854775807", "-1", "f32[seq]"),
		stepped("f32[seq*2]", "0", end, "2", "f32[seq]"),
		stepped("f32[seq*2]", "1", end, "2", "f32[seq]"),
		stepped("f32[seq]", "0", end, "2", "f32[?]"),
		stepped("f32[seq]", "0", end, "0", "f32[?]"),
		// Content.
		cut("i64[4]{a, b, c, 4}", "1", "3", "0", "i64[2]{b, c}"),
		cut("i64[4]{a, b, c, 4}", "-2", end, "0", "i64[2]{c, 4}"),
		cut("i64[4]{a, b, c, 4}", "2", "2", "0", "i64[0]{}"),
		stepped("i64[4]{a, b, c, 4}", "-1", "-9223372036854775808", "-1", "i64[4]{4, c, b, a}"),
		cut("i64[2, 2]{1, 2, 3, 4}", "1", "2", "1", "i64[2, 1]{2, 4}"),
		// Forms.
		{"Slice", nil, []string{"f32[4, 6]", "i64[2]{1, 2}", "i64[2]{3, 6}"}, []string{"f32[2, 4]"}},
		{"Slice", nil, []string{"f32[4, 6]", "i64[3]{1, 2, 3}", "i64[3]{3, 6, 9}"}, []string{"f32[?, ?]"}},
		{"Slice@9", attrs{"starts": []int64{1}, "ends": []int64{3}, "axes": []int64{1}}, []string{"f32[a, 6]"},
			[]string{"f32[a, 2]"}},
		{"Slice", nil, []string{"f32*", "i64[1]{1}", "i64[1]{3}"}, []string{"f32*"}},
	})
}

func TestIndex(t *testing.T) {
	runCases(t, []opCase{
		{"Gather", nil, []string{"f32[1000, 64]", "i64[batch, seq]"}, []string{"f32[batch, seq, 64]"}},
		{"Gather", attrs{"axis": -1}, []string{"f32[a, b]", "i64[]{0}"}, []string{"f32[a]"}},
		{"Gather", nil, []string{"i64[3]{batch, seq, 64}", "i64[]{-1}"}, []string{"i64[]{64}"}},
		{"Gather", nil, []string{"i64[3]{batch, seq, 64}", "i64[2]{1, 0}"}, []string{"i64[2]{seq, batch}"}},
		{"Gather", attrs{"axis": 1}, []string{"i64[2, 2]{1, 2, 3, 4}", "i64[1]{1}"}, []string{"i64[2, 1]{2, 4}"}},
		{"Gather", nil, []string{"i64[3]{batch, seq, 64}", "i64[]{5}"}, []string{"i64[]"}},
		{"Gather", nil, []string{"i64[3]{batch, seq, 64}", "i64[]{seq}"}, []string{"i64[]"}},
		{"Gather", nil, []string{"f32[2](0.5, 4)", "i64[]{1}"}, []string{"f32[](4)"}},
		{"Gather", nil, []string{"f32*", "i64[]"}, []string{"f32*"}},
		{"GatherElements", attrs{"axis": 1}, []string{"f32[a, b]", "i64[a, c]"}, []string{"f32[a, c]"}},
		{"GatherND", nil, []string{"f32[a, b, c]", "i64[n, 2]"}, []string{"f32[n, c]"}},
		{"GatherND", attrs{"batch_dims": 1}, []string{"f32[a, b, c]", "i64[a, 1]"}, []string{"f32[a, c]"}},
		{"GatherND", nil, []string{"f32[a]", "i64[n, 4]"}, []string{"f32*"}},
		{"ScatterND", nil, []string{"f32[a, b]", "i64[n, 1]", "f32[n, b]"}, []string{"f32[a, b]"}},
		{"Trilu", attrs{"upper": 1}, []string{"f32[seq, seq]"}, []string{"f32[seq, seq]"}},
		{"CumSum", nil, []string{"i64[batch, seq]", "i64[]{1}"}, []string{"i64[batch, seq]"}},
		{"TopK", nil, []string{"f32[batch, vocab]", "i64[1]{5}"}, []string{"f32[batch, 5]", "i64[batch, 5]"}},
		{"TopK@1", attrs{"k": 5}, []string{"f32[batch, vocab]"}, []string{"f32[batch, 5]", "i64[batch, 5]"}},
		{"ArgMax", attrs{"axis": -1, "keepdims": 0}, []string{"f32[batch, seq, v]"}, []string{"i64[batch, seq]"}},
		{"ArgMax", nil, []string{"f32[batch, seq]"}, []string{"i64[1, seq]"}},
		{"NonZero", nil, []string{"f32[a, b]"}, []string{"i64[2, ?]"}},
		{"Compress", attrs{"axis": 1}, []string{"f32[a, b]", "bool[b]"}, []string{"f32[a, ?]"}},
		{"Compress", nil, []string{"f32[a, b]", "bool[b]"}, []string{"f32[?]"}},
		{"OneHot", nil, []string{"i64[a, b]", "i64[]{10}", "f32[2]"}, []string{"f32[a, b, 10]"}},
		{"OneHot", attrs{"axis": 0}, []string{"i64[a]", "i64[]{n}", "f32[2]"}, []string{"f32[n, a]"}},
		{"Unique", nil, []string{"f32[a, b]"}, []string{"f32[?]", "i64[?]"}},
	})
}

func TestJoinAndSplit(t *testing.T) {
	runCases(t, []opCase{
		{"Concat", attrs{"axis": 2}, []string{"f32[batch, 12, past, 64]", "f32[batch, 12, seq, 64]"},
			[]string{"f32[batch, 12, past + seq, 64]"}},
		{"Concat", attrs{"axis": -1}, []string{"f32[batch, seq, 32]", "f32[batch, seq, 32]"},
			[]string{"f32[batch, seq, 64]"}},
		{"Concat", attrs{"axis": 0}, []string{"f32[a, n]", "f32[b, 4]"}, []string{"f32[a + b, 4]"}},
		{"Concat", attrs{"axis": 0}, []string{"f32[a, n]", "f32*"}, []string{"f32[?, n]"}},
		{"Concat", attrs{"axis": 0}, []string{"i64[1]{batch}", "i64[1]", "i64[2]{-1, 64}"},
			[]string{"i64[4]{batch, ?, -1, 64}"}},
		{"Concat", attrs{"axis": 0}, []string{"i64[0]{}", "i64[0]{}"}, []string{"i64[0]{}"}},
		{"Concat", attrs{"axis": 1}, []string{"i64[2, 1]{1, 2}", "i64[2, 2]{3, 4, 5, 6}"},
			[]string{"i64[2, 3]{1, 3, 4, 2, 5, 6}"}},
		{"Concat", attrs{"axis": 0}, []string{"f32[1](1)", "f32[2](2, 3)"}, []string{"f32[3](1, 2, 3)"}},
		{"Concat", attrs{"axis": 0}, []string{"f32[1](1)", "f32[1]"}, []string{"f32[2]"}},
		{"Split", attrs{"axis": 2}, []string{"f32[batch, seq, 192]"},
			[]string{"f32[batch, seq, 64]", "f32[batch, seq, 64]", "f32[batch, seq, 64]"}},
		{"Split", attrs{"axis": -1}, []string{"f32[n*2]"}, []string{"f32[n]", "f32[n]"}},
		{"Split", attrs{"axis": 0}, []string{"f32[n]"}, []string{"f32[?]", "f32[?]"}},
		{"Split", nil, []string{"i64[3]{a, b, c}", "i64[2]{1, 2}"}, []string{"i64[1]{a}", "i64[2]{b, c}"}},
		{"Split", nil, []string{"f32[n]", "i64[2]{1, past}"}, []string{"f32[1]", "f32[past]"}},
		{"Split", nil, []string{"f32[n]", "i64[2]"}, []string{"f32[?]", "f32[?]"}},
		{"Split@11", attrs{"split": []int64{2, 4}}, []string{"f32[6]"}, []string{"f32[2]", "f32[4]"}},
		{"Split", attrs{"num_outputs": 3}, []string{"f32[7]"}, []string{"f32[3]", "f32[3]", "f32[1]"}},
		{"Split", attrs{"num_outputs": 4}, []string{"f32[2]"}, []string{"f32[1]", "f32[1]", "f32[0]", "f32[0]"}},
		{"Split", nil, []string{"f32*"}, []string{"f32*", "f32*"}},
	})
}

func TestMake(t *testing.T) {
	runCases(t, []opCase{
		{"Shape", nil, []string{"f32[batch, seq, 64]"}, []string{"i64[3]{batch, seq, 64}"}},
		{"Shape", attrs{"start": 1, "end": -1}, []string{"f32[batch, seq, 64]"}, []string{"i64[1]{seq}"}},
		{"Shape", attrs{"start": 2, "end": 1}, []string{"f32[batch, seq, 64]"}, []string{"i64[0]{}"}},
		{"Shape", nil, []string{"f32[]"}, []string{"i64[0]{}"}},
		{"Shape", nil, []string{"f32*"}, []string{"i64[?]"}},
		{"Size", nil, []string{"f32[batch, 4]"}, []string{"i64[]{batch*4}"}},
		{"Range", nil, []string{"i64[]{0}", "i64[]{seq}", "i64[]{1}"}, []string{"i64[seq]"}},
		{"Range", nil, []string{"i64[]{past}", "i64[]{past + seq}", "i64[]{1}"}, []string{"i64[seq]"}},
		{"Range", nil, []string{"i64[]{past}", "i64[]{seq}", "i64[]{1}"}, []string{"i64[?]"}},
		{"Range", nil, []string{"i64[]{0}", "i64[]{7}", "i64[]{3}"}, []string{"i64[3]{0, 3, 6}"}},
		{"Range", nil, []string{"i64[]{3}", "i64[]{0}", "i64[]{-2}"}, []string{"i64[2]{3, 1}"}},
		{"Range", nil, []string{"i64[]{3}", "i64[]{0}", "i64[]{1}"}, []string{"i64[0]{}"}},
		{"Range", nil, []string{"i64[]{0}", "i64[]{9223372036854775807}", "i64[]{1}"}, []string{"i64[9223372036854775807]"}},
		{"Range", nil, []string{"i64[]{past}", "i64[]{past + 2}", "i64[]{1}"}, []string{"i64[2]{past, past + 1}"}},
		{"Range", nil, []string{"f32[](0)", "f32[](1)", "f32[](0.25)"}, []string{"f32[4](0, 0.25, 0.5, 0.75)"}},
		{"ConstantOfShape", attrs{"value": Int64Tensor("", []int64{1}, -1)}, []string{"i64[1]{2}"},
			[]string{"i64[2]{-1, -1}"}},
		{"ConstantOfShape", nil, []string{"i64[2]{batch, 3}"}, []string{"f32[batch, 3]"}},
		{"ConstantOfShape", nil, []string{"i64[0]{}"}, []string{"f32[](0)"}},
		{"ConstantOfShape", nil, []string{"i64[2]"}, []string{"f32[?, ?]"}},
		{"ConstantOfShape", nil, []string{"i64[1]{-5}"}, []string{"f32[?]"}},
		{"Constant", attrs{"value_string": "x"}, nil, []string{"str[]"}},
		{"Constant", attrs{"value_ints": []int64{2, 3}}, nil, []string{"i64[2]{2, 3}"}},
		{"Constant", attrs{"value_float": 0.125}, nil, []string{"f32[](0.125)"}},
		{"EyeLike", nil, []string{"f32[a, b]"}, []string{"f32[a, b]"}},
		{"RandomNormal", attrs{"shape": []int64{2, 3}}, nil, []string{"f32[2, 3]"}},
	})
}

func TestReduce(t *testing.T) {
	runCases(t, []opCase{
		{"ReduceMean", nil, []string{"f32[a, b, 64]", "i64[1]{-1}"}, []string{"f32[a, b, 1]"}},
		{"ReduceMean@13", attrs{"axes": []int64{1}, "keepdims": 0}, []string{"f32[a, b, 64]"}, []string{"f32[a, 64]"}},
		{"ReduceSum", nil, []string{"f32[a, b]"}, []string{"f32[1, 1]"}},
		{"ReduceSum", attrs{"keepdims": 0}, []string{"f32*"}, []string{"f32[]"}},
		{"ReduceSum", attrs{"noop_with_empty_axes": 1}, []string{"f32[a, b]", "i64[0]{}"}, []string{"f32[a, b]"}},
		{"ReduceSum", nil, []string{"f32[a, b]", "i64[1]"}, []string{"f32[?, ?]"}},
		{"ReduceSum", attrs{"keepdims": 0}, []string{"f32[a, b]", "i64[1]"}, []string{"f32*"}},
		{"ReduceProd", attrs{"keepdims": 0}, []string{"i64[3]{batch, seq, 4}", "i64[1]{0}"}, []string{"i64[]{batch*seq*4}"}},
		{"ReduceProd", nil, []string{"i64[0]{}"}, []string{"i64[1]{1}"}},
		{"ReduceMax", nil, []string{"i64[2]{seq, past + seq}"}, []string{"i64[1]{past + seq}"}},
		{"ReduceMin", nil, []string{"i64[3]{4, 2, 3}"}, []string{"i64[1]{2}"}},
	})
}
