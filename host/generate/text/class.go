package text

import (
	_ "embed"
	"encoding/binary"
	"sort"
	"sync"
)

// unicodeData is written by models/text/classes.py, which documents its layout.
// The classes are those of the tokenizers release that ids are compared with,
// not those of the Go release: the two know different versions of Unicode.
//
//go:embed unicode.bin
var unicodeData []byte

// class is a set of properties of a rune.
type class uint16

const (
	letter      class = 1 << iota // \p{L} of a pattern
	number                        // \p{N} of a pattern
	space                         // White_Space
	word                          // \w of the Whitespace pre-tokenizer and of single_word
	punctuation                   // as BertPreTokenizer and Punctuation see it
	numeric                       // as Digits sees it
	control                       // removed by BertNormalizer's clean_text
	nonspacing                    // removed by BertNormalizer's strip_accents
	mark                          // removed by StripAccents
	inert                         // neither decomposed nor reordered by a normal form
	classes     = 10
)

// classTable finds the class of a rune in two steps: most pages of 256 runes
// are equal to another one and stored once.
type classTable struct {
	page  [0x110000 >> 8]uint16
	pages [][256]class
	lower map[rune][]rune
	named map[string][]runeRange // categories of regular expressions; "w" is \w

	scripts []scriptRange // in the order of runes
}

// runeRange is the runes from first up to, not with, after.
type runeRange struct{ first, after rune }

// scriptRange is runes of one script, by a number of its own from 1.
type scriptRange struct {
	runeRange
	script int
}

// unicodeClasses is the table once it was needed. Its functions are no values of variables: those are in every program.
var unicodeClasses struct {
	sync.Once
	table *classTable
}

func unicodeTable() *classTable {
	unicodeClasses.Do(func() { unicodeClasses.table = readUnicode() })
	return unicodeClasses.table
}

func readUnicode() *classTable {
	flat := make([]class, 0x110000)
	at := 0
	next := func() int {
		v, n := binary.Uvarint(unicodeData[at:])
		at += n
		return int(v)
	}
	ranges := func() (out []runeRange) {
		after := rune(0)
		for range next() {
			first := after + rune(next())
			after = first + rune(next())
			out = append(out, runeRange{first, after})
		}
		return out
	}
	for c := range classes {
		for _, s := range ranges() {
			for r := s.first; r < s.after; r++ {
				flat[r] |= 1 << c
			}
		}
	}
	t := &classTable{lower: map[rune][]rune{}, named: map[string][]runeRange{}}
	r := rune(0)
	for range next() {
		r += rune(next())
		to := make([]rune, next())
		for i := range to {
			to[i] = rune(next())
		}
		t.lower[r] = to
	}
	for range next() {
		length := next()
		name := string(unicodeData[at : at+length])
		at += length
		t.named[name] = ranges()
	}
	r = 0
	for range next() {
		first := r + rune(next())
		r = first + rune(next())
		t.scripts = append(t.scripts, scriptRange{runeRange{first, r}, next() + 1})
	}
	seen := map[[256]class]uint16{}
	for p := range t.page {
		page := [256]class(flat[p<<8:])
		at, ok := seen[page]
		if !ok {
			at = uint16(len(t.pages))
			seen[page] = at
			t.pages = append(t.pages, page)
		}
		t.page[p] = at
	}
	return t
}

// of returns the class of a valid rune.
func (t *classTable) of(r rune) class {
	return t.pages[t.page[r>>8]][r&0xff]
}

// script is the number of a rune's script; 0 for those of none, as a space.
func (t *classTable) script(r rune) int {
	i := sort.Search(len(t.scripts), func(i int) bool { return r < t.scripts[i].after })
	if i == len(t.scripts) || r < t.scripts[i].first {
		return 0
	}
	return t.scripts[i].script
}

func isClass(r rune, c class) bool { return unicodeTable().of(r)&c != 0 }

func isSpace(r rune) bool { return isClass(r, space) }
