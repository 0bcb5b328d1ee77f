package text

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/base/storage"
)

// ErrNoTokenizer is found in the error of Open for a folder without any.
var ErrNoTokenizer = errors.New("no tokenizer")

// Open reads the tokenizer of a model's folder: tokenizer.json if it is there,
// else Marian's source.spm, target.spm and vocab.json. tokenizer_config.json
// and special_tokens_map.json are read where they are. dir may also be the path
// of a tokenizer.json.
func Open(dir string) (*Tokenizer, error) {
	path := dir
	if info, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	} else if info.IsDir() {
		path = filepath.Join(dir, "tokenizer.json")
	} else {
		dir = filepath.Dir(dir)
	}
	data, err := storage.ReadRegular(path, limit.Vocabulary)
	switch {
	case err == nil:
		return openJSON(dir, path, data)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	if exists(dir, "source.spm") {
		return openMarian(dir)
	}
	return nil, missing(dir)
}

func exists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

// missing says what the folder holds instead.
func missing(dir string) error {
	var found []string
	for _, name := range []string{"tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "vocab.json", "merges.txt",
		"vocab.txt", "target.spm"} {
		if exists(dir, name) {
			found = append(found, name)
		}
	}
	what := "none of a tokenizer's files"
	fix := "copy tokenizer.json from where the model comes from"
	if len(found) > 0 {
		what = strings.Join(found, ", ") + " only"
		fix = "write a tokenizer.json with transformers: AutoTokenizer.from_pretrained(FOLDER, " +
			"use_fast=True).save_pretrained(FOLDER)"
	}
	return fmt.Errorf("%s: %w: found %s, needed tokenizer.json, or source.spm, target.spm and vocab.json (Marian); %s",
		dir, ErrNoTokenizer, what, fix)
}

func openJSON(dir, path string, data []byte) (*Tokenizer, error) {
	f, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	config, err := readConfig(dir)
	if err != nil {
		return nil, err
	}
	if err := configure(dir, f); err != nil {
		return nil, err
	}
	codec, special, err := f.codec()
	var own *diagnostic.Error
	switch {
	case errors.As(err, &own) && own.Path != "":
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &Tokenizer{codec: codec, path: path, special: special, clean: config.clean,
		side: [2]string{f.Truncation.Direction, f.Padding.Direction}, longest: max(f.Truncation.Length, 0),
		second: string(f.Truncation.Strategy) == `"OnlySecond"`,
		roles:  config.roles}, nil
}

// config is what concerns the tokenizer in tokenizer_config.json and special_tokens_map.json.
type config struct {
	clean    bool
	separate bool              // Marian: target_vocab.json numbers the target side
	roles    map[string]string // "eos_token" to "</s>"
	added    []addedToken
	extra    []string // additional_special_tokens
}

func readConfig(dir string) (*config, error) {
	c := &config{roles: map[string]string{}}
	for _, name := range []string{"special_tokens_map.json", "tokenizer_config.json"} {
		path := filepath.Join(dir, name)
		data, err := storage.ReadRegular(path, limit.Vocabulary)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("tokenizer: %w", err)
		}
		var own *diagnostic.Error
		if err := c.read(path, data); errors.As(err, &own) {
			return nil, err
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return c, nil
}

func (c *config) read(path string, data []byte) error {
	var all map[string]json.RawMessage
	if err := decode(data, &all); err != nil {
		return err
	}
	if err := checkSettings(path, all); err != nil {
		return err
	}
	var known struct {
		Clean    *bool                 `json:"clean_up_tokenization_spaces"`
		Separate bool                  `json:"separate_vocabs"`
		Added    map[string]addedToken `json:"added_tokens_decoder"`
		Extra    []json.RawMessage     `json:"additional_special_tokens"`
	}
	if err := decode(data, &known); err != nil {
		return err
	}
	c.clean = or(known.Clean, c.clean)
	c.separate = c.separate || known.Separate
	for id, t := range known.Added {
		if _, err := fmt.Sscan(id, &t.ID); err != nil || t.ID < 0 {
			return fmt.Errorf("added_tokens_decoder: found id %q, needed a number of at least 0", id)
		}
		c.added = append(c.added, t)
	}
	slices.SortFunc(c.added, func(a, b addedToken) int { return int(a.ID) - int(b.ID) })
	for key, value := range all {
		if strings.HasSuffix(key, "_token") {
			if token := tokenName(value); token != "" {
				c.roles[key] = token
			}
		}
	}
	for _, value := range known.Extra {
		if token := tokenName(value); token != "" {
			c.extra = append(c.extra, token)
		}
	}
	return nil
}

// tokenName reads "</s>" or {"content": "</s>", ...}; "" for anything else.
func tokenName(data json.RawMessage) string {
	var name string
	if json.Unmarshal(data, &name) == nil {
		return name
	}
	var token struct{ Content string }
	if json.Unmarshal(data, &token) == nil {
		return token.Content
	}
	return ""
}
