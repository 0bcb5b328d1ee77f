package model

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"google.golang.org/protobuf/encoding/protowire"
)

// Data gives t's elements as raw little-endian bytes, ByteSize(t) of them,
// types below a byte packed with the first element in the low bits. It is a
// view of the proto or of bytes that Parse was given where they already lie so, not to
// be written to, and otherwise a new slice, read from the file.
// A tensor of strings, one whose bytes do not fit its shape, and a file that
// changed since it was opened are errors.
func (m *Model) Data(t *onnx.Tensor) ([]byte, error) { return m.DataIn(t, nil) }

// DataIn is Data that reads a file into a buffer where that is large enough.
func (m *Model) DataIn(t *onnx.Tensor, buffer []byte) ([]byte, error) {
	b, err := m.data(t, buffer)
	if err != nil {
		return nil, located(err, m.shown())
	}
	return b, nil
}

func (m *Model) data(t *onnx.Tensor, buffer []byte) ([]byte, error) {
	ref, refers, err := m.reference(t)
	if err != nil {
		return nil, err
	}
	elements, err := NumElements(t)
	if err != nil {
		return nil, err
	}
	dataType := onnx.Tensor_DataType(t.GetDataType())
	if refers && ref.field == fieldRawData && ElementBits(dataType) == 0 && dataType != onnx.Tensor_STRING {
		return ref.src.bytes(ref.offset, ref.length) // a type newer than this reader
	}
	want, err := rawSize(t.GetName(), dataType, elements)
	if err != nil {
		return nil, err
	}
	var b []byte
	switch {
	case refers:
		if ref.raw() && ref.length != want {
			return nil, sizeError(t, ref.length, want)
		}
		if ref.src.path != "" && ref.length <= int64(len(buffer)) {
			b = buffer[:ref.length]
			err = ref.src.read(b, ref.offset)
		} else {
			b, err = ref.src.bytes(ref.offset, ref.length)
		}
		if err != nil {
			return nil, err
		}
		if !ref.raw() {
			if b, err = decodeVarints(b, dataType, want); err != nil {
				return nil, &diagnostic.Error{Kind: ErrDamaged,
					Found: "tensor " + quote(t.GetName()) + " is damaged: found " + err.Error(), Fix: fixDamaged}
			}
		}
	case len(t.GetRawData()) > 0:
		b = t.GetRawData()
	default:
		b = encodeTyped(t)
	}
	if int64(len(b)) != want {
		return nil, sizeError(t, int64(len(b)), want)
	}
	return b, nil
}

func sizeError(t *onnx.Tensor, found, want int64) error {
	return &diagnostic.Error{Kind: ErrDamaged,
		Found:  fmt.Sprintf("tensor %s does not hold what its shape says: found %d bytes", quote(t.GetName()), found),
		Needed: fmt.Sprintf("%d for %s %s", want, TypeName(onnx.Tensor_DataType(t.GetDataType())), shapeText(t.GetDims())),
		Fix:    fixDamaged}
}

// storedWidth is the bytes that one value of a varint field takes in raw data.
func storedWidth(dataType onnx.Tensor_DataType) int { return max(ElementBits(dataType)/8, 1) }

// decodeVarints turns packed varints into want raw bytes.
func decodeVarints(in []byte, dataType onnx.Tensor_DataType, want int64) ([]byte, error) {
	width := storedWidth(dataType)
	if n := countVarints(in); n*int64(width) != want {
		return nil, fmt.Errorf("%d values where %d belong", n, want/int64(width))
	}
	out := make([]byte, 0, want)
	for len(in) > 0 {
		v, n := protowire.ConsumeVarint(in)
		if n < 0 {
			return nil, fmt.Errorf("a number that cannot be read, %d bytes before the end", len(in))
		}
		in = in[n:]
		out = appendValue(out, v, width)
	}
	return out, nil
}

func appendValue(out []byte, v uint64, width int) []byte {
	switch width {
	case 1:
		return append(out, byte(v))
	case 2:
		return binary.LittleEndian.AppendUint16(out, uint16(v))
	case 4:
		return binary.LittleEndian.AppendUint32(out, uint32(v))
	}
	return binary.LittleEndian.AppendUint64(out, v)
}

// encodeTyped turns the one *_data field in use into raw bytes.
func encodeTyped(t *onnx.Tensor) []byte {
	var out []byte
	width := storedWidth(onnx.Tensor_DataType(t.GetDataType()))
	num, _ := typedField(onnx.Tensor_DataType(t.GetDataType()), 0)
	switch num {
	case fieldFloatData:
		out = slices.Grow(out, 4*len(t.GetFloatData()))
		for _, v := range t.GetFloatData() {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
		}
	case fieldDoubleData:
		out = slices.Grow(out, 8*len(t.GetDoubleData()))
		for _, v := range t.GetDoubleData() {
			out = binary.LittleEndian.AppendUint64(out, math.Float64bits(v))
		}
	case fieldInt64Data:
		out = slices.Grow(out, 8*len(t.GetInt64Data()))
		for _, v := range t.GetInt64Data() {
			out = binary.LittleEndian.AppendUint64(out, uint64(v))
		}
	case fieldUint64Data:
		out = slices.Grow(out, width*len(t.GetUint64Data()))
		for _, v := range t.GetUint64Data() {
			out = appendValue(out, v, width)
		}
	case fieldInt32Data:
		out = slices.Grow(out, width*len(t.GetInt32Data()))
		for _, v := range t.GetInt32Data() {
			out = appendValue(out, uint64(uint32(v)), width)
		}
	}
	return out
}

func sortedKeys[V any](of map[string]V) []string {
	keys := make([]string, 0, len(of))
	for k := range of {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
