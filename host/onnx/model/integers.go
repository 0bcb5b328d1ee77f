package model

import (
	"fmt"
	"strings"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// Integers is a weight [K, N] of integers of a few bits, as whoever quantised a model wrote it: each group of
// positions k and each column n has a scale and a zero point,
//
//	w[k][n] = (q[k][n] - zero[k / Block][n]) scale[k / Block][n].
type Integers struct {
	Depth, Columns int64 // K and N
	Bits           int64 // 4 or 8
	Block          int64 // positions that share a scale, from the first on; the last of them may be fewer
	// Quantized holds q. Where it is Packed it is uint8 [N, K / Block rounded up, Block Bits / 8], of each column the
	// integers one after the other, the first in the low bits, as MatMulNBits has them. Otherwise it is int4, uint4,
	// int8 or uint8 [K, N], or [N, K] where it is Transposed, as DequantizeLinear has them.
	Quantized          *onnx.Tensor
	Packed, Transposed bool
	// Scales are float32, one for all, one a column, or one a group and a column: of packed integers [N, groups],
	// otherwise in the order of q's axes.
	Scales *onnx.Tensor
	// Zeros are of q's type, laid out as scales are; of packed integers they may be float32, or are packed as those are,
	// each column beginning with a byte of its own. nil: 0, and for packed integers 1 << (Bits - 1).
	Zeros *onnx.Tensor
	// Node is the node that the integers were read by.
	Node *onnx.Node
}

// Groups is K / Block, rounded up.
func (q *Integers) Groups() int64 { return (q.Depth + q.Block - 1) / q.Block }

// signed says that q's type has a sign.
func (q *Integers) signed() bool {
	t := onnx.Tensor_DataType(q.Quantized.GetDataType())
	return t == onnx.Tensor_INT4 || t == onnx.Tensor_INT8
}

// middle is what is added to q where it has a sign, so that it has none.
func (q *Integers) middle() int64 { return 1 << (q.Bits - 1) }

// check says what of tensors does not fit the sizes, or "".
func (q *Integers) check() string {
	if q.Depth < 1 || q.Columns < 1 || q.Block < 1 || q.Bits != 4 && q.Bits != 8 || q.Depth > maxMessage ||
		q.Columns > maxMessage ||
		q.Block > maxMessage || q.Depth > (1<<50)/(q.Columns+abi.PanelColumns) {
		return fmt.Sprintf("%d bits, blocks of %d, a weight of %d x %d", q.Bits, q.Block, q.Depth, q.Columns)
	}
	groups := q.Groups()
	fits := func(t *onnx.Tensor, counts ...int64) bool {
		elements, err := NumElements(t)
		for _, n := range counts {
			if err == nil && elements == n {
				return true
			}
		}
		return false
	}
	element := onnx.Tensor_DataType(q.Quantized.GetDataType())
	scales := []int64{q.Columns * groups}
	if q.Packed {
		if q.Block%8 != 0 || element != onnx.Tensor_UINT8 || !fits(q.Quantized, q.Columns*groups*(q.Block*q.Bits/8)) {
			return fmt.Sprintf("integers of %s %s", TypeName(element), shapeText(q.Quantized.Dims))
		}
	} else {
		bits := map[onnx.Tensor_DataType]int64{onnx.Tensor_INT4: 4, onnx.Tensor_UINT4: 4, onnx.Tensor_INT8: 8,
			onnx.Tensor_UINT8: 8}[element]
		if bits != q.Bits || !fits(q.Quantized, q.Depth*q.Columns) {
			return fmt.Sprintf("integers of %s %s", TypeName(element), shapeText(q.Quantized.Dims))
		}
		if groups == 1 {
			scales = append(scales, 1)
		}
	}
	if onnx.Tensor_DataType(q.Scales.GetDataType()) != onnx.Tensor_FLOAT || !fits(q.Scales, scales...) {
		return fmt.Sprintf("scales of %s %s", TypeName(onnx.Tensor_DataType(q.Scales.GetDataType())),
			shapeText(q.Scales.Dims))
	}
	if q.Zeros == nil {
		return ""
	}
	zeros := onnx.Tensor_DataType(q.Zeros.GetDataType())
	switch {
	case q.Packed && zeros == onnx.Tensor_FLOAT && fits(q.Zeros, scales...):
	case q.Packed && zeros == onnx.Tensor_UINT8 && fits(q.Zeros, q.Columns*((groups*q.Bits+7)/8)):
	case !q.Packed && zeros == element && fits(q.Zeros, scales...):
	default:
		return fmt.Sprintf("zero points of %s %s", TypeName(zeros), shapeText(q.Zeros.Dims))
	}
	return ""
}

// Dequantized gives a tensor of float32 [K, N], or [N, K] where q is Transposed, of the numbers that integers stand
// for, each rounded once for the difference and once for the product. The tensor is the model's as others are, and
// its bytes are made when they are read.
func (m *Model) Dequantized(name string, q Integers) (*onnx.Tensor, error) {
	if wrong := q.check(); wrong != "" {
		return nil, m.misused("weight "+quote(q.Quantized.GetName())+" is no weight of integers: found "+wrong,
			"integers, scales and zero points of one weight")
	}
	text, err := m.integersText(&q)
	if err != nil {
		return nil, err
	}
	dims := []int64{q.Depth, q.Columns}
	if q.Transposed {
		dims = []int64{q.Columns, q.Depth}
	}
	return m.laidOut(name, &layout{integers: &q, text: fmt.Sprintf("%slevel %d\n", text, q.Accuracy())}, onnx.Tensor_FLOAT,
		dims), nil
}

// integersText says which bytes of which files integers are.
func (m *Model) integersText(q *Integers) (string, error) {
	var text strings.Builder
	fmt.Fprintf(&text, "integers %d %d %d %d %t %t\n", q.Depth, q.Columns, q.Bits, q.Block, q.Packed, q.Transposed)
	for _, t := range q.tensors() {
		at, err := m.origin(t)
		if err != nil {
			return "", located(err, m.shown())
		}
		fmt.Fprintf(&text, "%s as %d\n", at, t.GetDataType())
	}
	return text.String(), nil
}

// tensors are those that hold the integers.
func (q *Integers) tensors() []*onnx.Tensor {
	if q.Zeros == nil {
		return []*onnx.Tensor{q.Quantized, q.Scales}
	}
	return []*onnx.Tensor{q.Quantized, q.Scales, q.Zeros}
}

// Accuracy is the accuracy level of the node that the integers were read by; 0 where it says nothing.
func (q *Integers) Accuracy() int64 { return attributeOf(q.Node, "accuracy_level", 0) }

// RoundsRows says that rows that the integers multiply are rounded to eight bits, each group of them by a scale of
// its own: accuracy level 4 of MatMulNBits.
func (q *Integers) RoundsRows() bool { return q.Accuracy() == 4 }

// attributeOf is an integer of a node.
func attributeOf(n *onnx.Node, name string, otherwise int64) int64 {
	for _, a := range n.GetAttribute() {
		if a.GetName() == name {
			return a.GetI()
		}
	}
	return otherwise
}

// IntegersOf are the integers that a tensor of Dequantized stands for; nil for another tensor.
func (m *Model) IntegersOf(t *onnx.Tensor) *Integers {
	ref, refers, err := m.reference(t)
	if err != nil || !refers || ref.src.made == nil {
		return nil
	}
	if l := ref.src.made.list[ref.offset]; l != nil {
		return l.integers
	}
	return nil
}
