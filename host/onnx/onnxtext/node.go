package onnxtext

import (
	"math"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// node is "[name] y, z = domain.Op <attribute = value> (x, w)"; attributes may stand at the end.
func (p *parser) node() *onnx.Node {
	n := &onnx.Node{}
	if p.has("[") {
		n.Name = proto.String(p.value("the name of a node"))
		p.must("]", "after the name of the node")
	}
	n.Output = p.values("=")
	p.must("=", "after the outputs of a node")
	op := p.word("an operator, such as MatMul")
	domain := ""
	for p.has(".") {
		if domain != "" {
			domain += "."
		}
		domain += op
		op = p.word("an operator after the domain")
	}
	n.OpType = proto.String(op)
	if domain != "" && domain != "ai.onnx" {
		n.Domain = proto.String(domain)
	}
	if p.is(":") {
		p.fail(p.peek(), "( before the inputs of "+op, "overloads are of functions, which are not read")
	}
	p.attributes(n)
	p.must("(", "before the inputs of "+op)
	n.Input = p.values(")")
	p.must(")", "after the inputs of "+op)
	if len(n.Attribute) == 0 {
		p.attributes(n)
	}
	return n
}

// values are names with commas between them; "" and nothing stand for one that is left out.
func (p *parser) values(last string) (list []string) {
	for !p.is(last) {
		if p.is(",") {
			list = append(list, "")
		} else {
			list = append(list, p.value("the name of a value, or "+last))
		}
		if !p.has(",") {
			break
		}
	}
	return list
}

func (p *parser) attributes(n *onnx.Node) {
	if !p.has("<") {
		return
	}
	seen := map[string]bool{}
	p.list(">", func() {
		at := p.peek()
		a := p.attribute()
		if seen[a.GetName()] {
			p.fail(at, "each attribute once", "remove one of them")
		}
		seen[a.GetName()] = true
		n.Attribute = append(n.Attribute, a)
	})
}

// attributeTypes are the annotations that the format has for attributes.
var attributeTypes = map[string]onnx.Attribute_Type{
	"float": onnx.Attribute_FLOAT, "int": onnx.Attribute_INT, "string": onnx.Attribute_STRING,
	"tensor": onnx.Attribute_TENSOR, "graph": onnx.Attribute_GRAPH,
	"floats": onnx.Attribute_FLOATS, "ints": onnx.Attribute_INTS, "strings": onnx.Attribute_STRINGS,
}

var listOf = map[onnx.Attribute_Type]onnx.Attribute_Type{
	onnx.Attribute_FLOAT: onnx.Attribute_FLOATS, onnx.Attribute_INT: onnx.Attribute_INTS,
	onnx.Attribute_STRING: onnx.Attribute_STRINGS,
}

// attribute is "axis = -1", "alpha: float = 1" or "perm = [0, 2, 1]".
func (p *parser) attribute() *onnx.Attribute {
	at := p.peek()
	a := &onnx.Attribute{Name: proto.String(p.word("the name of an attribute"))}
	var said onnx.Attribute_Type
	if p.has(":") {
		t := p.next()
		said = attributeTypes[t.text]
		if t.kind != name || said == onnx.Attribute_UNDEFINED {
			p.fail(t, "a type of attributes: float, int, string, tensor, graph, floats, ints or strings", "")
		}
	}
	p.must("=", "after the attribute "+a.GetName())
	if !p.has("[") {
		p.single(a, said)
		if said != onnx.Attribute_UNDEFINED && a.GetType() != said {
			p.fail(at, "a value of the type that the attribute is said to have", "correct one of them")
		}
		return a
	}
	a.Type = said.Enum()
	p.list("]", func() {
		one := &onnx.Attribute{}
		at := p.peek()
		var kind onnx.Attribute_Type
		for single, list := range listOf {
			if list == a.GetType() {
				kind = single
			}
		}
		p.single(one, kind)
		is := listOf[one.GetType()]
		if is == onnx.Attribute_UNDEFINED || a.GetType() != onnx.Attribute_UNDEFINED && a.GetType() != is {
			p.fail(at, "a list of numbers of one type, or of texts", "write whole numbers with a point where others have one")
		}
		a.Type = is.Enum()
		a.Ints, a.Floats = appendIf(a.Ints, one.I), appendIf(a.Floats, one.F)
		if one.S != nil {
			a.Strings = append(a.Strings, one.S)
		}
	})
	if a.GetType() == onnx.Attribute_UNDEFINED {
		p.fail(at, "a type for an empty list, as in axes: ints = []", "")
	}
	return a
}

func appendIf[T any](list []T, v *T) []T {
	if v == nil {
		return list
	}
	return append(list, *v)
}

// single reads a number, a text, a tensor or a graph. A whole number is one of another kind where it is said to be.
func (p *parser) single(a *onnx.Attribute, said onnx.Attribute_Type) {
	t := p.peek()
	f, isNumber := t.float()
	switch {
	case t.kind == quoted && (said == onnx.Attribute_UNDEFINED || said == onnx.Attribute_STRING):
		p.next()
		a.Type, a.S = onnx.Attribute_STRING.Enum(), []byte(t.text)
	case t.kind == whole && said != onnx.Attribute_FLOAT:
		p.next()
		v, err := strconv.ParseInt(t.text, 10, 64)
		if err != nil {
			p.fail(t, "a whole number of 64 bits", "")
		}
		a.Type, a.I = onnx.Attribute_INT.Enum(), proto.Int64(v)
	case isNumber:
		p.next()
		if math.Abs(f) > math.MaxFloat32 && !math.IsInf(f, 0) {
			p.fail(t, "a number of 32 bits", "")
		}
		a.Type, a.F = onnx.Attribute_FLOAT.Enum(), proto.Float32(float32(f))
	case t.kind == name && isType(t.text) && !(p.ahead(1).kind == sign && p.ahead(1).text == "("):
		of := p.typ()
		label := p.peek()
		a.Type = onnx.Attribute_TENSOR.Enum()
		tensorName := ""
		if label.kind == name || label.kind == quoted {
			tensorName = p.next().text
		}
		p.has("=")
		a.T = p.tensor(of, t)
		if tensorName != "" {
			a.T.Name = proto.String(tensorName)
		}
	case t.kind == sign && t.text == "@":
		p.fail(t, "a value", "references to attributes are of functions, which are not read")
	case t.kind == name || t.kind == quoted:
		a.Type, a.G = onnx.Attribute_GRAPH.Enum(), p.graph()
	default:
		p.fail(t, "a number, text in quotes, a tensor such as float[2] {1, 2}, or a graph", "")
	}
}
