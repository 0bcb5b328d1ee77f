package text

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Types of a piece in a sentencepiece model.
const (
	pieceNormal      = 1
	pieceUnknown     = 2
	pieceControl     = 3
	pieceUserDefined = 4
	pieceUnused      = 5
	pieceByte        = 6
)

// sentencePiece is a Unigram model of sentencepiece. It differs from
// tokenizers' Unigram: scores are summed in float32, whitespace is part of the
// normaliser, and the charsmap takes the longest key at every byte.
type sentencePiece struct {
	pieces       []string
	kinds        []byte
	scores       []float32
	ids          map[string]int32 // all pieces
	trie         *trie            // those that text can hold
	userDefined  *trie            // or nil
	unknown      int32
	unknownScore float32
	bestScore    float32
	byteFallback bool

	charsmap     *charsmap // or nil
	dummyPrefix  bool
	removeExtra  bool
	escapeSpaces bool
	unknownText  string
}

const visibleSpace = "\u2581"

// readSentencePiece reads a sentencepiece model, a protobuf ModelProto.
func readSentencePiece(data []byte) (*sentencePiece, error) {
	m := &sentencePiece{dummyPrefix: true, removeExtra: true, escapeSpaces: true, unknown: -1, unknownText: " \u2047 ",
		ids: map[string]int32{}}
	var charsmap []byte
	kind, asSuffix := uint64(1), false
	err := fields(data, func(number protowire.Number, v uint64, b []byte) error {
		switch number {
		case 1:
			return m.readPiece(b)
		case 2: // trainer_spec
			return fields(b, func(number protowire.Number, v uint64, b []byte) error {
				switch number {
				case 3:
					kind = v
				case 24:
					asSuffix = v != 0
				case 35:
					m.byteFallback = v != 0
				case 44:
					m.unknownText = string(b)
				}
				return nil
			})
		case 3: // normalizer_spec
			return fields(b, func(number protowire.Number, v uint64, b []byte) error {
				switch number {
				case 2:
					charsmap = b
				case 3:
					m.dummyPrefix = v != 0
				case 4:
					m.removeExtra = v != 0
				case 5:
					m.escapeSpaces = v != 0
				}
				return nil
			})
		case 5: // denormalizer_spec
			return fields(b, func(number protowire.Number, _ uint64, b []byte) error {
				if number == 2 && len(b) > 0 {
					return fmt.Errorf("found a denormalizer, needed a model without one")
				}
				return nil
			})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	switch {
	case kind != 1:
		return nil, fmt.Errorf("found model type %d, needed 1 (Unigram)", kind)
	case asSuffix:
		return nil, fmt.Errorf("found treat_whitespace_as_suffix, needed whitespace before words")
	case m.unknown < 0:
		return nil, fmt.Errorf("found %d pieces and none of type unknown, needed one", len(m.pieces))
	}
	if m.charsmap, err = newCharsmap(charsmap); err != nil {
		return nil, err
	}
	m.index()
	return m, nil
}

// fields calls each with every field of a message: its number, and its value as
// an integer or as bytes.
func fields(data []byte, each func(number protowire.Number, v uint64, b []byte) error) error {
	for at := 0; at < len(data); {
		number, kind, n := protowire.ConsumeTag(data[at:])
		if n < 0 {
			return fmt.Errorf("protobuf at byte %d of %d: %w", at, len(data), protowire.ParseError(n))
		}
		at += n
		var v uint64
		var b []byte
		switch kind {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(data[at:])
		case protowire.Fixed32Type:
			var f uint32
			f, n = protowire.ConsumeFixed32(data[at:])
			v = uint64(f)
		case protowire.BytesType:
			b, n = protowire.ConsumeBytes(data[at:])
		default:
			n = protowire.ConsumeFieldValue(number, kind, data[at:])
		}
		if n < 0 {
			return fmt.Errorf("protobuf field %d at byte %d of %d: %w", number, at, len(data), protowire.ParseError(n))
		}
		at += n
		if err := each(number, v, b); err != nil {
			return err
		}
	}
	return nil
}

func (m *sentencePiece) readPiece(data []byte) error {
	var piece string
	var score float32
	kind := byte(pieceNormal)
	err := fields(data, func(number protowire.Number, v uint64, b []byte) error {
		switch number {
		case 1:
			piece = string(b)
		case 2:
			score = math.Float32frombits(uint32(v))
		case 3:
			kind = byte(v)
		}
		return nil
	})
	id := int32(len(m.pieces))
	switch {
	case err != nil:
		return fmt.Errorf("piece %d: %w", id, err)
	case checkToken(piece) != nil:
		return fmt.Errorf("piece %d: %w", id, checkToken(piece))
	case piece == "":
		return fmt.Errorf("piece %d: found an empty one, needed text", id)
	case kind == pieceUnknown && m.unknown >= 0:
		return fmt.Errorf("piece %d: found a second one of type unknown, needed one", id)
	case kind == pieceUnknown:
		m.unknown = id
	}
	m.pieces, m.kinds, m.scores = append(m.pieces, piece), append(m.kinds, kind), append(m.scores, score)
	if old, twice := m.ids[piece]; !twice || m.inText(old) && !m.inText(id) {
		m.ids[piece] = id // of equal pieces, one that text cannot hold is found first
	}
	return nil
}

// inText reports whether a piece is found in text.
func (m *sentencePiece) inText(id int32) bool {
	switch m.kinds[id] {
	case pieceNormal, pieceUserDefined, pieceUnused:
		return true
	}
	return false
}

func (m *sentencePiece) index() {
	var keys, user []string
	var values, userValues []int32
	lowest := float32(math.MaxFloat32)
	// The smallest normal float32 is where sentencepiece's own maximum starts.
	m.bestScore = math.Float32frombits(0x00800000)
	for i, piece := range m.pieces {
		id := int32(i)
		if m.kinds[i] == pieceNormal {
			lowest, m.bestScore = min(lowest, m.scores[i]), max(m.bestScore, m.scores[i])
		}
		if m.inText(id) {
			keys, values = append(keys, piece), append(values, id)
		}
		if m.kinds[i] == pieceUserDefined {
			user, userValues = append(user, piece), append(userValues, id)
		}
	}
	m.unknownScore = lowest - unknownPenalty
	m.trie = newTrie(keys, values)
	if len(user) > 0 {
		m.userDefined = newTrie(user, userValues)
	}
}

// prefix returns what the text's beginning is normalised to, and its length.
func (m *sentencePiece) prefix(s string) (string, int) {
	if m.userDefined != nil {
		if _, n := m.userDefined.longest(s); n > 0 {
			return s[:n], n
		}
	}
	if m.charsmap != nil {
		if to, n := m.charsmap.longest(s); n > 0 {
			return to, n
		}
	}
	_, n := utf8.DecodeRuneInString(s)
	return s[:n], n
}

func (m *sentencePiece) normalize(s string, b *budget) (string, error) {
	if m.removeExtra {
		for s != "" {
			to, n := m.prefix(s)
			if to != " " {
				break
			}
			s = s[n:]
		}
	}
	if s == "" {
		return "", nil
	}
	gap := " "
	if m.escapeSpaces {
		gap = visibleSpace
	}
	out := make([]byte, 0, len(s)+len(s)/2+8)
	if m.dummyPrefix {
		out = append(out, gap...)
	}
	afterSpace := m.removeExtra
	for s != "" {
		to, n := m.prefix(s)
		if afterSpace {
			to = strings.TrimLeft(to, " ")
		}
		if to != "" {
			if err := b.grow("charsmap", n, len(to)); err != nil {
				return "", err
			}
			for i := range len(to) {
				if to[i] == ' ' {
					out = append(out, gap...)
				} else {
					out = append(out, to[i])
				}
			}
			afterSpace = to[len(to)-1] == ' '
		}
		s = s[n:]
		if !m.removeExtra {
			afterSpace = false
		}
	}
	text := string(out)
	if m.removeExtra {
		for strings.HasSuffix(text, gap) {
			text = strings.TrimSuffix(text, gap)
		}
	}
	return text, nil
}

type floatNode struct {
	score float32
	start int32 // -1: not reached
	id    int32
}

// encode appends the pieces of a text.
func (m *sentencePiece) encode(s string, out []string, b *budget) ([]string, error) {
	s, err := m.normalize(s, b)
	if err != nil {
		return nil, err
	}
	path := make([]floatNode, len(s)+1)
	for i := range path {
		path[i].start = -1
	}
	for start := 0; start < len(s); {
		if err := b.work(1); err != nil {
			return nil, err
		}
		here := path[start].score
		_, width := utf8.DecodeRuneInString(s[start:])
		single := false
		node := int32(0)
		for end := start; end < len(s); {
			if node = m.trie.child(node, s[end]); node == 0 {
				break
			}
			end++
			id := m.trie.value[node]
			if id < 0 || m.kinds[id] == pieceUnused {
				continue
			}
			score := m.scores[id]
			if m.kinds[id] == pieceUserDefined {
				score = float32(float64(float32(end-start)*m.bestScore) - 0.1)
			}
			if score += here; path[end].start < 0 || score > path[end].score {
				path[end] = floatNode{score, int32(start), id}
			}
			single = single || end-start == width
		}
		if !single {
			end := start + width
			if score := m.unknownScore + here; path[end].start < 0 || score > path[end].score {
				path[end] = floatNode{score, int32(start), m.unknown}
			}
		}
		start += width
	}
	parts := 0
	for end := int32(len(s)); end > 0; end = path[end].start {
		parts++
	}
	out = slices.Grow(out, parts)
	first := len(out)
	afterUnknown := false // walking back: the piece after this one is unknown
	unknownEnd := int32(0)
	for end := int32(len(s)); end > 0; end = path[end].start {
		piece := s[path[end].start:end]
		unknown := path[end].id == m.unknown
		switch {
		case unknown && m.byteFallback:
			for i := len(piece) - 1; i >= 0; i-- {
				out = append(out, fmt.Sprintf("<0x%02X>", piece[i]))
			}
		case unknown && afterUnknown:
			out[len(out)-1] = s[path[end].start:unknownEnd]
		default:
			unknownEnd = end
			out = append(out, piece)
		}
		afterUnknown = unknown
	}
	slices.Reverse(out[first:])
	return out, nil
}
