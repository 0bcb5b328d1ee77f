package chat

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/ardanlabs/jinja"
)

// The engine's tojson writes 2.0 as 2, and sorts keys where it indents; Python's does not. After a plain name it
// becomes a call of ours; an indent in any other place is refused.
var (
	spaced   = regexp.MustCompile(`([\s({,+~-])([A-Za-z_][\w.]*)\s*\|\s*tojson\b(\s*\()?`)
	indented = regexp.MustCompile(`([\s({,+~-])([A-Za-z_][\w.]*)\s*\|\s*tojson\s*\(\s*indent\s*=\s*(\d+)\s*\)`)
	unknown  = regexp.MustCompile(`tojson\s*\([^)]*indent`)
)

// call is the name of the function in templates.
const call = "graft_tojson"

// compile reads a template.
func compile(source string) (*jinja.Template, error) {
	source = indented.ReplaceAllString(source, "${1}"+call+"(${2}, ${3})")
	source = spaced.ReplaceAllStringFunc(source, func(text string) string {
		m := spaced.FindStringSubmatch(text)
		if m[3] != "" { // with other arguments
			return text
		}
		return m[1] + call + "(" + m[2] + ")"
	})
	if unknown.MatchString(source) {
		return nil, errors.New("it indents the JSON of more than a name")
	}
	return jinja.Compile(source)
}

// pythonJSON is tojson(indent=N) of transformers, or without an indent: json.dumps without escapes for what is not
// ASCII.
func pythonJSON(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	var b strings.Builder
	var err error
	switch {
	case len(args) == 1:
		err = write(&b, args[0], "", "")
	case len(args) == 2 && args[1].IsInt():
		err = write(&b, args[0], strings.Repeat(" ", int(min(args[1].AsInt(), 64))), "\n")
	default:
		err = errors.New("tojson takes a value and an indent")
	}
	return jinja.NewString(b.String()), err
}

// write writes a value, whose lines begin as line says; "" is one line.
func write(b *strings.Builder, v jinja.Value, indent, line string) error {
	within, separator := line+indent, ","
	if line == "" {
		separator = ", "
	}
	switch {
	case v.IsNone():
		b.WriteString("null")
	case v.IsBool():
		b.WriteString(strconv.FormatBool(v.AsBool()))
	case v.IsInt():
		b.WriteString(strconv.FormatInt(v.AsInt(), 10))
	case v.IsFloat():
		b.WriteString(float(v.AsFloat()))
	case v.IsString():
		quote(b, v.AsString())
	case v.IsList() && v.AsList().Len() == 0:
		b.WriteString("[]")
	case v.IsDict() && v.AsDict().Len() == 0:
		b.WriteString("{}")
	case v.IsList():
		for i, item := range v.AsList().Items {
			b.WriteString([]string{"[", separator}[min(i, 1)] + within)
			if err := write(b, item, indent, within); err != nil {
				return err
			}
		}
		b.WriteString(line + "]")
	case v.IsDict():
		for i, key := range v.AsDict().OrderedKeys() {
			b.WriteString([]string{"{", separator}[min(i, 1)] + within)
			quote(b, key)
			b.WriteString(": ")
			item, _ := v.AsDict().Get(key)
			if err := write(b, item, indent, within); err != nil {
				return err
			}
		}
		b.WriteString(line + "}")
	default:
		return errors.New("tojson of what is no JSON")
	}
	return nil
}

// float is a number as Python writes it.
func float(f float64) string {
	if magnitude := math.Abs(f); magnitude != 0 && (magnitude < 1e-4 || magnitude >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	text := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

// quote writes a string as Python's json.dumps does.
func quote(b *strings.Builder, s string) {
	b.WriteByte('"')
	for _, r := range s {
		switch short := strings.IndexRune("\"\\\n\r\t\b\f", r); {
		case short >= 0:
			b.WriteString(`\` + string(`"\nrtbf`[short]))
		case r < 0x20:
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}
