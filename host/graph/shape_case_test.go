package graph

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/model/onnx"
)

// Facts are written in tests as type[lengths], then {elements} of integers or
// (elements) of floating numbers when they are known: "f32[batch, 4, seq]",
// "i64[3]{batch, -1, 64}", "f32[](0.125)". An unknown length or element is "?",
// an unknown shape "f32*", an input left out "-".

var typeNames = map[string]onnx.Tensor_DataType{
	"f32": onnx.Tensor_FLOAT, "f16": onnx.Tensor_FLOAT16, "bf16": onnx.Tensor_BFLOAT16, "f64": onnx.Tensor_DOUBLE,
	"i64": onnx.Tensor_INT64, "i32": onnx.Tensor_INT32, "i8": onnx.Tensor_INT8, "u8": onnx.Tensor_UINT8,
	"bool": onnx.Tensor_BOOL, "str": onnx.Tensor_STRING, "?": onnx.Tensor_UNDEFINED,
}

func parseFact(t *testing.T, text string) Fact {
	t.Helper()
	end := strings.IndexAny(text, "[*")
	if end < 0 {
		t.Fatalf("no fact: %q", text)
	}
	kind, ok := typeNames[text[:end]]
	if !ok {
		t.Fatalf("no type: %q", text)
	}
	if text[end] == '*' {
		return unranked(kind)
	}
	dims, rest, _ := strings.Cut(text[end+1:], "]")
	f := shaped(kind, parseDims(dims)...)
	switch {
	case strings.HasPrefix(rest, "{"):
		f.Elems = parseDims(strings.Trim(rest, "{}"))
	case strings.HasPrefix(rest, "("):
		for _, s := range strings.Split(strings.Trim(rest, "()"), ",") {
			x, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
			if err != nil {
				t.Fatal(err)
			}
			f.Floats = append(f.Floats, x)
		}
	}
	return f
}

func parseDims(text string) []Dim {
	dims := []Dim{}
	if text == "" {
		return dims
	}
	for _, s := range strings.Split(text, ",") {
		s = strings.TrimSpace(s)
		n, err := strconv.ParseInt(s, 10, 64)
		switch {
		case s == "?":
			dims = append(dims, Dim{})
		case err == nil:
			dims = append(dims, DimInt(n))
		case s[0] == '-':
			dims = append(dims, DimInt(0).Sub(ParseDim(s[1:])))
		default:
			dims = append(dims, ParseDim(s))
		}
	}
	return dims
}

// text writes a fact as parseFact reads it. Symbols that stand for results that
// could not be expressed are "?".
func (s *Shapes) text(f Fact) string {
	var b strings.Builder
	for name, kind := range typeNames {
		if kind == f.DType {
			b.WriteString(name)
		}
	}
	if f.Rank < 0 {
		return b.String() + "*"
	}
	list := func(dims []Dim) string {
		parts := make([]string, len(dims))
		for i, d := range dims {
			parts[i] = d.String()
			if name, ok := d.symbol(); ok && s.invented[name] {
				parts[i] = "?"
			}
		}
		return strings.Join(parts, ", ")
	}
	fmt.Fprintf(&b, "[%s]", list(f.Dims))
	if f.Elems != nil {
		fmt.Fprintf(&b, "{%s}", list(f.Elems))
	}
	if f.Floats != nil {
		parts := make([]string, len(f.Floats))
		for i, x := range f.Floats {
			parts[i] = strconv.FormatFloat(x, 'g', -1, 64)
		}
		fmt.Fprintf(&b, "(%s)", strings.Join(parts, ", "))
	}
	return b.String()
}

// attribute makes an attribute from the kind of its value.
func attribute(name string, value any) *onnx.Attribute {
	a := &onnx.Attribute{Name: proto.String(name)}
	kind := onnx.Attribute_UNDEFINED
	switch v := value.(type) {
	case int:
		a.I, kind = proto.Int64(int64(v)), onnx.Attribute_INT
	case []int64:
		a.Ints, kind = v, onnx.Attribute_INTS
	case float64:
		a.F, kind = proto.Float32(float32(v)), onnx.Attribute_FLOAT
	case []float32:
		a.Floats, kind = v, onnx.Attribute_FLOATS
	case string:
		a.S, kind = []byte(v), onnx.Attribute_STRING
	case []string:
		for _, s := range v {
			a.Strings = append(a.Strings, []byte(s))
		}
		kind = onnx.Attribute_STRINGS
	case *onnx.Tensor:
		a.T, kind = v, onnx.Attribute_TENSOR
	case *onnx.Graph:
		a.G, kind = v, onnx.Attribute_GRAPH
	default:
		panic(fmt.Sprintf("no attribute of type %T", value))
	}
	a.Type = kind.Enum()
	return a
}

type attrs map[string]any

// opCase is one operator call: op is "Op" or "domain:Op", with "@n" behind it
// for another opset than 21.
type opCase struct {
	op    string
	attrs attrs
	in    []string
	out   []string
}

func (c opCase) run(t *testing.T) {
	t.Helper()
	opset := int64(21)
	op := c.op
	if name, version, ok := strings.Cut(op, "@"); ok {
		op = name
		opset, _ = strconv.ParseInt(version, 10, 64)
	}
	domain, name, ok := strings.Cut(op, ":")
	if !ok {
		domain, name = "", op
	}
	n := &onnx.Node{OpType: proto.String(name), Domain: proto.String(domain)}
	p := &onnx.Graph{Node: []*onnx.Node{n}}
	for i, text := range c.in {
		if text == "-" {
			n.Input = append(n.Input, "")
			continue
		}
		n.Input = append(n.Input, fmt.Sprint("in", i))
		p.Input = append(p.Input, &onnx.ValueInfo{Name: proto.String(fmt.Sprint("in", i))})
	}
	for i := range c.out {
		n.Output = append(n.Output, fmt.Sprint("out", i))
	}
	for name, value := range c.attrs {
		n.Attribute = append(n.Attribute, attribute(name, value))
	}
	g, err := New(&onnx.Model{Graph: p, OpsetImport: []*onnx.OperatorSet{
		{Domain: proto.String(""), Version: proto.Int64(opset)}, {Domain: proto.String("com.microsoft"), Version: proto.Int64(1)},
	}}, stored{})
	if err != nil {
		t.Fatal(err)
	}
	s := Infer(g)
	for i, text := range c.in {
		if text != "-" {
			s.facts[g.Lookup(fmt.Sprint("in", i))] = parseFact(t, text)
		}
	}
	s.graph(g, 0)
	for i, want := range c.out {
		if got := s.text(s.Of(g.Nodes[0].Out[i])); got != want {
			t.Errorf("%s %v %q: output %d is %s, want %s", c.op, c.attrs, c.in, i, got, want)
		}
	}
}

func runCases(t *testing.T, cases []opCase) {
	t.Helper()
	for _, c := range cases {
		c.run(t)
	}
}

// stored reads constants whose bytes stand in the model.
type stored struct{ Tensors }

func (stored) Data(t *onnx.Tensor) ([]byte, error) {
	if n, err := Elements(t); t.RawData == nil && (err != nil || n > 0) {
		return nil, fmt.Errorf("tensor %q is not stored as bytes", t.GetName())
	}
	return t.RawData, nil
}
