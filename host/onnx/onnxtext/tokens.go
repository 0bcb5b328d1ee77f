package onnxtext

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// kind is what a token is.
type kind int

const (
	end    kind = iota
	name        // letters, digits and _
	quoted      // text in quotes
	whole       // a number without a point
	number      // a number with a point or an exponent
	sign        // one character
)

type token struct {
	kind kind
	text string // of quoted without quotes and escapes
	line int
}

// String is a token as people read it.
func (t token) String() string {
	switch t.kind {
	case end:
		return "the end of the text"
	case quoted:
		return strconv.Quote(diagnostic.Clip(t.text))
	}
	return diagnostic.Clip(t.text)
}

// tokens cuts a text. A # and what follows it on its line is a comment.
func tokens(text string) (list []token, bad *problem) {
	line := 1
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == '\n':
			line++
			i++
		case c == ' ' || c == '\t' || c == '\r':
			i++
		case c == '#':
			for i < len(text) && text[i] != '\n' {
				i++
			}
		case c == '"':
			t, next, ok := quotedText(text, i+1)
			if !ok {
				return nil, &problem{line, "found text without an end", `a " at its end`, "close it"}
			}
			list = append(list, token{quoted, t, line})
			line += strings.Count(text[i:next], "\n")
			i = next
		case isLetter(c):
			from := i
			for i < len(text) && (isLetter(text[i]) || isDigit(text[i])) {
				i++
			}
			list = append(list, token{name, text[from:i], line})
		case isDigit(c), c == '-':
			from := i
			i = endOfNumber(text, i)
			word := text[from:i]
			k := whole
			if strings.ContainsAny(word, ".eE") || isLetter(word[len(word)-1]) {
				k = number
			}
			if word == "-" {
				return nil, &problem{line, "found a - without a number", "a number after it", "remove it"}
			}
			list = append(list, token{k, word, line})
		case strings.IndexByte("<>()[]{}=,:.?@", c) >= 0:
			list = append(list, token{sign, string(c), line})
			i++
		default:
			return nil, &problem{line, fmt.Sprintf("found the character %q", rune(c)),
				"names, numbers, text in quotes and < > ( ) [ ] { } = , : . ?", "remove it, or quote the name that it is in"}
		}
	}
	return append(list, token{end, "", line}), nil
}

func quotedText(text string, from int) (t string, next int, ok bool) {
	var b strings.Builder
	for i := from; i < len(text); i++ {
		switch text[i] {
		case '"':
			return b.String(), i + 1, true
		case '\\':
			i++
			if i < len(text) {
				b.WriteByte(text[i])
			}
		default:
			b.WriteByte(text[i])
		}
	}
	return "", 0, false
}

// endOfNumber is after a sign, digits, a point and an exponent, or after -inf and -nan.
func endOfNumber(text string, i int) int {
	if text[i] == '-' {
		i++
		if i < len(text) && isLetter(text[i]) {
			for i < len(text) && isLetter(text[i]) {
				i++
			}
			return i
		}
	}
	point := false
	for i < len(text) && (isDigit(text[i]) || text[i] == '.' && !point) {
		point = point || text[i] == '.'
		i++
	}
	if i < len(text) && (text[i] == 'e' || text[i] == 'E') {
		i++
		if i < len(text) && (text[i] == '+' || text[i] == '-') {
			i++
		}
		for i < len(text) && isDigit(text[i]) {
			i++
		}
	}
	return i
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }

// float is the number of a token; inf and nan are numbers too.
func (t token) float() (float64, bool) {
	switch t.kind {
	case whole, number:
		v, err := strconv.ParseFloat(t.text, 64)
		if err != nil && (math.IsInf(v, 0)) {
			return v, false
		}
		return v, err == nil
	case name:
		switch strings.ToLower(t.text) {
		case "inf", "infinity":
			return math.Inf(1), true
		case "nan":
			return math.NaN(), true
		}
	}
	return 0, false
}
