package manifest

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// tests reads which graphs an operator's pattern must match, and which it must not.
func (r *reader) tests(n *yaml.Node, what string, patternless bool) *Tests {
	if patternless {
		r.fail(n.Line, "%s stand without a pattern, which they are of; remove them", what)
		return nil
	}
	f := r.fields(n, what, "match", "no_match")
	if f == nil {
		return nil
	}
	if f["match"] == nil {
		r.fail(n.Line, "%s.match is missing; add a graph that the pattern must match", what)
	}
	out := &Tests{}
	for _, part := range []struct {
		key  string
		list *[]string
	}{{"match", &out.Match}, {"no_match", &out.NoMatch}} {
		if f[part.key] == nil {
			continue
		}
		for i, item := range r.list(f[part.key], what+"."+part.key, maxValues) {
			at := fmt.Sprintf("%s.%s[%d]", what, part.key, i)
			before := len(r.problems)
			name := r.text(item, at)
			if len(r.problems) > before {
				continue
			}
			if !insideFile(name) {
				r.fail(item.Line, "%s is %q, needed the path of a file in this folder that ends with .onnxtxt or .onnx", at,
					diagnostic.Clip(name))
				continue
			}
			*part.list = append(*part.list, name)
		}
	}
	return out
}

// insideFile reports the path of a graph in the plugin's folder.
func insideFile(name string) bool {
	ext := path.Ext(name)
	return len(name) <= 255 && filepath.IsLocal(name) && path.Clean(name) == name && !strings.ContainsAny(name, `\\:`) &&
		!strings.HasPrefix(path.Base(name), ".") && (ext == ".onnxtxt" || ext == ".onnx")
}
