package text

import "fmt"

// template is what a post-processor makes of a text's ids: rows of fixed ids
// with the text between. Its zero value adds nothing.
type template []templatePart

type templatePart struct {
	text bool // the text's ids
	ids  []int32
}

// added is the number of ids put around one text.
func (t template) added() int {
	n := 0
	for _, part := range t {
		n += len(part.ids)
	}
	return n
}

// apply puts the special tokens around ids, cut to at most limit in all if
// limit is not 0.
func (t template) apply(ids []int32, o EncodeOptions) ([]int64, error) {
	around := 0
	if !o.OmitSpecialTokens {
		around = t.added()
	}
	if o.MaxLength > 0 {
		room := o.MaxLength - around
		if room < 0 {
			return nil, fmt.Errorf("max length: found %d, needed at least %d: the tokenizer puts that many special tokens around a text", o.MaxLength, around)
		}
		if len(ids) > room && o.TruncateLeft {
			ids = ids[len(ids)-room:]
		} else if len(ids) > room {
			ids = ids[:room]
		}
	}
	out := make([]int64, 0, len(ids)+around)
	put := func(ids []int32) {
		for _, id := range ids {
			out = append(out, int64(id))
		}
	}
	if t == nil {
		put(ids)
	}
	for _, part := range t {
		if part.text {
			put(ids)
		} else if !o.OmitSpecialTokens {
			put(part.ids)
		}
	}
	return out, nil
}
