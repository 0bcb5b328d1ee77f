package model

import (
	"fmt"
	"strings"

	"github.com/opgraft/graft/host/abi"
	"github.com/opgraft/graft/host/diagnostic"
	"github.com/opgraft/graft/host/model/onnx"
)

// Integers is a weight [K, N] of integers of a few bits, as whoever quantised a model wrote it: each group of positions k and each column
// n has a scale and a zero point,
//
//	w[k][n] = (q[k][n] - zero[k / Block][n]) scale[k / Block][n].
type Integers struct {
	Depth, Columns int64 // K and N
	Bits           int64 // 4 or 8
	Block          int64 // positions that share a scale, from the first on; the last of them may be fewer
	// Quantized holds q. Where it is Packed it is uint8 [N, K / Block rounded up, Block Bits / 8], of each column the integers one after
	// the other, the first in the low bits, as MatMulNBits has them. Otherwise it is int4, uint4, int8 or uint8 [K, N], or [N, K] where it
	// is Transposed, as DequantizeLinear has them.
	Quantized          *onnx.Tensor
	Packed, Transposed bool
	// Scales are float32, one for all, one a column, or one a group and a column: of packed integers [N, groups], otherwise in the order
	// of q's axes.
	Scales *onnx.Tensor
	// Zeros are of q's type, laid out as scales are; of packed integers they may be float32, or are packed as those are, each column
	// beginning with a byte of its own. nil: 0, and for packed integers 1 << (Bits - 1).
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
	if q.Depth < 1 || q.Columns < 1 || q.Block < 1 || q.Bits != 4 && q.Bits != 8 || q.Depth > maxMessage || q.Columns > maxMessage ||
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
		bits := map[onnx.Tensor_DataType]int64{onnx.Tensor_INT4: 4, onnx.Tensor_UINT4: 4, onnx.Tensor_INT8: 8, onnx.Tensor_UINT8: 8}[element]
		if bits != q.Bits || !fits(q.Quantized, q.Depth*q.Columns) {
			return fmt.Sprintf("integers of %s %s", TypeName(element), shapeText(q.Quantized.Dims))
		}
		if groups == 1 {
			scales = append(scales, 1)
		}
	}
	if onnx.Tensor_DataType(q.Scales.GetDataType()) != onnx.Tensor_FLOAT || !fits(q.Scales, scales...) {
		return fmt.Sprintf("scales of %s %s", TypeName(onnx.Tensor_DataType(q.Scales.GetDataType())), shapeText(q.Scales.Dims))
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

// Dequantized gives a tensor of float32 [K, N], or [N, K] where q is Transposed, of the numbers that integers stand for, each rounded once for the difference and once for
// the product. The tensor is the model's as others are, and its bytes are made when they are read.
func (m *Model) Dequantized(name string, q Integers) (*onnx.Tensor, error) {
	if wrong := q.check(); wrong != "" {
		return nil, m.misused("weight "+quote(q.Quantized.GetName())+" is no weight of integers: found "+wrong, "integers, scales and zero points of one weight")
	}
	var text strings.Builder
	fmt.Fprintf(&text, "integers %d %d %d %d %t %t %d\n", q.Depth, q.Columns, q.Bits, q.Block, q.Packed, q.Transposed, accuracy(q.Node))
	for _, t := range []*onnx.Tensor{q.Quantized, q.Scales, q.Zeros} {
		if t == nil {
			continue
		}
		at, err := m.origin(t)
		if err != nil {
			return nil, located(err, m.shown())
		}
		fmt.Fprintf(&text, "%s as %d\n", at, t.GetDataType())
	}
	dims := []int64{q.Depth, q.Columns}
	if q.Transposed {
		dims = []int64{q.Columns, q.Depth}
	}
	return m.laidOut(name, &layout{integers: &q, text: text.String()}, dims), nil
}

// accuracy is that of a node; 0 where it says nothing.
func accuracy(n *onnx.Node) int64 {
	for _, a := range n.GetAttribute() {
		if a.GetName() == "accuracy_level" {
			return a.GetI()
		}
	}
	return 0
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

// IntegerPanels are sizes of integers in panels.
type IntegerPanels struct {
	Panels int64 // N / abi.PanelColumns, rounded up
	Rows   int64 // of bytes of a panel: K filled up to whole chunks of 32, half of it for 4 bits
	Groups int64 // of positions that share a scale
	Zeros  bool  // whether there are zero points
}

// panelChunk is a number of positions of which every panel of integers has whole ones.
const panelChunk = 32

// Panels are the sizes of integers in panels, where these have as long groups as operators take: 32, 64 or 128.
func (q *Integers) Panels() (p IntegerPanels, ok bool) {
	group := q.group()
	if group == 0 || q.Zeros != nil && onnx.Tensor_DataType(q.Zeros.GetDataType()) == onnx.Tensor_FLOAT {
		return p, false
	}
	p = IntegerPanels{Panels: abi.Panels(q.Columns), Rows: (q.Depth + panelChunk - 1) / panelChunk * panelChunk, Groups: (q.Depth + group - 1) / group,
		Zeros: q.Zeros != nil || !q.Packed && !q.signed()}
	if q.Bits == 4 {
		p.Rows /= 2
	}
	return p, true
}

// group is how many positions share a scale in panels, the most that there may be; 0 for none.
func (q *Integers) group() int64 {
	for _, g := range []int64{4 * panelChunk, 2 * panelChunk, panelChunk} {
		if q.Block%g == 0 || q.Groups() == 1 {
			return g
		}
	}
	return 0
}

// LayIntegers fills memory with integers in panels: panels [P, rows, C], of int8 or of two uint8 a byte, scales of float32 [P, groups, C], and
// zero points of int8 [P, groups, C] where there are any, C = abi.PanelColumns. Of a panel, q of position k and column i is the byte
// k / 4 * 64 + i * 4 + k % 4; of four bits q is in the byte k / 8 * 64 + i * 4 + k % 4, in its low half where k % 8 < 4. Those of eight bits
// have a sign, as zero points have; those of four are moved by 8, and their zero points are not. Beyond K and N they stand for zero.
func (m *Model) LayIntegers(q *Integers, panels []byte, scales []float32, zeros []int8) error {
	p, ok := q.Panels()
	if n := p.Panels * abi.PanelColumns; !ok || int64(len(panels)) != n*p.Rows || int64(len(scales)) != n*p.Groups || p.Zeros && int64(len(zeros)) != n*p.Groups {
		return &diagnostic.Error{Kind: ErrMisused, Path: m.shown(), Found: fmt.Sprintf("room for %d bytes of panels, %d scales and %d zero points", len(panels), len(scales), len(zeros)),
			Needed: fmt.Sprintf("that of %d panels of %d rows and %d groups", p.Panels, p.Rows, p.Groups)}
	}
	r, err := m.readIntegers(q)
	if err != nil {
		return located(err, m.shown())
	}
	r.layPanels(p, panels, scales, zeros)
	return nil
}
