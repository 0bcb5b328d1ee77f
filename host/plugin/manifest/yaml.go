package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// reader walks a YAML document and collects every problem with its line, so that an author fixes a file
// in one go. It is stricter than decoding into structs: no unknown or repeated field, no anchors, no
// tags, and a number never passes for a string.
type reader struct {
	path     string
	problems []error
}

// maxProblems bounds what one file can make the host print.
const maxProblems = 20

func (r *reader) fail(line int, format string, args ...any) {
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, &diagnostic.Error{
			Kind: refusal.ErrManifest, Path: fmt.Sprintf("%s:%d", r.path, line), Found: fmt.Sprintf(format, args...),
		})
	}
}

func (r *reader) err() error { return errors.Join(r.problems...) }

// document parses data as one YAML document that is a mapping.
func (r *reader) document(data []byte) *yaml.Node {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var root yaml.Node
	err := decoder.Decode(&root)
	switch {
	case errors.Is(err, io.EOF):
		r.fail(1, "found an empty file, needed a plugin manifest that begins with schema_version: %d", SchemaVersion)
		return nil
	case err != nil:
		r.problems = append(r.problems, &diagnostic.Error{
			Kind: refusal.ErrManifest, Path: r.path, Found: "not YAML: " + strings.TrimPrefix(err.Error(), "yaml: "), Cause: err,
		})
		return nil
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		r.fail(1, "found more than one YAML document, needed one; remove what follows the second ---")
		return nil
	}
	if len(root.Content) != 1 {
		r.fail(1, "found an empty document, needed a mapping")
		return nil
	}
	return root.Content[0]
}

// fields reads a mapping whose keys are all in known. It returns nil when n is not a mapping.
func (r *reader) fields(n *yaml.Node, what string, known ...string) map[string]*yaml.Node {
	entries, ok := r.entries(n, what)
	if !ok {
		return nil
	}
	out := make(map[string]*yaml.Node, len(entries))
	for _, e := range entries {
		if !slices.Contains(known, e.key) {
			r.fail(e.line, "unknown field %q in %s%s; known fields: %s", e.key, what, suggestion(e.key, known),
				strings.Join(known, ", "))
			continue
		}
		out[e.key] = e.value
	}
	return out
}

type entry struct {
	key   string
	line  int
	value *yaml.Node
}

// entries reads a mapping with any distinct text keys, in the order of the file.
func (r *reader) entries(n *yaml.Node, what string) ([]entry, bool) {
	if !r.plain(n, what) {
		return nil, false
	}
	if n.Kind != yaml.MappingNode {
		r.fail(n.Line, "%s is %s, needed a mapping (name: value)", what, kindOf(n))
		return nil, false
	}
	var out []entry
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if !r.plain(key, "a key of "+what) {
			continue
		}
		if key.Kind != yaml.ScalarNode || key.Tag != "!!str" {
			r.fail(key.Line, "a key of %s is %s, needed text", what, kindOf(key))
			continue
		}
		if first, dup := seen[key.Value]; dup {
			r.fail(key.Line, "field %q of %s stands twice (first on line %d); remove one", key.Value, what, first)
			continue
		}
		seen[key.Value] = key.Line
		out = append(out, entry{key.Value, key.Line, value})
	}
	return out, true
}

// list reads a sequence of at most limit items.
func (r *reader) list(n *yaml.Node, what string, limit int) []*yaml.Node {
	if !r.plain(n, what) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		r.fail(n.Line, "%s is %s, needed a list", what, kindOf(n))
		return nil
	}
	if len(n.Content) > limit {
		r.fail(n.Line, "%s has %d items, needed at most %d", what, len(n.Content), limit)
		return nil
	}
	return n.Content
}

// plain refuses anchors, aliases and tags of the file's own.
func (r *reader) plain(n *yaml.Node, what string) bool {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		r.fail(n.Line, "%s uses a YAML anchor or alias; write the value out", what)
	case n.Style&yaml.TaggedStyle != 0:
		r.fail(n.Line, "%s carries the YAML tag %s; remove it", what, n.Tag)
	default:
		return true
	}
	return false
}

// text reads a string; n may be nil, for an absent field, which is "".
func (r *reader) text(n *yaml.Node, what string) string {
	if n == nil || !r.plain(n, what) {
		return ""
	}
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" {
		fix := ""
		if n.Kind == yaml.ScalarNode {
			fix = fmt.Sprintf("; write %q in quotes", n.Value)
		}
		r.fail(n.Line, "%s is %s, needed text%s", what, kindOf(n), fix)
		return ""
	}
	const limit = 1024
	if len(n.Value) > limit {
		r.fail(n.Line, "%s has %d bytes, needed at most %d", what, len(n.Value), limit)
		return ""
	}
	if strings.ContainsFunc(n.Value, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		r.fail(n.Line, "%s has a control character or a line break, needed one plain line", what)
		return ""
	}
	return n.Value
}

// number reads an integer or a decimal number that is not NaN; n may be nil, which is 0.
func (r *reader) number(n *yaml.Node, what string) float64 {
	if n == nil || !r.plain(n, what) {
		return 0
	}
	var v float64
	if n.Kind != yaml.ScalarNode || (n.Tag != "!!int" && n.Tag != "!!float") || n.Decode(&v) != nil {
		r.fail(n.Line, "%s is %s, needed a number", what, kindOf(n))
		return 0
	}
	if math.IsNaN(v) {
		r.fail(n.Line, "%s is not a number", what)
		return 0
	}
	return v
}

// finite is number without infinities.
func (r *reader) finite(n *yaml.Node, what string) float64 {
	v := r.number(n, what)
	if math.IsInf(v, 0) {
		r.fail(n.Line, "%s is infinite, needed a finite number", what)
		return 0
	}
	return v
}

// integer reads an integer in [low, high]; n may be nil, which is 0.
func (r *reader) integer(n *yaml.Node, what string, low, high int64) int64 {
	if n == nil || !r.plain(n, what) {
		return 0
	}
	var v int64
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || n.Decode(&v) != nil {
		r.fail(n.Line, "%s is %s, needed an integer", what, kindOf(n))
		return 0
	}
	if v < low || v > high {
		r.fail(n.Line, "%s is %d, needed %d to %d", what, v, low, high)
		return 0
	}
	return v
}

// flag reads true or false; n may be nil, which is false.
func (r *reader) flag(n *yaml.Node, what string) bool {
	if n == nil || !r.plain(n, what) {
		return false
	}
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" {
		r.fail(n.Line, "%s is %s, needed true or false", what, kindOf(n))
		return false
	}
	return n.Value == "true" || n.Value == "True" || n.Value == "TRUE"
}

// kindOf says in words what a node is.
func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		switch n.Tag {
		case "!!int", "!!float":
			return "the number " + diagnostic.Clip(n.Value)
		case "!!bool":
			return diagnostic.Clip(n.Value)
		case "!!null":
			return "empty"
		default:
			return fmt.Sprintf("the text %q", diagnostic.Clip(n.Value))
		}
	}
	return "an alias"
}

// suggestion asks after the known word that is a slip away.
func suggestion(word string, known []string) string {
	if like := diagnostic.Nearest(word, known); like != "" {
		return fmt.Sprintf(" (did you mean %q?)", like)
	}
	return ""
}
