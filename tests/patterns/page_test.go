package patterns

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/onnxtext"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/matching"
	"github.com/opgraft/graft/internal/must"
)

var blocksOfPage = regexp.MustCompile("(?s)\n```(yaml|text)\n(.*?)\n```")

const before = `schema_version: 1
name: example
version: 0.1.0
abi: "1.0"
license: Apache-2.0
summary: an example
variants: [{device: cpu, os: linux, arch: amd64, file: libexample.so}]
operators:
  - name: Example
    cost: {bandwidth: 0.9, flops: 0.9, overhead_us: 1}
    replaces:
`

// TestPage: each example of docs/patterns.md is a manifest, and matches the graphs that stand after it as the page
// says.
func TestPage(t *testing.T) {
	page := must.Value(os.ReadFile("../../docs/patterns.md"))(t)
	var op *manifest.Operator
	text, patterns, graphs := "", 0, 0
	for _, b := range blocksOfPage.FindAllStringSubmatch(string(page), -1) {
		block := b[2]
		switch {
		case b[1] == "yaml":
			switch {
			case strings.HasPrefix(block, "pattern:"):
				text = before + indented(block, "      ")
				patterns++
			case strings.HasPrefix(block, "with:"), strings.HasPrefix(block, "tests:"):
				text += indented(block, "    ")
			default:
				t.Errorf("no part of an operator:\n%s", block)
			}
			m, err := manifest.Parse("page", []byte(text))
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			op = &m.Operators[0]
		case !strings.HasPrefix(block, "# "):
			t.Errorf("a graph that does not say whether it matches:\n%s", block)
		default:
			graphs++
			said, of, _ := strings.Cut(block, "\n")
			f := found(t, op, of)
			if want := said == "# matches"; want != (len(f.Matches) > 0) {
				t.Errorf("%s, but %d matches (%s):\n%s\n%s", said, len(f.Matches), f.Reason, text, of)
			}
		}
	}
	if patterns < 8 || graphs < 16 {
		t.Errorf("%d patterns and %d graphs are on the page: they are not where they are searched", patterns, graphs)
	}
}

func indented(block, by string) string {
	var b strings.Builder
	for _, line := range strings.Split(block, "\n") {
		b.WriteString(by + line + "\n")
	}
	return b.String()
}

// found looks for an operator's pattern in a graph that is written as text.
func found(t *testing.T, op *manifest.Operator, text string) *matching.Found {
	t.Helper()
	g, m := parsed(t, text)
	_ = g
	f := must.Value(matching.Find(t.Context(), op, m.Proto(), m))(t)
	return f
}

// parsed is a model that is written as text.
func parsed(t *testing.T, text string) (*graph.Graph, *model.Model) {
	t.Helper()
	p, err := onnxtext.Read("graph", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	data := must.Value(proto.Marshal(p))(t)
	m := must.Value(model.Parse(data, ""))(t)
	t.Cleanup(func() { m.Close() })
	g := must.Value(graph.New(m.Proto(), m))(t)
	return g, m
}
