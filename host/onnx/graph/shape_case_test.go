package graph

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
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
			x := must.Value(strconv.ParseFloat(strings.TrimSpace(s), 64))(t)
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
			dims = append(dims, DimInt(0).sub(parseDim(s[1:])))
		default:
			dims = append(dims, parseDim(s))
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

// opCase is one operator call: op is "Op" or "domain:Op", with "@n" after it
// for another opset than 21.
type opCase struct {
	op    string
	attrs attrs
	in    []string
	out   []string
}

// infer builds the call and finds its outputs, given what is known of its
// inputs; a nil fact is an input left out.
func (c opCase) infer(t *testing.T, in []*Fact) (*Graph, *Shapes) {
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
	for i, f := range in {
		if f == nil {
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
	g := must.Value(New(&onnx.Model{Graph: p, OpsetImport: []*onnx.OperatorSet{
		{Domain: proto.String(""), Version: proto.Int64(opset)},
		{Domain: proto.String("com.microsoft"), Version: proto.Int64(1)},
	}}, stored{}))(t)
	s := Infer(g)
	for i, f := range in {
		if f != nil {
			s.Know(g.Lookup(fmt.Sprint("in", i)), *f)
		}
	}
	s.graph(g, 0)
	return g, s
}

func (c opCase) facts(t *testing.T) []*Fact {
	t.Helper()
	in := make([]*Fact, len(c.in))
	for i, text := range c.in {
		if text != "-" {
			f := parseFact(t, text)
			in[i] = &f
		}
	}
	return in
}

// runCases checks the outputs of each call, and that calls with other lengths,
// contents and attributes, which most often are wrong, do no harm.
func runCases(t *testing.T, cases []opCase) {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 8))
	for _, c := range cases {
		g, s := c.infer(t, c.facts(t))
		for i, want := range c.out {
			if got := s.text(s.Of(g.Nodes[0].Out[i])); got != want {
				t.Errorf("%s %v %q: output %d is %s, want %s", c.op, c.attrs, c.in, i, got, want)
			}
		}
		for range 25 {
			wrong := c.disturbed(r)
			in := c.facts(t)
			for i, f := range in {
				switch {
				case f == nil || r.IntN(3) == 0:
				case r.IntN(8) == 0:
					in[i] = nil
				case r.IntN(8) == 0:
					*f = unranked(f.DType)
				default:
					disturb(r, f)
				}
			}
			g, s := wrong.infer(t, in)
			checkFacts(t, g, s)
		}
	}
}

var oddNumbers = []int64{0, 1, -1, 2, 3, 4, 7, -2, -7, 64, 1 << 31, -1 << 31, 1 << 40, math.MaxInt64, math.MinInt64,
	math.MaxInt64 - 1}

func odd(r *rand.Rand) int64 { return oddNumbers[r.IntN(len(oddNumbers))] }

func oddDim(r *rand.Rand) Dim {
	switch r.IntN(4) {
	case 0:
		return Dim{}
	case 1:
		return parseDim([]string{"batch", "seq", "past + seq", "batch*64", "9000000000*n"}[r.IntN(5)])
	case 2:
		return DimInt(0).sub(DimSym("seq"))
	}
	return DimInt(odd(r))
}

// disturb changes a fact into one that a value may have: lengths, and as many
// elements as these say.
func disturb(r *rand.Rand, f *Fact) {
	elems, floats := f.Elems != nil, f.Floats != nil
	for i := range f.Dims {
		if r.IntN(3) == 0 {
			f.Dims[i] = oddDim(r)
			if n, ok := f.Dims[i].Const(); ok && n < 0 {
				f.Dims[i] = DimInt(0)
			}
		}
	}
	f.Elems, f.Floats = nil, nil
	n, ok := f.Count().Const()
	if !ok || n > 100 {
		return
	}
	if elems {
		f.Elems = make([]Dim, n)
		for i := range f.Elems {
			f.Elems[i] = oddDim(r)
		}
	}
	if floats {
		f.Floats = make([]float64, n)
		for i := range f.Floats {
			f.Floats[i] = []float64{0, 1, -1, 0.5, 1e30, math.Inf(1), math.NaN(), 3}[r.IntN(8)]
		}
	}
}

// disturbed is the call with some other attributes.
func (c opCase) disturbed(r *rand.Rand) opCase {
	changed := attrs{}
	for name, value := range c.attrs {
		switch v := value.(type) {
		case int:
			if r.IntN(2) == 0 {
				value = int(odd(r))
			}
		case []int64:
			if r.IntN(2) == 0 {
				list := slices.Clone(v)
				for i := range list {
					if r.IntN(2) == 0 {
						list[i] = odd(r)
					}
				}
				value = list[:r.IntN(len(list)+1)]
			}
		}
		changed[name] = value
	}
	c.attrs = changed
	return c
}

// checkFacts sees to it that facts hold together.
func checkFacts(t *testing.T, g *Graph, s *Shapes) {
	t.Helper()
	g.Walk(func(n *Node) {
		for _, v := range n.Out {
			if v == nil {
				continue
			}
			f := s.Of(v)
			if f.Rank < 0 && (f.Dims != nil || f.tracks()) || f.Rank >= 0 && len(f.Dims) != f.Rank || f.Rank > maxRank {
				t.Fatalf("%s: rank %d with %d lengths", n, f.Rank, len(f.Dims))
			}
			for _, x := range f.Dims {
				if c, ok := x.Const(); !x.Known() || ok && c < 0 {
					t.Fatalf("%s: the length %s", n, x)
				}
			}
			count, _ := f.Count().Const()
			if f.Elems != nil && int64(len(f.Elems)) != count || f.Floats != nil && int64(len(f.Floats)) != count {
				t.Fatalf("%s: %d and %d elements in the shape %v", n, len(f.Elems), len(f.Floats), f.Dims)
			}
		}
	})
}

// stored reads constants whose bytes stand in the model.
type stored struct{ Tensors }

func (stored) Data(t *onnx.Tensor) ([]byte, error) {
	if n, err := Elements(t); t.RawData == nil && (err != nil || n > 0) {
		return nil, fmt.Errorf("tensor %q is not stored as bytes", t.GetName())
	}
	return t.RawData, nil
}
