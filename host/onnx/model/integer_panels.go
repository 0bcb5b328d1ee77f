package model

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

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
	p = IntegerPanels{Panels: abi.Panels(q.Columns), Rows: (q.Depth + panelChunk - 1) / panelChunk * panelChunk,
		Groups: (q.Depth + group - 1) / group,
		Zeros:  q.Zeros != nil || !q.Packed && !q.signed()}
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

// LayIntegers fills memory with integers in panels: panels [P, rows, C], of int8 or of two uint8 a byte, scales of
// float32 [P, groups, C], and zero points of int8 [P, groups, C] where there are any, C = abi.PanelColumns. Of a
// panel, q of position k and column i is the byte k / 4 * 64 + i * 4 + k % 4; of four bits q is in the byte k / 8 *
// 64 + i * 4 + k % 4, in its low half where k % 8 < 4. Those of eight bits have a sign, as zero points have; those of
// four are moved by 8, and their zero points are not. Beyond K and N they stand for zero.
func (m *Model) LayIntegers(q *Integers, panels []byte, scales []float32, zeros []int8) error {
	p, ok := q.Panels()
	if n := p.Panels * abi.PanelColumns; !ok || int64(len(panels)) != n*p.Rows || int64(len(scales)) != n*p.Groups ||
		p.Zeros && int64(len(zeros)) != n*p.Groups {
		return &diagnostic.Error{Kind: ErrMisused, Path: m.shown(),
			Found: fmt.Sprintf("room for %d bytes of panels, %d scales and %d zero points", len(panels), len(scales),
				len(zeros)),
			Needed: fmt.Sprintf("that of %d panels of %d rows and %d groups", p.Panels, p.Rows, p.Groups)}
	}
	r, err := m.readIntegers(q)
	if err != nil {
		return located(err, m.shown())
	}
	r.layPanels(p, panels)
	r.layScales(p, scales)
	if p.Zeros {
		r.layZeros(p, zeros)
	}
	return nil
}

// integerPart is one of the tensors that integers in panels are.
type integerPart int

const (
	panelsPart integerPart = iota
	scalesPart
	zerosPart
)

// IntegerTensors gives integers side by side in panels as LayIntegers lays them out: panels of int8, or of uint8 for
// four bits, scales, and zero points, which are nil where there are none. All have one depth, number of bits and
// length of groups, all have zero points or none, and each but the last has whole panels. The tensors are the model's
// as others are, and their bytes are made when they are read.
func (m *Model) IntegerTensors(name string, list ...*Integers) (panels, scales, zeros *onnx.Tensor, err error) {
	var sum IntegerPanels
	var text strings.Builder
	for i, q := range list {
		p, ok := q.Panels()
		if wrong := q.check(); wrong != "" || !ok {
			return nil, nil, nil, m.misused("weight "+quote(q.Quantized.GetName())+" cannot be laid out in panels: found "+wrong,
				"integers in groups of 32, 64 or 128")
		}
		if i > 0 && !q.Beside(list[0]) || i+1 < len(list) && q.Columns%abi.PanelColumns != 0 {
			return nil, nil, nil, m.misused("weight "+quote(q.Quantized.GetName())+" cannot be laid out beside another",
				"as many rows, bits and groups as the weights beside it, and whole panels")
		}
		of, err := m.integersText(q)
		if err != nil {
			return nil, nil, nil, err
		}
		text.WriteString(of)
		p.Panels += sum.Panels
		sum = p
	}
	element := onnx.Tensor_INT8
	if list[0].Bits == 4 {
		element = onnx.Tensor_UINT8
	}
	laid := func(part integerPart, suffix string, element onnx.Tensor_DataType, rows int64) *onnx.Tensor {
		return m.laidOut(name+suffix,
			&layout{laid: list, part: part, text: fmt.Sprintf("part %d of %s", part, text.String())}, element,
			[]int64{sum.Panels, rows, abi.PanelColumns})
	}
	panels, scales = laid(panelsPart, "", element, sum.Rows), laid(scalesPart, "_scales", onnx.Tensor_FLOAT, sum.Groups)
	if sum.Zeros {
		zeros = laid(zerosPart, "_zeros", onnx.Tensor_INT8, sum.Groups)
	}
	return panels, scales, zeros, nil
}

// Beside says that two weights of one x may lie side by side in panels.
func (q *Integers) Beside(other *Integers) bool {
	a, ok := q.Panels()
	b, known := other.Panels()
	return ok && known && q.Bits == other.Bits && q.Depth == other.Depth && a.Groups == b.Groups && a.Zeros == b.Zeros &&
		q.RoundsRows() == other.RoundsRows()
}

// layIntegers makes a part of integers in panels.
func (l *layouts) layIntegers(h *held) error {
	is, to := l.list[h.span.offset], h.data
	take := func(n int64) []byte {
		b := to[:n]
		to = to[n:]
		return b
	}
	for _, q := range is.laid {
		p, _ := q.Panels()
		read := l.model.readGroups
		if is.part == panelsPart {
			read = l.model.readIntegers
		}
		r, err := read(q)
		if err != nil {
			return err
		}
		numbers := p.Panels * p.Groups * abi.PanelColumns
		switch is.part {
		case panelsPart:
			r.layPanels(p, take(p.Panels*p.Rows*abi.PanelColumns))
		case scalesPart:
			r.layScales(p, unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(take(4*numbers)))), numbers))
		case zerosPart:
			r.layZeros(p, unsafe.Slice((*int8)(unsafe.Pointer(unsafe.SliceData(take(numbers)))), numbers))
		}
	}
	return nil
}
