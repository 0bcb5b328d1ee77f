package text

import (
	"context"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Token is one of a text, as who labels tokens needs it.
type Token struct {
	ID         int64
	Type       int64  // token_type_ids
	Text       string // as the vocabulary has it
	Start, End int    // the characters of the text that it stands for, from 0
	Around     bool   // it was put around the text, and stands for none of it
}

// trims says that blanks at the ends of a token are none of its place, as processors of byte-level tokenizers do it.
type trims struct {
	prefix bool // the tokenizer puts a blank before a text, which is no character of it
}

// Tokens are those of a text. Marian's tokenizers do not know the places of theirs.
func (t *Tokenizer) Tokens(ctx context.Context, s string, o EncodeOptions) ([]Token, error) {
	h, ok := t.codec.(*huggingFace)
	if !ok {
		return nil, fmt.Errorf("%s: found a tokenizer that does not know the places of its tokens, needed a tokenizer.json",
			t.path)
	}
	if i := invalidUTF8(s); i >= 0 {
		return nil, notUTF8(s, i)
	}
	ids, places, err := h.placed(ctx, s)
	if err != nil {
		return nil, t.failed(ctx, err)
	}
	// What is put around and cut is the same for ids and for their numbers, which are below 0 here.
	numbered := make([]int32, len(ids))
	for i := range numbered {
		numbered[i] = int32(-1 - i)
	}
	around, err := h.around.of(false)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.path, err)
	}
	e, err := around.apply(numbered, nil, o, true)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.path, err)
	}
	characters := make([]int, len(s)+1) // before each byte
	for i := range s {
		for k := i + 1; k <= len(s) && (k == i+1 || !utf8.RuneStart(s[k-1])); k++ {
			characters[k] = characters[i] + 1
		}
	}
	list := make([]Token, len(e.IDs))
	first := int64(0) // the number of the text's first token, which a template may name twice
	for i, id := range e.IDs {
		k := &list[i]
		*k = Token{ID: id, Type: e.Types[i], Around: id >= 0}
		if !k.Around {
			p := places[-1-id]
			k.ID, k.Start, k.End = int64(ids[-1-id]), characters[p.start], characters[p.end]
			if first == 0 {
				first = id
			}
		}
		if k.Text, ok = h.token(int32(k.ID)); !ok {
			return nil, fmt.Errorf("%s: found no token of the id %d", t.path, k.ID)
		}
		if !k.Around {
			for _, trim := range h.around.trims {
				trim.apply(k, places[-1-id].text, id == first)
			}
		}
	}
	return list, nil
}

// apply takes the blanks at both ends of a token's text off its place.
func (t trims) apply(k *Token, text string, first bool) {
	blank := func(r rune) bool { return r == byteRunes[' '] || unicode.IsSpace(r) }
	before := utf8.RuneCountInString(text) - utf8.RuneCountInString(strings.TrimLeftFunc(text, blank))
	after := utf8.RuneCountInString(text) - utf8.RuneCountInString(strings.TrimRightFunc(text, blank))
	if before > 1 || !t.prefix || !first && k.Start > 0 { // one blank at the start may be the one that was put there
		k.Start = min(k.Start+before, k.End)
	}
	if after > 0 && k.End >= after {
		k.End = max(k.End-after, k.Start)
	}
}

// Join is the text of tokens that are given as the vocabulary has them.
func (t *Tokenizer) Join(tokens []string) (string, error) {
	b, out := newBudget(0), &joined{}
	chain := t.decoder(out, b)
	for _, token := range tokens {
		b.token(len(token))
		chain.part(token)
		chain.end()
	}
	chain.finish()
	if b.err != nil {
		return "", fmt.Errorf("%s: %w", t.path, b.err)
	}
	return out.String(), nil
}

// Subwords is whether the tokenizer marks tokens that continue a word, as WordPiece does.
func (t *Tokenizer) Subwords() bool {
	h, ok := t.codec.(*huggingFace)
	if !ok {
		return false
	}
	switch m := h.model.(type) {
	case *wordPiece:
		return m.prefix != ""
	case *bpe:
		return m.prefix != ""
	}
	return false
}
