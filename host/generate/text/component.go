package text

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// component is any normaliser, pre-tokenizer, post-processor or decoder of a
// tokenizer.json: the union of their fields.
type component struct {
	Type string `json:"type"`

	Normalizers   components `json:"normalizers"`
	PreTokenizers components `json:"pretokenizers"`
	Processors    components `json:"processors"`
	Decoders      components `json:"decoders"`

	Pattern *struct {
		String *string `json:"String"`
		Regex  *string `json:"Regex"`
	} `json:"pattern"`
	Content    string `json:"content"`
	Behavior   string `json:"behavior"`
	Invert     bool   `json:"invert"`
	Individual bool   `json:"individual_digits"`
	Delimiter  string `json:"delimiter"`
	Length     *int   `json:"length"`

	AddPrefixSpace *bool   `json:"add_prefix_space"`
	TrimOffsets    *bool   `json:"trim_offsets"`
	UseRegex       *bool   `json:"use_regex"`
	Replacement    string  `json:"replacement"`
	PrependScheme  *string `json:"prepend_scheme"`
	Split          *bool   `json:"split"`

	CleanText    *bool  `json:"clean_text"`
	HandleHan    *bool  `json:"handle_chinese_chars"`
	StripAccents *bool  `json:"strip_accents"`
	Lowercase    *bool  `json:"lowercase"`
	StripLeft    bool   `json:"strip_left"`
	StripRight   bool   `json:"strip_right"`
	Charsmap     string `json:"precompiled_charsmap"`
	Prepend      string `json:"prepend"`

	Single        []json.RawMessage                `json:"single"`
	Pair          []json.RawMessage                `json:"pair"`
	SpecialTokens map[string]struct{ IDs []int32 } `json:"special_tokens"`
	Separator     [2]json.RawMessage               `json:"sep"`
	Classifier    [2]json.RawMessage               `json:"cls"`

	Prefix  *string `json:"prefix"`
	Suffix  *string `json:"suffix"`
	Cleanup *bool   `json:"cleanup"`
	Pad     *string `json:"pad_token"`
	Between *string `json:"word_delimiter_token"`
	Start   int     `json:"start"`
	Stop    int     `json:"stop"`
}

// has is whether a component is of a type, or a part of it is.
func (c *component) has(kind string) bool {
	holds := func(all components) bool {
		return slices.ContainsFunc(all, func(one component) bool { return one.has(kind) })
	}
	return c != nil && (c.Type == kind || holds(c.Normalizers) || holds(c.PreTokenizers))
}

func (c *component) unsupported(known string) error {
	return fmt.Errorf("found type %q, needed one of %s", c.Type, known)
}

func (c *component) pattern() (pattern, error) {
	switch {
	case c.Pattern == nil:
	case c.Pattern.String != nil && *c.Pattern.String == "": // before every character, and at the end
		return newPattern("")
	case c.Pattern.String != nil:
		return literal(*c.Pattern.String), nil
	case c.Pattern.Regex != nil:
		return newPattern(*c.Pattern.Regex)
	}
	return nil, fmt.Errorf("%s: found no pattern, needed {\"String\": ...} or {\"Regex\": ...}", c.Type)
}

func (c *component) normalizers() (normalizers, error) {
	switch c.Type {
	case "Sequence":
		var all normalizers
		for i := range c.Normalizers {
			n, err := c.Normalizers[i].normalizers()
			if err != nil {
				return nil, err
			}
			all = append(all, n...)
		}
		return all, nil
	case "NFC":
		return normalizers{unicodeForm(norm.NFC)}, nil
	case "NFD":
		return normalizers{unicodeForm(norm.NFD)}, nil
	case "NFKC":
		return normalizers{unicodeForm(norm.NFKC)}, nil
	case "NFKD":
		return normalizers{unicodeForm(norm.NFKD)}, nil
	case "Lowercase":
		return normalizers{runeMap(lowercase)}, nil
	case "Strip":
		return normalizers{strip{c.StripLeft, c.StripRight}}, nil
	case "StripAccents":
		return normalizers{without(mark)}, nil
	case "Nmt":
		return normalizers{runeMap(nmt)}, nil
	case "ByteLevel":
		return normalizers{runeMap(byteLevelRune)}, nil
	case "Prepend":
		return normalizers{prepend(c.Prepend)}, nil
	case "Replace":
		p, err := c.pattern()
		return normalizers{replace{p, c.Content}}, err
	case "Precompiled":
		return c.precompiled()
	case "BertNormalizer":
		return c.bert(), nil
	}
	return nil, c.unsupported("BertNormalizer, ByteLevel, Lowercase, NFC, NFD, NFKC, NFKD, Nmt, Precompiled, Prepend, " +
		"Replace, Sequence, Strip, StripAccents")
}

func (c *component) precompiled() (normalizers, error) {
	blob, err := base64.StdEncoding.DecodeString(c.Charsmap)
	if err != nil {
		return nil, fmt.Errorf("precompiled charsmap: %w", err)
	}
	m, err := newCharsmap(blob)
	if m == nil || err != nil {
		return nil, err
	}
	return normalizers{precompiled{m}}, nil
}

func (c *component) bert() normalizers {
	var all normalizers
	if or(c.CleanText, true) {
		all = append(all, runeMap(cleanText))
	}
	if or(c.HandleHan, true) {
		all = append(all, runeMap(isolateHan))
	}
	lower := or(c.Lowercase, true)
	if or(c.StripAccents, lower) {
		all = append(all, unicodeForm(norm.NFD), without(nonspacing))
	}
	if lower {
		all = append(all, runeMap(lowercase))
	}
	return all
}

func (c *component) preTokenizers() (preTokenizers, error) {
	one := func(p preTokenizer) (preTokenizers, error) { return preTokenizers{p}, nil }
	switch c.Type {
	case "Sequence":
		var all preTokenizers
		for i := range c.PreTokenizers {
			p, err := c.PreTokenizers[i].preTokenizers()
			if err != nil {
				return nil, err
			}
			all = append(all, p...)
		}
		return all, nil
	case "ByteLevel":
		return one(byteLevel{prefixSpace: or(c.AddPrefixSpace, true), words: or(c.UseRegex, true)})
	case "Metaspace":
		scheme, err := c.scheme()
		return preTokenizers{metaspace{c.Replacement, scheme, or(c.Split, true)}}, err
	case "Whitespace":
		return one(splitter{wordRuns{}, removed, true})
	case "WhitespaceSplit":
		return one(splitter{inClass(space), removed, false})
	case "BertPreTokenizer":
		return preTokenizers{splitter{inClass(space), removed, false}, splitter{inClass(punctuation), isolated, false}}, nil
	case "Punctuation":
		if c.Behavior == "" {
			c.Behavior = string(isolated)
		}
		return c.splitter(inClass(punctuation))
	case "Digits":
		if c.Individual {
			return one(splitter{inClass(numeric), isolated, false})
		}
		return one(splitter{inClass(numeric), contiguous, false})
	case "CharDelimiterSplit", "Delimiter":
		return one(splitter{literal(c.Delimiter), removed, false})
	case "Split":
		p, err := c.pattern()
		if err != nil {
			return nil, err
		}
		return c.splitter(p)
	case "FixedLength":
		length := or(c.Length, 5)
		if length < 1 {
			return nil, fmt.Errorf("%s: found length %d, needed at least 1", c.Type, length)
		}
		return one(fixedLength(length))
	case "UnicodeScripts":
		return one(unicodeScripts{})
	}
	return nil, c.unsupported("BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, FixedLength, Metaspace, " +
		"Punctuation, Sequence, Split, UnicodeScripts, Whitespace, WhitespaceSplit")
}

func (c *component) splitter(p pattern) (preTokenizers, error) {
	switch b := behavior(c.Behavior); b {
	case removed, isolated, mergedWithPrevious, mergedWithNext, contiguous:
		return preTokenizers{splitter{p, b, c.Invert}}, nil
	}
	return nil, fmt.Errorf("%s: found behavior %q, needed one of Removed, Isolated, MergedWithPrevious, "+
		"MergedWithNext, Contiguous", c.Type, c.Behavior)
}

// scheme checks a Metaspace and returns where it puts its rune at the start.
func (c *component) scheme() (string, error) {
	if utf8.RuneCountInString(c.Replacement) != 1 {
		return "", fmt.Errorf("%s: found replacement %q, needed one character", c.Type, c.Replacement)
	}
	scheme := or(c.PrependScheme, "always")
	if !or(c.AddPrefixSpace, true) {
		scheme = "never"
	}
	switch scheme {
	case "always", "first", "never":
		return scheme, nil
	}
	return "", fmt.Errorf("%s: found prepend_scheme %q, needed always, first or never", c.Type, scheme)
}

// template reads a post-processor: what it puts around one text, and around two.
func (c *component) template() (templates, error) {
	switch c.Type {
	case "Sequence":
		var only templates
		for i := range c.Processors {
			t, err := c.Processors[i].template()
			if err != nil {
				return templates{}, err
			}
			if t.single != nil && only.single != nil {
				return templates{}, fmt.Errorf("%s: found a second processor that adds tokens (%s), needed at most one", c.Type,
					c.Processors[i].Type)
			}
			t.trims = append(only.trims, t.trims...)
			if t.single == nil {
				t.single, t.pair, t.bad = only.single, only.pair, only.bad
			}
			only = t
		}
		return only, nil
	case "ByteLevel": // it moves offsets only
		return templates{trims: c.trims()}, nil
	case "BertProcessing", "RobertaProcessing":
		var first, last int32
		if json.Unmarshal(c.Classifier[1], &first) != nil || json.Unmarshal(c.Separator[1], &last) != nil {
			return templates{}, fmt.Errorf("%s: found cls %s and sep %s, needed [token, id] in both", c.Type, c.Classifier,
				c.Separator)
		}
		cls, sep := []int32{first}, []int32{last}
		a := templates{single: template{{ids: cls}, {text: true}, {ids: sep}}}
		if c.Type == "BertProcessing" {
			a.pair = append(a.single[:3:3], templatePart{text: true, second: true, kind: 1}, templatePart{ids: sep, kind: 1})
		} else { // which separates by two, and knows one type
			a.pair = append(a.single[:3:3], templatePart{ids: sep}, templatePart{text: true, second: true},
				templatePart{ids: sep})
			a.trims = c.trims()
		}
		return a, nil
	case "TemplateProcessing":
		single, err := c.pieces("single", c.Single)
		if err != nil {
			return templates{}, err
		}
		a := templates{single: single}
		if a.pair, err = c.pieces("pair", c.Pair); err != nil {
			a.bad = err // a tokenizer of single texts needs none
		}
		return a, nil
	}
	return templates{}, c.unsupported("BertProcessing, ByteLevel, RobertaProcessing, Sequence, TemplateProcessing")
}

func (c *component) trims() []trims {
	if !or(c.TrimOffsets, true) {
		return nil
	}
	return []trims{{or(c.AddPrefixSpace, true)}}
}

// pieces reads a template for one text or two.
func (c *component) pieces(what string, list []json.RawMessage) (template, error) {
	t := template{}
	for _, data := range list {
		var p struct {
			SpecialToken, Sequence *struct {
				ID   string
				Type int64 `json:"type_id"`
			}
		}
		if err := decode(data, &p); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Type, err)
		}
		switch {
		case p.Sequence != nil && p.Sequence.ID == "A":
			t = append(t, templatePart{text: true, kind: p.Sequence.Type})
		case p.Sequence != nil && p.Sequence.ID == "B" && what == "pair":
			t = append(t, templatePart{text: true, second: true, kind: p.Sequence.Type})
		case p.SpecialToken != nil:
			token, ok := c.SpecialTokens[p.SpecialToken.ID]
			if !ok {
				return nil, fmt.Errorf("%s: found token %q in %s, needed it in special_tokens", c.Type, p.SpecialToken.ID, what)
			}
			t = append(t, templatePart{ids: token.IDs, kind: p.SpecialToken.Type})
			if n := t.added(); n > maxAround {
				return nil, fmt.Errorf("%s: found %d ids around a text, needed at most %d", c.Type, n, maxAround)
			}
		default:
			return nil, fmt.Errorf("%s: found %s in %s, needed the sequence %s or a special token", c.Type, data, what,
				map[bool]string{true: "A", false: "A, B"}[what == "single"])
		}
	}
	if texts := t.texts(); what == "pair" && texts != [2]int{1, 1} {
		return nil, fmt.Errorf("%s: found %d times A and %d times B in pair, needed each once", c.Type, texts[0], texts[1])
	}
	return t, nil
}

func (c *component) decoder() (decoder, error) {
	switch c.Type {
	case "Sequence":
		chain := make([]decoder, len(c.Decoders))
		for i := range c.Decoders {
			var err error
			if chain[i], err = c.Decoders[i].decoder(); err != nil {
				return nil, err
			}
		}
		return func(next sink, b *budget) sink {
			for i := len(chain) - 1; i >= 0; i-- {
				next = chain[i](next, b)
			}
			return next
		}, nil
	case "ByteLevel":
		return byteLevelDecoder, nil
	case "ByteFallback":
		return byteFallbackDecoder, nil
	case "Fuse":
		return fuseDecoder, nil
	case "Metaspace":
		scheme, err := c.scheme()
		if err != nil {
			return nil, err
		}
		return func(next sink, _ *budget) sink {
			return &metaspaceDecoder{next: next, rune: c.Replacement, drop: scheme != "never"}
		}, nil
	case "WordPiece":
		return wordPieceDecoder(or(c.Prefix, "##"), or(c.Cleanup, true)), nil
	case "BPEDecoder":
		return bpeDecoder(or(c.Suffix, "</w>")), nil
	case "CTC":
		return ctcDecoder(or(c.Pad, "<pad>"), or(c.Between, "|"), or(c.Cleanup, true)), nil
	case "Strip":
		if utf8.RuneCountInString(c.Content) != 1 || c.Start < 0 || c.Stop < 0 {
			return nil, fmt.Errorf("%s: found content %q, start %d, stop %d, needed one character and counts of at least 0",
				c.Type, c.Content, c.Start, c.Stop)
		}
		return stripDecoder(c.Content, c.Start, c.Stop), nil
	case "Replace":
		p, err := c.pattern()
		if err != nil {
			return nil, err
		}
		return replaceDecoder(replace{p, c.Content}), nil
	}
	return nil, c.unsupported("BPEDecoder, ByteFallback, ByteLevel, CTC, Fuse, Metaspace, Replace, Sequence, Strip, " +
		"WordPiece")
}
