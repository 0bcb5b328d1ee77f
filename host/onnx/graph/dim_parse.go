package graph

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// parseDim reads the name that a model gives to a length. Exporters write what
// they know about it there: "past_sequence_length + 1", "batch*heads". Sums,
// differences and products of names and numbers are read as such; any other
// text is one symbol as it stands. A minus counts between spaces only, since
// names have hyphens.
func parseDim(name string) Dim {
	p := dimParser{rest: name}
	d := p.sum()
	p.space()
	if p.failed || p.rest != "" || !d.Known() {
		return DimSym(name)
	}
	return d
}

type dimParser struct {
	rest   string
	depth  int
	failed bool
}

func (p *dimParser) space() { p.rest = strings.TrimLeft(p.rest, " ") }

func (p *dimParser) sum() Dim {
	d := p.product()
	for !p.failed {
		switch {
		case p.take(" - "):
			d = d.sub(p.product())
		case p.take("+"):
			d = d.Add(p.product())
		default:
			return d
		}
	}
	return Dim{}
}

func (p *dimParser) product() Dim {
	d := p.atom()
	for !p.failed && p.take("*") {
		d = d.Mul(p.atom())
	}
	return d
}

// take consumes an operator. One that begins with a space needs that space.
func (p *dimParser) take(op string) bool {
	text := strings.TrimLeft(p.rest, " ")
	if op[0] == ' ' && len(text) < len(p.rest) {
		text = " " + text
	}
	rest, ok := strings.CutPrefix(text, op)
	if ok {
		p.rest = rest
	}
	return ok
}

func (p *dimParser) atom() Dim {
	const maxDepth = 32
	p.space()
	if rest, ok := strings.CutPrefix(p.rest, "("); ok && p.depth < maxDepth {
		p.rest = rest
		p.depth++
		d := p.sum()
		p.depth--
		if !p.take(")") {
			p.failed = true
		}
		return d
	}
	end := strings.IndexFunc(p.rest, func(r rune) bool {
		return r == utf8.RuneError || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_.-:#", r)
	})
	if end < 0 {
		end = len(p.rest)
	}
	word := p.rest[:end]
	p.rest = p.rest[end:]
	if n, err := strconv.ParseInt(word, 10, 64); err == nil && n >= 0 && word[0] != '-' {
		return DimInt(n)
	}
	first, _ := utf8.DecodeRuneInString(word)
	if !unicode.IsLetter(first) && first != '_' {
		p.failed = true
		return Dim{}
	}
	return DimSym(word)
}
