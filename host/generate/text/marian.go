package text

import (
	"context"
	"strings"
	"unicode"
	"unicode/utf8"
)

// marian is one side of a Marian model: sentencepiece cuts the text, vocab.json
// numbers the pieces.
type marian struct {
	pieces  *sentencePiece // of this side
	spoken  *sentencePiece // of the side that ids are decoded to
	ids     map[string]int32
	names   map[int32]string
	unknown int32
	around  templates
	added   *addedSet
	addedID map[string]int32
	special map[string]bool
}

func (m *marian) encode(ctx context.Context, s string) ([]int32, error) {
	var out []int32
	var pieces []string
	b := newBudget(len(s))
	b.ctx = ctx
	for _, p := range m.added.cut(piece{s: s, id: -1}, nil) {
		if p.id >= 0 {
			out = append(out, p.id)
			continue
		}
		pieces = pieces[:0]
		text := p.s
		// A code such as >>fra<< names the target language: one token.
		if strings.HasPrefix(text, ">>") {
			if end := strings.Index(text, "<<"); end >= 0 {
				pieces, text = append(pieces, text[:end+2]), text[end+2:]
			}
		}
		var err error
		if pieces, err = m.pieces.encode(text, pieces, b); err != nil {
			return nil, err
		}
		for _, piece := range pieces {
			if id, ok := m.id(piece); ok {
				out = append(out, id)
			} else {
				out = append(out, m.unknown)
			}
		}
	}
	return out, nil
}

func (m *marian) template() templates { return m.around }

func (m *marian) token(id int32) (string, bool) {
	token, ok := m.names[id]
	return token, ok
}

func (m *marian) id(token string) (int32, bool) {
	if id, ok := m.addedID[token]; ok {
		return id, true
	}
	id, ok := m.ids[token]
	return id, ok
}

func (m *marian) size() int {
	n := len(m.ids)
	for token := range m.addedID {
		if _, ok := m.ids[token]; !ok {
			n++
		}
	}
	return n
}

func (m *marian) decoder(next sink, _ *budget) sink {
	return &marianDecoder{model: m.spoken, special: m.special, next: next, start: true}
}

// marianDecoder joins pieces as sentencepiece does, anew after every special
// token, which it writes with a space after it; whitespace at the ends of the
// whole is dropped.
type marianDecoder struct {
	model   *sentencePiece
	special map[string]bool
	next    sink
	token   strings.Builder

	run     []byte // bytes of <0xHH> pieces not yet written
	written bool   // since the last special token
	sawGap  bool   // the leading space of this run has been dropped
	start   bool   // nothing but whitespace so far
	held    string // whitespace that may be the end
}

func (d *marianDecoder) part(s string) { d.token.WriteString(s) }

func (d *marianDecoder) end() {
	token := d.token.String()
	d.token.Reset()
	if d.special[token] {
		d.flushBytes()
		d.write(token + " ")
		d.written, d.sawGap = false, false
		return
	}
	id, known := d.model.ids[token]
	if known && d.model.kinds[id] == pieceByte {
		if b, ok := byteToken(token); ok {
			d.run = append(d.run, b)
			return
		}
	}
	d.flushBytes()
	expectGap := !d.sawGap && !d.written
	d.sawGap = false
	switch {
	case !known:
	case d.model.kinds[id] == pieceControl:
		return
	case d.model.kinds[id] == pieceUnknown:
		token = d.model.unknownText
	default:
		if expectGap && (d.model.dummyPrefix || d.model.removeExtra) {
			if rest, ok := strings.CutPrefix(token, visibleSpace); ok {
				// All leading spaces go where extra ones are removed, else the first.
				token, d.sawGap = rest, !d.model.removeExtra
			}
		}
	}
	if token != "" {
		d.written = true
		d.write(strings.ReplaceAll(token, visibleSpace, " "))
	}
}

// flushBytes writes a run of bytes, each that is no part of a rune as U+FFFD.
func (d *marianDecoder) flushBytes() {
	if len(d.run) > 0 {
		d.written = true
		d.write(strings.Map(func(r rune) rune { return r }, string(d.run)))
		d.run = d.run[:0]
	}
}

func (d *marianDecoder) write(s string) {
	if d.start {
		if s = strings.TrimLeftFunc(s, pythonSpace); s == "" {
			return
		}
		d.start = false
	}
	s = d.held + s
	short := strings.TrimRightFunc(s, pythonSpace)
	d.held = s[len(short):]
	if short != "" {
		d.next.part(short)
	}
}

func (d *marianDecoder) finish() {
	d.flushBytes()
	d.next.end()
	d.next.finish()
}

// pythonSpace is what str.strip removes: four separators more than White_Space.
func pythonSpace(r rune) bool {
	return r >= 0x1C && r <= 0x1F || r < utf8.RuneSelf && (r == ' ' || r >= '\t' && r <= '\r') || unicode.IsSpace(r)
}
