package model

import (
	"fmt"
	"strconv"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Shape arithmetic reads small integer tensors while a session is created, and
// ONNX Runtime does not follow external data then: those stay inline.
const integersInline = 1 << 16

// place is where a payload goes: external data at location, or inline when
// location is "".
type place struct {
	location string
	offset   int64
}

// placer decides where the elements of a tensor go. It is asked about raw
// payloads above Limits.Inline only.
type placer func(at site, t *onnx.Tensor, p payload) (place, error)

// writer turns a proto with referring tensors into bytes that a runtime reads.
type writer struct {
	walker
	m     *Model
	place placer
}

// write encodes p with every payload where the placer puts it.
func (m *Model) write(p *onnx.Model, place placer) (*splice, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(p)
	if err != nil {
		return nil, &diagnostic.Error{Kind: ErrMisused, Path: m.shown(),
			Found: "cannot encode the model: found " + err.Error(), Fix: "undo the last edit of its graph", Cause: err}
	}
	w := &writer{m: m, place: place}
	w.tensor = w.writeTensor
	if err := w.message(kindModel, b, 0, 0); err != nil {
		return nil, located(err, m.shown())
	}
	return &w.out, nil
}

// writeTensor writes one tensor, with its payload inline or external.
func (w *writer) writeTensor(at site, in []byte, _ int64) error {
	var entries []*onnx.Entry
	var external bool
	var raw []byte
	t := &onnx.Tensor{}
	err := eachField(kindTensor, in, 0, func(num protowire.Number, _ protowire.Type, _, v []byte, _ int64) error {
		switch num {
		case fieldExternalData:
			e := &onnx.Entry{}
			entries = append(entries, e)
			return proto.Unmarshal(v, e)
		case fieldDataLocation:
			n, _ := protowire.ConsumeVarint(v)
			external = n == uint64(onnx.Tensor_EXTERNAL)
		case fieldName:
			t.Name = proto.String(string(v))
		case fieldDataType:
			n, _ := protowire.ConsumeVarint(v)
			t.DataType = proto.Int32(int32(n))
		case fieldDims:
			for rest := v; len(rest) > 0; {
				d, n := protowire.ConsumeVarint(rest)
				if n < 0 {
					break
				}
				t.Dims, rest = append(t.Dims, int64(d)), rest[n:]
			}
		case fieldRawData:
			raw = v
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !external {
		if len(raw) <= inlineBound(t.GetDataType()) {
			w.out.bytes(in)
			return nil
		}
		return w.put(at, in, fieldRawData, inMemory(raw), t)
	}
	t.DataLocation, t.ExternalData = onnx.Tensor_EXTERNAL.Enum(), entries
	ref, _, err := w.m.reference(t)
	if err != nil {
		return err
	}
	if err := fitsShape(t, ref); err != nil {
		return err
	}
	p := payload{src: ref.src, offset: ref.offset, length: ref.length}
	if ref.src.path == "" && ref.src.made == nil {
		b, err := ref.src.bytes(ref.offset, ref.length)
		if err != nil {
			return err
		}
		p = payload{mem: b, offset: ref.offset, length: ref.length}
		if ref.raw() {
			p.home = ref.src
		}
	}
	field := ref.field
	if ref.raw() {
		field = fieldRawData // packed floats are raw bytes already
	}
	return w.put(at, in, field, p, t)
}

// fitsShape makes sure that whoever edited a tensor left it as large as its
// bytes, which a runtime would otherwise find out with less to say.
func fitsShape(t *onnx.Tensor, ref reference) error {
	if !ref.raw() || ElementBits(onnx.Tensor_DataType(t.GetDataType())) == 0 {
		return nil
	}
	want, err := ByteSize(t)
	if err != nil || want == ref.length {
		return err
	}
	return &diagnostic.Error{Kind: ErrMisused,
		Found:  fmt.Sprintf("tensor %s does not hold what its shape says: found %d bytes", quote(t.GetName()), ref.length),
		Needed: fmt.Sprintf("%d for %s %s", want, TypeName(onnx.Tensor_DataType(t.GetDataType())), shapeText(t.GetDims())),
		Fix:    "keep the number of elements when a tensor is reshaped"}
}

// inlineBound is the longest payload that always stays inline.
func inlineBound(dataType int32) int {
	switch onnx.Tensor_DataType(dataType) {
	case onnx.Tensor_INT64, onnx.Tensor_INT32, onnx.Tensor_UINT64, onnx.Tensor_UINT32:
		return integersInline
	}
	return DefaultLimits().Inline
}

// put writes the tensor's other fields and then its payload.
func (w *writer) put(at site, in []byte, field protowire.Number, p payload, t *onnx.Tensor) error {
	err := eachField(kindTensor, in, 0, func(num protowire.Number, _ protowire.Type, whole, _ []byte, _ int64) error {
		if !isPayload(num) && num != fieldExternalData && num != fieldDataLocation {
			w.out.bytes(whole)
		}
		return nil
	})
	if err != nil {
		return err
	}
	var to place
	if field == fieldRawData && p.length > int64(inlineBound(t.GetDataType())) {
		if to, err = w.place(at, t, p); err != nil {
			return err
		}
	}
	if to.location == "" {
		w.out.field(field, p)
		return nil
	}
	for _, e := range [][2]string{{"location", to.location}, {"offset", strconv.FormatInt(to.offset, 10)},
		{"length", strconv.FormatInt(p.length, 10)}} {
		entry := protowire.AppendTag(nil, 1, protowire.BytesType)
		entry = protowire.AppendString(entry, e[0])
		entry = protowire.AppendTag(entry, 2, protowire.BytesType)
		entry = protowire.AppendString(entry, e[1])
		w.out.lit = protowire.AppendTag(w.out.lit, fieldExternalData, protowire.BytesType)
		w.out.lit = protowire.AppendBytes(w.out.lit, entry)
	}
	w.out.lit = protowire.AppendTag(w.out.lit, fieldDataLocation, protowire.VarintType)
	w.out.lit = protowire.AppendVarint(w.out.lit, uint64(onnx.Tensor_EXTERNAL))
	return nil
}
