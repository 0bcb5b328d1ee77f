package text

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/opgraft/graft/internal/must"
)

// tiny is a tokenizer.json with parts put in the place of its own.
func tiny(parts map[string]string) string {
	all := map[string]string{
		"added_tokens": `[{"id":0,"content":"<s>","special":true},{"id":7,"content":"<new>","special":false,"normalized":true}]`,
		"normalizer":   `null`, "pre_tokenizer": `{"type":"WhitespaceSplit"}`, "post_processor": `null`, "decoder": `null`,
		"model": `{"type":"WordLevel","vocab":{"<s>":0,"</s>":1,"<unk>":2,"a":3,"b":4,"c":5},"unk_token":"<unk>"}`,
	}
	for k, v := range parts {
		all[k] = v
	}
	var b strings.Builder
	b.WriteString("{")
	for i, k := range []string{"added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "model"} {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString(`"` + k + `":` + all[k])
	}
	return b.String() + "}"
}

func openTiny(t testing.TB, files map[string]string) (*Tokenizer, error) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	return Open(dir)
}

func mustTiny(t testing.TB, parts map[string]string) *Tokenizer {
	t.Helper()
	tok := must.Value(openTiny(t, map[string]string{"tokenizer.json": tiny(parts)}))(t)
	return tok
}

const around = `{"type":"BertProcessing","sep":["</s>",1],"cls":["<s>",0]}`

func TestOptions(t *testing.T) {
	tok := mustTiny(t, map[string]string{"post_processor": around})
	for _, c := range []struct {
		name string
		o    EncodeOptions
		want []int64
	}{
		{"with special tokens", EncodeOptions{}, []int64{0, 3, 4, 5, 2, 1}},
		{"without", EncodeOptions{OmitSpecialTokens: true}, []int64{3, 4, 5, 2}},
		{"cut on the right, special tokens counted", EncodeOptions{MaxLength: 4}, []int64{0, 3, 4, 1}},
		{"cut on the left", EncodeOptions{MaxLength: 4, TruncateLeft: true}, []int64{0, 5, 2, 1}},
		{"cut without special tokens", EncodeOptions{MaxLength: 3, OmitSpecialTokens: true}, []int64{3, 4, 5}},
		{"nothing but special tokens", EncodeOptions{MaxLength: 2}, []int64{0, 1}},
		{"longer than the text", EncodeOptions{MaxLength: 60}, []int64{0, 3, 4, 5, 2, 1}},
	} {
		got, err := tok.Encode(t.Context(), "a b c zzz", c.o)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", c.name, err, diff)
		}
	}
	must.Fail(t, must.Error(tok.Encode(t.Context(), "a", EncodeOptions{MaxLength: 1})), "found 1, needed at least 2")
}

func TestVocabulary(t *testing.T) {
	tok := mustTiny(t, nil)
	must.Equal(t, tok.size(), 7)
	// The added token has the next free id, whatever the file says.
	if id, ok := tok.id("<new>"); !ok || id != 6 {
		t.Errorf("found id %d (%v) for an added token, needed 6", id, ok)
	}
	if id, ok := tok.id("d"); ok {
		t.Errorf("found id %d for a token that is not there", id)
	}
	if token, ok := tok.token(4); !ok || token != "b" {
		t.Errorf("found %q (%v) for id 4, needed b", token, ok)
	}
}

func TestDecodeIDs(t *testing.T) {
	tok := mustTiny(t, nil)
	got, err := tok.Decode([]int64{0, 3, 99, 1 << 31 / 2, 4}, DecodeOptions{SkipSpecialTokens: true})
	must.Succeed(t, err)
	must.Equal(t, got, "a b")
	for _, id := range []int64{-1, 1 << 31} {
		if _, err := tok.Decode([]int64{id}, DecodeOptions{}); err == nil ||
			!strings.Contains(err.Error(), "needed one from 0 to 6") {
			t.Errorf("id %d: found error %v", id, err)
		}
	}
}

func TestInvalidUTF8(t *testing.T) {
	tok := mustTiny(t, nil)
	for s, want := range map[string]string{
		"a\xff":        "text of 2 bytes: found byte 0xff at offset 1, needed UTF-8",
		"\ufffd\xc3(":  "text of 5 bytes: found byte 0xc3 at offset 3, needed UTF-8",
		"\xed\xa0\x80": "text of 3 bytes: found byte 0xed at offset 0, needed UTF-8", // a surrogate
	} {
		must.Fail(t, must.Error(tok.Encode(t.Context(), s, EncodeOptions{})), want)
	}
	must.Value(tok.Encode(t.Context(), "\ufffd", EncodeOptions{}))(t, "U+FFFD itself")
}

func TestConfig(t *testing.T) {
	tok, err := openTiny(t, map[string]string{
		"tokenizer.json":          tiny(nil),
		"tokenizer_config.json":   `{"clean_up_tokenization_spaces": true, "eos_token": "</s>", "pad_token": null, "bos_token": {"content": "<s>", "lstrip": false}}`,
		"special_tokens_map.json": `{"eos_token": "b", "unk_token": "<unk>"}`,
	})
	must.Succeed(t, err)
	for o, want := range map[Spaces]string{SpacesConfigured: "a, b", SpacesKept: "a , b", SpacesCleaned: "a, b"} {
		tok.codec.(*huggingFace).addedNames[50] = ","
		must.Equal(t, must.Value(tok.Decode([]int64{3, 50, 4}, DecodeOptions{Spaces: o}))(t, o), want, o)
	}
	if tok.Target() != tok {
		t.Error("found another tokenizer for the target side, needed the same one")
	}
}

func TestOpenErrors(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{"nothing", nil, []string{"no tokenizer", "found none of a tokenizer's files",
			"needed tokenizer.json, or source.spm"}},
		{"slow tokenizer only", map[string]string{"vocab.json": "{}", "merges.txt": ""},
			[]string{"found vocab.json, merges.txt only", "use_fast=True"}},
		{"Marian without target", map[string]string{"source.spm": ""},
			[]string{"source.spm: found 0 pieces and none of type unknown"}},
		{"no JSON", map[string]string{"tokenizer.json": "{"}, []string{"tokenizer.json: unexpected end"}},
		{"no model", map[string]string{"tokenizer.json": "{}"}, []string{"model: found none, needed one of BPE"}},
		{"config no JSON", map[string]string{"tokenizer.json": tiny(nil), "tokenizer_config.json": "["},
			[]string{"tokenizer_config.json"}},
	} {
		_, err := openTiny(t, c.files)
		for _, want := range c.want {
			must.Fail(t, err, want)
		}
	}
	must.Fail(t, must.Error(Open(filepath.Join(t.TempDir(), "absent"))), os.ErrNotExist)
	must.Fail(t, must.Error(openTiny(t, nil)), ErrNoTokenizer)
}

func TestReadErrors(t *testing.T) {
	for part, cases := range map[string]map[string]string{
		"normalizer": {
			`{"type":"Nope"}`:                                          `normalizer: found type "Nope", needed one of BertNormalizer`,
			`{"type":"Replace","content":"x"}`:                         `found no pattern`,
			`{"type":"Precompiled","precompiled_charsmap":"AAA="}`:     `found 2 bytes, needed at least 4`,
			`{"type":"Precompiled","precompiled_charsmap":"/wAAAAAA"}`: `found a trie of 255 bytes in a blob of 6`,
			`{"type":"Sequence","normalizers":[{"type":"X"}]}`:         `found type "X"`,
			`{"type":"Replace","pattern":{"Regex":"("},"content":""}`:  `regular expression "("`,
		},
		"pre_tokenizer": {
			`{"type":"Nope"}`:                                                     `pre_tokenizer: found type "Nope", needed one of BertPreTokenizer`,
			`{"type":"Metaspace","replacement":""}`:                               `found replacement "", needed one character`,
			`{"type":"Metaspace","replacement":"_","prepend_scheme":"x"}`:         `found prepend_scheme "x"`,
			`{"type":"Split","pattern":{"String":"a"},"behavior":"Gone"}`:         `found behavior "Gone"`,
			`{"type":"Split","pattern":{"Regex":"(a)\\1"},"behavior":"Isolated"}`: `found \1`,
			`{"type":"Split","pattern":{"Regex":"a++"},"behavior":"Isolated"}`:    `found the possessive ++`,
			`{"type":"FixedLength","length":0}`:                                   `found length 0`,
		},
		"post_processor": {
			`{"type":"Nope"}`: `post_processor: found type "Nope", needed one of BertProcessing`,
			`{"type":"BertProcessing","sep":["x"],"cls":["y",1]}`:                              `needed [token, id] in both`,
			`{"type":"TemplateProcessing","single":[{"Sequence":{"id":"B","type_id":0}}]}`:     `needed the sequence A`,
			`{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x","type_id":0}}]}`: `found token "x" in single`,
			`{"type":"Sequence","processors":[` + around + `,` + around + `]}`:                 `found a second processor`,
		},
		"decoder": {
			`{"type":"Nope"}`: `decoder: found type "Nope", needed one of BPEDecoder`,
			`{"type":"Strip","content":"","start":1,"stop":0}`: `needed one character`,
		},
		"model": {
			`{"type":"Nope","vocab":{}}`:                               `found type "Nope", needed one of BPE`,
			`{"type":"BPE","vocab":{"a":0}}`:                           `merges: found none`,
			`{"type":"BPE","vocab":{"a":-1},"merges":[]}`:              `found id -1 for token "a"`,
			`{"type":"BPE","vocab":{"a":0},"merges":["a b"]}`:          `merge 0: found token "b" outside the vocabulary`,
			`{"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"]}`:    `found the result "ab" outside`,
			`{"type":"BPE","vocab":{"a":0},"merges":["a"]}`:            `found 1 parts`,
			`{"type":"BPE","vocab":{"a":0},"merges":[["a"]]}`:          `found 1 tokens, needed 2`,
			`{"type":"BPE","vocab":{"a":0},"merges":[],"dropout":0.1}`: `dropout: found 0.1`,
			`{"type":"Unigram","vocab":[["a",0]],"unk_id":1}`:          `unk_id: found 1`,
			`{"type":"WordPiece","vocab":[]}`:                          `vocab: found array, needed an object`,
		},
	} {
		for value, want := range cases {
			_, err := openTiny(t, map[string]string{"tokenizer.json": tiny(map[string]string{part: value})})
			must.Fail(t, err, want)
		}
	}
}

// TestUnknownMissing: a word that cannot be written is an error that names it.
func TestUnknownMissing(t *testing.T) {
	for model, want := range map[string]string{
		`{"type":"WordLevel","vocab":{"a":0},"unk_token":"<unk>"}`:       `word "z" is not in the vocabulary, nor is the unknown token "<unk>"`,
		`{"type":"WordPiece","vocab":{"a":0}}`:                           `nor is the unknown token "[UNK]"`,
		`{"type":"BPE","vocab":{"a":0},"merges":[],"unk_token":"<unk>"}`: `nor is the unknown token "<unk>"`,
		`{"type":"Unigram","vocab":[["a",-1.5]]}`:                        `character "z" is not in the vocabulary and the model has no unk_id`,
	} {
		tok := mustTiny(t, map[string]string{"model": model, "added_tokens": "[]"})
		must.Fail(t, must.Error(tok.Encode(t.Context(), "a z", EncodeOptions{})), want)
	}
}

func TestReadNumber(t *testing.T) {
	for s, want := range map[string]float64{
		"0": 0, "-0": 0, "1": 1, "-2.5": -2.5, "1e3": 1000, "2E-2": 0.02, "12345678901234567890123": 12345678901234567890123,
		"-11.512925464970229": -11.512925464970229, "1e-400": 0, "0.1": 0.1,
	} {
		must.Equal(t, must.Value(readNumber(s))(t, s), want, s)
	}
	// Not the nearest double, but the digits over a power of ten, rounded twice.
	for s, want := range map[string]float64{
		"-9.069904319694293":  float64(-9069904319694293) / 1e15,
		"-0.9845552882621433": float64(-9845552882621433) / 1e16,
		"-9.108801593182731":  float64(-9108801593182731) / 1e15,
	} {
		nearest, err := strconv.ParseFloat(s, 64)
		if err != nil || nearest == want {
			t.Fatalf("%s: found %v (%v), needed a number of which the two ways differ", s, nearest, err)
		}
		must.Equal(t, must.Value(readNumber(s))(t, s), want, s)
	}
	if _, err := readNumber("x"); err == nil {
		t.Error("x: found no error")
	}
}

// TestBothLanguages: the two sides of a Marian model cut text by models of their own.
func TestBothLanguages(t *testing.T) {
	tok := open(t, "marian")
	source := must.Value(tok.Encode(t.Context(), "a newword", EncodeOptions{OmitSpecialTokens: true}))(t)
	target := must.Value(tok.Target().Encode(t.Context(), "a newword", EncodeOptions{OmitSpecialTokens: true}))(t)
	if cmp.Equal(source, target) {
		t.Errorf("found ids %v for both languages, needed them to differ: only the target model has the piece newword",
			source)
	}
}
