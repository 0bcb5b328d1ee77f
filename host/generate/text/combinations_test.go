package text

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/internal/sample"
)

// combination is a tokenizer.json of random parts, as models/text/combinations.py writes it.
type combination struct {
	Tokenizer map[string]any
	Texts     [][3]int // two texts and the number of the pair
	Checks    string
	Full      [][]any
}

type combinations struct {
	Versions string
	Texts    []string
	Bases    []map[string]any
	Cases    []combination

	charsmaps map[string]string
}

func readCombinations(t *testing.T) *combinations {
	d := json.NewDecoder(bytes.NewReader(unpack(t, "testdata/combinations.json.gz")))
	d.UseNumber()
	all := &combinations{charsmaps: map[string]string{}}
	must.Succeed(t, d.Decode(all))
	for _, name := range []string{"t5", "umt5"} {
		f := must.Value(parse(unpack(t, filepath.Join("testdata", name, "tokenizer.json.gz"))))(t)
		for _, n := range append(f.Normalizer.Normalizers, *f.Normalizer) {
			if n.Charsmap != "" {
				all.charsmaps[name] = n.Charsmap
			}
		}
	}
	return all
}

// whole is the tokenizer.json of a case.
func (all *combinations) whole(t *testing.T, c combination) []byte {
	spec := c.Tokenizer
	own := spec["model"].(map[string]any)
	number := must.Value(own["base"].(json.Number).Int64())(t)
	made := map[string]any{}
	for _, from := range []map[string]any{all.Bases[number], own} {
		for key, value := range from {
			if key != "base" && key != "merges" || from["base"] == nil {
				made[key] = value
			}
		}
	}
	if own["merges"] == "lines" {
		var lines []any
		for _, pair := range made["merges"].([]any) {
			lines = append(lines, pair.([]any)[0].(string)+" "+pair.([]any)[1].(string))
		}
		made["merges"] = lines
	}
	spec["model"] = made
	all.fill(spec["normalizer"])
	return must.Value(json.Marshal(spec))(t)
}

// fill puts precompiled charsmaps where the case names the kind of testdata that has one.
func (all *combinations) fill(part any) {
	switch part := part.(type) {
	case []any:
		for _, one := range part {
			all.fill(one)
		}
	case map[string]any:
		if name, ok := part["precompiled_charsmap"].(string); ok {
			part["precompiled_charsmap"] = all.charsmaps[name]
		}
		all.fill(part["normalizers"])
	}
}

// combined is what combinations.py compares of a pair of texts: rows of numbers and strings, nil for an error.
func combined(t *testing.T, tok *Tokenizer, number, k int, onlyFirst bool, first, second string) (rows []any) {
	row := func(ids []int64, err error) {
		if err != nil {
			rows = append(rows, nil)
			return
		}
		rows = append(rows, append([]int64{}, ids...))
	}
	var whole []int64
	for _, length := range []int{0, tok.Stored()} {
		for _, omit := range []bool{false, true} {
			o := EncodeOptions{OmitSpecialTokens: omit, MaxLength: length, OnlyFirst: onlyFirst && length > 0}
			if length > 0 {
				o.TruncateLeft, _ = tok.Sides()
			}
			one, err := tok.EncodeTyped(t.Context(), first, o)
			row(one.IDs, err)
			row(one.Types, err)
			two, err := tok.EncodePair(t.Context(), first, second, o)
			row(two.IDs, err)
			row(two.Types, err)
			if len(whole) == 0 {
				whole = two.IDs
			}
			tokens, err := tok.Tokens(t.Context(), first, o)
			var places []int64
			for _, token := range tokens {
				places = append(places, int64(token.Start), int64(token.End))
			}
			row(places, err)
		}
		if tok.Stored() == 0 {
			break
		}
	}
	var drawn []int64
	for i := range 16 {
		drawn = append(drawn, int64((i*i*31+number*17+k*101+i*7)%450))
	}
	for _, ids := range [][]int64{whole, drawn} {
		for _, skip := range []bool{false, true} {
			o := DecodeOptions{SkipSpecialTokens: skip}
			text, err := tok.Decode(ids, o)
			must.Succeed(t, err, ids)
			rows = append(rows, text)
			if err := decoded(tok, ids, o); err != nil {
				t.Errorf("case %d, %d: streamed: %v", number, k, err)
			}
		}
	}
	return rows
}

func checkOf(rows []any) uint32 {
	var data []byte
	for _, row := range rows {
		switch row := row.(type) {
		case nil:
			data = append(data, 0xfe)
		case string:
			data = append(append(data, row...), 0xff)
		case []int64:
			for _, id := range append(row[:len(row):len(row)], -1) {
				data = binary.LittleEndian.AppendUint32(data, uint32(id))
			}
		}
	}
	return crc32.ChecksumIEEE(data) & 0xffffff
}

// plain is a row of the file as combined has it.
func plain(t *testing.T, rows []any) (list []any) {
	for _, row := range rows {
		numbers, ok := row.([]any)
		if !ok {
			list = append(list, row)
			continue
		}
		ids := []int64{}
		for _, id := range numbers {
			ids = append(ids, must.Value(id.(json.Number).Int64())(t))
		}
		list = append(list, ids)
	}
	return list
}

// refusals are of parts that are not implemented, or that make of a text what nobody can want.
var refusals = []string{
	"post_processor: Sequence: found a second processor that adds tokens",
	"of which the normalizer leaves nothing; needed", // the reference cuts a text at every byte, and characters with it
}

// TestCombinations compares tokenizer.json files of random parts, on texts and pairs, cut and whole, with special
// tokens and without, with what Hugging Face's tokenizers make of them: ids, types, places, decoded text. Tokens that
// come one by one have to give the same text, and never a character that is not whole.
func TestCombinations(t *testing.T) {
	all := readCombinations(t)
	must.Equal(t, len(all.Cases), 2000)
	dir := t.TempDir()
	refused, compared := 0, 0
	for number, c := range all.Cases {
		if number%compareEvery != 0 || number >= 100 && !sample.Has(number, 8) {
			continue
		}
		compared++
		spec := must.Value(json.Marshal(c.Tokenizer))(t)
		truncation, _ := c.Tokenizer["truncation"].(map[string]any)
		tok, err := openJSON(dir, "tokenizer.json", all.whole(t, c))
		if err != nil {
			known := func(reason string) bool { return strings.Contains(err.Error(), reason) }
			if refused++; !slices.ContainsFunc(refusals, known) {
				t.Errorf("case %d: refused: %v\n%s", number, err, spec)
			}
			continue
		}
		checks := must.Value(base64.StdEncoding.DecodeString(c.Checks))(t)
		for at, text := range c.Texts {
			first, second := all.Texts[text[0]], all.Texts[text[1]]
			got := combined(t, tok, number, text[2], truncation["strategy"] == "OnlyFirst", first, second)
			if checkOf(got) == uint32(checks[3*at])|uint32(checks[3*at+1])<<8|uint32(checks[3*at+2])<<16 {
				continue
			}
			diff := "models/text/combinations.py --full 1 writes what is wanted"
			if c.Full != nil {
				diff = cmp.Diff(plain(t, c.Full[at]), got)
			}
			t.Errorf("case %d, texts %+q and %+q: differs from %s (-want +got):\n%s\n%s", number, first, second, all.Versions,
				diff, spec)
			break
		}
	}
	t.Logf("%d of %d tokenizers compared, %d of these refused", compared, len(all.Cases), refused)
	if refused > compared/10 {
		t.Errorf("%d of %d refused, needed at most a tenth", refused, compared)
	}
}
