// Package quantized holds that operators which stand before what rounds to integers answer with ONNX Runtime's bits.
package quantized
