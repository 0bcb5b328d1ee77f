package text

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// charsmap is sentencepiece's precompiled normaliser: a double-array trie from
// byte strings to offsets of what replaces them, each ended by a zero byte.
type charsmap struct {
	units []uint32
	text  string
}

// newCharsmap reads the blob: the trie's length in bytes, the trie, the texts; all little-endian.
func newCharsmap(blob []byte) (*charsmap, error) {
	if len(blob) == 0 {
		return nil, nil
	}
	if len(blob) < 4 {
		return nil, fmt.Errorf("precompiled charsmap: found %d bytes, needed at least 4", len(blob))
	}
	size := int64(binary.LittleEndian.Uint32(blob))
	if size%4 != 0 || size == 0 || size > int64(len(blob)-4) {
		return nil, fmt.Errorf("precompiled charsmap: found a trie of %d bytes in a blob of %d, needed a multiple of 4 "+
			"that fits", size, len(blob))
	}
	c := &charsmap{units: make([]uint32, size/4), text: string(blob[4+size:])}
	for i := range c.units {
		c.units[i] = binary.LittleEndian.Uint32(blob[4+4*i:])
	}
	return c, nil
}

// matches calls found with the offset and length of each key that s starts
// with, shortest first, until it returns false. A broken trie ends the search.
func (c *charsmap) matches(s string, found func(offset, length int) bool) {
	skip := func(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }
	node := skip(c.units[0])
	for i := 0; i < len(s); i++ {
		node ^= uint32(s[i])
		if int(node) >= len(c.units) {
			return
		}
		unit := c.units[node]
		if unit&(1<<31|0xff) != uint32(s[i]) {
			return
		}
		node ^= skip(unit)
		if unit>>8&1 == 1 {
			if int(node) >= len(c.units) {
				return
			}
			if !found(int(c.units[node]&(1<<31-1)), i+1) {
				return
			}
		}
	}
}

// at returns the replacement stored at offset.
func (c *charsmap) at(offset int) string {
	if offset >= len(c.text) {
		return ""
	}
	s := c.text[offset:]
	if end := strings.IndexByte(s, 0); end >= 0 {
		s = s[:end]
	}
	return s
}

// shortest returns the replacement of the shortest key that s starts with.
func (c *charsmap) shortest(s string) (to string, ok bool) {
	if s == "\x00" {
		return "", false
	}
	c.matches(s, func(offset, _ int) bool {
		to, ok = c.at(offset), true
		return false
	})
	return to, ok
}

// longest returns the replacement and length of the longest key that s starts with.
func (c *charsmap) longest(s string) (to string, length int) {
	offset := 0
	c.matches(s, func(o, l int) bool {
		offset, length = o, l
		return true
	})
	if length > 0 {
		to = c.at(offset)
	}
	return to, length
}

// precompiled is the Precompiled normaliser of tokenizers. Unlike
// sentencepiece it looks up grapheme clusters of fewer than six bytes whole,
// and then takes the shortest key; runes by themselves otherwise.
type precompiled struct{ *charsmap }

func (n precompiled) normalize(s string, t trace, b *budget) (string, trace, error) {
	out := make([]byte, 0, len(s)+16)
	made := trace{}
	var runes []orderedRune
	var err error
	put := func(start int, part string) bool {
		to, ok := n.shortest(part)
		if ok && err == nil {
			if err = b.grow("Precompiled", len(part), len(to)); err == nil {
				out = append(out, to...)
			}
		}
		if ok && t.at != nil {
			// Of more runes than there were the last ones take none, and of fewer the last one takes the rest: there
			// may be none, whose rest is then lost, as the reference loses it.
			more := utf8.RuneCountInString(part) - utf8.RuneCountInString(to)
			for _, r := range to {
				runes = append(runes, orderedRune{r: r})
			}
			for i := len(runes) - 1; i >= len(runes)+more; i-- {
				runes[i].more = -1
			}
			if more > 0 && len(runes) > 0 {
				runes[len(runes)-1].more += more
			}
		}
		if start < t.fresh {
			made.fresh = len(out)
		}
		return ok
	}
	state := -1
	rest := s
	for rest != "" {
		start := len(s) - len(rest)
		var cluster string
		if len(rest) == 1 || rest[0] < utf8.RuneSelf && rest[1] < utf8.RuneSelf && rest[0] != '\r' {
			cluster, rest, state = rest[:1], rest[1:], -1
		} else {
			cluster, rest, state = graphemeCluster(rest, state)
		}
		if len(cluster) < 6 && put(start, cluster) {
			continue
		}
		for i, r := range cluster {
			part := cluster[i : i+utf8.RuneLen(r)]
			if !put(start+i, part) {
				out = append(out, part...)
				if t.at != nil {
					runes = append(runes, orderedRune{r: r})
				}
				if start+i < t.fresh {
					made.fresh = len(out)
				}
			}
		}
	}
	if t.fresh > 0 && made.fresh == 0 {
		// What stood first is deleted: the next character takes its place.
		made.fresh = firstRune(string(out[:min(len(out), utf8.UTFMax)]))
	}
	made.at = placesOf(runes, s, t.at)
	return string(out), made, err
}

// newMarks are the marks that the compared release's grapheme clusters know and uniseg's do not, once they were needed.
var newMarks struct {
	sync.Once
	runes map[rune]bool
}

// isNewMark reports whether a rune is one of newMarks.
func isNewMark(r rune) bool {
	newMarks.Do(func() {
		newMarks.runes = map[rune]bool{}
		for _, s := range beyond(unicodeTable().named["M"], unicode.M) {
			for r := s.first; r < s.after; r++ {
				newMarks.runes[r] = true
			}
		}
	})
	return newMarks.runes[r]
}

// graphemeCluster cuts the first cluster from s; state is uniseg's, -1 at first.
func graphemeCluster(s string, state int) (cluster, rest string, _ int) {
	cluster, rest, _, state = uniseg.FirstGraphemeClusterInString(s, state)
	for rest != "" {
		// To uniseg a new mark begins a cluster, with all marks after it.
		if r, _ := utf8.DecodeRuneInString(rest); r < 0x300 || !isNewMark(r) {
			break
		}
		var more string
		more, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, -1)
		cluster = s[:len(cluster)+len(more)]
	}
	return cluster, rest, state
}
