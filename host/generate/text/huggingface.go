package text

import "sync"

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

func (h *huggingFace) encode(s string) ([]int32, error) {
	k := scratches.Get().(*scratch)
	defer func() {
		clear(k.a)
		clear(k.b)
		k.a, k.b = k.a[:0], k.b[:0]
		scratches.Put(k)
	}()
	b := newBudget(len(s))
	k.a = h.verbatim.cut(piece{s: s, id: -1, fresh: firstRune(s)}, k.a)
	for _, p := range k.a {
		if p.id >= 0 {
			k.b = append(k.b, p)
			continue
		}
		var err error
		if p.s, p.fresh, err = h.normalizer.normalize(p.s, p.fresh, b); err != nil {
			return nil, err
		}
		k.b = h.normalized.cut(p, k.b)
	}
	out := make([]int32, 0, len(s)/3+4)
	split := h.pre.into(b, func(word piece) (err error) {
		out, err = h.cache.tokenize(h.model, word.s, h.prepare, out)
		return err
	})
	for _, p := range k.b {
		if p.id >= 0 {
			out = append(out, p.id)
		} else if err := split(p); err != nil {
			return nil, err
		}
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
// Hugging Face's reader does not ask them.
func (h *huggingFace) add(tokens []addedToken) error {
	h.addedIDs, h.addedNames = map[string]int32{}, map[int32]string{}
	next := int32(h.model.size())
	h.vocabulary = h.model.size()
	var verbatim, normalized []addedToken
	var verbatimForms, normalizedForms []string
	b := newBudget(0)
	for _, t := range tokens {
		if t.Content == "" {
			continue
		}
		if err := checkToken(t.Content); err != nil {
			return err
		}
		b.token(len(t.Content))
		id, known := h.id(t.Content)
		if !known {
			id = next
			next++
			h.vocabulary++
		}
		t.ID = id
		h.addedIDs[t.Content], h.addedNames[id] = id, t.Content
		if !t.Normalized {
			verbatim, verbatimForms = append(verbatim, t), append(verbatimForms, t.Content)
			continue
		}
		form, _, err := h.normalizer.normalize(t.Content, 0, b)
		if err == nil {
			err = checkToken(form)
		}
		if err != nil {
			return err
		}
		normalized, normalizedForms = append(normalized, t), append(normalizedForms, form)
	}
	h.verbatim = newAddedSet(verbatim, verbatimForms)
	h.normalized = newAddedSet(normalized, normalizedForms)
	return nil
}
