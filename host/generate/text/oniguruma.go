package text

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// oniguruma reads an expression in the syntax of Oniguruma, as tokenizers compiles it (Ruby's), and writes it in that
// of regexp2. Sets are computed here, of the characters that Oniguruma's release knows: regexp2 has neither sets in
// sets nor the same tables. What has no counterpart is refused by name.
type oniguruma struct {
	in    string
	at    int
	depth int
}

// A charSet is characters, and how they are written inside of brackets.
type charSet struct {
	members []runeRange // in order, apart
	text    string      // "" for the members themselves
	folds   bool        // a letter of it has no other case outside of it
}

// propertyTexts are categories as they are written inside of brackets, by name, once they were needed.
var propertyTexts sync.Map

var everything = []runeRange{{0, unicode.MaxRune + 1}}

func (s charSet) inner() string {
	if s.text != "" {
		return s.text
	}
	return ranges(s.members)
}

// write is a set as an expression.
func (s charSet) write(negated bool) string {
	switch {
	case len(s.members) == 0 && negated:
		return `[\s\S]`
	case len(s.members) == 0:
		return `[^\s\S]`
	case negated:
		return "[^" + s.inner() + "]"
	}
	return "[" + s.inner() + "]"
}

func union(a, b charSet) charSet {
	out := charSet{folds: a.folds && b.folds}
	if a.text != "" || b.text != "" { // the tables' own text is shorter than their members, and faster
		out.text = a.inner() + b.inner()
	}
	all := slices.Concat(a.members, b.members)
	slices.SortFunc(all, func(x, y runeRange) int { return int(x.first - y.first) })
	for _, r := range all {
		if last := len(out.members) - 1; last >= 0 && out.members[last].after >= r.first {
			out.members[last].after = max(out.members[last].after, r.after)
		} else {
			out.members = append(out.members, r)
		}
	}
	return out
}

func (s charSet) negated() charSet {
	return charSet{members: outside(everything, s.members), folds: s.folds}
}

// propertyText is shorter than a category's members where Go's table has none that Oniguruma's has not; else "".
func propertyText(name string, members []runeRange) string {
	if text, ok := propertyTexts.Load(name); ok {
		return text.(string)
	}
	text := ""
	if own := unicode.Categories[name]; own != nil {
		if newer := beyond(members, own); count(members)-count(newer) == sizeOf(own) {
			text = `\p{` + name + `}` + ranges(newer)
		}
	}
	propertyTexts.Store(name, text)
	return text
}

func count(set []runeRange) (n int) {
	for _, r := range set {
		n += int(r.after - r.first)
	}
	return n
}

func sizeOf(table *unicode.RangeTable) (n int) {
	for _, r := range table.R16 {
		n += int((r.Hi-r.Lo)/r.Stride) + 1
	}
	for _, r := range table.R32 {
		n += int((r.Hi-r.Lo)/r.Stride) + 1
	}
	return n
}

// fromOniguruma translates a whole expression.
func fromOniguruma(expression string) (string, error) {
	p := &oniguruma{in: expression}
	out, err := p.alternatives(false)
	if err == nil && p.at < len(p.in) {
		err = p.refuse(")")
	}
	if err == nil && len(out) > maxTranslated {
		err = p.refuse("so many sets and word boundaries")
	}
	return out, err
}

func (p *oniguruma) refuse(what string) error {
	return fmt.Errorf("found %s at byte %d, needed an expression of sets, groups, alternatives, repetitions and looking "+
		"ahead and behind", what, p.at)
}

func (p *oniguruma) has(s string) bool { return strings.HasPrefix(p.in[p.at:], s) }

func (p *oniguruma) take(s string) bool {
	if !p.has(s) {
		return false
	}
	p.at += len(s)
	return true
}

func (p *oniguruma) next() rune {
	r, n := utf8.DecodeRuneInString(p.in[p.at:])
	p.at += n
	return r
}

// alternatives reads up to the end of a group, or of all.
func (p *oniguruma) alternatives(ignoreCase bool) (string, error) {
	if p.depth++; p.depth > maxDepth {
		return "", p.refuse("more groups and sets in each other than a tokenizer has")
	}
	defer func() { p.depth-- }()
	var out strings.Builder
	last := rune(0) // the letter before, where cases are equal
	for p.at < len(p.in) && !p.has(")") {
		if p.take("|") {
			out.WriteByte('|')
			last = 0
			continue
		}
		before := p.at
		one, single, err := p.element(ignoreCase)
		if err != nil {
			return "", err
		}
		if ignoreCase && single > 0 {
			if r := unicode.ToLower(single); r >= utf8.RuneSelf || strings.Contains("ff fi fl ss st", string([]rune{last, r})) {
				p.at = before
				return "", p.refuse(fmt.Sprintf("%q without regard to case, which equals other characters too",
					strings.TrimLeft(string([]rune{last, r}), "\x00")))
			}
			last = unicode.ToLower(single)
		} else {
			last = 0
		}
		out.WriteString(one)
		repeat, err := p.repetition(one)
		if err != nil {
			return "", err
		}
		if repeat != "" {
			last = 0
		}
		out.WriteString(repeat)
	}
	return out.String(), nil
}

// element reads what a repetition may follow; single is the character where it is one.
func (p *oniguruma) element(ignoreCase bool) (out string, single rune, err error) {
	switch {
	case p.has("("):
		out, err = p.group(ignoreCase)
	case p.take("."):
		out = `[^\n]`
	case p.take("^"): // not after the last line end of a text
		out = `(?:\A|(?<=\n)(?!\z))`
	case p.take("$"):
		out = `(?=\n|\z)`
	case p.take("["):
		var s charSet
		if s, err = p.set(ignoreCase); err == nil {
			out = s.write(false)
		}
	case p.has(`\`):
		return p.escape(ignoreCase)
	case p.has("*"), p.has("+"), p.has("?"):
		err = p.refuse(p.in[p.at:p.at+1] + " after nothing")
	default:
		single = p.next()
		out = literalOf(single, ignoreCase)
	}
	return out, single, err
}

// literalOf writes one character.
func literalOf(r rune, ignoreCase bool) string {
	if ignoreCase {
		return folded(charSet{members: []runeRange{{r, r + 1}}}).write(false)
	}
	if r < utf8.RuneSelf && (r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r)) || r > 0xFFFF {
		return string(r)
	}
	return fmt.Sprintf(`\u%04X`, r)
}

// folded adds the other case of ASCII's letters, and what else equals them.
func folded(s charSet) charSet {
	var more []runeRange
	for _, m := range s.members {
		for r := m.first; r < min(m.after, utf8.RuneSelf); r++ {
			for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
				more = append(more, runeRange{other, other + 1})
			}
		}
	}
	for _, r := range more {
		s = union(s, charSet{members: []runeRange{r}, folds: s.folds})
	}
	return s
}

// group reads what stands in parentheses.
func (p *oniguruma) group(ignoreCase bool) (string, error) {
	begun := p.at
	p.at++
	open := "(?:" // numbers of groups are used by references alone, which are refused
	switch {
	case p.take("?#"):
		end := strings.IndexByte(p.in[p.at:], ')')
		if end < 0 {
			return "", p.refuse("a comment without end")
		}
		p.at += end + 1
		return "(?:)", nil
	case p.take("?:"):
	case p.take("?="):
		open = "(?="
	case p.take("?!"):
		open = "(?!"
	case p.take("?>"):
		open = "(?>"
	case p.take("?<="):
		open = "(?<="
	case p.take("?<!"):
		open = "(?<!"
	case p.has("?<"):
		end := strings.IndexByte(p.in[p.at:], '>')
		if end < 0 {
			return "", p.refuse("a name without end")
		}
		p.at += end + 1
	case p.take("?"):
		on := true
		for ; p.at < len(p.in) && p.in[p.at] != ')' && p.in[p.at] != ':'; p.at++ {
			switch p.in[p.at] {
			case '-':
				on = false
			case 'i':
				ignoreCase = on
			default:
				return "", p.refuse("(?" + p.in[p.at:p.at+1])
			}
		}
		if p.take(")") { // what follows, up to the end of the group around
			rest, err := p.alternatives(ignoreCase)
			return "(?:" + rest + ")", err
		}
		p.take(":")
	}
	inner, err := p.alternatives(ignoreCase)
	if err == nil && !p.take(")") {
		p.at = begun
		err = p.refuse("( without )")
	}
	return open + inner + ")", err
}

// repetition reads *, +, ?, {n,m} and what follows them.
func (p *oniguruma) repetition(of string) (string, error) {
	out := ""
	for p.at < len(p.in) {
		var one string
		braces, exact := false, false
		switch {
		case p.take("*"):
			one = "*"
		case p.take("+"):
			one = "+"
		case p.take("?"):
			one = "?"
		case p.has("{"):
			var n int
			if one, exact, n = interval(p.in[p.at:]); n == 0 {
				return out, nil // a brace is itself
			}
			p.at += n
			braces = true
		default:
			return out, nil
		}
		if out != "" || strings.HasPrefix(of, "(?=") || strings.HasPrefix(of, "(?!") || strings.HasPrefix(of, "(?<") {
			return "", p.refuse("a repetition of a repetition or of what has no length")
		}
		switch {
		case !exact && p.take("?"):
			one += "?"
		case exact && p.has("?"), braces && p.has("+"):
			return "", p.refuse(one + p.in[p.at:p.at+1])
		case p.has("+"):
			return "", p.refuse("the possessive " + one + "+")
		}
		out = one
	}
	return out, nil
}

// interval reads {n}, {n,}, {,m} and {n,m}; n is 0 for anything else.
func interval(s string) (out string, exact bool, n int) {
	inner, _, ok := strings.Cut(s[1:], "}")
	low, high, comma := strings.Cut(inner, ",")
	number := func(s string) bool { _, err := strconv.ParseUint(s, 10, 16); return err == nil }
	if !ok || low == "" && high == "" || low != "" && !number(low) || high != "" && !number(high) {
		return "", false, 0
	}
	if low == "" {
		low = "0"
	}
	if !comma {
		return "{" + low + "}", true, len(inner) + 2
	}
	return "{" + low + "," + high + "}", false, len(inner) + 2
}

// escape reads \ and what belongs to it, outside of sets.
func (p *oniguruma) escape(ignoreCase bool) (out string, single rune, err error) {
	words := charSet{members: unicodeTable().named["w"]}.inner()
	switch {
	case p.take(`\A`):
		return `\A`, 0, nil
	case p.take(`\z`):
		return `\z`, 0, nil
	case p.take(`\Z`):
		return `(?=\n?\z)`, 0, nil
	case p.take(`\b`):
		return "(?:(?<=[" + words + "])(?![" + words + "])|(?<![" + words + "])(?=[" + words + "]))", 0, nil
	case p.take(`\B`):
		return "(?:(?<=[" + words + "])(?=[" + words + "])|(?<![" + words + "])(?![" + words + "]))", 0, nil
	case p.take(`\R`):
		return `(?>\r\n|[\n-\r\u0085\u2028\u2029])`, 0, nil
	}
	s, r, err := p.named(false)
	switch {
	case err != nil:
		return "", 0, err
	case s != nil && ignoreCase && !s.folds:
		return "", 0, p.refuse("a set of one case without regard to case")
	case s != nil:
		return s.write(false), 0, nil
	}
	return literalOf(r, ignoreCase), r, nil
}

// named reads an escape: a set, or one character.
func (p *oniguruma) named(inSet bool) (*charSet, rune, error) {
	begun := p.at
	p.at++
	if p.at == len(p.in) {
		return nil, 0, p.refuse(`\ at the end`)
	}
	sets := map[rune]string{'d': "Nd", 'w': "w", 's': "Space", 'h': "XDigit"}
	c := p.next()
	if name, ok := sets[unicode.ToLower(c)]; ok {
		return p.property(name, unicode.IsUpper(c), inSet)
	}
	switch c {
	case 'p', 'P':
		inner, _, ok := strings.Cut(p.in[p.at:], "}")
		if !ok || !strings.HasPrefix(inner, "{") {
			return nil, 0, p.refuse(p.in[begun:p.at])
		}
		p.at += len(inner) + 1
		name, not := strings.CutPrefix(inner[1:], "^")
		if strings.EqualFold(name, "w") { // the table's name of \w alone
			return nil, 0, p.refuse(fmt.Sprintf("the property %q", name))
		}
		return p.property(name, not != (c == 'P'), inSet)
	case 't':
		return nil, '\t', nil
	case 'n':
		return nil, '\n', nil
	case 'r':
		return nil, '\r', nil
	case 'f':
		return nil, '\f', nil
	case 'v':
		return nil, '\v', nil
	case 'a':
		return nil, '\a', nil
	case 'e':
		return nil, 0x1b, nil
	case 'x', 'u':
		return p.hexadecimal(c)
	case 'b':
		if inSet {
			return nil, '\b', nil
		}
	}
	if c < utf8.RuneSelf && (unicode.IsLetter(c) || unicode.IsDigit(c)) {
		what := p.in[begun:p.at]
		p.at = begun
		return nil, 0, p.refuse(what)
	}
	return nil, c, nil
}

// hexadecimal reads \x{H...}, \xHH and \uHHHH after their letter.
func (p *oniguruma) hexadecimal(c rune) (*charSet, rune, error) {
	rest := p.in[p.at:]
	digits := ""
	switch {
	case c == 'u' && len(rest) >= 4:
		digits = rest[:4]
		p.at += 4
	case c == 'x' && strings.HasPrefix(rest, "{") && strings.Contains(rest, "}"):
		digits = rest[1:strings.IndexByte(rest, '}')]
		p.at += len(digits) + 2
	case c == 'x' && len(rest) >= 2:
		digits = rest[:2]
		p.at += 2
	}
	n, err := strconv.ParseUint(digits, 16, 32)
	byteAlone := c == 'x' && n > 0x7f && !strings.HasPrefix(rest, "{")
	if err != nil || n > unicode.MaxRune || !utf8.ValidRune(rune(n)) || byteAlone {
		return nil, 0, p.refuse(`\` + string(c) + digits)
	}
	return nil, rune(n), nil
}

// property is a set by name.
func (p *oniguruma) property(name string, negated, inSet bool) (*charSet, rune, error) {
	table := unicodeTable()
	plain := strings.ToLower(strings.NewReplacer(" ", "", "_", "", "-", "").Replace(name))
	long := map[string]string{"letter": "l", "mark": "m", "number": "n", "punctuation": "p", "symbol": "s",
		"separator": "z", "other": "c", "digit": "nd", "word": "w", "cntrl": "cc"}
	if short, ok := long[plain]; ok {
		plain = short
	}
	s := charSet{folds: true}
	switch plain {
	case "xdigit":
		s.members = []runeRange{{'0', '9' + 1}, {'A', 'F' + 1}, {'a', 'f' + 1}}
	case "ascii":
		s.members = []runeRange{{0, utf8.RuneSelf}}
	case "any":
		s.members = everything
	default:
		for known, members := range table.named {
			if strings.ToLower(known) != plain {
				continue
			}
			s.members = members
			s.folds = !slices.Contains([]string{"lu", "ll", "lt", "lower", "upper"}, plain)
			s.text = propertyText(known, members)
		}
		if s.members == nil {
			return nil, 0, p.refuse(fmt.Sprintf("the property %q", name))
		}
	}
	if inSet && plain == "w" {
		s.members, s.text = outside(s.members, numbersOutsideOfSets), ""
	}
	if negated {
		s = s.negated()
	}
	return &s, 0, nil
}

// set reads a set after its [, up to its ].
func (p *oniguruma) set(ignoreCase bool) (charSet, error) {
	if p.depth++; p.depth > maxDepth {
		return charSet{}, p.refuse("more groups and sets in each other than a tokenizer has")
	}
	defer func() { p.depth-- }()
	negated := p.take("^")
	whole, now := charSet{members: everything, folds: true}, charSet{folds: true}
	parts := 0
	for first := true; ; first = false {
		switch {
		case p.at == len(p.in):
			return now, p.refuse("[ without ]")
		case p.take("&&"):
			whole, now = intersection(whole, now), charSet{folds: true}
			parts++
			continue
		case !first && p.take("]"):
			if parts > 0 {
				now = intersection(whole, now)
			}
			if ignoreCase {
				wide := len(outside(now.members, []runeRange{{0, utf8.RuneSelf}})) > 0
				if !now.folds || wide && !negated { // one character may equal two, as \u00df does ss
					return now, p.refuse("a set of letters beyond ASCII without regard to case")
				}
				now = folded(now)
			}
			if negated {
				now = now.negated()
			}
			return now, nil
		}
		one, err := p.member(ignoreCase)
		if err != nil {
			return now, err
		}
		now = union(now, one)
	}
}

func intersection(a, b charSet) charSet {
	return charSet{members: outside(a.members, outside(everything, b.members)), folds: a.folds && b.folds}
}

// member reads one member of a set: a set in it, a class by name, a character or a range.
func (p *oniguruma) member(ignoreCase bool) (charSet, error) {
	if p.take("[:") {
		name, _, ok := strings.Cut(p.in[p.at:], ":]")
		if !ok || strings.ContainsAny(name, "[]") {
			return charSet{}, p.refuse("[: without :]")
		}
		p.at += len(name) + 2
		name, not := strings.CutPrefix(name, "^")
		s, _, err := p.property(name, not, true)
		if err != nil {
			return charSet{}, err
		}
		if symbols := (charSet{members: unicodeTable().named["S"], folds: true}); name == "punct" && not {
			return intersection(*s, symbols.negated()), nil
		} else if name == "punct" { // which \p{Punct} has not
			return union(*s, symbols), nil
		}
		return *s, nil
	}
	if p.take("[") {
		return p.set(ignoreCase)
	}
	read := func() (*charSet, rune, error) {
		if p.has(`\`) {
			return p.named(true)
		}
		return nil, p.next(), nil
	}
	s, low, err := read()
	switch {
	case err != nil:
		return charSet{}, err
	case s != nil: // a - after it is itself
		return *s, nil
	}
	high := low
	if p.has("-") && !p.has("-]") {
		p.at++
		if p.at == len(p.in) || p.has("[") || p.has("&&") {
			return charSet{}, p.refuse("a range without end")
		}
		if s, high, err = read(); err == nil && (s != nil || high < low) {
			err = p.refuse("a range that ends with a set or before it begins")
		}
		if err != nil {
			return charSet{}, err
		}
	}
	return charSet{members: []runeRange{{low, high + 1}}, folds: high < utf8.RuneSelf}, nil
}
