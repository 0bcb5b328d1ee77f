package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/models"
)

// array is a tensor on its way between processes.
type array struct {
	Name    string
	Element ort.ElementType
	Shape   []int64
	Data    []byte
}

// batch is what a run is fed, and which of its rows count.
type batch struct {
	inputs         []array
	rows           int
	length         int   // tokens of a padded row; 0 for images and sound
	visible        []int // tokens of each row
	visibleTokens  int
	computedTokens int
}

// batchOf are the inputs of a text model for rows, padded on the right.
func (e *encoder) batchOf(list []row, padTo int, inputs []ort.ValueInfo) (*batch, error) {
	b := &batch{rows: len(list)}
	for _, r := range list {
		b.visible = append(b.visible, len(r.ids))
		b.visibleTokens += len(r.ids)
		b.length = max(b.length, len(r.ids))
	}
	b.length = max(b.length, padTo)
	b.computedTokens = b.rows * b.length
	for _, in := range inputs {
		var pad int64
		var value func(row, int) int64
		switch in.Name {
		case "input_ids":
			pad, value = e.tokens.pad, func(r row, i int) int64 { return r.ids[i] }
		case "attention_mask":
			value = func(row, int) int64 { return 1 }
		case "token_type_ids":
			value = func(r row, i int) int64 {
				if r.second > 0 && i >= r.second {
					return 1
				}
				return 0
			}
		default:
			return nil, e.unknown(in)
		}
		data := make([]byte, 0, 8*b.computedTokens)
		for _, r := range list {
			for i := range b.length {
				v := pad
				if i < len(r.ids) {
					v = value(r, i)
				}
				if in.Element == ort.Int32 {
					data = binary.LittleEndian.AppendUint32(data, uint32(v))
				} else {
					data = binary.LittleEndian.AppendUint64(data, uint64(v))
				}
			}
		}
		b.inputs = append(b.inputs, array{in.Name, in.Element, []int64{int64(b.rows), int64(b.length)}, data})
	}
	return b, nil
}

// Sizes of images and seconds of sound where a model leaves them open.
const (
	imageSide    = 224
	soundSamples = 4 * 16000
)

// signals are inputs of a model of images or sound: as many as rows, from a seed.
func (e *encoder) signals(rows int, inputs []ort.ValueInfo) (*batch, error) {
	b := &batch{rows: rows}
	for _, in := range inputs {
		shape := slices.Clone(in.Shape)
		for i := range shape {
			switch {
			case i == 0:
				shape[i] = int64(rows)
			case shape[i] > 0:
			case in.Name == "pixel_values" && i == 1:
				shape[i] = 3
			case in.Name == "pixel_values":
				shape[i] = imageSide
			case in.Name == "input_values":
				shape[i] = soundSamples
			default:
				return nil, e.unknown(in)
			}
		}
		n := int64(1)
		for _, d := range shape {
			n *= d
		}
		if in.Element != ort.Float32 {
			return nil, e.unknown(in)
		}
		data := make([]byte, 0, 4*n)
		for _, v := range models.Normal(1, in.Name, int(n)) {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
		b.inputs = append(b.inputs, array{in.Name, in.Element, shape, data})
	}
	return b, nil
}

func (e *encoder) unknown(in ort.ValueInfo) error {
	return &diagnostic.Error{Path: e.name, Found: fmt.Sprintf("an input %s", in),
		Needed: "one that the benchmark has values for: " +
			strings.Join([]string{"input_ids", "attention_mask", "token_type_ids", "pixel_values", "input_values"}, ", ")}
}
