package model

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/memory"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"google.golang.org/protobuf/proto"
)

// Matrix is a weight of float32, [K, N], or [N, K] where it is Transposed.
type Matrix struct {
	Tensor     *onnx.Tensor
	Transposed bool
}

// Size is K and N.
func (m Matrix) Size() (depth, columns int64) {
	if depth, columns = m.Tensor.Dims[0], m.Tensor.Dims[1]; m.Transposed {
		depth, columns = columns, depth
	}
	return depth, columns
}

// layout is a tensor whose bytes are made from weights when they are asked for: of matrices in panels, the numbers
// that integers stand for, or a part of integers in panels.
type layout struct {
	matrices []Matrix
	integers *Integers
	laid     []*Integers // side by side
	part     integerPart // of those
	span     span
	text     string // which bytes of which files it is made from, and how
}

// layouts are those of a model: a source whose bytes lie nowhere.
type layouts struct {
	model *Model
	list  map[int64]*layout // by offset
	known map[string]int    // references by text
}

// Panels gives a tensor [P, K, C] of matrices of one depth K side by side, laid out for operators that read panels of
// C = abi.PanelColumns columns: panel p holds columns p C to (p + 1) C - 1, row by row, with zeros beyond the last.
// Each matrix but the last has whole panels. The tensor is the model's as others are, and its bytes are made when
// they are read: by sessions once for all that have the same weights.
func (m *Model) Panels(name string, matrices ...Matrix) (*onnx.Tensor, error) {
	var depth, panels int64
	var text strings.Builder
	for i, x := range matrices {
		if t := x.Tensor; len(t.Dims) != 2 || onnx.Tensor_DataType(t.GetDataType()) != onnx.Tensor_FLOAT {
			return nil, m.misused(fmt.Sprintf("tensor %s cannot be laid out in panels: found %s of %s", quote(t.GetName()),
				shapeText(t.Dims), TypeName(onnx.Tensor_DataType(t.GetDataType()))), "a matrix of float32")
		}
		k, n := x.Size()
		if k == 0 || n == 0 || i > 0 && k != depth || i+1 < len(matrices) && n%abi.PanelColumns != 0 {
			return nil, m.misused(fmt.Sprintf("tensor %s cannot be laid out in panels: found %d rows of %d columns",
				quote(x.Tensor.GetName()), k, n), "as many rows as the matrices beside it, and whole panels")
		}
		if n > maxMessage || k > (1<<50)/(n+abi.PanelColumns)/4 {
			return nil, m.misused("tensor "+quote(x.Tensor.GetName())+" cannot be laid out in panels: found "+shapeText(
				x.Tensor.Dims), "fewer elements")
		}
		at, err := m.origin(x.Tensor)
		if err != nil {
			return nil, located(err, m.shown())
		}
		depth, panels = k, panels+abi.Panels(n)
		fmt.Fprintf(&text, "%s %d %d %t\n", at, k, n, x.Transposed)
	}
	return m.laidOut(name, &layout{matrices: matrices, text: text.String()}, onnx.Tensor_FLOAT,
		[]int64{panels, depth, abi.PanelColumns}), nil
}

// laidOut is a tensor of a layout, or of another with the same text, of elements of whole bytes.
func (m *Model) laidOut(name string, l *layout, element onnx.Tensor_DataType, dims []int64) *onnx.Tensor {
	if m.laid == nil {
		made := &layouts{model: m, list: map[int64]*layout{}, known: map[string]int{}}
		m.laid = &source{shown: m.shown(), info: m.src.info, made: made}
	}
	at, known := m.laid.made.known[l.text]
	if !known {
		l.span = span{m.laid.size, int64(ElementBits(element)) / 8}
		for _, d := range dims {
			l.span.length *= d
		}
		m.laid.made.list[l.span.offset] = l
		m.laid.size += l.span.length
		at = len(m.refs)
		m.refs = append(m.refs, reference{src: m.laid, offset: l.span.offset, length: l.span.length, field: fieldRawData})
		m.laid.made.known[l.text] = at
	}
	return &onnx.Tensor{Name: proto.String(name), Dims: dims, DataType: proto.Int32(int32(element)),
		DataLocation: onnx.Tensor_EXTERNAL.Enum(),
		ExternalData: []*onnx.Entry{{Key: proto.String(refKey), Value: proto.String(strconv.Itoa(at))}}}
}

func (m *Model) misused(found, needed string) error {
	return &diagnostic.Error{Kind: ErrMisused, Path: m.shown(), Found: found, Needed: needed}
}

// origin says which bytes a tensor has, so that two tensors of one origin have the same.
func (m *Model) origin(t *onnx.Tensor) (string, error) {
	ref, refers, err := m.reference(t)
	if err != nil {
		return "", err
	}
	if !refers {
		b, err := m.data(t, nil) // it is small
		return fmt.Sprintf("here %x", b), err
	}
	if ref.src.made != nil {
		return "made of " + ref.src.made.list[ref.offset].text, nil
	}
	if ref.src.path == "" {
		return fmt.Sprintf("model %d %d", ref.offset, ref.length), nil
	}
	return fmt.Sprintf("file %v %d %d", identityOf(ref.src.info), ref.offset, ref.length), nil
}

// bytes are those of the layout at an offset, or a part of them.
func (l *layouts) bytes(offset, n int64) ([]byte, error) {
	at := l.list[offset]
	if at == nil || at.span.length != n {
		return nil, &diagnostic.Error{Kind: ErrMisused,
			Found: fmt.Sprintf("bytes %d to %d of weights in panels are no weight of its own", offset, offset+n)}
	}
	if err := affordable(l.model.shown(), n); err != nil {
		return nil, err
	}
	b := make([]byte, n)
	return b, l.fill([]*held{{data: b, span: at.span}})
}

// fill makes the bytes of layouts, several at once.
func (l *layouts) fill(list []*held) error {
	return onThreads(len(list), func(next func() int) error {
		var buffer scratch
		defer buffer.close()
		for k := next(); k < len(list); k = next() {
			if err := l.lay(list[k], &buffer); err != nil {
				return err
			}
		}
		return nil
	})
}

// scratch is memory of a thread's own, which grows as it must.
type scratch struct{ region *memory.Region }

func (s *scratch) bytes(shown string, n int64) ([]byte, error) {
	if s.region.Size() < n {
		s.close()
		if err := affordable(shown, n); err != nil {
			return nil, err
		}
		var err error
		if s.region, err = memory.Reserve(n); err != nil {
			return nil, err
		}
	}
	return s.region.Bytes(), nil
}

func (s *scratch) close() {
	_ = s.region.Close() // nothing can be done about memory that stays
	s.region = nil
}

// lay makes the bytes of one layout. Files are read into the buffer.
func (l *layouts) lay(h *held, buffer *scratch) error {
	if q := l.list[h.span.offset].integers; q != nil {
		r, err := l.model.readIntegers(q)
		if err == nil {
			r.dequantize(h.data)
		}
		return err
	}
	if l.list[h.span.offset].laid != nil {
		return l.layIntegers(h)
	}
	to := h.data
	for _, x := range l.list[h.span.offset].matrices {
		depth, columns := x.Size()
		room, err := buffer.bytes(l.model.shown(), 4*depth*columns)
		if err != nil {
			return err
		}
		from, err := l.model.data(x.Tensor, room)
		if err != nil {
			return err
		}
		size := 4 * depth * abi.PanelColumns
		for p := range abi.Panels(columns) {
			layPanel(to[p*size:(p+1)*size], from, depth, columns, p*abi.PanelColumns, x.Transposed)
		}
		to = to[abi.Panels(columns)*size:]
	}
	return nil
}

// layPanel copies columns of a matrix, from first on.
func layPanel(to, from []byte, depth, columns, first int64, transposed bool) {
	width := min(abi.PanelColumns, columns-first)
	if width < abi.PanelColumns {
		clear(to)
	}
	if !transposed {
		for k := range depth {
			copy(to[4*k*abi.PanelColumns:4*(k*abi.PanelColumns+width)], from[4*(k*columns+first):])
		}
		return
	}
	for j := range width {
		row := from[4*(first+j)*depth : 4*(first+j+1)*depth]
		for k := range depth {
			binary.NativeEndian.PutUint32(to[4*(k*abi.PanelColumns+j):], binary.NativeEndian.Uint32(row[4*k:]))
		}
	}
}
