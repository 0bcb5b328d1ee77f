package text

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"
)

// huggingFace is the codec that a tokenizer.json describes.
type huggingFace struct {
	verbatim   *addedSet // added tokens looked for in the text as it is
	normalized *addedSet // and in the normalised text
	normalizer normalizers
	pre        preTokenizers
	model      model
	prepare    func(word string) string // what the model still needs done to a word
	cache      *wordCache
	around     templates
	chain      decoder
	addedIDs   map[string]int32
	addedNames map[int32]string
	vocabulary int
}

type scratch struct{ a, b []piece }

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func (h *huggingFace) encode(ctx context.Context, s string) ([]int32, error) {
	return h.cut(ctx, s, nil)
}

// standing is what an id stands for: bytes of the text, and what they have become.
type standing struct {
	place
	text string
}

// placed is encode with what each id stands for.
func (h *huggingFace) placed(ctx context.Context, s string) (ids []int32, places []standing, err error) {
	places = []standing{}
	ids, err = h.cut(ctx, s, &places)
	return ids, places, err
}

func (h *huggingFace) cut(ctx context.Context, s string, places *[]standing) ([]int32, error) {
	k := scratches.Get().(*scratch)
	defer func() {
		clear(k.a)
		clear(k.b)
		k.a, k.b = k.a[:0], k.b[:0]
		scratches.Put(k)
	}()
	b := newBudget(len(s))
	b.ctx = ctx
	whole := trace{fresh: firstRune(s)}
	if places != nil {
		for i, r := range s {
			n := utf8.RuneLen(r)
			whole.at = append(whole.at, slices.Repeat([]place{{i, i + n}}, n)...)
		}
	}
	k.a = h.verbatim.cut(piece{s: s, id: -1}.tracing(whole), k.a)
	for _, p := range k.a {
		if p.id >= 0 {
			k.b = append(k.b, p)
			continue
		}
		s, t, err := h.normalizer.normalize(p.s, p.trace(), b)
		if err == nil {
			err = b.work(len(p.s))
		}
		if err != nil {
			return nil, err
		}
		k.b = h.normalized.cut(piece{s: s, id: -1}.tracing(t), k.b)
	}
	out := make([]int32, 0, len(s)/3+4)
	split := h.pre.into(b, func(word piece) (err error) {
		if err := b.work(len(word.s)); err != nil {
			return err
		}
		if places != nil {
			out, err = h.placedWord(word, out, places, b)
			return err
		}
		out, err = h.cache.tokenize(h.model, word.s, h.prepare, out, b)
		return err
	})
	for _, p := range k.b {
		if p.id >= 0 {
			out = append(out, p.id)
			if places != nil {
				*places = append(*places, standing{p.trace().whole(), p.s})
			}
		} else if err := split(p); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// placedWord makes ids of a word, and notes which bytes of the text each stands for.
func (h *huggingFace) placedWord(word piece, out []int32, places *[]standing, b *budget) ([]int32, error) {
	var parts []place
	prepared, done := h.prepare(word.s), len(out)
	out, err := h.model.tokenize(prepared, out, &parts, b)
	if err != nil {
		return nil, err
	}
	for i, p := range parts {
		text, _ := h.model.token(out[done+i]) // an added token may have the same id
		if m, ok := h.model.(*unigram); ok && out[done+i] == m.unknown {
			text = prepared[p.start:p.end]
		}
		if len(prepared) != len(word.s) { // a character is a byte of the word
			// Where characters were dropped a token may begin and end within one.
			p.start, p.end = utf8.RuneCountInString(prepared[:p.start+1])-1, utf8.RuneCountInString(prepared[:p.end])
		}
		*places = append(*places, standing{word.trace().from(p.start, p.end).whole(), text})
	}
	return out, nil
}

// firstRune is the length of the first rune of valid text.
func firstRune(s string) int {
	for i := range s {
		if i > 0 {
			return i
		}
	}
	return len(s)
}

func (h *huggingFace) template() templates { return h.around }

func (h *huggingFace) token(id int32) (string, bool) {
	if token, ok := h.addedNames[id]; ok {
		return token, true
	}
	return h.model.token(id)
}

func (h *huggingFace) id(token string) (int32, bool) {
	if id, ok := h.addedIDs[token]; ok {
		return id, true
	}
	return h.model.id(token)
}

func (h *huggingFace) size() int { return h.vocabulary }

func (h *huggingFace) decoder(next sink, b *budget) sink { return h.chain(next, b) }

// add gives every added token its id: the model's where it knows the token, the
// next free one otherwise. The ids written in the file are not asked, as
// Hugging Face's reader does not ask them. Special tokens are looked for before
// others; of several of the same text each has the flags of the last one. With
// namesNormalized a token of the normalised text is named by its form there, which may not be the special one's.
func (h *huggingFace) add(tokens []addedToken, namesNormalized bool) error {
	h.addedIDs, h.addedNames = map[string]int32{}, map[int32]string{}
	next := int32(h.model.size())
	h.vocabulary = h.model.size()
	var ordered, others []addedToken
	special, seen, last := map[string]bool{}, map[addedToken]bool{}, map[int32]addedToken{}
	for _, t := range tokens {
		if t.Special && !special[t.Content] {
			special[t.Content] = true
			ordered = append(ordered, t)
		}
	}
	for _, t := range tokens {
		if t.ID = 0; t.Content == "" || seen[t] {
			continue
		}
		seen[t] = true
		if !special[t.Content] {
			others = append(others, t)
		}
		id, known := h.id(t.Content)
		if !known {
			id = next
			next++
			h.vocabulary++
		}
		t.ID = id
		h.addedIDs[t.Content], h.addedNames[id], last[id] = id, t.Content, t
	}
	var verbatim, normalized []addedToken
	var verbatimForms, normalizedForms []string
	b := newBudget(0)
	for _, t := range append(ordered, others...) {
		if t.Content == "" {
			continue
		}
		if err := checkToken(t.Content); err != nil {
			return err
		}
		b.token(len(t.Content))
		found := last[h.addedIDs[t.Content]]
		if !t.Normalized {
			verbatim, verbatimForms = append(verbatim, found), append(verbatimForms, t.Content)
			continue
		}
		form, _, err := h.normalizer.normalize(t.Content, trace{}, b)
		if err == nil {
			err = checkToken(form)
		}
		if err != nil {
			return err
		}
		if form == "" {
			return fmt.Errorf("found token %q, of which the normalizer leaves nothing; needed a token that can be found, or "+
				"normalized false", t.Content)
		}
		normalized, normalizedForms = append(normalized, found), append(normalizedForms, form)
		if namesNormalized && found.Normalized {
			h.addedNames[found.ID] = form
		}
	}
	h.verbatim = newAddedSet(verbatim, verbatimForms)
	h.normalized = newAddedSet(normalized, normalizedForms)
	return nil
}
