package text

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// file is tokenizer.json. Its truncation and padding are not read: the caller
// says how long, and there is no padding.
type file struct {
	AddedTokens   []addedToken    `json:"added_tokens"`
	Normalizer    *component      `json:"normalizer"`
	PreTokenizer  *component      `json:"pre_tokenizer"`
	PostProcessor *component      `json:"post_processor"`
	Decoder       *component      `json:"decoder"`
	Model         json.RawMessage `json:"model"`

	Truncation, Padding struct {
		Direction string
		Length    int `json:"max_length"`
		Strategy  json.RawMessage
	}

	namesNormalized bool // an added token that is looked for in normalised text has that form's name

	rebuilt   *component // what the configuration makes of the post-processor; nil where it says nothing
	rebuiltBy string     // a file, where it is not known whether it does
}

// modelHeader is what all models have, and what tells them apart when a file
// has no type.
type modelHeader struct {
	Type         string          `json:"type"`
	Vocab        json.RawMessage `json:"vocab"`
	Merges       json.RawMessage `json:"merges"`
	UnknownToken *string         `json:"unk_token"`
	UnknownID    *int32          `json:"unk_id"`
	Dropout      *float64        `json:"dropout"`
	Prefix       *string         `json:"continuing_subword_prefix"`
	Suffix       *string         `json:"end_of_word_suffix"`
	FuseUnknown  bool            `json:"fuse_unk"`
	ByteFallback bool            `json:"byte_fallback"`
	IgnoreMerges bool            `json:"ignore_merges"`
	LongestWord  *int            `json:"max_input_chars_per_word"`
}

// read builds the codec that a tokenizer.json describes, and the set of its special tokens.
func read(data []byte) (*huggingFace, map[string]bool, error) {
	f, err := parse(data)
	if err != nil {
		return nil, nil, err
	}
	return f.codec()
}

// parse reads a tokenizer.json.
func parse(data []byte) (*file, error) {
	if err := checkDepth(data); err != nil {
		return nil, err
	}
	f := &file{}
	if err := decode(data, f); err != nil {
		return nil, err
	}
	for name, side := range map[string]string{"truncation": f.Truncation.Direction, "padding": f.Padding.Direction} {
		if side != "" && side != "Left" && side != "Right" {
			return nil, fmt.Errorf("%s: found direction %q, needed Left or Right", name, diagnostic.Clip(side))
		}
	}
	if s := string(f.Truncation.Strategy); s != "" && !slices.Contains(strategies, s) {
		return nil, fmt.Errorf("truncation: found strategy %s, needed one of %s", diagnostic.Clip(s),
			strings.Join(strategies, ", "))
	}
	return f, nil
}

// strategies are the ways to cut two texts, as a tokenizer.json names them.
var strategies = []string{`"LongestFirst"`, `"OnlyFirst"`, `"OnlySecond"`}

// codec builds what a tokenizer.json describes, and the set of its special tokens.
func (f *file) codec() (*huggingFace, map[string]bool, error) {
	components, expressions := 0, 0
	for _, c := range []*component{f.Normalizer, f.PreTokenizer, f.PostProcessor, f.Decoder} {
		if c != nil {
			n, e := c.count()
			components, expressions = components+n, expressions+e
		}
	}
	if components > maxComponents || expressions > maxExpression {
		return nil, nil, fmt.Errorf("found %d components with %d bytes of regular expressions, needed at most %d and %d",
			components, expressions, maxComponents, maxExpression)
	}
	h := &huggingFace{cache: newWordCache(), prepare: func(word string) string { return word }, chain: spaced}
	var err error
	if h.model, err = readModel(f.Model); err != nil {
		return nil, nil, fmt.Errorf("model: %w", err)
	}
	if f.Normalizer != nil {
		if h.normalizer, err = f.Normalizer.normalizers(); err != nil {
			return nil, nil, fmt.Errorf("normalizer: %w", err)
		}
	}
	if f.PreTokenizer != nil {
		if h.pre, err = f.PreTokenizer.preTokenizers(); err != nil {
			return nil, nil, fmt.Errorf("pre_tokenizer: %w", err)
		}
		if last := len(h.pre) - 1; last >= 0 {
			if b, ok := h.pre[last].(byteLevel); ok {
				b.keepBytes = true
				h.pre[last], h.prepare = b, mapBytes
			}
		}
	}
	if f.PostProcessor != nil {
		if h.around, err = f.PostProcessor.template(); err != nil {
			return nil, nil, fmt.Errorf("post_processor: %w", err)
		}
	}
	if f.Decoder != nil {
		if h.chain, err = f.Decoder.decoder(); err != nil {
			return nil, nil, fmt.Errorf("decoder: %w", err)
		}
	}
	if err := h.add(f.AddedTokens, f.namesNormalized); err != nil {
		return nil, nil, fmt.Errorf("added_tokens: %w", err)
	}
	if err := f.rebuild(h); err != nil {
		return nil, nil, err
	}
	special := map[string]bool{}
	for _, t := range f.AddedTokens {
		if t.Special && t.Content != "" {
			special[t.Content] = true
		}
	}
	return h, special, nil
}

// rebuild puts the post-processor in place that the configuration makes.
func (f *file) rebuild(h *huggingFace) error {
	if f.rebuilt == nil {
		return nil
	}
	for _, t := range f.AddedTokens {
		id, _ := h.id(t.Content)
		f.rebuilt.SpecialTokens[t.Content] = struct{ IDs []int32 }{[]int32{id}}
	}
	made, err := f.rebuilt.template()
	if err != nil {
		return err
	}
	if f.rebuiltBy != "" && !sameTemplate(made.single, h.around.single) {
		return &diagnostic.Error{Path: f.rebuiltBy,
			Found: "add_bos_token and add_eos_token say other tokens around a text than the " +
				"post_processor of tokenizer.json, which versions of transformers read in two ways", Needed: "both alike",
			Fix: "or the version in config.json, transformers_version"}
	}
	h.around = made
	return nil
}

// sameTemplate compares the ids around one text.
func sameTemplate(a, b template) bool {
	if b == nil {
		b = joinedPair[:1]
	}
	return slices.EqualFunc(a, b, func(x, y templatePart) bool { return x.text == y.text && slices.Equal(x.ids, y.ids) })
}

func readModel(data []byte) (model, error) {
	var m modelHeader
	if len(data) == 0 {
		return nil, fmt.Errorf("found none, needed one of BPE, Unigram, WordPiece, WordLevel")
	}
	if err := decode(data, &m); err != nil {
		return nil, err
	}
	if m.Type == "" {
		switch vocab := strings.TrimSpace(string(m.Vocab)); {
		case strings.HasPrefix(vocab, "["):
			m.Type = "Unigram"
		case len(m.Merges) > 0:
			m.Type = "BPE"
		case m.LongestWord != nil:
			m.Type = "WordPiece"
		default:
			m.Type = "WordLevel"
		}
	}
	if m.Type == "Unigram" {
		return m.unigram()
	}
	var ids map[string]int32
	if len(m.Vocab) == 0 || string(m.Vocab) == "null" {
		return nil, errors.New("vocab: found none, needed an object")
	}
	if err := decode(m.Vocab, &ids); err != nil {
		return nil, fmt.Errorf("vocab: %w", err)
	}
	if bytes.Contains(m.Vocab, []byte("null")) { // which is read as 0
		var some map[string]*int32
		if err := decode(m.Vocab, &some); err != nil {
			return nil, fmt.Errorf("vocab: %w", err)
		}
		for token, id := range some {
			if id == nil {
				return nil, fmt.Errorf("vocab: found null for token %q, needed its id", token)
			}
		}
	}
	for token, id := range ids {
		if id < 0 {
			return nil, fmt.Errorf("vocab: found id %d for token %q, needed none below 0", id, token)
		}
		if err := checkToken(token); err != nil {
			return nil, fmt.Errorf("vocab: %w", err)
		}
	}
	for _, affix := range []string{or(m.Prefix, ""), or(m.Suffix, "")} {
		if len(affix) > maxAffix {
			return nil, fmt.Errorf("found a prefix or suffix of %d bytes, needed at most %d", len(affix), maxAffix)
		}
	}
	unknown := or(m.UnknownToken, "")
	switch m.Type {
	case "BPE":
		if m.Dropout != nil && *m.Dropout != 0 {
			return nil, fmt.Errorf("dropout: found %v, needed 0 or none: ids would differ from run to run", *m.Dropout)
		}
		merges, err := m.pairs()
		if err != nil {
			return nil, err
		}
		return newBPE(&bpe{vocabulary: newVocabulary(ids), unknown: unknown, prefix: or(m.Prefix, ""),
			suffix:      or(m.Suffix, ""),
			fuseUnknown: m.FuseUnknown, byteFallback: m.ByteFallback, wholeWords: m.IgnoreMerges}, merges)
	case "WordPiece":
		return newWordPiece(newVocabulary(ids), or(m.UnknownToken, "[UNK]"), or(m.Prefix, "##"), or(m.LongestWord, 100)), nil
	case "WordLevel":
		return wordLevel{newVocabulary(ids), unknown}, nil
	}
	return nil, fmt.Errorf("found type %q, needed one of BPE, Unigram, WordPiece, WordLevel", m.Type)
}

// or is *p, or what stands for its absence.
func or[T any](p *T, absent T) T {
	if p == nil {
		return absent
	}
	return *p
}

// pairs reads merges, written as lines or, since 2024, as pairs.
func (m *modelHeader) pairs() ([][2]string, error) {
	if len(m.Merges) == 0 {
		return nil, fmt.Errorf("merges: found none, needed a list")
	}
	var pairs [][]string
	if json.Unmarshal(m.Merges, &pairs) == nil {
		out := make([][2]string, len(pairs))
		for i, p := range pairs {
			if len(p) != 2 {
				return nil, fmt.Errorf("merge %d: found %d tokens, needed 2", i, len(p))
			}
			out[i] = [2]string{p[0], p[1]}
		}
		return out, nil
	}
	var lines []string
	if err := decode(m.Merges, &lines); err != nil {
		return nil, fmt.Errorf("merges: %w", err)
	}
	out := make([][2]string, 0, len(lines))
	for _, line := range lines {
		if strings.HasPrefix(line, "#version") {
			continue
		}
		pair, err := splitMerge(line)
		if err != nil {
			return nil, err
		}
		out = append(out, pair)
	}
	return out, nil
}

// scored is one entry of a Unigram vocabulary: ["token", log probability].
type scored struct {
	token string
	score float64
}

func (s *scored) UnmarshalJSON(data []byte) error {
	pair := [2]json.RawMessage{}
	if err := json.Unmarshal(data, &pair); err != nil {
		return err
	}
	if err := json.Unmarshal(pair[0], &s.token); err != nil {
		return err
	}
	var number json.Number
	if err := json.Unmarshal(pair[1], &number); err != nil {
		return err
	}
	var err error
	s.score, err = readNumber(number.String())
	return err
}

func (m *modelHeader) unigram() (model, error) {
	var vocab []scored
	if len(m.Vocab) == 0 || string(m.Vocab) == "null" {
		return nil, errors.New("vocab: found none, needed a list")
	}
	if err := decode(m.Vocab, &vocab); err != nil {
		return nil, fmt.Errorf("vocab: %w", err)
	}
	tokens, scores := make([]string, len(vocab)), make([]float64, len(vocab))
	for i, v := range vocab {
		if err := checkToken(v.token); err != nil {
			return nil, fmt.Errorf("vocab: %w", err)
		}
		tokens[i], scores[i] = v.token, v.score
	}
	return newUnigram(tokens, scores, or(m.UnknownID, -1), m.ByteFallback)
}
