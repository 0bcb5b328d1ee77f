package text

import (
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// TestRareParts are parts of a tokenizer.json that tokenizers 0.22.2 reads in another way than the obvious one.
func TestRareParts(t *testing.T) {
	const model = `{"type":"WordLevel","unk_token":"[UNK]",
		"vocab":{"[UNK]":0,"a":1,"b":2,"x":3,"<0x+1>":4,"<0x41>":5," ":6}}`
	for _, c := range []struct {
		name, part, value, encoded string
		ids                        []int64
		decode                     []int64
		decoded                    string
	}{
		{name: "blanks that a token took are not taken again", part: "added_tokens",
			value:   `[{"content":" ","lstrip":true,"rstrip":true}]`,
			encoded: "a \v b", ids: []int64{1, 6, 2}},
		{name: "of two forms alike the first is found", part: "added_tokens",
			value:   `[{"content":"b ","normalized":true},{"content":"b","normalized":true}]`,
			encoded: "b", ids: []int64{7}},
		{name: "of two forms alike the special one is found", part: "added_tokens",
			value:   `[{"content":"b ","normalized":true},{"content":"b","normalized":true,"special":true}]`,
			encoded: "b", ids: []int64{2}},
		{name: "an empty pattern is before every character", part: "pre_tokenizer",
			value:   `{"type":"Split","pattern":{"String":""},"behavior":"Isolated"}`,
			encoded: "abx", ids: []int64{1, 2, 3}},
		{name: "a sign before a byte's digit", part: "decoder", value: `{"type":"ByteFallback"}`,
			decode: []int64{1, 4, 5}, decoded: "a\x01A"},
		{name: "no empty match where one has just ended", part: "decoder",
			value:  `{"type":"Replace","pattern":{"Regex":"x*"},"content":"-"}`,
			decode: []int64{1, 3}, decoded: "-a--"},
		{name: "no match in nothing", part: "decoder",
			value: `{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Replace","pattern":{"Regex":"$"},"content":"-"}]}`},
	} {
		parts := map[string]string{"model": model, "pre_tokenizer": "null", "normalizer": "null", c.part: c.value}
		if c.part == "added_tokens" {
			parts["normalizer"] = `{"type":"Strip","strip_right":true}`
		}
		tok := mustTiny(t, parts)
		if ids := must.Value(tok.Encode(t.Context(), c.encoded, EncodeOptions{}))(t, c.name); c.ids != nil {
			must.Equal(t, ids, c.ids, c.name)
		}
		if got := must.Value(tok.Decode(c.decode, DecodeOptions{}))(t, c.name); got != c.decoded {
			t.Errorf("%s: found %q, needed %q", c.name, got, c.decoded)
		}
		must.Succeed(t, decoded(tok, c.decode, DecodeOptions{}), c.name)
	}
	must.Fail(t, must.Error(openTiny(t, map[string]string{"tokenizer.json": tiny(map[string]string{"model": model,
		"normalizer":   `{"type":"StripAccents"}`,
		"added_tokens": `[{"content":"\u0301","normalized":true}]`})})), "of which the normalizer leaves nothing")
	// Without room for any token nothing of either text is left, not even of the second one.
	tok := mustTiny(t, map[string]string{"post_processor": around})
	e := must.Value(tok.EncodePair(t.Context(), "a b", "c", EncodeOptions{MaxLength: 3, OnlyFirst: true}))(t)
	must.Equal(t, e.IDs, []int64{0, 1, 1})
}

// TestPlacesOfATextNamedTwice: the blank before a text's first token stays in its place in both copies that a
// template makes, as in tokenizers 0.22.2.
func TestPlacesOfATextNamedTwice(t *testing.T) {
	const level = `{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}`
	tok := mustTiny(t, map[string]string{
		"model":         `{"type":"WordLevel","unk_token":"[UNK]","vocab":{"[UNK]":0,"Ġa":1,"Ġb":2}}`,
		"normalizer":    `{"type":"Replace","pattern":{"String":"x"},"content":""}`,
		"pre_tokenizer": level,
		"post_processor": `{"type":"Sequence","processors":[` + level + `,{"type":"TemplateProcessing","special_tokens":{},
			"single":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
			"pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}]}]}`,
	})
	var places [][2]int
	for _, k := range must.Value(tok.Tokens(t.Context(), "x a b", EncodeOptions{}))(t) {
		places = append(places, [2]int{k.Start, k.End})
	}
	must.Equal(t, places, [][2]int{{1, 3}, {4, 5}, {1, 3}, {4, 5}})
}
