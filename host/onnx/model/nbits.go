package model

import (
	"fmt"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// What MatMulNBits reads, of ONNX Runtime's own operators.
const (
	nbitsWeight = 1
	nbitsScales = 2
	nbitsZeros  = 3
	nbitsOrder  = 4 // of groups
	// NBitsBias is where it reads what it adds to its result.
	NBitsBias = 5
)

// NBits are the integers of a MatMulNBits of 4 or 8 bits in float32, or why they are not known. Constants are those
// of its graph, by name; nil for what is none.
func NBits(n *onnx.Node, constant func(name string) *onnx.Tensor) (q *Integers, why string) {
	if why := onnx.Unread(n, n.GetInput(), 1); why != "" {
		return nil, why
	}
	input := func(at int) string {
		if at < len(n.GetInput()) {
			return n.Input[at]
		}
		return ""
	}
	q = &Integers{Depth: attributeOf(n, "K", 0), Columns: attributeOf(n, "N", 0), Bits: attributeOf(n, "bits", 4),
		Block:  attributeOf(n, "block_size", 0),
		Packed: true, Quantized: constant(input(nbitsWeight)), Scales: constant(input(nbitsScales)), Node: n}
	if name := input(nbitsZeros); name != "" {
		if q.Zeros = constant(name); q.Zeros == nil {
			return nil, "its zero points are no constants of the model"
		}
	}
	switch {
	case len(n.GetOutput()) != 1 || q.Quantized == nil || q.Scales == nil:
		return nil, "its weight is no constant of the model"
	case input(nbitsOrder) != "":
		return nil, "its groups are in an order of their own (g_idx)"
	case q.Bits != 4 && q.Bits != 8:
		return nil, fmt.Sprintf("its weight has %d bits a number", q.Bits)
	case onnx.Tensor_DataType(q.Scales.GetDataType()) != onnx.Tensor_FLOAT:
		return nil, "its scales are " + TypeName(onnx.Tensor_DataType(q.Scales.GetDataType()))
	}
	return q, ""
}

// Unfit says why integers cannot be laid out in panels, or "".
func (q *Integers) Unfit() string {
	if wrong := q.check(); wrong != "" {
		return "found " + wrong
	}
	if _, ok := q.Panels(); ok {
		return ""
	}
	if q.group() == 0 {
		return fmt.Sprintf("its integers share scales in blocks of %d, and panels have groups of 32, 64 or 128", q.Block)
	}
	return "its zero points are float32"
}
