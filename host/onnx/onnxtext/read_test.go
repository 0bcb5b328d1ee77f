package onnxtext

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

const all = `<ir_version: 9, opset_import: ["": 18, "com.microsoft": 1], producer_name: "me", metadata_props: ["k": "v"]>
agraph (float[N, 4] x, float["a b", ?] z, int64[2] k = {1, -2}, seq(float[]) s) => (float[N, 4] y)
<float[4] w = {1, 2.5, -3e-1, -inf}, float[N, 4] t, float16[1] h = {15360}, bool b = {1}>
{
  # a comment with "quotes
  [first] t = Mul(x, w)
  u = com.microsoft.Gelu (t)
  v = LayerNormalization <axis = -1, epsilon: float = 1> (u, w, "")
  c = Constant <value = float[2] {1, 2}> ()
  "d/0", _ = Dropout(v, , k)
  e = Unsqueeze ("d/0", k) <axes: ints = []>
  y = If (b) <then_branch = g1 () => (float[N,4] o) { o = Identity(e) }, else_branch = g2 () => (float[N,4] p) { p = Transpose <perm = [0, 1], mode = "a\"b"> (e) }>
}`

// TestRead: onnx.parser of onnx 1.23 gives the same model, but for empty names and domains that it states.
func TestRead(t *testing.T) {
	m := must.Value(Read("all", []byte(all)))(t)
	g := m.Graph
	if m.GetIrVersion() != 9 || len(m.OpsetImport) != 2 || m.OpsetImport[1].GetDomain() != "com.microsoft" ||
		m.MetadataProps[0].GetValue() != "v" {
		t.Errorf("header %v", prototext.Format(&onnx.Model{OpsetImport: m.OpsetImport}))
	}
	var inputs, constants []string
	for _, v := range g.Input {
		inputs = append(inputs, v.GetName())
	}
	for _, c := range g.Initializer {
		constants = append(constants, c.GetName())
	}
	if !slices.Equal(inputs, []string{"x", "z", "k", "s"}) || !slices.Equal(constants, []string{"k", "w", "h", "b"}) ||
		len(g.ValueInfo) != 1 {
		t.Errorf("inputs %v, constants %v, %d other values", inputs, constants, len(g.ValueInfo))
	}
	dims := g.Input[1].Type.GetTensorType().Shape.Dim
	if dims[0].GetDimParam() != "a b" || dims[1].Value != nil ||
		g.Input[3].Type.GetSequenceType().ElemType.GetTensorType().Shape != nil {
		t.Errorf("types %v", g.Input)
	}
	if w := g.Initializer[1].FloatData; len(w) != 4 || w[2] != -0.3 || !math.IsInf(float64(w[3]), -1) {
		t.Errorf("elements %v", w)
	}
	n := g.Node
	if n[0].GetName() != "first" || n[1].GetDomain() != "com.microsoft" || n[1].GetOpType() != "Gelu" ||
		n[2].Input[2] != "" || n[4].Output[0] != "d/0" || n[4].Input[1] != "" {
		t.Errorf("nodes %v", n)
	}
	if a := n[2].Attribute[1]; a.GetType() != onnx.Attribute_FLOAT || a.GetF() != 1 {
		t.Errorf("attribute %v", a)
	}
	if a := n[5].Attribute[0]; a.GetType() != onnx.Attribute_INTS || len(a.Ints) != 0 {
		t.Errorf("attribute %v", a)
	}
	branch := n[6].Attribute[1].G.Node[0].Attribute
	if !slices.Equal(branch[0].Ints, []int64{0, 1}) || string(branch[1].S) != `a"b` {
		t.Errorf("attributes of a branch %v", branch)
	}
}

func TestMistakes(t *testing.T) {
	const head = "g (float[2] x) => (float[2] y)\n"
	for _, c := range []struct{ text, want string }{
		{"", "t:1: found the end of the text, needed the name of a graph"},
		{"g (flaot[2] x) => (float y) { }", "t:1: found [, needed ) or a comma"},
		{head + "<flaot[1] w = {1}> { }", "t:2: found [, needed > or a comma"},
		{head + "{ y = Relu (x }", "t:2: found }, needed ) after the inputs of Relu"},
		{head + "{ y = Relu (x)", "t:2: found the end of the text, needed } after the graph's nodes"},
		{head + "{ y = Relu x }", "t:2: found x, needed ( before the inputs of Relu"},
		{head + "{ y = (x) }", "t:2: found (, needed an operator, such as MatMul"},
		{head + "<float[2] w = {1}> { y = Add (x, w) }",
			"t:2: found 1 elements of a constant with the lengths [2], needed 2; write as many as the lengths say"},
		{head + "<float[N] w = {1}> { }", "t:2: found float, needed numbers as lengths of a constant"},
		{head + "<float[9999999] w = {1}> { }",
			"t:2: found float, needed a constant of at most 65536 elements; write the model as a protobuf: .onnx"},
		{head + "<int8[1] w = {300}> { }", "t:2: found 300, needed a whole number from -128 to 127 as an element"},
		{head + "<int64[1] w = {1.5}> { }",
			"t:2: found 1.5, needed a whole number from -9223372036854775808 to 9223372036854775807 as an element"},
		{head + `<float[1] w = ["location": "w.bin"]> { }`,
			"t:2: found [, needed { before elements; external data is not read: write the elements out"},
		{head + "{ y = Cast <to: number = 1> (x) }",
			"t:2: found number, needed a type of attributes: float, int, string, tensor, graph, floats, ints or strings"},
		{head + "{ y = Cast <to = 1, to = 2> (x) }", "t:2: found to, needed each attribute once; remove one of them"},
		{head + "{ y = Cast <to = [1, 2.5]> (x) }",
			"t:2: found 2.5, needed a list of numbers of one type, or of texts; write whole numbers with a point where " +
				"others have one"},
		{head + "{ y = Cast <to = []> (x) }", "t:2: found to, needed a type for an empty list, as in axes: ints = []"},
		{head + "{ y = Cast <to = @to> (x) }",
			"t:2: found @, needed a value; references to attributes are of functions, which are not read"},
		{head + "{ y = Relu (x) }\nf (a) => (b) { b = Relu (a) }",
			"t:3: found f, needed the end after the graph; functions of models are not read: write their nodes into the graph"},
		{"<opset: 18> " + head + "{ }",
			"t:1: found opset, needed ir_version, opset_import, producer_name, producer_version, domain, model_version, " +
				"doc_string or metadata_props"},
		{"<ir_version: 1.5> " + head + "{ }", "t:1: found 1.5, needed a version, such as 8"},
		{head + "{ y = Relu (\"x) }", `t:2: found text without an end, needed a " at its end; close it`},
		{head + "{ y = Relu (x; x) }",
			"t:2: found the character ';', needed names, numbers, text in quotes and < > ( ) [ ] { } = , : . ?; remove it, " +
				"or quote the name that it is in"},
		{strings.Repeat("g () => () { y = If (x) <b = ", 20), "t:1: found g, needed graphs in each other at most 16 deep"},
		{"g (" + strings.Repeat("seq(", 50) + ") => () { }", "t:1: found seq, needed types in each other at most 16 deep"},
		{strings.Repeat(" ", MaxBytes+1),
			"t:1: found a text of 1048577 bytes, needed at most 1048576; write it as a protobuf: .onnx"},
	} {
		_, err := Read("t", []byte(c.text))
		must.FailExactly(t, err, c.want, ErrSyntax)
	}
}

// FuzzRead: any text gives a model, which can be written as a protobuf, or one error with a line.
func FuzzRead(f *testing.F) {
	f.Add([]byte(all))
	f.Add([]byte("g (float[N] x) => (float[N] y) { y = Relu (x) }"))
	f.Fuzz(func(t *testing.T, text []byte) {
		must.CostLittle(t, len(text), func() {
			m, err := Read("t", text)
			switch {
			case err == nil:
				if _, err := proto.Marshal(m); err != nil && !strings.Contains(err.Error(), "UTF-8") {
					t.Errorf("cannot be written: %v", err)
				}
			case !errors.Is(err, ErrSyntax) || !strings.HasPrefix(err.Error(), "t:"):
				t.Errorf("error %v", err)
			}
		})
	})
}
