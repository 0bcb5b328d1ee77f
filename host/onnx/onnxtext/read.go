package onnxtext

import (
	"fmt"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// Read reads data as the text of a model that stands at path; path is used in errors only, which are
// *diagnostic.Error of kind ErrSyntax with the line. Functions of models, external data and sparse tensors are not
// read.
func Read(path string, data []byte) (*onnx.Model, error) {
	if len(data) > MaxBytes {
		return nil, (&problem{1, fmt.Sprintf("found a text of %d bytes", len(data)), fmt.Sprintf("at most %d", MaxBytes),
			"write it as a protobuf: .onnx"}).at(path)
	}
	list, bad := tokens(string(data))
	if bad != nil {
		return nil, bad.at(path)
	}
	p := &parser{tokens: list}
	m, bad := p.read()
	if bad != nil {
		return nil, bad.at(path)
	}
	return m, nil
}

// parser goes through tokens. It stops by panicking with a *problem, which read recovers from.
type parser struct {
	tokens []token
	at     int
	depth  int
}

func (p *parser) read() (m *onnx.Model, bad *problem) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *problem:
			bad = e
		default:
			panic(e)
		}
	}()
	return p.model(), nil
}

func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) ahead(n int) token { return p.tokens[min(p.at+n, len(p.tokens)-1)] }

func (p *parser) next() token {
	t := p.tokens[p.at]
	if t.kind != end {
		p.at++
	}
	return t
}

// fail stops at a token.
func (p *parser) fail(t token, needed, fix string) {
	panic(&problem{t.line, "found " + t.String(), needed, fix})
}

// has takes a sign if it is next.
func (p *parser) has(s string) bool {
	if t := p.peek(); t.kind == sign && t.text == s {
		p.at++
		return true
	}
	return false
}

func (p *parser) is(s string) bool { t := p.peek(); return t.kind == sign && t.text == s }

func (p *parser) must(s, where string) {
	if !p.has(s) {
		p.fail(p.peek(), s+" "+where, "")
	}
}

func (p *parser) word(what string) string {
	t := p.next()
	if t.kind != name {
		p.fail(t, what, "")
	}
	return t.text
}

// value is the name of a value, a node or a graph: a word, or text in quotes.
func (p *parser) value(what string) string {
	t := p.next()
	if t.kind != name && t.kind != quoted {
		p.fail(t, what, "")
	}
	return t.text
}

func (p *parser) text(what string) string {
	t := p.next()
	if t.kind != quoted {
		p.fail(t, what+" in quotes", "")
	}
	return t.text
}

func (p *parser) integer(what string) int64 {
	t := p.next()
	v, err := strconv.ParseInt(t.text, 10, 64)
	if t.kind != whole || err != nil {
		p.fail(t, what, "")
	}
	return v
}

func (p *parser) model() *onnx.Model {
	m := &onnx.Model{}
	if p.has("<") {
		p.list(">", func() { p.header(m) })
	}
	if m.IrVersion == nil {
		m.IrVersion = proto.Int64(8)
	}
	if len(m.OpsetImport) == 0 {
		m.OpsetImport = []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(18)}}
	}
	m.Graph = p.graph()
	if t := p.peek(); t.kind != end {
		p.fail(t, "the end after the graph", "functions of models are not read: write their nodes into the graph")
	}
	return m
}

// list reads things with commas between them up to a sign, which may come at once.
func (p *parser) list(last string, one func()) {
	if p.has(last) {
		return
	}
	for {
		one()
		if !p.has(",") {
			break
		}
	}
	p.must(last, "or a comma")
}

func (p *parser) header(m *onnx.Model) {
	t := p.peek()
	key := p.word("ir_version, opset_import or another field of a model")
	p.must(":", "after "+key)
	switch key {
	case "ir_version":
		m.IrVersion = proto.Int64(p.integer("a version, such as 8"))
	case "model_version":
		m.ModelVersion = proto.Int64(p.integer("a version, such as 1"))
	case "opset_import":
		p.must("[", `before operator sets, as in ["": 18]`)
		p.list("]", func() {
			domain := p.text("a domain")
			p.must(":", "after the domain")
			m.OpsetImport = append(m.OpsetImport,
				&onnx.OperatorSet{Domain: proto.String(domain),
					Version: proto.Int64(p.integer("the version of an operator set, such as 18"))})
		})
	case "producer_name":
		m.ProducerName = proto.String(p.text("a name"))
	case "producer_version":
		m.ProducerVersion = proto.String(p.text("a version"))
	case "domain":
		m.Domain = proto.String(p.text("a domain"))
	case "doc_string":
		m.DocString = proto.String(p.text("a text"))
	case "metadata_props":
		p.must("[", `before pairs, as in ["key": "value"]`)
		p.list("]", func() {
			k := p.text("a key")
			p.must(":", "after the key")
			m.MetadataProps = append(m.MetadataProps, &onnx.Entry{Key: proto.String(k), Value: proto.String(p.text("a value"))})
		})
	default:
		p.fail(t, "ir_version, opset_import, producer_name, producer_version, domain, model_version, doc_string or "+
			"metadata_props", "")
	}
}

// graph is "name (inputs) => (outputs) <constants> { nodes }".
func (p *parser) graph() *onnx.Graph {
	if p.depth++; p.depth > maxDepth {
		p.fail(p.peek(), fmt.Sprintf("graphs in each other at most %d deep", maxDepth), "")
	}
	defer func() { p.depth-- }()
	g := &onnx.Graph{Name: proto.String(p.value("the name of a graph"))}
	p.must("(", "before the graph's inputs")
	p.list(")", func() { p.declare(g, &g.Input) })
	p.must("=", "of =>, between inputs and outputs")
	p.must(">", "of =>, between inputs and outputs")
	p.must("(", "before the graph's outputs")
	p.list(")", func() { g.Output = append(g.Output, p.valueInfo()) })
	if p.has("<") {
		p.list(">", func() { p.declare(g, &g.ValueInfo) })
	}
	p.must("{", "before the graph's nodes")
	for !p.has("}") {
		if t := p.peek(); t.kind == end {
			p.fail(t, "} after the graph's nodes", "")
		}
		g.Node = append(g.Node, p.node())
	}
	return g
}

// declare reads a value with its type, and its constant if it has one. One with a constant stays an input, if it is
// one.
func (p *parser) declare(g *onnx.Graph, list *[]*onnx.ValueInfo) {
	line := p.peek()
	v := p.valueInfo()
	constant := p.has("=")
	if list == &g.Input || !constant {
		*list = append(*list, v)
	}
	if constant {
		t := p.tensor(v.Type, line)
		t.Name = v.Name
		g.Initializer = append(g.Initializer, t)
	}
}

func (p *parser) valueInfo() *onnx.ValueInfo {
	v := &onnx.ValueInfo{}
	if t := p.peek(); t.kind == name && isType(t.text) && !p.named(1) {
		v.Type = p.typ()
	}
	v.Name = proto.String(p.value("the name of a value"))
	return v
}

// named says that the token ahead ends a value: the one before it is its name, even if it is that of a type.
func (p *parser) named(n int) bool {
	t := p.ahead(n)
	return t.kind == sign && (t.text == "," || t.text == ")" || t.text == ">" || t.text == "=")
}
