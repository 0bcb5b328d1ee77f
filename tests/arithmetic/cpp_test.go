package arithmetic

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/scanner"
)

// A token of C++, as far as arithmetic needs: numbers have their suffix, operators one character.
type token struct {
	text       string
	line       int
	begin, end int // bytes
}

func tokens(source string) []token {
	var s scanner.Scanner
	s.Init(strings.NewReader(source))
	s.Mode = scanner.ScanIdents | scanner.ScanFloats | scanner.ScanChars | scanner.ScanStrings | scanner.ScanComments |
		scanner.SkipComments
	s.Error = func(*scanner.Scanner, string) {} // what Go would not take, C++ does
	var all []token
	for s.Scan() != scanner.EOF {
		t := token{s.TokenText(), s.Position.Line, s.Position.Offset, s.Pos().Offset}
		if n := len(all); n > 0 && all[n-1].end == t.begin && isNumber(all[n-1]) && isName(t) {
			all[n-1].text += t.text
			all[n-1].end = t.end
			continue
		}
		all = append(all, t)
	}
	return all
}

func isName(t token) bool {
	c := t.text[0]
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func isNumber(t token) bool { return t.text[0] >= '0' && t.text[0] <= '9' }

// A function of a file: the tokens from its parameters' "(" to its closing "}".
type function struct {
	name   string
	tokens []token
}

var keywords = []string{"if", "for", "while", "switch", "catch", "return", "sizeof", "decltype", "constexpr"}

// Functions with a body, those of classes included; lambdas belong to what they stand in.
func functions(source string) []function {
	all := tokens(source)
	var found []function
	for i := 1; i < len(all); i++ {
		before := all[i-1]
		typed := i > 1 && (isName(all[i-2]) || strings.Contains("*&>:~", all[i-2].text))
		if all[i].text != "(" || !isName(before) || !typed || slices.Contains(keywords, before.text) {
			continue
		}
		open := match(all, i, 1) + 1
		for open < len(all) && slices.Contains([]string{"const", "noexcept", "override"}, all[open].text) {
			open++
		}
		if open >= len(all) || all[open].text != "{" {
			continue
		}
		end := match(all, open, 1)
		found = append(found, function{before.text, all[i : end+1]})
		i = end
	}
	return found
}

// The place of the bracket that belongs to the one at i, forwards (1) or backwards (-1).
func match(all []token, i, step int) int {
	depth := 0
	for ; i >= 0 && i < len(all); i += step {
		switch all[i].text {
		case "(", "[", "{":
			depth += step
		case ")", "]", "}":
			depth -= step
		}
		if depth == 0 {
			return i
		}
	}
	return max(0, min(i, len(all)-1))
}

// What a number may do: a constant is the compiler's, a checked one throws or is a floating-point
// number, and a raw one wraps.
type kind int

const (
	constant kind = iota
	checked
	raw
)

// A reader of one function.
type reader struct {
	tokens  []token
	checked map[string]bool // names of variables and functions whose arithmetic cannot wrap
}

var checkedTypes = []string{"Size", "Dim", "double", "float"}

// Adds the names that are declared as a checked type: variables, parameters, functions.
func declared(all []token, names map[string]bool) {
	for i := 0; i+1 < len(all); i++ {
		if !slices.Contains(checkedTypes, all[i].text) {
			continue
		}
		next := i + 1
		for next < len(all) && slices.Contains([]string{"&", "*", "const"}, all[next].text) {
			next++
		}
		if next >= len(all) || !isName(all[next]) {
			continue
		}
		names[all[next].text] = true
		for j := next + 1; j < len(all) && !strings.Contains(";)}", all[j].text); j++ {
			if strings.Contains("([{", all[j].text) {
				j = match(all, j, 1)
			} else if all[j].text == "," && j+1 < len(all) {
				names[all[j+1].text] = true
			}
		}
	}
}

var constantName = regexp.MustCompile(`^(k[A-Z]\w*|GRAFT_[A-Z_]+|[A-Z]{2,}[A-Z_]*)$`)

// The primary expression that ends before place `end`: where it begins, and its kind.
func (r reader) primaryBefore(end int) (begin int, k kind) {
	i := end - 1
	last := r.tokens[i]
	switch {
	case last.text == ")" || last.text == "]" || last.text == "}":
		open := match(r.tokens, i, -1)
		callee := open - 1
		if callee >= 0 && r.tokens[callee].text == ">" { // static_cast<T>(x), f<T>(x)
			from := callee
			for from > 0 && r.tokens[from].text != "<" {
				from--
			}
			if slices.ContainsFunc(r.tokens[from:callee], func(t token) bool { return slices.Contains(checkedTypes, t.text) }) {
				return r.chain(from - 1), checked
			}
			return r.chain(from - 1), raw
		}
		if callee >= 0 && (isName(r.tokens[callee]) && r.tokens[callee].text != "return" || r.tokens[callee].text == "]") {
			begin, k = r.primaryBefore(open)
			if slices.Contains(checkedTypes, r.tokens[callee].text) {
				k = checked
			}
			switch r.tokens[callee].text {
			case "sizeof":
				k = constant
			case "DivideUp", "RoundUp": // of a Size, a Size
				arguments := r.tokens[open:i]
				if slices.ContainsFunc(arguments, func(t token) bool { return t.text == "Size" || r.checked[t.text] }) {
					k = checked
				}
			}
			return begin, k
		}
		return open, r.expression(open+1, i)
	case last.text[0] == '"':
		return i, checked
	case isNumber(last):
		if strings.ContainsAny(last.text, ".") || strings.Contains(last.text, "p") {
			return i, checked
		}
		return i, constant
	case isName(last):
		k = raw
		if r.checked[last.text] {
			k = checked
		} else if constantName.MatchString(last.text) {
			k = constant
		}
		return r.chain(i), k
	}
	return i, raw
}

// Where the chain of members and scopes begins whose last name stands at i.
func (r reader) chain(i int) int {
	for i > 1 {
		switch dot := r.tokens[i-1].text; {
		case dot == ".":
			i, _ = r.primaryBefore(i - 1)
		case i > 2 && (dot == ">" && r.tokens[i-2].text == "-" || dot == ":" && r.tokens[i-2].text == ":"):
			i, _ = r.primaryBefore(i - 2)
		default:
			return i
		}
	}
	return i
}

// Whether the token at i is an operator between two operands: the code's formatter puts blanks
// around those alone.
func (r reader) isBinary(i int) bool {
	return i > 0 && i+1 < len(r.tokens) && strings.Contains("*/%+-", r.tokens[i].text) && len(r.tokens[i].text) == 1 &&
		r.tokens[i-1].end < r.tokens[i].begin && r.tokens[i].end < r.tokens[i+1].begin
}

func isProduct(t token) bool { return strings.Contains("*/%", t.text) }

// The kind of all factors, or of all terms, that stand left of the operator at i.
func (r reader) leftOf(i int) kind {
	begin, k := r.primaryBefore(i)
	for r.isBinary(begin-1) && (isProduct(r.tokens[begin-1]) || !isProduct(r.tokens[i])) {
		var before kind
		begin, before = r.primaryBefore(begin - 1)
		k = both(before, k)
	}
	return k
}

// The kind of the primary expression after the operator at i, and for a sum of its factors.
func (r reader) rightOf(i int) kind {
	end := r.primaryEnd(i + 1)
	_, k := r.primaryBefore(end)
	for !isProduct(r.tokens[i]) && r.isBinary(end) && isProduct(r.tokens[end]) {
		end = r.primaryEnd(end + 1)
		_, next := r.primaryBefore(end)
		k = both(k, next)
	}
	return k
}

// The place after the primary expression that begins at i.
func (r reader) primaryEnd(i int) int {
	for i < len(r.tokens) {
		t := r.tokens[i]
		switch {
		case strings.Contains("([{", t.text):
			i = match(r.tokens, i, 1) + 1
		case t.text == "<" && i > 0 && r.tokens[i-1].end == t.begin: // f<T>
			for i < len(r.tokens) && r.tokens[i].text != ">" {
				i++
			}
			i++
		case isName(t) || isNumber(t) || t.text == "." || t.text == ":" || strings.Contains("-!~*&", t.text):
			i++
			if i < len(r.tokens) && t.text == "-" && r.tokens[i].text == ">" {
				i++
			}
		default:
			return i
		}
		if i < len(r.tokens) && (isName(r.tokens[i]) || isNumber(r.tokens[i])) && (isName(t) || isNumber(t)) {
			return i
		}
		if r.isBinary(i) || i < len(r.tokens) && r.tokens[i].begin > r.tokens[i-1].end && r.tokens[i].text != "(" {
			return i
		}
	}
	return i
}

// Whether the product at i is "/ k * k", which is no more than what was divided.
func (r reader) roundsDown(i int) bool {
	return i > 2 && i+1 < len(r.tokens) && r.tokens[i-2].text == "/" && r.tokens[i-1].text == r.tokens[i+1].text
}

func both(a, b kind) kind {
	if a == checked || b == checked {
		return checked
	}
	return max(a, b)
}

// The kind of a whole expression in tokens [begin, end): that of its first terms.
func (r reader) expression(begin, end int) kind {
	k := constant
	for i := begin; i < end; {
		if r.isBinary(i) {
			i++
			continue
		}
		next := r.primaryEnd(i)
		if next <= i || next > end {
			return raw
		}
		_, one := r.primaryBefore(next)
		k = both(k, one)
		i = next
	}
	return k
}

// Products, and sums of two variables, that may wrap: "line: name of the function".
func (r reader) wraps(name string) []string {
	var found []string
	for i := 1; i+2 < len(r.tokens); i++ {
		t := r.tokens[i]
		assigns := r.tokens[i+1].text == "=" && r.tokens[i+1].begin == t.end
		wraps := false
		switch {
		case t.text == "*" && r.isBinary(i):
			left, right := r.leftOf(i), r.rightOf(i)
			wraps = left != checked && right != checked && (left == raw || right == raw) && !r.roundsDown(i)
		case t.text == "+" && r.isBinary(i):
			wraps = r.leftOf(i) == raw && r.rightOf(i) == raw
		case (t.text == "*" || t.text == "+") && assigns:
			_, left := r.primaryBefore(i)
			wraps = left == raw && (t.text == "*" || r.rightOf(i+1) == raw)
		}
		if wraps {
			found = append(found, fmt.Sprintf("%d: %s", t.line, name))
		}
	}
	return found
}

// What may wrap in the functions of a file whose name `plans` matches. `returns` names functions
// and members of checked types in other files.
func wrapping(source string, plans *regexp.Regexp, returns map[string]bool) []string {
	var found []string
	for _, f := range functions(source) {
		if !plans.MatchString(f.name) {
			continue
		}
		names := map[string]bool{}
		for name := range returns {
			names[name] = true
		}
		declared(f.tokens, names)
		found = append(found, reader{f.tokens, names}.wraps(f.name)...)
	}
	return found
}
