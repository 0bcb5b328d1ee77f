package manifest

import (
	"fmt"
	"math"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// attributes reads attribute values: scalars and lists of one type of scalar.
func (r *reader) attributes(n *yaml.Node, what string, captures bool) []Attribute {
	entries, _ := r.entries(n, what)
	if len(entries) > maxValues {
		r.fail(n.Line, "%s has %d entries, needed at most %d", what, len(entries), maxValues)
		return nil
	}
	var out []Attribute
	for _, e := range entries {
		name := what + "." + diagnostic.Clip(e.key)
		if !operatorPattern.MatchString(e.key) {
			r.fail(e.line, "%s: %q is not the name of an attribute", what, diagnostic.Clip(e.key))
			continue
		}
		value := r.attributeValue(e.value, name)
		if text, isText := value.(string); isText && captures && strings.HasPrefix(text, "?") {
			if !operatorPattern.MatchString(text[1:]) {
				r.fail(e.value.Line, "%s captures %q, needed ? and a name", name, diagnostic.Clip(text))
			}
			value = Capture(text[1:])
		}
		if value != nil {
			out = append(out, Attribute{Name: e.key, Value: value})
		}
	}
	return out
}

func (r *reader) attributeValue(n *yaml.Node, what string) any {
	if !r.plain(n, what) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		return r.attributeScalar(n, what)
	}
	const limit = 4096
	items := r.list(n, what, limit)
	if len(items) == 0 {
		r.fail(n.Line, "%s is an empty list, whose type is unknown; remove the attribute", what)
		return nil
	}
	var (
		ints    []int64
		floats  []float64
		strs    []string
		isFloat bool
	)
	for i, item := range items {
		switch v := r.attributeScalar(item, fmt.Sprintf("%s[%d]", what, i)).(type) {
		case int64:
			ints, floats = append(ints, v), append(floats, float64(v))
		case float64:
			floats, isFloat = append(floats, v), true
		case string:
			strs = append(strs, v)
		}
	}
	switch {
	case len(strs) == len(items):
		return strs
	case len(floats) == len(items) && isFloat:
		return floats
	case len(ints) == len(items):
		return ints
	}
	r.fail(n.Line, "%s mixes numbers and text, needed one type", what)
	return nil
}

// attributeScalar reads an int64, float64 (infinities too) or string; true and false are 1 and 0, as ONNX
// has no boolean attribute.
func (r *reader) attributeScalar(n *yaml.Node, what string) any {
	if !r.plain(n, what) {
		return nil
	}
	if n.Kind == yaml.ScalarNode {
		switch n.Tag {
		case "!!bool":
			if r.flag(n, what) {
				return int64(1)
			}
			return int64(0)
		case "!!int":
			return r.integer(n, what, math.MinInt64, math.MaxInt64)
		case "!!float":
			return r.number(n, what)
		case "!!str":
			return r.text(n, what)
		}
	}
	r.fail(n.Line, "%s is %s, needed text or a number", what, kindOf(n))
	return nil
}
