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
