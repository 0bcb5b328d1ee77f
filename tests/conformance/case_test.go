package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// version is the release of ONNX whose cases are run, and caseCount how many it has.
const (
	version   = "1.23.2"
	caseCount = 1884
)

// A testCase is one node case: a model, what it is fed, what ONNX expects of it.
type testCase struct {
	name  string
	path  string // of the model
	model *onnx.Model
}

// readCases reads the models of all cases, in order of their names.
func readCases(t *testing.T) []testCase {
	t.Helper()
	folder := filepath.Join("..", "..", "build", "peers", "cases")
	found, err := os.ReadFile(filepath.Join(folder, "VERSION"))
	if err != nil {
		t.Fatalf("the cases of ONNX %s are not there: %v; run `make peers`", version, err)
	}
	if v := strings.TrimSpace(string(found)); v != version {
		t.Fatalf("%s holds the cases of ONNX %s, %s is needed; remove build/peers and run `make peers`", folder, v, version)
	}
	paths := must.Value(filepath.Glob(filepath.Join(folder, "*", "model.onnx")))(t)
	slices.Sort(paths)
	cases := make([]testCase, len(paths))
	for i, path := range paths {
		data := must.Value(os.ReadFile(path))(t)
		c := testCase{name: filepath.Base(filepath.Dir(path)), path: path, model: &onnx.Model{}}
		must.Succeed(t, proto.Unmarshal(data, c.model), path)
		cases[i] = c
	}
	return cases
}

// inputs reads what the case feeds, by name; the values are the caller's to close.
func (c testCase) inputs(l *ort.Library) (map[string]*ort.Value, error) {
	values := map[string]*ort.Value{}
	for i, in := range c.model.Graph.Input {
		v, err := c.read(l, "input", i, in)
		if err != nil {
			closeAll(values)
			return nil, err
		}
		values[in.GetName()] = v
	}
	return values, nil
}

// outputs reads what ONNX expects, by name.
func (c testCase) outputs(l *ort.Library) (map[string]*ort.Value, error) {
	values := map[string]*ort.Value{}
	for i, out := range c.model.Graph.Output {
		v, err := c.read(l, "output", i, out)
		if err != nil {
			closeAll(values)
			return nil, err
		}
		values[out.GetName()] = v
	}
	return values, nil
}

func closeAll(values map[string]*ort.Value) {
	for _, v := range values {
		v.Close()
	}
}

func (c testCase) read(l *ort.Library, side string, i int, declared *onnx.ValueInfo) (*ort.Value, error) {
	name := filepath.Join(filepath.Dir(c.path), "test_data_set_0", fmt.Sprintf("%s_%d.pb", side, i))
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	v, err := decode(l, data, declared.Type)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return v, nil
}

// errNone reports an optional without content: fed as an input it ends the
// process of ONNX Runtime 1.30.
var errNone = errors.New("an optional without content cannot be fed")

// decode makes a value of the serialized TensorProto, SequenceProto or
// OptionalProto that a value of the given type is stored as.
func decode(l *ort.Library, data []byte, as *onnx.Type) (*ort.Value, error) {
	switch kind := as.Value.(type) {
	case *onnx.Type_SequenceType:
		return decodeSequence(l, data, kind.SequenceType.ElemType)
	case *onnx.Type_OptionalType:
		return decodeOptional(l, data, kind.OptionalType.ElemType)
	}
	return decodeTensor(l, data)
}

func decodeTensor(l *ort.Library, data []byte) (*ort.Value, error) {
	t := &onnx.Tensor{}
	if err := proto.Unmarshal(data, t); err != nil {
		return nil, err
	}
	element, ok := elementTypes[onnx.Tensor_DataType(t.GetDataType())]
	if !ok {
		return nil, fmt.Errorf("elements of type %s", model.TypeName(onnx.Tensor_DataType(t.GetDataType())))
	}
	if element == ort.String {
		list := make([]string, len(t.StringData))
		for i, s := range t.StringData {
			list[i] = string(s)
		}
		return l.NewStrings(t.Dims, list)
	}
	raw, err := content(t)
	if err != nil {
		return nil, err
	}
	return l.NewTensorBytes(element, t.Dims, raw)
}

// content is a tensor's elements as raw bytes, whichever field holds them.
func content(t *onnx.Tensor) ([]byte, error) {
	whole, err := proto.Marshal(&onnx.Model{IrVersion: proto.Int64(8), Graph: &onnx.Graph{Initializer: []*onnx.Tensor{t}}})
	if err != nil {
		return nil, err
	}
	m, err := model.Parse(whole, "")
	if err != nil {
		return nil, err
	}
	raw, err := m.Data(m.Proto().Graph.Initializer[0])
	return slices.Clone(raw), err
}

// elementTypes are ONNX's element types as ONNX Runtime numbers them.
var elementTypes = map[onnx.Tensor_DataType]ort.ElementType{
	onnx.Tensor_FLOAT: ort.Float32, onnx.Tensor_UINT8: ort.Uint8, onnx.Tensor_INT8: ort.Int8,
	onnx.Tensor_UINT16: ort.Uint16, onnx.Tensor_INT16: ort.Int16, onnx.Tensor_INT32: ort.Int32,
	onnx.Tensor_INT64: ort.Int64, onnx.Tensor_STRING: ort.String, onnx.Tensor_BOOL: ort.Bool,
	onnx.Tensor_FLOAT16: ort.Float16, onnx.Tensor_DOUBLE: ort.Float64, onnx.Tensor_UINT32: ort.Uint32,
	onnx.Tensor_UINT64: ort.Uint64, onnx.Tensor_COMPLEX64: ort.Complex64, onnx.Tensor_COMPLEX128: ort.Complex128,
	onnx.Tensor_BFLOAT16: ort.BFloat16, onnx.Tensor_FLOAT8E4M3FN: ort.Float8E4M3FN,
	onnx.Tensor_FLOAT8E4M3FNUZ: ort.Float8E4M3FNUZ, onnx.Tensor_FLOAT8E5M2: ort.Float8E5M2,
	onnx.Tensor_FLOAT8E5M2FNUZ: ort.Float8E5M2FNUZ, onnx.Tensor_UINT4: ort.Uint4, onnx.Tensor_INT4: ort.Int4,
	onnx.Tensor_FLOAT4E2M1: ort.Float4E2M1, onnx.Tensor_FLOAT8E8M0: ort.Float8E8M0,
	onnx.Tensor_UINT2: ort.Uint2, onnx.Tensor_INT2: ort.Int2,
}

// Fields and kinds of SequenceProto and OptionalProto (onnx/onnx-data.proto).
const (
	fieldTensor   = 3 // of both: tensor_values, tensor_value
	fieldSequence = 5 // of OptionalProto: sequence_value
)

// eachField calls f with every length-delimited field of a message.
func eachField(data []byte, f func(number protowire.Number, content []byte) error) error {
	for len(data) > 0 {
		number, wire, n := protowire.ConsumeTag(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		if wire == protowire.BytesType {
			content, n := protowire.ConsumeBytes(data)
			if n < 0 {
				return protowire.ParseError(n)
			}
			if err := f(number, content); err != nil {
				return err
			}
			data = data[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(number, wire, data); n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
	}
	return nil
}

func decodeSequence(l *ort.Library, data []byte, item *onnx.Type) (*ort.Value, error) {
	var items []*ort.Value
	defer func() {
		for _, v := range items {
			v.Close()
		}
	}()
	err := eachField(data, func(number protowire.Number, content []byte) error {
		if number != fieldTensor {
			return nil
		}
		v, err := decodeTensor(l, content)
		if err == nil {
			items = append(items, v)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return emptySequence(l, item)
	}
	return l.NewSequence(items)
}

// decodeOptional gives the content, which is what an optional with content is to
// ONNX Runtime.
func decodeOptional(l *ort.Library, data []byte, content *onnx.Type) (*ort.Value, error) {
	var v *ort.Value
	err := eachField(data, func(number protowire.Number, stored []byte) error {
		var err error
		switch number {
		case fieldTensor:
			v, err = decodeTensor(l, stored)
		case fieldSequence:
			v, err = decodeSequence(l, stored, content.GetSequenceType().GetElemType())
		}
		return err
	})
	if err == nil && v == nil {
		err = errNone
	}
	return v, err
}

// emptySequence makes what ONNX Runtime's C API has no function for, by a model of
// one operator.
func emptySequence(l *ort.Library, item *onnx.Type) (*ort.Value, error) {
	m := &onnx.Model{IrVersion: proto.Int64(9), OpsetImport: []*onnx.OperatorSet{{Version: proto.Int64(18)}},
		Graph: &onnx.Graph{
			Name: proto.String("empty"),
			Node: []*onnx.Node{{OpType: proto.String("SequenceEmpty"), Output: []string{"y"}, Attribute: []*onnx.Attribute{{
				Name: proto.String("dtype"), Type: onnx.Attribute_INT.Enum(),
				I: proto.Int64(int64(item.GetTensorType().GetElemType())),
			}}}},
			Output: []*onnx.ValueInfo{{Name: proto.String("y"), Type: &onnx.Type{
				Value: &onnx.Type_SequenceType{SequenceType: &onnx.Type_Sequence{ElemType: item}}}}},
		}}
	data, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	s, err := session.FromBytes(l, data, session.Options{Unpatched: true})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	out, err := s.Run(context.Background(), nil)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}
