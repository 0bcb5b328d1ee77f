// Package blockstest makes small graphs from text, for tests of recognition,
// planning and rewriting.
package blockstest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// Opset is the version of ONNX's operators that the models written here import.
const Opset = 18

var types = map[string]onnx.Tensor_DataType{
	"f32": onnx.Tensor_FLOAT, "f16": onnx.Tensor_FLOAT16, "i64": onnx.Tensor_INT64, "i32": onnx.Tensor_INT32,
	"bool": onnx.Tensor_BOOL,
	"u8":   onnx.Tensor_UINT8, "i8": onnx.Tensor_INT8,
}

var (
	valueLine = regexp.MustCompile(`^(in|out|const) (\S+) (\w+)\[([^\]]*)\]$`)
	nodeLine  = regexp.MustCompile(`^(\S.*?) = ([\w.]+)\((.*?)\)(.*)$`)
)

// Tied is attention that is planned and cannot be placed: its bias is a length of what it makes, which
// nothing before it has.
const Tied = `
	in q f32[batch, 8, seq, 64]
	in k f32[batch, 8, seq, 64]
	in v f32[batch, 8, seq, 64]
	in past_key f32[batch, 8, past, 64]
	in past_value f32[batch, 8, past, 64]
	in until i64[1]
	out y f32[batch, 8, seq, 64]
	present_key = Concat(past_key, k) axis=2
	present_value = Concat(past_value, v) axis=2
	some = Slice(present_key, [0], until, [2])
	n = Shape(some) start=2 end=3
	bias = Cast(n) to=1
	kt = Transpose(present_key) perm=0,1,3,2
	a = MatMul(q, kt)
	s = Mul(a, 0.125)
	c = Add(s, bias)
	p = Softmax(c)
	y = MatMul(p, present_value)`

// Proto makes a model. A line declares an input, an output or a constant full of small numbers
// ("in q f32[batch, 4, seq, 16]", "const w f32[64, 64]"), a node with its attributes
// ("y = Transpose(x) perm=0,2,1,3"), or the version of ONNX's operators ("opset 23"). Arguments may be constants
// themselves: 0.125 is a float32, [0,0,64] a list of int64, and an empty one is an input left out.
func Proto(t *testing.T, text string) *onnx.Model {
	t.Helper()
	p := &onnx.Model{IrVersion: proto.Int64(8), Graph: &onnx.Graph{Name: proto.String("written")},
		OpsetImport: []*onnx.OperatorSet{
			{Domain: proto.String(""), Version: proto.Int64(Opset)},
			{Domain: proto.String("com.microsoft"), Version: proto.Int64(1)}}}
	g := p.Graph
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if version, ok := strings.CutPrefix(line, "opset "); ok {
			v, err := strconv.ParseInt(version, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			p.OpsetImport[0].Version = proto.Int64(v)
			continue
		}
		if m := valueLine.FindStringSubmatch(line); m != nil {
			kind, ok := types[m[3]]
			if !ok {
				t.Fatalf("no type: %s", line)
			}
			switch m[1] {
			case "in":
				g.Input = append(g.Input, declared(m[2], kind, m[4]))
			case "out":
				g.Output = append(g.Output, declared(m[2], kind, m[4]))
			default:
				g.Initializer = append(g.Initializer, filled(t, m[2], kind, m[4]))
			}
			continue
		}
		m := nodeLine.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("no line of a graph: %s", line)
		}
		g.Node = append(g.Node, node(t, g, m))
	}
	return p
}

// Graph makes a model and looks at it.
func Graph(t *testing.T, text string) (*graph.Graph, *graph.Shapes) {
	t.Helper()
	b, err := proto.Marshal(Proto(t, text))
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Parse(b, "")
	if err != nil {
		t.Fatal(err)
	}
	g, err := graph.New(m.Proto(), m)
	if err != nil {
		t.Fatal(err)
	}
	return g, graph.Infer(g)
}

// Declared is what is declared of a value that a plugin's operator makes, float32.
type Declared struct {
	name string
	dims []any
}

// Declare declares the lengths of a value: numbers and names.
func Declare(name string, dims ...any) Declared { return Declared{name, dims} }

// Open makes a model of a graph.
func Open(t *testing.T, text string, made []Declared) (*model.Model, *graph.Graph) {
	t.Helper()
	p := Proto(t, text)
	for _, s := range made {
		p.Graph.ValueInfo = append(p.Graph.ValueInfo,
			&onnx.ValueInfo{Name: proto.String(s.name), Type: graph.TensorType(onnx.Tensor_FLOAT, s.dims...)})
	}
	b, err := proto.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Parse(b, "")
	if err != nil {
		t.Fatal(err)
	}
	g, err := graph.New(m.Proto(), m)
	if err != nil {
		t.Fatal(err)
	}
	return m, g
}

// Rewrite makes a graph, changes it and gives it with its operators in order.
func Rewrite(t *testing.T, text string, change func(*graph.Graph, *graph.Shapes) error, made ...Declared) (*onnx.Graph,
	[]string) {
	t.Helper()
	m, g := Open(t, text, made)
	if err := change(g, graph.Infer(g)); err != nil {
		t.Fatal(err)
	}
	return m.Proto().Graph, Operators(m.Proto().Graph)
}

// Attribute is an attribute of a node, nil where it has none of the name.
func Attribute(n *onnx.Node, name string) *onnx.Attribute {
	for _, a := range n.Attribute {
		if a.GetName() == name {
			return a
		}
	}
	return nil
}

// Operators are the operators of a graph, in its order.
func Operators(g *onnx.Graph) (list []string) {
	for _, n := range g.Node {
		list = append(list, n.GetOpType())
	}
	return list
}

// lists are attributes that are lists, of one number too.
var lists = map[string]bool{"axes": true, "kernel_shape": true, "dilations": true, "strides": true}

func node(t *testing.T, g *onnx.Graph, m []string) *onnx.Node {
	t.Helper()
	n := &onnx.Node{Output: strings.Split(m[1], ", "), OpType: proto.String(m[2])}
	n.Name = proto.String(n.Output[0] + "_" + m[2])
	if i := strings.LastIndexByte(m[2], '.'); i >= 0 {
		n.Domain, n.OpType = proto.String(m[2][:i]), proto.String(m[2][i+1:])
	}
	if m[3] != "" {
		n.Input = strings.Split(m[3], ", ")
	}
	for i, name := range n.Input {
		c := constant(name)
		if c == nil {
			continue
		}
		c.Name = proto.String(fmt.Sprintf("constant_%d", len(g.Initializer)))
		g.Initializer = append(g.Initializer, c)
		n.Input[i] = c.GetName()
	}
	for _, field := range strings.Fields(m[4]) {
		name, value, _ := strings.Cut(field, "=")
		a := &onnx.Attribute{Name: proto.String(name)}
		if i, err := strconv.ParseInt(value, 10, 64); err == nil && !lists[name] {
			a.Type, a.I = onnx.Attribute_INT.Enum(), proto.Int64(i)
		} else if x, err := strconv.ParseFloat(value, 32); err == nil && !lists[name] {
			a.Type, a.F = onnx.Attribute_FLOAT.Enum(), proto.Float32(float32(x))
		} else if strings.Contains(value, "->") {
			a.Type, a.S = onnx.Attribute_STRING.Enum(), []byte(value)
		} else {
			a.Type = onnx.Attribute_INTS.Enum()
			for _, s := range strings.Split(value, ",") {
				i, err := strconv.ParseInt(s, 10, 64)
				if err != nil {
					t.Fatalf("no attribute: %s", field)
				}
				a.Ints = append(a.Ints, i)
			}
		}
		n.Attribute = append(n.Attribute, a)
	}
	return n
}

// constant is an argument that is a number or a list, or nil.
func constant(text string) *onnx.Tensor {
	if strings.HasPrefix(text, "[") {
		var list []int64
		for _, s := range strings.Split(strings.Trim(text, "[]"), ",") {
			i, err := strconv.ParseInt(s, 10, 64)
			if err != nil {
				return nil
			}
			list = append(list, i)
		}
		return graph.Int64Tensor("", []int64{int64(len(list))}, list...)
	}
	x, err := strconv.ParseFloat(text, 32)
	if err != nil {
		return nil
	}
	return graph.FloatTensor("", nil, float32(x))
}

func declared(name string, kind onnx.Tensor_DataType, dims string) *onnx.ValueInfo {
	shape := &onnx.Shape{}
	for _, d := range fields(dims) {
		dim := &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimParam{DimParam: d}}
		if n, err := strconv.ParseInt(d, 10, 64); err == nil {
			dim.Value = &onnx.Shape_Dim_DimValue{DimValue: n}
		}
		shape.Dim = append(shape.Dim, dim)
	}
	return &onnx.ValueInfo{Name: proto.String(name), Type: &onnx.Type{Value: &onnx.Type_TensorType_{
		TensorType: &onnx.Type_TensorType{ElemType: proto.Int32(int32(kind)), Shape: shape}}}}
}

// filled is a constant of 0.01, 0.02, ... as often as it takes; integers and
// booleans are 1 on and below the diagonal of the last two dimensions.
func filled(t *testing.T, name string, kind onnx.Tensor_DataType, text string) *onnx.Tensor {
	t.Helper()
	c := &onnx.Tensor{Name: proto.String(name), DataType: proto.Int32(int32(kind))}
	count := int64(1)
	for _, d := range fields(text) {
		n, err := strconv.ParseInt(d, 10, 64)
		if err != nil {
			t.Fatalf("constant %s needs numbers as lengths", name)
		}
		c.Dims = append(c.Dims, n)
		count *= n
	}
	columns := int64(1)
	if len(c.Dims) > 0 {
		columns = c.Dims[len(c.Dims)-1]
	}
	for i := range count {
		lower := int32(0)
		if i%columns <= i/columns {
			lower = 1
		}
		switch kind {
		case onnx.Tensor_FLOAT:
			c.FloatData = append(c.FloatData, float32(i%97)/100+0.01)
		case onnx.Tensor_BOOL, onnx.Tensor_INT32, onnx.Tensor_UINT8, onnx.Tensor_INT8:
			c.Int32Data = append(c.Int32Data, lower)
		default:
			c.Int64Data = append(c.Int64Data, int64(lower))
		}
	}
	return c
}

func fields(dims string) []string {
	if dims == "" {
		return nil
	}
	return strings.Split(dims, ", ")
}
