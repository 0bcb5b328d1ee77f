package graph

import "github.com/opgraft/graft/host/onnx/model/onnx"

func quantRules() map[string]func(*call) {
	dequantize := func(c *call) {
		t := onnx.Tensor_DataType(c.n.Int("output_dtype", 0))
		if t == onnx.Tensor_UNDEFINED {
			t = c.in(1).DType
		}
		x := c.in(0)
		c.set(0, Fact{DType: t, Rank: x.Rank, Dims: x.Dims})
	}
	quantize := func(c *call) {
		t := onnx.Tensor_DataType(c.n.Int("output_dtype", 0))
		switch {
		case c.has(2):
			t = c.in(2).DType
		case t == onnx.Tensor_UNDEFINED:
			t = onnx.Tensor_UINT8
		}
		x := c.in(0)
		c.set(0, Fact{DType: t, Rank: x.Rank, Dims: x.Dims})
	}
	return map[string]func(*call){
		"DequantizeLinear":               dequantize,
		"com.microsoft.DequantizeLinear": dequantize,
		"QuantizeLinear":                 quantize,
		"com.microsoft.QuantizeLinear":   quantize,
		"DynamicQuantizeLinear": func(c *call) {
			c.set(0, like(c.in(0), onnx.Tensor_UINT8))
			c.set(1, shaped(onnx.Tensor_FLOAT))
			c.set(2, shaped(onnx.Tensor_UINT8))
		},
	}
}
