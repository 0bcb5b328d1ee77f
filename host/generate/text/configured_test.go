package text

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// TestConfigured: tokens and a post-processor that stand beside tokenizer.json alone are transformers' own ids.
func TestConfigured(t *testing.T) {
	const tokenizer = `{"added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": {"type": "WordLevel",
		"unk_token": "<unk>", "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2, "<pad>": 3, "a": 4, "b": 5, "c": 6}}}`
	flags := `{"tokenizer_class": "LlamaTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "add_eos_token": true}`
	for _, c := range []struct {
		text  string
		files map[string]string
		want  []int64
		err   string
	}{
		{"a <x> b<y>c", map[string]string{"tokenizer_config.json": `{"additional_special_tokens": ["<x>", "<y>"]}`},
			[]int64{4, 7, 5, 8, 6}, ""},
		{"a<s>b</s>", map[string]string{"special_tokens_map.json": `{"bos_token": "<s>", "eos_token": "</s>"}`},
			[]int64{4, 1, 5, 2}, ""},
		{"a <im> b", map[string]string{"added_tokens.json": `{"<im>": 8}`}, []int64{4, 7, 5}, ""},
		{"a<im>b", map[string]string{"tokenizer_config.json": `{"added_tokens_decoder": {"8": {"content": "<im>", "special": true}}}`},
			[]int64{4, 7, 5}, ""},
		{"a<extra_id_1>b", map[string]string{"tokenizer_config.json": `{"tokenizer_class": "T5TokenizerFast", "extra_ids": 2}`},
			[]int64{4, 8, 5}, ""},
		{"a b", map[string]string{"tokenizer_config.json": flags, "config.json": `{"transformers_version": "4.55.4"}`},
			[]int64{1, 4, 5, 2}, ""},
		{"a b", map[string]string{"tokenizer_config.json": flags}, nil, "add_bos_token and add_eos_token say other tokens"},
	} {
		dir := t.TempDir()
		must.Succeed(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte(tokenizer), 0o644))
		for name, data := range c.files {
			must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644))
		}
		tok, err := Open(dir)
		if c.err != "" || err != nil {
			if c.err == "" || err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v: %v, want %q", c.files, err, c.err)
			}
			continue
		}
		if ids := must.Value(tok.Encode(t.Context(), c.text, EncodeOptions{}))(t); !slices.Equal(ids, c.want) {
			t.Errorf("%v: %v, want %v", c.files, ids, c.want)
		}
	}
}

// TestNamesOfNormalizedTokens: an added token that is looked for in normalised text is decoded to what it was added as,
// and from transformers 5.16 on (tokenizers 0.23) to its normalised form, which is no special token. Texts are those of
// transformers 4.55.4 and 5.24.0.
func TestNamesOfNormalizedTokens(t *testing.T) {
	const tokenizer = `{"normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": {"type":
		"WordLevel", "unk_token": "<unk>", "vocab": {"<unk>": 0, "in": 1, "is": 2}}, "added_tokens": [{"content": "Berlin",
		"normalized": true}, {"content": "[IN]", "normalized": true, "special": true}, {"content": "[X]", "special": true}]}`
	for version, want := range map[string][2]string{
		"4.55.4": {"in Berlin [IN] is [X]", "in Berlin is"},
		"5.15.1": {"in Berlin [IN] is [X]", "in Berlin is"},
		"5.16.0": {"in berlin [in] is [X]", "in berlin [in] is"},
		"5.24.0": {"in berlin [in] is [X]", "in berlin [in] is"},
		"6":      {"in berlin [in] is [X]", "in berlin [in] is"},
		"":       {"in Berlin [IN] is [X]", "in Berlin is"},
	} {
		dir := t.TempDir()
		must.Succeed(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte(tokenizer), 0o644))
		config := []byte(`{"transformers_version": "` + version + `"}`)
		must.Succeed(t, os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644))
		tok := must.Value(Open(dir))(t)
		ids := must.Value(tok.Encode(t.Context(), "in Berlin [IN] is [X]", EncodeOptions{}))(t)
		must.Equal(t, ids, []int64{1, 3, 4, 2, 5})
		for k, skip := range []bool{false, true} {
			if got := must.Value(tok.Decode(ids, DecodeOptions{SkipSpecialTokens: skip}))(t); got != want[k] {
				t.Errorf("%q, %v: %q, want %q", version, skip, got, want[k])
			}
		}
	}
}

// TestClassesMakeComponents: what classes of tokenizers make of their keys is done, or refused where tokenizer.json has
// it otherwise. Ids are those of transformers 4.55.4 and 5.24.0.
func TestClassesMakeComponents(t *testing.T) {
	const bert = `"normalizer": {"type": "BertNormalizer", "lowercase": true, "handle_chinese_chars": true}`
	lower := `"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}`
	for _, c := range []struct {
		normalizer, config, version string
		want                        []int64
		err                         string
	}{
		{bert, `"MPNetTokenizer", "do_lower_case": false`, "5.24.0", []int64{0, 2, 3}, ""},
		{bert, `"MPNetTokenizerFast", "do_lower_case": false, "tokenize_chinese_chars": false`, "4.55.4", []int64{0, 2, 3}, ""},
		{bert, `"MPNetTokenizer", "do_lower_case": false, "tokenize_chinese_chars": false`, "5.24.0", []int64{0, 0}, ""},
		{bert, `"SplinterTokenizer"`, "5.24.0", []int64{1, 2, 3}, ""},
		{lower, `"DebertaV2Tokenizer", "do_lower_case": false, "split_by_punct": false`, "5.24.0", nil, "do_lower_case is false"},
		{lower, `"DebertaV2TokenizerFast", "do_lower_case": false, "split_by_punct": true`, "4.55.4", []int64{1, 0}, ""},
		{lower, `"DebertaV2Tokenizer", "do_lower_case": true, "split_by_punct": true`, "5.24.0", nil, "split_by_punct is true"},
		{lower, `"RemBertTokenizer", "do_lower_case": true, "keep_accents": false`, "5.24.0", nil, "keep_accents is false"},
		{lower, `"RemBertTokenizer", "do_lower_case": true`, "5.24.0", []int64{1, 0}, ""},
	} {
		dir := t.TempDir()
		for name, data := range map[string]string{"tokenizer.json": `{"added_tokens": [], ` + c.normalizer + `,
			"pre_tokenizer": {"type": "WhitespaceSplit"}, "model": {"type": "WordLevel", "unk_token": "<unk>",
			"vocab": {"<unk>": 0, "ab": 1, "中": 2, "文": 3}}}`, "tokenizer_config.json": `{"tokenizer_class": ` + c.config + `}`,
			"config.json": `{"transformers_version": "` + c.version + `"}`} {
			must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644))
		}
		var ids []int64
		tok, err := Open(dir)
		if err == nil {
			ids = must.Value(tok.Encode(t.Context(), "AB 中文", EncodeOptions{}))(t)
		}
		if !slices.Equal(ids, c.want) || (err == nil) != (c.err == "") ||
			err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s of %s: %v, %v, want %v %q", c.config, c.version, ids, err, c.want, c.err)
		}
	}
}

// TestBadSettings: a value of a wrong type of every key that is read beside tokenizer.json is an error that names the
// file and the key, and a file that is no JSON of the kind that is needed is one that names it.
func TestBadSettings(t *testing.T) {
	const whole = `{"added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": {"type": "WordLevel",
		"unk_token": "<unk>", "vocab": {"<unk>": 0, "a": 1}}}`
	dir := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte(whole), 0o644))
	refused := func(name, text string, words ...string) {
		t.Helper()
		path := filepath.Join(dir, name)
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o644))
		_, err := Open(dir)
		for _, word := range append(words, path, "needed") {
			if err == nil || !strings.Contains(err.Error(), word) && !strings.Contains(err.Error(), "JSON input") {
				t.Errorf("%s with %s: found %v, needed an error with %q", name, text, err, word)
			}
		}
		must.Succeed(t, os.Remove(path))
	}
	values := map[string][]string{
		flag.needed:                           {`"true"`, `1`, `[]`, `{}`},
		token.needed:                          {`1`, `true`, `[]`, `{"content": 1}`, `{"content": "a", "lstrip": "no"}`},
		tokens.needed:                         {`1`, `true`, `"a"`, `[null]`, `[1]`, `{"a": 1}`, `[{"content": []}]`},
		settings["tokenizer_class"].needed:    {`1`, `true`, `["BertTokenizer"]`, `{}`},
		settings["extra_ids"].needed:          {`"7"`, `-1`, `1.5`, `10001`},
		"ids of tokens: an object of objects": {`1`, `[]`, `{"a": {"content": "b"}}`, `{"7": 1}`, `{"-7": {"content": "b"}}`},
	}
	keys := map[string]string{"added_tokens_decoder": "ids of tokens: an object of objects"}
	for key, s := range settings {
		keys[key] = s.needed
	}
	for key, needed := range keys {
		for _, value := range values[needed] {
			for _, name := range []string{"tokenizer_config.json", "special_tokens_map.json"} {
				refused(name, `{"`+key+`": `+value+`}`, key)
			}
		}
	}
	for _, text := range []string{`{"<x>": "7"}`, `{"<x>": null}`, `{"<x>": 1.5}`, `{"<x>": -1}`} {
		refused("added_tokens.json", text)
	}
	for _, name := range []string{"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"} {
		for _, text := range []string{"", "[]", "1", `"x"`, "{"} {
			refused(name, text)
		}
	}
	must.Value(Open(dir))(t)
	for _, c := range [][2]string{{"", ""}, {"[]", ""}, {"null", "model"}, {"{}", "model"},
		{strings.Replace(whole, "[]", "{}", 1), "added_tokens"}, {strings.Replace(whole, "[]", "[1]", 1), "added_tokens"},
		{strings.Replace(whole, `{"type": "WhitespaceSplit"}`, `"x"`, 1), "pre_tokenizer"},
		{strings.Replace(whole, `"WhitespaceSplit"`, `1`, 1), "pre_tokenizer.type"},
		{strings.Replace(whole, `"WhitespaceSplit"`, `"Whites"`, 1), "pre_tokenizer"},
		{strings.Replace(whole, `"WordLevel"`, `1`, 1), "type"}, {strings.Replace(whole, `"<unk>": 0`, `"<unk>": null`, 1), "vocab"},
		{strings.Replace(whole, `"vocab"`, `"words"`, 1), "vocab"}, {strings.Replace(whole, `0`, `"0"`, 1), "vocab"},
		{strings.Replace(whole, `"added_tokens": []`, `"padding": {"direction": "Up"}`, 1), "padding"},
		{strings.Replace(whole, `"added_tokens": []`, `"truncation": {"max_length": "7"}`, 1), "max_length"},
	} {
		refused("tokenizer.json", c[0], c[1])
	}
}
