package onnxtext

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// elementTypes are the names that the format has for types of elements.
var elementTypes = map[string]onnx.Tensor_DataType{
	"float": onnx.Tensor_FLOAT, "double": onnx.Tensor_DOUBLE, "float16": onnx.Tensor_FLOAT16,
	"bfloat16": onnx.Tensor_BFLOAT16,
	"int8":     onnx.Tensor_INT8, "int16": onnx.Tensor_INT16, "int32": onnx.Tensor_INT32, "int64": onnx.Tensor_INT64,
	"uint8": onnx.Tensor_UINT8, "uint16": onnx.Tensor_UINT16, "uint32": onnx.Tensor_UINT32, "uint64": onnx.Tensor_UINT64,
	"bool": onnx.Tensor_BOOL, "string": onnx.Tensor_STRING,
}

var otherTypes = []string{"seq", "optional"}

func isType(word string) bool {
	_, element := elementTypes[word]
	return element || slices.Contains(otherTypes, word)
}

// typ is float, float[] of no known rank, float[N, 64, ?], seq(type) or optional(type).
func (p *parser) typ() *onnx.Type {
	if p.depth++; p.depth > maxDepth+maxTypes {
		p.fail(p.peek(), fmt.Sprintf("types in each other at most %d deep", maxTypes), "")
	}
	defer func() { p.depth-- }()
	t := p.next()
	element, ok := elementTypes[t.text]
	if t.kind == name && !ok && slices.Contains(otherTypes, t.text) {
		p.must("(", "after "+t.text)
		of := p.typ()
		p.must(")", "after the type in "+t.text)
		if t.text == "seq" {
			return &onnx.Type{Value: &onnx.Type_SequenceType{SequenceType: &onnx.Type_Sequence{ElemType: of}}}
		}
		return &onnx.Type{Value: &onnx.Type_OptionalType{OptionalType: &onnx.Type_Optional{ElemType: of}}}
	}
	if t.kind != name || !ok {
		known := slices.Sorted(maps.Keys(elementTypes))
		fix := ""
		if like := diagnostic.Nearest(t.text, known); like != "" && t.kind == name {
			fix = "did you mean " + like + "?"
		}
		p.fail(t, "a type: "+strings.Join(known, ", "), fix)
	}
	tensor := &onnx.Type_TensorType{ElemType: proto.Int32(int32(element))}
	switch {
	case !p.has("["):
		tensor.Shape = &onnx.Shape{} // a scalar
	case !p.has("]"):
		tensor.Shape = &onnx.Shape{}
		p.list("]", func() { tensor.Shape.Dim = append(tensor.Shape.Dim, p.dim()) })
	}
	return &onnx.Type{Value: &onnx.Type_TensorType_{TensorType: tensor}}
}

func (p *parser) dim() *onnx.Shape_Dim {
	t := p.next()
	switch {
	case t.kind == sign && t.text == "?":
		return &onnx.Shape_Dim{}
	case t.kind == name, t.kind == quoted:
		return &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimParam{DimParam: t.text}}
	}
	n, err := strconv.ParseInt(t.text, 10, 64)
	if t.kind != whole || err != nil || n < 0 {
		p.fail(t, "a length: a number of 0 or more, a name, or ?", "")
	}
	return &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimValue{DimValue: n}}
}

// tensor reads "{1, 2, 3}" as the elements of a type.
func (p *parser) tensor(of *onnx.Type, at token) *onnx.Tensor {
	shape := of.GetTensorType()
	if shape == nil || shape.Shape == nil {
		p.fail(at, "a type with numbers as lengths before a constant, as in float[2] w = {1, 2}", "")
	}
	t := &onnx.Tensor{DataType: shape.ElemType}
	count := int64(1)
	for _, d := range shape.Shape.Dim {
		n, ok := d.Value.(*onnx.Shape_Dim_DimValue)
		if !ok {
			p.fail(at, "numbers as lengths of a constant", "")
		}
		t.Dims = append(t.Dims, n.DimValue)
		if count *= n.DimValue; n.DimValue > maxElements || count > maxElements {
			p.fail(at, fmt.Sprintf("a constant of at most %d elements", maxElements), "write the model as a protobuf: .onnx")
		}
	}
	if p.is("[") {
		p.fail(p.peek(), "{ before elements", "external data is not read: write the elements out")
	}
	p.must("{", "before elements")
	n := int64(0)
	p.list("}", func() {
		p.element(t)
		n++
	})
	if n != count {
		panic(&problem{at.line, fmt.Sprintf("found %d elements of a constant with the lengths %v", n, t.Dims),
			fmt.Sprintf("%d", count), "write as many as the lengths say"})
	}
	return t
}

// element reads one number. Those of float16 and bfloat16 are their bits, as in onnx.parser.
func (p *parser) element(t *onnx.Tensor) {
	at := p.next()
	kind := onnx.Tensor_DataType(t.GetDataType())
	switch kind {
	case onnx.Tensor_STRING:
		if at.kind != quoted {
			p.fail(at, "text in quotes as an element", "")
		}
		t.StringData = append(t.StringData, []byte(at.text))
	case onnx.Tensor_FLOAT, onnx.Tensor_DOUBLE:
		v, ok := at.float()
		if !ok {
			p.fail(at, "a number as an element", "")
		}
		if kind == onnx.Tensor_FLOAT {
			t.FloatData = append(t.FloatData, float32(v))
		} else {
			t.DoubleData = append(t.DoubleData, v)
		}
	case onnx.Tensor_UINT64, onnx.Tensor_UINT32:
		v, err := strconv.ParseUint(at.text, 10, 64)
		if at.kind != whole || err != nil || kind == onnx.Tensor_UINT32 && v > math.MaxUint32 {
			p.fail(at, "a whole number of the type as an element", "")
		}
		t.Uint64Data = append(t.Uint64Data, v)
	default:
		low, high := bounds(kind)
		v, err := strconv.ParseInt(at.text, 10, 64)
		if at.kind != whole || err != nil || v < low || v > high {
			p.fail(at, fmt.Sprintf("a whole number from %d to %d as an element", low, high), "")
		}
		if kind == onnx.Tensor_INT64 {
			t.Int64Data = append(t.Int64Data, v)
		} else {
			t.Int32Data = append(t.Int32Data, int32(v))
		}
	}
}

func bounds(kind onnx.Tensor_DataType) (low, high int64) {
	switch kind {
	case onnx.Tensor_INT8:
		return math.MinInt8, math.MaxInt8
	case onnx.Tensor_UINT8:
		return 0, math.MaxUint8
	case onnx.Tensor_INT16:
		return math.MinInt16, math.MaxInt16
	case onnx.Tensor_UINT16, onnx.Tensor_FLOAT16, onnx.Tensor_BFLOAT16:
		return 0, math.MaxUint16
	case onnx.Tensor_BOOL:
		return 0, 1
	case onnx.Tensor_INT32:
		return math.MinInt32, math.MaxInt32
	}
	return math.MinInt64, math.MaxInt64
}
