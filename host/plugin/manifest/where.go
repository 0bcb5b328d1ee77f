package manifest

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Where is a conjunction of constraints over the facts of a block or a match, in the order of the file.
type Where []Constraint

// Constraint bounds one fact: exactly one of OneOf and (Min, Max) is set.
type Constraint struct {
	Fact string `json:"fact"`
	// OneOf holds the allowed values: string, bool, int64 or float64. A scalar in the file is a list of
	// one.
	OneOf []any    `json:"one_of,omitempty"`
	Min   *float64 `json:"min,omitempty"` // inclusive
	Max   *float64 `json:"max,omitempty"` // inclusive

	line int
}

// Range is a fact that is known only within bounds, such as a symbolic length. A constraint holds for it
// when it holds for every number in it.
type Range struct {
	Min float64 `json:"min"`
	Max float64 `json:"max"`
}

// Allows reports whether facts satisfy every constraint; if not, reason is one sentence with the fact,
// what was found and what is needed. Facts are strings, booleans, numbers of any Go type, Range, lists of strings, each
// of which must be allowed, an empty one by "none", or nil for what is not known; a fact that is absent is not known,
// and satisfies nothing.
func (w Where) Allows(facts map[string]any) (ok bool, reason string) {
	for _, c := range w {
		if ok, reason := c.Allows(facts[c.Fact]); !ok {
			return false, reason
		}
	}
	return true, ""
}

// Allows is Where.Allows for one constraint and the fact's value.
func (c Constraint) Allows(value any) (ok bool, reason string) {
	holds := false
	if list, is := value.([]string); is {
		holds = len(c.OneOf) > 0 && c.allowsAll(list)
	} else if len(c.OneOf) > 0 {
		for _, want := range c.OneOf {
			holds = holds || equalFact(value, want)
		}
	} else if low, high, numeric := bounds(value); numeric {
		holds = (c.Min == nil || low >= *c.Min) && (c.Max == nil || high <= *c.Max)
	}
	if holds {
		return true, ""
	}
	return false, fmt.Sprintf("%s is %s, needs %s", c.Fact, formatFact(value), c.need())
}

// allowsAll reports that every item of a list is allowed; of an empty one that none is.
func (c Constraint) allowsAll(list []string) bool {
	if len(list) == 0 {
		list = []string{"none"}
	}
	return !slices.ContainsFunc(list, func(item string) bool {
		return !slices.ContainsFunc(c.OneOf, func(want any) bool { return equalFact(item, want) })
	})
}

// need says in words what a constraint asks for.
func (c Constraint) need() string {
	switch {
	case len(c.OneOf) == 1:
		return formatFact(c.OneOf[0])
	case len(c.OneOf) > 1:
		words := make([]string, len(c.OneOf))
		for i, v := range c.OneOf {
			words[i] = formatFact(v)
		}
		return "one of " + strings.Join(words, ", ")
	case c.Min != nil && c.Max != nil:
		return formatFact(*c.Min) + " to " + formatFact(*c.Max)
	case c.Min != nil:
		return "at least " + formatFact(*c.Min)
	default:
		return "at most " + formatFact(*c.Max)
	}
}

// equalFact compares a fact with a value of the manifest. Numbers compare by value whatever their type;
// a number is never equal to text or to a boolean.
func equalFact(fact, want any) bool {
	if low, high, ok := bounds(fact); ok {
		wantLow, _, ok := bounds(want)
		return ok && low == high && low == wantLow
	}
	switch f := fact.(type) {
	case bool:
		w, ok := want.(bool)
		return ok && f == w
	default:
		text, ok := textFact(fact)
		w, isText := want.(string)
		return ok && isText && text == w
	}
}

// bounds is the smallest and largest number that a numeric fact can be.
func bounds(fact any) (low, high float64, ok bool) {
	if r, isRange := fact.(Range); isRange {
		return r.Min, r.Max, r.Min <= r.Max
	}
	v := reflect.ValueOf(fact)
	switch {
	case !v.IsValid():
		return 0, 0, false
	case v.CanInt():
		low = float64(v.Int())
	case v.CanUint():
		low = float64(v.Uint())
	case v.CanFloat():
		low = v.Float()
	default:
		return 0, 0, false
	}
	return low, low, true
}

// textFact is the text of a fact of any string type.
func textFact(fact any) (string, bool) {
	v := reflect.ValueOf(fact)
	if v.IsValid() && v.Kind() == reflect.String {
		return v.String(), true
	}
	return "", false
}

func formatFact(fact any) string {
	if list, ok := fact.([]string); ok {
		if len(list) == 0 {
			return "none"
		}
		return strings.Join(list, " and ")
	}
	if r, ok := fact.(Range); ok {
		return formatNumber(r.Min) + " to " + formatNumber(r.Max)
	}
	if text, ok := textFact(fact); ok {
		if text == "" {
			return "empty"
		}
		if _, err := strconv.ParseFloat(text, 64); err == nil {
			return strconv.Quote(text) // not to be taken for the number
		}
		return text
	}
	if low, _, ok := bounds(fact); ok {
		return formatNumber(low)
	}
	if fact == nil {
		return "not known"
	}
	return fmt.Sprint(fact)
}

func formatNumber(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
