package text

import "fmt"

// templates are what a post-processor makes of one text, and of two.
type templates struct {
	single, pair template
	bad          error // why there is nothing for two
	trims        []trims
}

// template is rows of fixed ids with the texts between. nil is the texts one after the other.
type template []templatePart

type templatePart struct {
	text   bool // the ids of a text
	second bool // of the second one
	ids    []int32
	kind   int64 // type of the ids: which text they belong to
}

// joinedPair is a pair without a template.
var joinedPair = template{{text: true}, {text: true, second: true, kind: 1}}

// added is the number of ids put around the texts.
func (t template) added() int {
	n := 0
	for _, part := range t {
		n += len(part.ids)
	}
	return n
}

// texts is how often the first text and the second are in a template.
func (t template) texts() (n [2]int) {
	for _, part := range t {
		switch {
		case part.second:
			n[1]++
		case part.text:
			n[0]++
		}
	}
	return n
}

// of is the template for one text or two.
func (a templates) of(pair bool) (template, error) {
	switch {
	case pair && a.bad != nil:
		return nil, a.bad
	case pair && a.pair == nil:
		return joinedPair, nil
	case pair:
		return a.pair, nil
	case a.single == nil:
		return joinedPair[:1], nil
	}
	return a.single, nil
}

// apply puts the special tokens around the ids of texts, cut to at most MaxLength in all if that is not 0. Types are
// made where they are asked for.
func (t template) apply(first, second []int32, o EncodeOptions, types bool) (e Encoding, err error) {
	added := 0
	if !o.OmitSpecialTokens {
		added = t.added()
	}
	if o.MaxLength > 0 {
		room := o.MaxLength - added
		if room < 0 {
			return e, fmt.Errorf("max length: found %d, needed at least %d: the tokenizer puts that many special tokens "+
				"around a text", o.MaxLength, added)
		}
		a, b := longestFirst(len(first), len(second), room)
		if o.OnlyFirst && room > 0 && len(first)+len(second) > room { // without room nothing of both is left
			if a, b = room-len(second), len(second); a < 1 {
				return e, fmt.Errorf("max length: found %d, needed at least %d: the second text has %d tokens, and is not cut",
					o.MaxLength, added+b+1, b)
			}
		}
		first, second = cut(first, a, o.TruncateLeft), cut(second, b, o.TruncateLeft)
	}
	n := len(first) + len(second) + added
	e.IDs = make([]int64, 0, n)
	if types {
		e.Types = make([]int64, 0, n)
	}
	for _, part := range t {
		ids := part.ids
		switch {
		case part.text && part.second:
			ids = second
		case part.text:
			ids = first
		case o.OmitSpecialTokens:
			ids = nil
		}
		for _, id := range ids {
			e.IDs = append(e.IDs, int64(id))
			if types {
				e.Types = append(e.Types, part.kind)
			}
		}
	}
	return e, nil
}

// longestFirst is how many ids of two texts stay where there is room for so many: the longer one is cut to the length
// of the shorter, then both. It is the rule of Hugging Face's tokenizers.
func longestFirst(a, b, room int) (int, int) {
	if a+b <= room {
		return a, b
	}
	short, long := min(a, b), room-min(a, b)
	if short > room || long < short {
		short, long = room/2, room-room/2
	}
	if a > b {
		return long, short
	}
	return short, long
}

// cut is the first n ids, or the last.
func cut(ids []int32, n int, left bool) []int32 {
	if left {
		return ids[len(ids)-min(n, len(ids)):]
	}
	return ids[:min(n, len(ids))]
}
