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
	page, err := os.ReadFile("../../docs/patterns.md")
	if err != nil {
		t.Fatal(err)
	}
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
	f, err := matching.Find(t.Context(), op, m.Proto(), m)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// parsed is a model that is written as text.
func parsed(t *testing.T, text string) (*graph.Graph, *model.Model) {
	t.Helper()
	p, err := onnxtext.Read("graph", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	data, err := proto.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Parse(data, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	g, err := graph.New(m.Proto(), m)
	if err != nil {
		t.Fatal(err)
	}
	return g, m
}
