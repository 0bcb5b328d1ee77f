package model

import (
	"fmt"
	"math"
	"strconv"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"google.golang.org/protobuf/encoding/protowire"
)

// refKey marks the private external_data entry of a referring tensor; its value
// is an index into Model.refs.
const refKey = "graft.ref"

// reference says where a tensor's payload lies and in which field's encoding:
// fieldRawData for raw little-endian bytes, else one of the packed fields.
type reference struct {
	src    *source
	offset int64
	length int64
	field  protowire.Number
}

// raw reports whether the bytes of the reference are the elements as raw_data
// has them. Packed floats and doubles are; varints are not.
func (r reference) raw() bool {
	return r.field == fieldRawData || r.field == fieldFloatData || r.field == fieldDoubleData
}

// tensorParts is what one pass over an encoded tensor finds.
type tensorParts struct {
	name     string
	dims     []int64
	dataType onnx.Tensor_DataType
	external bool

	data      protowire.Number // the payload's field; 0 for none
	runs      int              // occurrences of that field
	whole     []byte           // the last occurrence, when length-delimited
	wholeAt   int64            // its offset in the file
	values    int64            // values in all occurrences; bytes for raw_data; -1: see uncounted
	uncounted []byte           // a first long run of varints
	location  string
	offset    string
	length    string
}

// readTensor writes the skeleton of a tensor: everything but a payload longer
// than Limits.Inline, for which a reference is kept.
func (r *reader) readTensor(_ site, in []byte, base int64) error {
	p, err := r.tensorParts(in, base)
	if err != nil {
		return err
	}
	elements, err := product(p.name, p.dims)
	if err != nil {
		return err
	}
	if elements > r.limits.Elements {
		return &diagnostic.Error{Kind: ErrLimit,
			Found:  "tensor " + quote(p.name) + " has too many elements: found " + shapeText(p.dims),
			Needed: fmt.Sprintf("at most %d", r.limits.Elements), Fix: fixLimit}
	}
	switch {
	case p.external:
		ref, err := r.externalReference(p, elements)
		if err != nil {
			return err
		}
		return r.refer(in, ref)
	case p.data == 0:
		if elements > 0 && p.dataType != onnx.Tensor_UNDEFINED {
			return &diagnostic.Error{Kind: ErrDamaged, Found: "tensor " + quote(p.name) + " holds no data",
				Needed: fmt.Sprintf("%d elements of %s", elements, TypeName(p.dataType)), Fix: fixDamaged}
		}
	default:
		if err := p.check(elements); err != nil {
			return err
		}
	}
	if p.runs == 1 && p.whole != nil && len(p.whole) > r.limits.Inline && p.data != fieldStringData {
		return r.refer(in, reference{src: r.src, offset: p.wholeAt, length: int64(len(p.whole)), field: p.data})
	}
	if err := r.spend(p.inlineCost()); err != nil {
		return err
	}
	return r.copyTensor(in, 0)
}

// refer writes the tensor without its payload and with a reference to it.
func (r *reader) refer(in []byte, ref reference) error {
	r.refs = append(r.refs, ref)
	if err := r.copyTensor(in, int64(ref.length)); err != nil {
		return err
	}
	w := &r.out
	entry := protowire.AppendTag(nil, 1, protowire.BytesType)
	entry = protowire.AppendString(entry, refKey)
	entry = protowire.AppendTag(entry, 2, protowire.BytesType)
	entry = protowire.AppendString(entry, strconv.Itoa(len(r.refs)-1))
	w.lit = protowire.AppendTag(w.lit, fieldExternalData, protowire.BytesType)
	w.lit = protowire.AppendBytes(w.lit, entry)
	w.lit = protowire.AppendTag(w.lit, fieldDataLocation, protowire.VarintType)
	w.lit = protowire.AppendVarint(w.lit, uint64(onnx.Tensor_EXTERNAL))
	return nil
}

// copyTensor copies the fields of an encoded tensor, without location and
// external data, which a file must not be able to forge, and without payload
// when left, the bytes left out, is above zero or there is none to keep.
func (r *reader) copyTensor(in []byte, left int64) error {
	return eachField(kindTensor, in, 0, func(num protowire.Number, _ protowire.Type, whole, _ []byte, _ int64) error {
		switch {
		case num == fieldExternalData || num == fieldDataLocation:
			return nil
		case isPayload(num) && left > 0:
			return nil
		}
		if err := r.spend(int64(len(whole)) + stringCost); err != nil {
			return err
		}
		r.out.bytes(whole)
		return nil
	})
}

// inlineCost estimates what decoded numbers take beyond their encoding.
func (p *tensorParts) inlineCost() int64 {
	if p.data == fieldStringData || p.data == fieldRawData {
		return 0 // copyTensor counts what it copies
	}
	return p.values * numberCost
}

func isPayload(num protowire.Number) bool {
	switch num {
	case fieldFloatData, fieldInt32Data, fieldStringData, fieldInt64Data, fieldRawData, fieldDoubleData, fieldUint64Data:
		return true
	}
	return false
}

// eachField calls f with every field of a message: its whole encoding, its
// value, and the value's offset.
func eachField(k kind, in []byte, base int64,
	f func(num protowire.Number, typ protowire.Type, whole, value []byte, at int64) error) error {
	for at := 0; at < len(in); {
		num, typ, n := protowire.ConsumeTag(in[at:])
		if n < 0 {
			return damaged(k, base+int64(at), "a field that cannot be read")
		}
		v, m, err := fieldValue(k, num, typ, in[at+n:], base+int64(at+n))
		if err != nil {
			return err
		}
		end := at + n + m
		if err := f(num, typ, in[at:end], v, base+int64(end-len(v))); err != nil {
			return err
		}
		at = end
	}
	return nil
}

// tensorParts reads an encoded tensor without touching a long payload.
func (r *reader) tensorParts(in []byte, base int64) (*tensorParts, error) {
	p := &tensorParts{}
	err := eachField(kindTensor, in, base,
		func(num protowire.Number, typ protowire.Type, whole, v []byte, at int64) error {
			bad := func() error { return damaged(kindTensor, at, fmt.Sprintf("field %d with wire type %d", num, typ)) }
			switch num {
			case fieldDims:
				if typ != protowire.VarintType && typ != protowire.BytesType {
					return bad()
				}
				for rest := v; len(rest) > 0; {
					d, n := protowire.ConsumeVarint(rest)
					if n < 0 {
						return damaged(kindTensor, at, "a dimension that cannot be read")
					}
					rest = rest[n:]
					if p.dims = append(p.dims, int64(d)); len(p.dims) > r.limits.Rank {
						return &diagnostic.Error{Kind: ErrLimit,
							Found:  fmt.Sprintf("tensor %s has too many dimensions: found more than %d", quote(p.name), r.limits.Rank),
							Needed: fmt.Sprintf("at most %d", r.limits.Rank), Fix: fixLimit}
					}
				}
			case fieldDataType, fieldDataLocation:
				if typ != protowire.VarintType {
					return bad()
				}
				d, _ := protowire.ConsumeVarint(v)
				if d > math.MaxInt32 || (num == fieldDataLocation && d > 1) {
					return damaged(kindTensor, at, fmt.Sprintf("%d in field %d", d, num))
				}
				if num == fieldDataType {
					p.dataType = onnx.Tensor_DataType(d)
				} else {
					p.external = d == 1
				}
			case fieldName:
				if typ != protowire.BytesType {
					return bad()
				}
				if len(v) > r.limits.NameLength {
					return nameTooLong("tensor", len(v), r.limits)
				}
				p.name = string(v)
			case fieldExternalData:
				if typ != protowire.BytesType {
					return bad()
				}
				return p.entry(v, at)
			default:
				if isPayload(num) {
					return p.run(num, typ, v, at, r.limits.Inline)
				}
			}
			return nil
		})
	return p, err
}

// entry stores the external data entries that the format defines.
func (p *tensorParts) entry(in []byte, base int64) error {
	var key, value string
	err := eachField(kindEntry, in, base, func(num protowire.Number, typ protowire.Type, _, v []byte, at int64) error {
		if (num == 1 || num == 2) && typ != protowire.BytesType {
			return damaged(kindEntry, at, fmt.Sprintf("field %d with wire type %d", num, typ))
		}
		const longest = 1 << 14
		if len(v) > longest {
			return &diagnostic.Error{Kind: ErrDamaged,
				Found:  fmt.Sprintf("tensor %s has an external data entry that is too long: found %d bytes", quote(p.name), len(v)),
				Needed: fmt.Sprintf("at most %d", longest), Fix: fixDamaged}
		}
		switch num {
		case 1:
			key = string(v)
		case 2:
			value = string(v)
		}
		return nil
	})
	switch key {
	case "location":
		p.location = value
	case "offset":
		p.offset = value
	case "length":
		p.length = value
	}
	return err
}

// run counts one occurrence of a payload field.
func (p *tensorParts) run(num protowire.Number, typ protowire.Type, v []byte, at int64, inline int) error {
	packed := typ == protowire.BytesType
	if packed && len(v) == 0 && num != fieldStringData {
		return nil
	}
	if p.data != 0 && p.data != num {
		return &diagnostic.Error{Kind: ErrDamaged,
			Found:  fmt.Sprintf("tensor %s holds its data twice: found fields %d and %d", quote(p.name), p.data, num),
			Needed: "one of them", Fix: fixDamaged}
	}
	p.data = num
	p.runs++
	p.whole, p.wholeAt = nil, 0
	if packed {
		p.whole, p.wholeAt = v, at
	}
	bad := func() error { return damaged(kindTensor, at, fmt.Sprintf("field %d with wire type %d", num, typ)) }
	switch num {
	case fieldRawData:
		if !packed {
			return bad()
		}
		p.values = int64(len(v)) // the last one counts, as protobuf has it
	case fieldStringData:
		if !packed {
			return bad()
		}
		p.values++
	case fieldFloatData, fieldDoubleData:
		width, single := 4, protowire.Fixed32Type
		if num == fieldDoubleData {
			width, single = 8, protowire.Fixed64Type
		}
		switch {
		case typ == single:
			p.values++
		case packed && len(v)%width == 0:
			p.values += int64(len(v) / width)
		case packed:
			return damaged(kindTensor, at, fmt.Sprintf("%d bytes of packed values of %d bytes", len(v), width))
		default:
			return bad()
		}
	default:
		switch {
		case typ != protowire.VarintType && !packed:
			return bad()
		case p.runs == 1 && len(v) > inline:
			p.values, p.uncounted = -1, v // counted when it is read, so that opening leaves it alone
		default:
			if p.values < 0 {
				p.values = countVarints(p.uncounted)
			}
			p.values += countVarints(v)
		}
	}
	return nil
}

// countVarints counts the numbers in packed varints: the bytes that end one.
func countVarints(v []byte) int64 {
	n := int64(0)
	for _, b := range v {
		if b < 0x80 {
			n++
		}
	}
	return n
}

// typedField is the *_data field that a data type uses besides raw_data, and
// how many values of that field n elements take.
func typedField(dataType onnx.Tensor_DataType, n int64) (protowire.Number, int64) {
	switch dataType {
	case onnx.Tensor_FLOAT:
		return fieldFloatData, n
	case onnx.Tensor_COMPLEX64:
		return fieldFloatData, 2 * n
	case onnx.Tensor_DOUBLE:
		return fieldDoubleData, n
	case onnx.Tensor_COMPLEX128:
		return fieldDoubleData, 2 * n
	case onnx.Tensor_INT64:
		return fieldInt64Data, n
	case onnx.Tensor_UINT32, onnx.Tensor_UINT64:
		return fieldUint64Data, n
	case onnx.Tensor_STRING:
		return fieldStringData, n
	}
	if bits := int64(ElementBits(dataType)); bits > 0 && bits < 8 {
		return fieldInt32Data, (n + 8/bits - 1) / (8 / bits) // one packed byte a value
	}
	return fieldInt32Data, n
}

// check compares the payload with the shape.
func (p *tensorParts) check(elements int64) error {
	mismatch := func(found, needed string) error {
		return &diagnostic.Error{Kind: ErrDamaged,
			Found:  "tensor " + quote(p.name) + " does not hold what its shape says: found " + found,
			Needed: fmt.Sprintf("%s for %s %s", needed, TypeName(p.dataType), shapeText(p.dims)), Fix: fixDamaged}
	}
	if p.data == fieldRawData {
		if p.dataType == onnx.Tensor_STRING {
			return mismatch("raw data", "strings")
		}
		if ElementBits(p.dataType) == 0 {
			return nil // a type newer than this reader: the runtime knows
		}
		want, err := rawSize(p.name, p.dataType, elements)
		if err != nil {
			return err
		}
		if p.values != want {
			return mismatch(fmt.Sprintf("%d bytes", p.values), fmt.Sprintf("%d", want))
		}
		return nil
	}
	if p.dataType != onnx.Tensor_STRING && ElementBits(p.dataType) == 0 {
		return nil
	}
	num, want := typedField(p.dataType, elements)
	if num != p.data {
		return mismatch(fmt.Sprintf("data in field %d", p.data), fmt.Sprintf("field %d or raw data", num))
	}
	if p.values < 0 { // long varints, from 1 to 10 bytes each
		if n := int64(len(p.whole)); want > n || want < (n+9)/10 {
			return mismatch(fmt.Sprintf("%d bytes of varints", n), fmt.Sprintf("%d values", want))
		}
		return nil
	}
	if p.values != want {
		return mismatch(fmt.Sprintf("%d values", p.values), fmt.Sprintf("%d", want))
	}
	return nil
}
