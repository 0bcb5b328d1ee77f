package manifest

import (
	"go.yaml.in/yaml/v3"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// where reads the constraints of an operator.
func (r *reader) where(n *yaml.Node, what string) Where {
	entries, _ := r.entries(n, what)
	var out Where
	for _, e := range entries {
		if !factPattern.MatchString(e.key) {
			r.fail(e.line, "%s: %q is not the name of a fact, needed lower-case words joined by _", what, diagnostic.Clip(e.key))
			continue
		}
		c := Constraint{Fact: e.key, line: e.line}
		name := what + "." + e.key
		switch e.value.Kind {
		case yaml.ScalarNode:
			c.OneOf = []any{r.scalar(e.value, name)}
		case yaml.SequenceNode:
			items := r.list(e.value, name, maxValues)
			for _, item := range items {
				c.OneOf = append(c.OneOf, r.scalar(item, name))
			}
			if len(e.value.Content) == 0 {
				r.fail(e.value.Line, "%s is an empty list, which nothing satisfies; list the allowed values", name)
			}
		default:
			f := r.fields(e.value, name, "min", "max")
			c.Min, c.Max = r.bound(f["min"], name+".min"), r.bound(f["max"], name+".max")
			switch {
			case f != nil && c.Min == nil && c.Max == nil:
				r.fail(e.value.Line, "%s has neither min nor max; give at least one", name)
			case c.Min != nil && c.Max != nil && *c.Min > *c.Max:
				r.fail(e.value.Line, "%s has min %v above max %v, which nothing satisfies; exchange them", name, *c.Min, *c.Max)
			}
		}
		out = append(out, c)
	}
	return out
}

func (r *reader) bound(n *yaml.Node, what string) *float64 {
	if n == nil {
		return nil
	}
	v := r.finite(n, what)
	return &v
}

// scalar reads a string, bool, int64 or finite float64.
func (r *reader) scalar(n *yaml.Node, what string) any {
	if !r.plain(n, what) {
		return nil
	}
	switch {
	case n.Kind != yaml.ScalarNode || n.Tag == "!!null":
		r.fail(n.Line, "%s is %s, needed text, a number, true or false", what, kindOf(n))
		return nil
	case n.Tag == "!!bool":
		return r.flag(n, what)
	case n.Tag == "!!int":
		return r.integer(n, what, -1<<62, 1<<62)
	case n.Tag == "!!float":
		return r.finite(n, what)
	}
	return r.text(n, what)
}
