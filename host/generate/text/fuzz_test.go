package text

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// FuzzRead: no tokenizer.json makes the reader, or what it has read, panic.
func FuzzRead(f *testing.F) {
	f.Add([]byte(tiny(nil)))
	for _, parts := range []map[string]string{
		{"post_processor": around,
			"decoder": `{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":1}]}`},
		{"normalizer": `{"type":"Sequence","normalizers":[{"type":"BertNormalizer"},{"type":"NFKC"},{"type":"Strip","strip_left":true,"strip_right":true}]}`},
		{"normalizer": `{"type":"Precompiled","precompiled_charsmap":"CAAAAAAAAAAAAAAAYQA="}`,
			"decoder": `{"type":"WordPiece"}`},
		{"pre_tokenizer": `{"type":"Split","pattern":{"Regex":"\\p{L}+|[^a]"},"behavior":"MergedWithNext","invert":true}`,
			"decoder": `{"type":"BPEDecoder","suffix":"a"}`},
		{"model": `{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"<0xC3>":3},"merges":[["a","b"]],"byte_fallback":true}`,
			"decoder": `{"type":"Metaspace","replacement":"_"}`},
		{"model": `{"vocab":[["a",-1.5],["ab",-2],["<unk>",0]],"unk_id":2}`,
			"pre_tokenizer": `{"type":"Metaspace","replacement":"_","prepend_scheme":"first"}`},
		{"model": `{"type":"WordPiece","vocab":{"[UNK]":0,"a":1,"##b":2}}`, "pre_tokenizer": `{"type":"ByteLevel"}`,
			"decoder": `{"type":"ByteLevel"}`},
	} {
		f.Add([]byte(tiny(parts)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		must.CostLittle(t, len(data), func() { readAndUse(t, data) })
	})
}

// readAndUse reads a tokenizer.json, and turns texts to ids and back.
func readAndUse(t *testing.T, data []byte) {
	codec, special, err := read(data)
	if err != nil {
		return
	}
	tok := &Tokenizer{codec: codec, path: "fuzz", special: special}
	for _, s := range []string{"", " a ab\u00e9 <s>b_c<new>\r\n", "1\u0301\u4f60 12"} {
		ids, err := tok.Encode(t.Context(), s, EncodeOptions{})
		if err != nil {
			continue
		}
		err = decoded(tok, ids, DecodeOptions{Spaces: SpacesCleaned})
		if err != nil && !strings.Contains(err.Error(), "needed one from") &&
			!strings.Contains(err.Error(), "cost grows with the text") {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// FuzzText: every text of UTF-8 has ids, all of them below the vocabulary's
// size, that decode to UTF-8; where all bytes have
// a token and nothing is normalised, to the text itself.
func FuzzText(f *testing.F) {
	kinds := map[string]*Tokenizer{}
	for _, name := range kindNames(f) {
		kinds[name] = open(f, name)
	}
	for _, line := range testLines(f)[:200] {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for name, tok := range kinds {
			must.CostLittle(t, len(s), func() { encodeAndDecode(t, name, tok, s) })
		}
	})
}

// encodeAndDecode holds one tokenizer to what FuzzText says.
func encodeAndDecode(t *testing.T, name string, tok *Tokenizer, s string) {
	ids, err := tok.Encode(t.Context(), s, EncodeOptions{OmitSpecialTokens: true})
	if invalidUTF8(s) >= 0 {
		if err == nil {
			t.Fatalf("%s: %q: found ids, needed an error", name, s)
		}
		return
	}
	must.Succeed(t, err, name, s)
	for _, id := range ids {
		if id < 0 || id >= int64(tok.size()) {
			t.Fatalf("%s: %q: found id %d, needed one below %d", name, s, id, tok.size())
		}
	}
	must.Succeed(t, decoded(tok, ids, DecodeOptions{}), name, s)
	if name == "gpt2" || name == "whisper" || name == "llama3" {
		if got, err := tok.Decode(ids, DecodeOptions{}); err != nil || got != s {
			t.Fatalf("%s: %q became %q (%v)", name, s, got, err)
		}
	}
}

// FuzzDecode: any ids decode to UTF-8.
func FuzzDecode(f *testing.F) {
	kinds := map[string]*Tokenizer{}
	for _, name := range kindNames(f) {
		kinds[name] = open(f, name)
	}
	f.Add([]byte{0, 1, 0, 200, 1, 3, 2, 2})
	f.Fuzz(func(t *testing.T, data []byte) {
		for name, tok := range kinds {
			var ids []int64
			for i := 0; i+1 < len(data); i += 2 {
				ids = append(ids, (int64(data[i])<<8|int64(data[i+1]))%int64(tok.size()+5))
			}
			for _, o := range []DecodeOptions{{}, {SkipSpecialTokens: true, Spaces: SpacesCleaned}} {
				must.CostLittle(t, len(data), func() {
					must.Succeed(t, decoded(tok, ids, o), name, ids)
				})
			}
		}
	})
}

// FuzzSentencePiece: no bytes make the reader of source.spm, or what it has read, panic.
func FuzzSentencePiece(f *testing.F) {
	f.Add(unpack(f, filepath.Join("testdata", "marian", "target.spm.gz")))
	f.Add([]byte("\x0a\x0e\x0a\x05<unk>\x15\x00\x00\x00\x00\x18\x02\x0a\x08\x0a\x01a\x15\x00\x00\x80\xbf"))
	f.Fuzz(func(t *testing.T, data []byte) {
		must.CostLittle(t, len(data), func() {
			m, err := readSentencePiece(data)
			if err != nil {
				return
			}
			text := " a\u00e9 newword  b "
			m.encode(text, nil, newBudget(len(text)))
		})
	})
}

// TestVocabularyFile: what is not a vocabulary is an error, not a tokenizer.
func TestVocabularyFile(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"source.spm", "target.spm"} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), unpack(t, filepath.Join("testdata", "marian", name+".gz")),
			0o644))
	}
	for _, c := range []struct{ vocab, want string }{
		{`{"a": 1}`, `found no token "<unk>"`},
		{`{"<unk>": 1}`, `found no token "</s>"`},
		{`{"<unk>": -1}`, `found id -1 for token "<unk>"`},
		{`[]`, `vocab.json: json`},
	} {
		if !json.Valid([]byte(c.vocab)) {
			t.Fatalf("%s is no JSON", c.vocab)
		}
		must.Succeed(t, os.WriteFile(filepath.Join(dir, "vocab.json"), []byte(c.vocab), 0o644))
		must.Fail(t, must.Error(Open(dir)), c.want)
	}
}
