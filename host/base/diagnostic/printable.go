package diagnostic

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable is a text of a model, a plugin or a file as a terminal, a log or a report may show it, in one
// line: what has no shape of its own (control characters, escape sequences, ends of lines, marks that turn
// or hide text, bytes that are not UTF-8) stands as an escape of Go, \x1b or \u202e. All that people read
// which others wrote goes through it.
func Printable(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, hidden) {
		return s
	}
	var out strings.Builder
	for i, r := range s {
		switch _, n := utf8.DecodeRuneInString(s[i:]); {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&out, `\x%02x`, s[i])
		case hidden(r):
			out.WriteString(strings.Trim(strconv.QuoteRuneToGraphic(r), "'"))
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}

// PrintableLines is Printable for a text that may have several lines. All but the first are indented, so that
// none can pass for a line of its own.
func PrintableLines(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i, line := range lines {
		lines[i] = Printable(line)
		if i > 0 && !strings.HasPrefix(line, "  ") {
			lines[i] = "  " + lines[i]
		}
	}
	return strings.Join(lines, "\n")
}

// PrintableJSON is valid JSON with the same meaning: what Printable escapes and encoding/json does not, \u007f
// and what is beyond ASCII, stands as \u and four digits.
func PrintableJSON(data []byte) []byte {
	out := make([]byte, 0, len(data))
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		switch {
		case r < utf8.RuneSelf && r != 0x7f, !hidden(r):
			out = append(out, data[:n]...)
		case r > 0xffff:
			high, low := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		data = data[n:]
	}
	return out
}

// hidden reports a rune that a reader does not see as itself.
func hidden(r rune) bool { return !unicode.IsGraphic(r) }
