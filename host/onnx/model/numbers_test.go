package model

import (
	"math"
	"testing"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

// One case a data type: raw bytes, and the numbers that they are.
func TestNumbersOfEveryType(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	cases := []struct {
		dataType onnx.Tensor_DataType
		raw      []byte
		want     []float64
		integers bool
	}{
		{onnx.Tensor_FLOAT, []byte{0, 0, 0xc0, 0xbf}, []float64{-1.5}, false},
		{onnx.Tensor_DOUBLE, []byte{0, 0, 0, 0, 0, 0, 0xf8, 0x3f}, []float64{1.5}, false},
		{onnx.Tensor_FLOAT16, []byte{0, 0x3c, 1, 0, 0, 0xfc, 0xff, 0x7b, 0, 0x7e},
			[]float64{1, math.Ldexp(1, -24), -inf, 65504, nan}, false},
		{onnx.Tensor_BFLOAT16, []byte{0x80, 0x3f, 0x80, 0x7f}, []float64{1, inf}, false},
		{onnx.Tensor_FLOAT8E4M3FN, []byte{0x38, 0x7e, 0x7f, 0x01, 0xb8}, []float64{1, 448, nan, math.Ldexp(1, -9), -1},
			false},
		{onnx.Tensor_FLOAT8E4M3FNUZ, []byte{0x40, 0x7f, 0x80}, []float64{1, 240, nan}, false},
		{onnx.Tensor_FLOAT8E5M2, []byte{0x3c, 0x7b, 0x7c, 0x7d}, []float64{1, 57344, inf, nan}, false},
		{onnx.Tensor_FLOAT8E5M2FNUZ, []byte{0x40, 0x7f, 0x80}, []float64{1, 57344, nan}, false},
		{onnx.Tensor_FLOAT8E8M0, []byte{127, 0, 0xff}, []float64{1, math.Ldexp(1, -127), nan}, false},
		{onnx.Tensor_FLOAT4E2M1, []byte{0x21, 0xf7, 0x03}, []float64{0.5, 1, 6, -6, 1.5}, false},
		{onnx.Tensor_INT64, int64Bytes(-5), []float64{-5}, true},
		{onnx.Tensor_UINT64, int64Bytes(5), []float64{5}, true},
		{onnx.Tensor_INT32, []byte{0xfe, 0xff, 0xff, 0xff}, []float64{-2}, true},
		{onnx.Tensor_UINT32, []byte{0xfe, 0xff, 0xff, 0xff}, []float64{1<<32 - 2}, true},
		{onnx.Tensor_INT16, []byte{0xfe, 0xff}, []float64{-2}, true},
		{onnx.Tensor_UINT16, []byte{0xfe, 0xff}, []float64{65534}, true},
		{onnx.Tensor_INT8, []byte{0xfe}, []float64{-2}, true},
		{onnx.Tensor_UINT8, []byte{0xfe}, []float64{254}, true},
		{onnx.Tensor_BOOL, []byte{1, 0}, []float64{1, 0}, true},
		{onnx.Tensor_INT4, []byte{0x8f, 0x07}, []float64{-1, -8, 7}, true},
		{onnx.Tensor_UINT4, []byte{0x8f, 0x07}, []float64{15, 8, 7}, true},
		{onnx.Tensor_INT2, []byte{0b11_10_01_00, 1}, []float64{0, 1, -2, -1, 1}, true},
		{onnx.Tensor_UINT2, []byte{0b11_10_01_00, 1}, []float64{0, 1, 2, 3, 1}, true},
	}
	m := mustParse(t, encode(t, modelOf(graphOf())), "")
	for _, c := range cases {
		t.Run(TypeName(c.dataType), func(t *testing.T) {
			x := rawTensor("w", c.dataType, c.raw, int64(len(c.want)))
			got := must.Value(m.Float64s(x, 10))(t)
			for i, want := range c.want {
				if got[i] != want && !(math.IsNaN(got[i]) && math.IsNaN(want)) {
					t.Errorf("element %d is %v, want %v", i, got[i], want)
				}
			}
			ints, err := m.Int64s(x, 10)
			if !c.integers {
				wantError(t, err, `model bytes: tensor "w" holds no integers: found `+TypeName(
					c.dataType)+", needed an integer type")
				return
			}
			must.Succeed(t, err)
			for i, want := range c.want {
				must.Equal(t, float64(ints[i]), want, i, ints[i])
			}
		})
	}
	_, err := m.Int64s(rawTensor("w", onnx.Tensor_INT8, make([]byte, 11), 11), 10)
	wantError(t, err, `model bytes: tensor "w" is larger than expected: found 11 elements, needed at most 10`)
	_, err = m.Int64s(rawTensor("w", onnx.Tensor_UINT64, int64Bytes(-1), 1), 10)
	wantError(t, err,
		`model bytes: tensor "w" holds a number beyond int64: found 18446744073709551615, needed at most 2^63-1`)
	_, err = m.Float64s(rawTensor("w", onnx.Tensor_COMPLEX64, make([]byte, 8), 1), 10)
	wantError(t, err,
		`model bytes: tensor "w" holds no real numbers: found complex64, needed a floating-point or integer type`)
	_, err = m.Data(&onnx.Tensor{DataType: rawTensor("", onnx.Tensor_STRING, nil).DataType, Dims: []int64{1}})
	wantError(t, err, `model bytes: tensor "" has no raw form: found string, needed a data type of fixed width`)
}
