package graph

import (
	le "encoding/binary"
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/half"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// maxConstantElements bounds what Ints and Floats decode: they read shapes,
// axes and scales, never weights.
const maxConstantElements = 1 << 16

// constantTensor is the tensor of a Constant node, made up where the node holds
// its value as a plain number or list. It is nil for other nodes and for
// strings and sparse tensors.
func constantTensor(n *onnx.Node) *onnx.Tensor {
	if n.GetOpType() != "Constant" || n.GetDomain() != "" && n.GetDomain() != "ai.onnx" {
		return nil
	}
	for _, a := range n.Attribute {
		switch a.GetName() {
		case "value":
			return a.T
		case "value_int":
			return Int64Tensor("", nil, a.GetI())
		case "value_ints":
			return Int64Tensor("", []int64{int64(len(a.Ints))}, a.Ints...)
		case "value_float":
			return FloatTensor("", nil, a.GetF())
		case "value_floats":
			return FloatTensor("", []int64{int64(len(a.Floats))}, a.Floats...)
		}
	}
	return nil
}

// Int64Tensor makes a constant of 64-bit integers; nil dims make a scalar.
func Int64Tensor(name string, dims []int64, v ...int64) *onnx.Tensor {
	raw := make([]byte, 0, 8*len(v))
	for _, x := range v {
		raw = le.LittleEndian.AppendUint64(raw, uint64(x))
	}
	return rawTensor(name, onnx.Tensor_INT64, dims, raw)
}

// FloatTensor makes a constant of 32-bit floats; nil dims make a scalar.
func FloatTensor(name string, dims []int64, v ...float32) *onnx.Tensor {
	raw := make([]byte, 0, 4*len(v))
	for _, x := range v {
		raw = le.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	return rawTensor(name, onnx.Tensor_FLOAT, dims, raw)
}

// Number makes a scalar constant of a type of floats, of 16 or 32 bits.
func Number(name string, kind onnx.Tensor_DataType, x float64) *onnx.Tensor {
	switch kind {
	case onnx.Tensor_FLOAT16:
		return rawTensor(name, kind, nil, le.LittleEndian.AppendUint16(nil, half.FromFloat(x)))
	case onnx.Tensor_BFLOAT16:
		return rawTensor(name, kind, nil, le.LittleEndian.AppendUint16(nil, uint16(math.Float32bits(float32(x))>>16)))
	}
	return FloatTensor(name, nil, float32(x))
}

func rawTensor(name string, t onnx.Tensor_DataType, dims []int64, raw []byte) *onnx.Tensor {
	return &onnx.Tensor{Name: proto.String(name), DataType: proto.Int32(int32(t)), Dims: dims, RawData: raw}
}

// Elements is the number of elements that a constant's dims declare, or an
// error when they are negative or overflow.
func Elements(t *onnx.Tensor) (int64, error) {
	n := int64(1)
	for _, d := range t.Dims {
		if d < 0 {
			return 0, fmt.Errorf("tensor %q has the negative dimension %d", t.GetName(), d)
		}
		if d > 0 && n > math.MaxInt64/d {
			return 0, fmt.Errorf("the dimensions of tensor %q overflow", t.GetName())
		}
		n *= d
	}
	return n, nil
}

// Data reads the elements of a constant of this model as little-endian bytes.
func (g *Graph) Data(t *onnx.Tensor) ([]byte, error) { return g.root.tensors.Data(t) }

// Ints reads a small constant of integers or booleans; ok is false when the
// value is no such constant.
func (v *Value) Ints() (list []int64, ok bool) {
	raw, n, ok := v.small()
	if !ok {
		return nil, false
	}
	list = make([]int64, n)
	for i := range list {
		switch onnx.Tensor_DataType(v.Tensor.GetDataType()) {
		case onnx.Tensor_INT64:
			list[i] = int64(le.LittleEndian.Uint64(raw[8*i:]))
		case onnx.Tensor_INT32:
			list[i] = int64(int32(le.LittleEndian.Uint32(raw[4*i:])))
		case onnx.Tensor_BOOL, onnx.Tensor_UINT8:
			list[i] = int64(raw[i])
		case onnx.Tensor_INT8:
			list[i] = int64(int8(raw[i]))
		default:
			return nil, false
		}
	}
	return list, true
}

// Floats reads a small constant of floating-point numbers (16, 32 or 64 bits);
// ok is false when the value is no such constant.
func (v *Value) Floats() (list []float64, ok bool) {
	raw, n, ok := v.small()
	if !ok {
		return nil, false
	}
	list = make([]float64, n)
	for i := range list {
		switch onnx.Tensor_DataType(v.Tensor.GetDataType()) {
		case onnx.Tensor_FLOAT:
			list[i] = float64(math.Float32frombits(le.LittleEndian.Uint32(raw[4*i:])))
		case onnx.Tensor_DOUBLE:
			list[i] = math.Float64frombits(le.LittleEndian.Uint64(raw[8*i:]))
		case onnx.Tensor_FLOAT16:
			list[i] = half.ToFloat(le.LittleEndian.Uint16(raw[2*i:]))
		case onnx.Tensor_BFLOAT16:
			list[i] = half.BFloatToFloat(le.LittleEndian.Uint16(raw[2*i:]))
		default:
			return nil, false
		}
	}
	return list, true
}

// small returns the bytes of a constant that is small enough to look into and
// holds as many bytes as its dims and type say.
func (v *Value) small() (raw []byte, n int, ok bool) {
	if v == nil || v.Tensor == nil {
		return nil, 0, false
	}
	count, err := Elements(v.Tensor)
	if err != nil || count > maxConstantElements {
		return nil, 0, false
	}
	raw, err = v.Graph.Data(v.Tensor)
	if err != nil {
		return nil, 0, false
	}
	size := elementSize(onnx.Tensor_DataType(v.Tensor.GetDataType()))
	return raw, int(count), size > 0 && int64(len(raw)) == count*size
}

func elementSize(t onnx.Tensor_DataType) int64 {
	switch t {
	case onnx.Tensor_BOOL, onnx.Tensor_UINT8, onnx.Tensor_INT8:
		return 1
	case onnx.Tensor_FLOAT16, onnx.Tensor_BFLOAT16, onnx.Tensor_INT16, onnx.Tensor_UINT16:
		return 2
	case onnx.Tensor_FLOAT, onnx.Tensor_INT32, onnx.Tensor_UINT32:
		return 4
	case onnx.Tensor_INT64, onnx.Tensor_DOUBLE, onnx.Tensor_UINT64:
		return 8
	}
	return 0
}

// Numbers reads a constant of floating-point numbers of any size up to limit.
func (g *Graph) Numbers(t *onnx.Tensor, limit int) ([]float64, error) {
	return g.root.tensors.Float64s(t, limit)
}

// Integers reads a constant of integers or booleans of any size up to limit.
func (g *Graph) Integers(t *onnx.Tensor, limit int) ([]int64, error) {
	return g.root.tensors.Int64s(t, limit)
}
