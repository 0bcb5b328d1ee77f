package text

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/opgraft/graft/internal/must"
)

// pairCases are those of models/text/pairs.py, in its order.
func pairCases() (list []EncodeOptions) {
	for _, length := range []int{0, 9, 16, 31} {
		for _, left := range []bool{false, true} {
			for _, omit := range []bool{false, true} {
				list = append(list, EncodeOptions{MaxLength: length, TruncateLeft: left, OmitSpecialTokens: omit})
			}
		}
	}
	return list
}

// pairAnswers are ids and types of a pair, and of its first text, for every case.
func pairAnswers(ctx context.Context, t *Tokenizer, first, second string) (list [][4][]int64, err error) {
	for _, o := range pairCases() {
		pair, err := t.EncodePair(ctx, first, second, o)
		if err != nil {
			return nil, err
		}
		single, err := t.EncodeTyped(ctx, first, o)
		if err != nil {
			return nil, err
		}
		list = append(list, [4][]int64{pair.IDs, pair.Types, single.IDs, single.Types})
	}
	return list, nil
}

func pairCheck(list [][4][]int64) uint32 {
	var data []byte
	for _, answer := range list {
		for _, row := range answer {
			for _, id := range row {
				data = binary.LittleEndian.AppendUint32(data, uint32(id))
			}
			data = binary.LittleEndian.AppendUint32(data, 1<<32-1)
		}
	}
	return crc32.ChecksumIEEE(data) & 0xffffff
}

// TestPairsEqualHuggingFace compares pairs, cut to some lengths from both ends, with and without special tokens, with
// what Hugging Face's tokenizers made of them.
func TestPairsEqualHuggingFace(t *testing.T) {
	lines := testLines(t)
	var want struct {
		Versions string
		Kinds    map[string]struct {
			Checks string
			Full   map[string][][4][]int64
		}
	}
	must.Succeed(t, json.Unmarshal(unpack(t, "testdata/pairs.json.gz"), &want))
	if len(want.Kinds) < 16 {
		t.Fatalf("testdata/pairs.json.gz: found %d kinds, needed 16; write it with models/text/pairs.py", len(want.Kinds))
	}
	for name, expected := range want.Kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tok := open(t, name)
			checks, err := base64.StdEncoding.DecodeString(expected.Checks)
			if err != nil || len(checks) < 3*500 || len(expected.Full) == 0 {
				t.Fatalf("found %d bytes of checks (%v)", len(checks), err)
			}
			pair := func(i int) (string, string) { return lines[i], lines[(i*7+3)%len(lines)] }
			for key, answers := range expected.Full {
				i := must.Value(strconv.Atoi(key))(t)
				first, second := pair(i)
				got, err := pairAnswers(t.Context(), tok, first, second)
				if diff := cmp.Diff(answers, got); err != nil || diff != "" {
					t.Fatalf("pair %d, %+q and %+q against %s: %v (-want +got):\n%s", i, first, second, want.Versions, err, diff)
				}
			}
			for i := 0; i < len(checks)/3; i += compareEvery {
				first, second := pair(i)
				got, err := pairAnswers(t.Context(), tok, first, second)
				if c := uint32(checks[3*i]) | uint32(checks[3*i+1])<<8 | uint32(checks[3*i+2])<<16; err != nil ||
					c != pairCheck(got) {
					t.Fatalf("pair %d, %+q and %+q: differs from %s (%v)", i, first, second, want.Versions, err)
				}
			}
		})
	}
}

func TestPairsThatAreRefused(t *testing.T) {
	template := func(pair string) string {
		return `{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A","type_id":0}}],"pair":` + pair +
			`,"special_tokens":{}}`
	}
	a, b := `{"Sequence":{"id":"A","type_id":0}}`, `{"Sequence":{"id":"B","type_id":1}}`
	for _, c := range []struct{ name, post, want string }{
		{"no pair", template("[]"), "TemplateProcessing: found 0 times A and 0 times B in pair, needed each once"},
		{"one text of two", template("[" + a + "]"),
			"TemplateProcessing: found 1 times A and 0 times B in pair, needed each once"},
		{"a text twice", template("[" + a + "," + b + "," + b + "]"),
			"TemplateProcessing: found 1 times A and 2 times B in pair, needed each once"},
		{"an unknown token", template(`[` + a + `,{"SpecialToken":{"id":"[X]","type_id":0}},` + b + `]`),
			`found token "[X]" in pair, needed it in special_tokens`},
		{"too little room", around, "max length: found 2, needed at least 3: the tokenizer puts that many special tokens " +
			"around a text"},
	} {
		tok := mustTiny(t, map[string]string{"post_processor": c.post})
		must.Fail(t, must.Error(tok.EncodePair(t.Context(), "a", "b", EncodeOptions{MaxLength: 2})), c.want)
		if ids, err := tok.Encode(t.Context(), "a", EncodeOptions{}); err != nil || len(ids) == 0 {
			t.Errorf("%s: a single text: %v, %v", c.name, ids, err)
		}
	}
	tok := mustTiny(t, map[string]string{"post_processor": around})
	for _, pair := range [][2]string{{"a\xff", "b"}, {"b", "a\xff"}} {
		if _, err := tok.EncodePair(t.Context(), pair[0], pair[1], EncodeOptions{}); err == nil ||
			!strings.Contains(err.Error(), "found byte 0xff at offset 1, needed UTF-8") {
			t.Errorf("%q: %v", pair, err)
		}
	}
	must.Fail(t, must.Error(open(t, "marian").EncodePair(t.Context(), "a", "b", EncodeOptions{})),
		"Marian's models read no pairs")
}
