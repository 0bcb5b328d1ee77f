package main

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// function is one inline function over int64_t: its body is an expression that C and Go read alike.
type function struct {
	name       string // graft_...
	comment    string
	parameters []string
	words      []string // the expression's identifiers, numbers and operators
}

var (
	functionLine     = regexp.MustCompile(`^static inline int64_t (graft_[a-z0-9_]+)\((.*?)\) \{ return ([^;]+); \}$`)
	parameterPattern = regexp.MustCompile(`^int64_t ([a-z][a-z0-9_]*)$`)
	wordPattern      = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[-+*/%(),]|\S`)
)

// parseFunction reads a function that stands on one line.
func (h *header) parseFunction(line string) (function, error) {
	m := functionLine.FindStringSubmatch(line)
	if m == nil {
		return function{}, fmt.Errorf("found %q, needed static inline int64_t graft_name(int64_t a) { return expression; }",
			line)
	}
	f := function{name: m[1], words: wordPattern.FindAllString(m[3], -1)}
	for _, p := range strings.Split(m[2], ", ") {
		name := parameterPattern.FindStringSubmatch(p)
		if name == nil {
			return f, fmt.Errorf("%s: found parameter %q, needed int64_t name", f.name, p)
		}
		f.parameters = append(f.parameters, name[1])
	}
	for _, word := range f.words {
		if !h.knows(f, word) {
			return f, fmt.Errorf("%s: found %q in its expression, needed numbers, + - * / %%, parameters, constants and "+
				"functions above", f.name, word)
		}
	}
	return f, nil
}

// knows reports whether a word of an expression has a mirror.
func (h *header) knows(f function, word string) bool {
	switch {
	case strings.Contains("+-*/%(),", word), '0' <= word[0] && word[0] <= '9':
		return true
	case slices.Contains(f.parameters, word):
		return true
	}
	return slices.ContainsFunc(h.constants, func(c constant) bool { return c.name == word }) ||
		slices.ContainsFunc(h.functions, func(g function) bool { return g.name == word })
}

// goParameter turns kv_heads into kvHeads.
func goParameter(name string) string {
	first, rest, _ := strings.Cut(name, "_")
	return first + goName(rest)
}

// goFunction writes a function's mirror.
func goFunction(out *bytes.Buffer, f function) {
	fmt.Fprintf(out, "\n// %s mirrors %s.\n", goName(f.name), f.name)
	if f.comment != "" {
		out.WriteString("//\n")
		comment(out, "", f.comment)
	}
	var parameters []string
	for _, p := range f.parameters {
		parameters = append(parameters, goParameter(p))
	}
	fmt.Fprintf(out, "func %s(%s int64) int64 {\n\treturn", goName(f.name), strings.Join(parameters, ", "))
	for _, word := range f.words {
		switch {
		case slices.Contains(f.parameters, word):
			word = goParameter(word)
		case strings.HasPrefix(strings.ToLower(word), "graft_"):
			word = goName(word)
		}
		fmt.Fprintf(out, " %s", word)
	}
	out.WriteString("\n}\n")
}
