package model

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// rawTensor is a tensor with raw_data.
func rawTensor(name string, dataType onnx.Tensor_DataType, raw []byte, dims ...int64) *onnx.Tensor {
	return &onnx.Tensor{Name: proto.String(name), DataType: proto.Int32(int32(dataType)), Dims: dims, RawData: raw}
}

// externalTensor is a float32 tensor in a file beside the model.
func externalTensor(name, location string, offset, length int64, dims ...int64) *onnx.Tensor {
	return &onnx.Tensor{
		Name: proto.String(name), DataType: proto.Int32(int32(onnx.Tensor_FLOAT)), Dims: dims,
		DataLocation: onnx.Tensor_EXTERNAL.Enum(),
		ExternalData: []*onnx.Entry{
			entryOf("location", location), entryOf("offset", strconv.FormatInt(offset, 10)),
			entryOf("length", strconv.FormatInt(length, 10)),
		},
	}
}

func entryOf(key, value string) *onnx.Entry {
	return &onnx.Entry{Key: proto.String(key), Value: proto.String(value)}
}

// graphOf is a graph with initializers and no nodes.
func graphOf(tensors ...*onnx.Tensor) *onnx.Graph {
	return &onnx.Graph{Name: proto.String("main"), Initializer: tensors}
}

func modelOf(g *onnx.Graph) *onnx.Model {
	return &onnx.Model{IrVersion: proto.Int64(8), Graph: g,
		OpsetImport: []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(17)}}}
}

func constantNode(name string, t *onnx.Tensor) *onnx.Node {
	return &onnx.Node{OpType: proto.String("Constant"), Output: []string{name},
		Attribute: []*onnx.Attribute{{Name: proto.String("value"), Type: onnx.Attribute_TENSOR.Enum(), T: t}}}
}

// ifNode holds g as its then-branch.
func ifNode(g *onnx.Graph) *onnx.Node {
	return &onnx.Node{OpType: proto.String("If"), Input: []string{"c"}, Output: []string{"y"},
		Attribute: []*onnx.Attribute{{Name: proto.String("then_branch"), Type: onnx.Attribute_GRAPH.Enum(), G: g}}}
}

func encode(t testing.TB, p *onnx.Model) []byte {
	t.Helper()
	b := must.Value(proto.Marshal(p))(t)
	return b
}

func writeFile(t testing.TB, path string, b []byte) string {
	t.Helper()
	must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.Succeed(t, os.WriteFile(path, b, 0o644))
	return path
}

func mustOpen(t testing.TB, path string, limits ...Limits) *Model {
	t.Helper()
	m := must.Value(Open(path, limits...))(t)
	t.Cleanup(func() { m.Close() })
	return m
}

func mustParse(t testing.TB, b []byte, folder string, limits ...Limits) *Model {
	t.Helper()
	m := must.Value(Parse(b, folder, limits...))(t)
	t.Cleanup(func() { m.Close() })
	return m
}

func mustData(t testing.TB, m *Model, of *onnx.Tensor) []byte {
	t.Helper()
	b := must.Value(m.Data(of))(t)
	return b
}

// wantError checks that err is one *diagnostic.Error with this text, after the path.
func wantError(t testing.TB, err error, want string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %q", want)
	}
	var e *diagnostic.Error
	if !errors.As(err, &e) {
		t.Fatalf("%T is not a *diagnostic.Error: %v", err, err)
	}
	if e.Path == "" || e.Found == "" {
		t.Errorf("error without path or fault: %#v", e)
	}
	must.Equal(t, err.Error(), want)
}

// noise is n bytes that repeat for a seed.
func noise(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// floats is n float32 values and their bytes.
func floats(seed uint64, n int) ([]float32, []byte) {
	r := rand.New(rand.NewPCG(seed, 2))
	v := make([]float32, n)
	var b []byte
	for i := range v {
		v[i] = r.Float32() - 0.5
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v[i]))
	}
	return v, b
}

func int64Bytes(v ...int64) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, uint64(x))
	}
	return b
}

// rawModel wraps the encoded fields of one initializer into a model.
func rawModel(tensor []byte) []byte {
	g := protowire.AppendTag(nil, 5, protowire.BytesType)
	g = protowire.AppendBytes(g, tensor)
	b := protowire.AppendTag(nil, 1, protowire.VarintType)
	b = protowire.AppendVarint(b, 8)
	b = protowire.AppendTag(b, 7, protowire.BytesType)
	return protowire.AppendBytes(b, g)
}

// allTensors lists the initializers and attribute tensors of p by name.
func allTensors(p *onnx.Model) map[string]*onnx.Tensor {
	found := map[string]*onnx.Tensor{}
	var graph func(g *onnx.Graph)
	nodes := func(list []*onnx.Node) {
		for _, n := range list {
			for _, a := range n.GetAttribute() {
				if a.T != nil {
					name := a.T.GetName()
					if name == "" && len(n.Output) > 0 {
						name = n.Output[0]
					}
					found[name] = a.T
				}
			}
			eachSubgraph(n, graph)
		}
	}
	graph = func(g *onnx.Graph) {
		for _, t := range g.GetInitializer() {
			found[t.GetName()] = t
		}
		for _, s := range g.GetSparseInitializer() {
			found[s.GetValues().GetName()] = s.GetValues()
			found[s.GetValues().GetName()+"/indices"] = s.GetIndices()
		}
		nodes(g.GetNode())
	}
	graph(p.GetGraph())
	for _, f := range p.GetFunctions() {
		nodes(f.GetNode())
	}
	return found
}

// sameContent checks that two models hold the same tensors with the same bytes.
func sameContent(t testing.TB, a, b *Model) {
	t.Helper()
	left, right := allTensors(a.Proto()), allTensors(b.Proto())
	must.Equal(t, len(left), len(right))
	for name, l := range left {
		r := right[name]
		if r == nil {
			t.Errorf("tensor %q is gone", name)
			continue
		}
		if l.GetDataType() != r.GetDataType() || shapeText(l.Dims) != shapeText(r.Dims) {
			t.Errorf("tensor %q changed its type or shape", name)
			continue
		}
		if l.GetDataType() == int32(onnx.Tensor_STRING) {
			if !proto.Equal(&onnx.Tensor{StringData: l.StringData}, &onnx.Tensor{StringData: r.StringData}) {
				t.Errorf("strings of %q changed", name)
			}
			continue
		}
		if !bytes.Equal(mustData(t, a, l), mustData(t, b, r)) {
			t.Errorf("bytes of %q changed", name)
		}
	}
}
