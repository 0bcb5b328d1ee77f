package manifest

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/pattern"
)

func (r *reader) constants(n *yaml.Node, what string) []pattern.Constant {
	entries, _ := r.entries(n, what)
	if len(entries) > maxValues {
		r.fail(n.Line, "%s has %d entries, needed at most %d", what, len(entries), maxValues)
		return nil
	}
	var out []pattern.Constant
	for _, e := range entries {
		name := what + "." + diagnostic.Clip(e.key)
		if !valuePattern.MatchString(e.key) {
			r.fail(e.line, "%s: %q is not the name of a value, needed a letter or _, then letters, digits, _ . -", what,
				diagnostic.Clip(e.key))
			continue
		}
		if f := r.fields(e.value, name, "value", "values", "tolerance", "min", "max", "any", "rank"); f != nil {
			out = append(out, r.constant(e, f, name))
		}
	}
	return out
}

// constant reads one of: a number, a number that is captured, a range, a list of numbers, any tensor.
func (r *reader) constant(e entry, f map[string]*yaml.Node, name string) pattern.Constant {
	c := pattern.Constant{Name: e.key, Rank: -1, Line: e.line}
	c.Any = r.flag(f["any"], name+".any")
	captured := f["value"] != nil && f["value"].Kind == yaml.ScalarNode && f["value"].Tag == "!!str"
	ranged := f["min"] != nil || f["max"] != nil
	var kinds []string
	if f["value"] != nil {
		kinds = append(kinds, "value")
	}
	if f["values"] != nil {
		kinds = append(kinds, "values")
	}
	if ranged && !captured {
		kinds = append(kinds, "a range")
	}
	if c.Any {
		kinds = append(kinds, "any")
	}
	switch {
	case len(kinds) == 2:
		r.fail(e.line, "%s has both %s and %s, needed one", name, kinds[0], kinds[1])
		return c
	case len(kinds) > 2:
		r.fail(e.line, "%s has %s, needed one", name, strings.Join(kinds, ", "))
		return c
	case len(kinds) == 0:
		r.fail(e.line, "%s has none of value, values, min, max and any: true, needed one", name)
		return c
	}
	if f["rank"] != nil && !c.Any {
		r.fail(f["rank"].Line, "%s has a rank beside %s, which matches whatever the rank; remove it", name,
			numbersOf(kinds[0]))
	} else if f["rank"] != nil {
		c.Rank = int(r.integer(f["rank"], name+".rank", 0, 32))
	}
	if f["tolerance"] != nil && (c.Any || ranged || captured) {
		r.fail(f["tolerance"].Line, "%s has a tolerance without a value; remove it", name)
		return c
	}
	if ranged {
		c.Min, c.Max = r.bound(f["min"], name+".min"), r.bound(f["max"], name+".max")
		if c.Min != nil && c.Max != nil && *c.Min > *c.Max {
			r.fail(e.line, "%s has min %v above max %v, which no number is in; exchange them", name, *c.Min, *c.Max)
		}
	}
	switch {
	case captured:
		text := r.text(f["value"], name+".value")
		if !strings.HasPrefix(text, "?") || !operatorPattern.MatchString(text[1:]) {
			r.fail(f["value"].Line, "%s.value is %q, needed a number, or ? and a name to capture it", name,
				diagnostic.Clip(text))
			return c
		}
		c.Capture = pattern.Capture(text[1:])
	case f["value"] != nil:
		v := r.finite(f["value"], name+".value")
		c.Value = &v
	case f["values"] != nil:
		for i, item := range r.list(f["values"], name+".values", maxValues) {
			c.Values = append(c.Values, r.finite(item, fmt.Sprintf("%s.values[%d]", name, i)))
		}
		if c.Values == nil {
			r.fail(f["values"].Line, "%s.values is empty, needed the elements in their order", name)
		}
	}
	// A float32 that was written from the decimal in the file is within this.
	c.Tolerance = 1e-6
	if f["tolerance"] != nil {
		c.Tolerance = r.finite(f["tolerance"], name+".tolerance")
		if c.Tolerance < 0 || c.Tolerance >= 1 {
			r.fail(f["tolerance"].Line, "%s.tolerance is %v, needed 0 or more and below 1", name, c.Tolerance)
		}
	}
	return c
}

func numbersOf(kind string) string {
	if kind == "value" {
		return "a value"
	}
	return kind
}
