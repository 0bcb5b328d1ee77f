package models

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// message is a kind of protobuf message on the way from a model to its tensors.
type message int

const (
	modelMessage message = iota
	graphMessage
	nodeMessage
	attributeMessage
	functionMessage
	tensorMessage
)

// children says which fields of a message lead to tensors (numbers from onnx.proto).
var children = map[message]map[protowire.Number]message{
	modelMessage:     {7: graphMessage, 25: functionMessage},
	graphMessage:     {1: nodeMessage, 5: tensorMessage},
	nodeMessage:      {5: attributeMessage},
	attributeMessage: {5: tensorMessage, 6: graphMessage, 10: tensorMessage, 11: graphMessage},
	functionMessage:  {7: nodeMessage},
}

// Fields of TensorProto.
const (
	tensorName         protowire.Number = 8
	tensorRawData      protowire.Number = 9
	tensorExternalData protowire.Number = 13
	tensorDataLocation protowire.Number = 14
	locationExternal                    = 1
)

// segment is a run of the output: bytes, or data that an instruction makes.
type segment struct {
	literal []byte
	fill    *instruction
}

// output is a message with its weights still to be filled.
type output struct {
	segments []segment
	size     int64
}

func (o *output) literal(b []byte) {
	o.segments = append(o.segments, segment{literal: b})
	o.size += int64(len(b))
}

func (o *output) fill(in *instruction) {
	o.segments = append(o.segments, segment{fill: in})
	o.size += in.bytes()
}

func (o *output) message(number protowire.Number, inner output) {
	header := protowire.AppendTag(nil, number, protowire.BytesType)
	o.literal(protowire.AppendVarint(header, uint64(inner.size)))
	o.segments = append(o.segments, inner.segments...)
	o.size += inner.size
}

// placement takes the data of a tensor that is to be filled and adds the fields
// that say where they lie to the tensor's message.
type placement func(tensor *output, in *instruction)

// inline puts the data into the tensor's raw_data.
func inline(tensor *output, in *instruction) {
	header := protowire.AppendTag(nil, tensorRawData, protowire.BytesType)
	tensor.literal(protowire.AppendVarint(header, uint64(in.bytes())))
	tensor.fill(in)
}

// externalAlignment is where data of a tensor begin in an external file: a
// multiple of a page, which a runtime can map.
const externalAlignment = 4096

// external puts the data into data, a file beside the model named location.
func external(data *output, location string) placement {
	return func(tensor *output, in *instruction) {
		if over := data.size % externalAlignment; over != 0 {
			data.literal(make([]byte, externalAlignment-over))
		}
		for _, e := range []entry{
			{"location", location},
			{"offset", fmt.Sprint(data.size)},
			{"length", fmt.Sprint(in.bytes())},
		} {
			b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), e.key)
			b = protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), e.value)
			tensor.literal(protowire.AppendBytes(protowire.AppendTag(nil, tensorExternalData, protowire.BytesType), b))
		}
		b := protowire.AppendTag(nil, tensorDataLocation, protowire.VarintType)
		tensor.literal(protowire.AppendVarint(b, locationExternal))
		data.fill(in)
	}
}

// assemble rewrites a message: every tensor with an instruction gets its data,
// all else stays as it is.
func assemble(b []byte, kind message, place placement) (output, error) {
	if kind == tensorMessage {
		return assembleTensor(b, place)
	}
	var out output
	kept := 0 // start of what is not yet written
	for at := 0; at < len(b); {
		number, wire, n := protowire.ConsumeTag(b[at:])
		if n < 0 {
			return out, protowire.ParseError(n)
		}
		size := protowire.ConsumeFieldValue(number, wire, b[at+n:])
		if size < 0 {
			return out, protowire.ParseError(size)
		}
		next := at + n + size
		child, ok := children[kind][number]
		if ok && wire == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(b[at+n:])
			inner, err := assemble(value, child, place)
			if err != nil {
				return out, err
			}
			if inner.changed() {
				out.literal(b[kept:at])
				out.message(number, inner)
				kept = next
			}
		}
		at = next
	}
	out.literal(b[kept:])
	return out, nil
}

// changed: an output that is one literal is the message that was read.
func (o *output) changed() bool {
	return len(o.segments) != 1 || o.segments[0].fill != nil
}

func assembleTensor(b []byte, place placement) (output, error) {
	var entries []entry
	var rest []byte
	var name string
	for at := 0; at < len(b); {
		number, wire, n := protowire.ConsumeTag(b[at:])
		if n < 0 {
			return output{}, protowire.ParseError(n)
		}
		size := protowire.ConsumeFieldValue(number, wire, b[at+n:])
		if size < 0 {
			return output{}, protowire.ParseError(size)
		}
		value, _ := protowire.ConsumeBytes(b[at+n:])
		switch number {
		case tensorExternalData:
			entries = append(entries, parseEntry(value))
		case tensorDataLocation:
		default:
			if number == tensorName {
				name = string(value)
			}
			rest = append(rest, b[at:at+n+size]...)
		}
		at += n + size
	}
	if len(entries) == 0 || entries[0] != (entry{"location", seedLocation}) {
		return output{segments: []segment{{literal: b}}, size: int64(len(b))}, nil
	}
	in, err := parseInstruction(entries)
	if err != nil {
		return output{}, fmt.Errorf("tensor %q: %w", name, err)
	}
	var out output
	out.literal(rest)
	place(&out, in)
	return out, nil
}

// parseEntry reads a StringStringEntryProto.
func parseEntry(b []byte) entry {
	var e entry
	for len(b) > 0 {
		number, wire, n := protowire.ConsumeTag(b)
		if n < 0 {
			return e
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(number, wire, b)
		if size < 0 {
			return e
		}
		value, _ := protowire.ConsumeBytes(b)
		switch number {
		case 1:
			e.key = string(value)
		case 2:
			e.value = string(value)
		}
		b = b[size:]
	}
	return e
}
