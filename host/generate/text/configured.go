package text

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/base/storage"
)

// roles are the special tokens that a configuration names, in the order in which transformers adds them.
var roles = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// namedToken reads "</s>" or {"content": "</s>", ...}, a special token; ok is false for anything else.
func namedToken(data json.RawMessage) (t addedToken, ok bool) {
	t.Special = true
	if json.Unmarshal(data, &t.Content) == nil {
		return t, t.Content != ""
	}
	if json.Unmarshal(data, &t) != nil {
		return t, false
	}
	t.Special = true
	return t, t.Content != ""
}

// extras reads a list of special tokens, or an object of them by role.
func extras(data json.RawMessage) (out []addedToken) {
	var list []json.RawMessage
	if json.Unmarshal(data, &list) != nil {
		var named map[string]json.RawMessage
		if json.Unmarshal(data, &named) != nil {
			return nil
		}
		for _, role := range sortedKeys(named) {
			list = append(list, named[role])
		}
	}
	for _, one := range list {
		if t, ok := namedToken(one); ok {
			out = append(out, t)
		}
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// configured is a tokenizer.json with what the files beside it change, as AutoTokenizer of transformers has it.
type configured struct {
	dir, path string // the folder, and its tokenizer_config.json
	file      *file
	config    map[string]json.RawMessage
	major     int // the major version of transformers that wrote the folder; 0 where it is not said
	class     string
}

// namesNormalized is the first version of transformers whose tokenizers (0.23) names an added token by its normalised
// form.
var namesNormalized = [2]int{5, 16}

// configure changes a tokenizer.json as the files beside it say.
func configure(dir string, f *file) error {
	c := &configured{dir: dir, path: filepath.Join(dir, "tokenizer_config.json"), file: f,
		config: map[string]json.RawMessage{}}
	if err := optional(c.path, &c.config); err != nil {
		return err
	}
	if c.config == nil { // null
		c.config = map[string]json.RawMessage{}
	}
	c.text("tokenizer_class", &c.class)
	by := writer(dir)
	c.class, c.major = strings.TrimSuffix(cmp.Or(c.class, by.class), "Fast"), by.major
	f.namesNormalized = slices.Compare([]int{by.major, by.minor}, namesNormalized[:]) >= 0
	for _, step := range []func() error{c.model, c.tokens, c.around, c.normalizer, c.prefix} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// optional reads a file of JSON that may not be there.
func optional(path string, into any) error {
	data, err := storage.ReadRegular(path, limit.Vocabulary)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = decode(data, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// writtenBy is what a folder's config.json says of who wrote it.
type writtenBy struct {
	major int // version of transformers; 0 where it is not said
	minor int
	class string // of the tokenizer, where tokenizer_config.json names none
}

func writer(dir string) (w writtenBy) {
	var c struct {
		Version string `json:"transformers_version"`
		Class   string `json:"tokenizer_class"`
	}
	if optional(filepath.Join(dir, "config.json"), &c) != nil {
		return w // who needs the file reports it
	}
	w.class = c.Class
	major, rest, _ := strings.Cut(c.Version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	for into, part := range map[*int]string{&w.major: major, &w.minor: minor} {
		if n, err := strconv.Atoi(part); err == nil {
			*into = n
		}
	}
	return w
}

// text reads a string or a boolean of the configuration into a variable, which stays where there is none.
func (c *configured) text(key string, into any) (given bool) {
	data, ok := c.config[key]
	return ok && string(data) != "null" && json.Unmarshal(data, into) == nil
}

// models are what transformers 5 makes of the vocabulary in tokenizer.json for classes of tokenizers, whatever else
// that file says.
var models = map[string]string{
	"AlbertTokenizer": "Unigram", "BertTokenizer": "WordPiece", "CodeLlamaTokenizer": "BPE", "CohereTokenizer": "BPE",
	"GPT2Tokenizer": "BPE", "GPTNeoXTokenizer": "BPE", "GemmaTokenizer": "BPE", "LlamaTokenizer": "BPE",
	"RobertaTokenizer": "BPE", "T5Tokenizer": "Unigram", "XLMRobertaTokenizer": "Unigram", "XLNetTokenizer": "Unigram",
}

// model refuses a tokenizer.json that transformers 5 would not use as it is.
func (c *configured) model() error {
	var m struct{ Type string }
	if json.Unmarshal(c.file.Model, &m) != nil || m.Type == "" || c.major < 5 {
		return nil
	}
	if made, ok := models[c.class]; ok && made != m.Type {
		return &diagnostic.Error{Path: c.path, Found: fmt.Sprintf("tokenizer_class is %s, of which transformers 5 makes a "+
			"tokenizer of the kind %s, and tokenizer.json has %s", c.class, made, m.Type), Needed: "the same kind in both",
			Fix: "the class of any tokenizer.json is TokenizersBackend"}
	}
	return nil
}

// tokens adds the special tokens, and other added ones, that stand beside tokenizer.json alone.
func (c *configured) tokens() error {
	var byID map[string]addedToken
	if data, ok := c.config["added_tokens_decoder"]; ok {
		if err := decode(data, &byID); err != nil {
			return fmt.Errorf("%s: added_tokens_decoder: %w", c.path, err)
		}
		for id, t := range byID {
			n, err := strconv.ParseInt(id, 10, 32)
			if err != nil || n < 0 {
				return fmt.Errorf("%s: added_tokens_decoder: found id %q, needed a number of at least 0", c.path, id)
			}
			t.ID = int32(n)
			byID[id] = t
		}
	} else if err := c.legacy(&byID); err != nil {
		return err
	}
	added := make([]addedToken, 0, len(byID))
	for _, t := range byID {
		added = append(added, t)
	}
	slices.SortFunc(added, func(a, b addedToken) int { return cmp.Compare(a.ID, b.ID) })
	for _, t := range added {
		c.add(t, true)
	}
	for _, role := range roles {
		if t, ok := namedToken(c.config[role]); ok {
			c.add(t, false)
		}
	}
	for _, key := range []string{"additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens"} {
		for _, t := range extras(c.config[key]) {
			c.add(t, false)
		}
	}
	c.sentinels()
	return nil
}

// sentinels adds the tokens of which T5's classes of tokenizers have extra_ids, where the configuration names none.
func (c *configured) sentinels() {
	n := 100
	c.text("extra_ids", &n)
	named := func(t addedToken) bool { return strings.Contains(t.Content, "<extra_id_") }
	if c.class != "T5Tokenizer" && c.class != "MT5Tokenizer" || slices.ContainsFunc(c.file.AddedTokens, named) {
		return
	}
	for i := range n {
		c.add(addedToken{Content: fmt.Sprintf("<extra_id_%d>", i), Special: true}, false)
	}
}

// legacy reads what transformers reads where tokenizer_config.json has no added_tokens_decoder:
// special_tokens_map.json, which comes before tokenizer_config.json, and added_tokens.json.
func (c *configured) legacy(byID *map[string]addedToken) error {
	var special map[string]json.RawMessage
	if err := optional(filepath.Join(c.dir, "special_tokens_map.json"), &special); err != nil {
		return err
	}
	for key, value := range special {
		if list := extras(value); len(list) > 0 && key == "additional_special_tokens" {
			list = append(extras(c.config[key]), list...)
			value, _ = json.Marshal(list)
		}
		c.config[key] = value
	}
	var ids map[string]*int32
	path := filepath.Join(c.dir, "added_tokens.json")
	if err := optional(path, &ids); err != nil {
		return err
	}
	*byID = map[string]addedToken{}
	known := map[string]bool{}
	for _, role := range roles {
		t, _ := namedToken(c.config[role])
		known[t.Content] = true
	}
	for _, t := range extras(c.config["additional_special_tokens"]) {
		known[t.Content] = true
	}
	have := map[int32]bool{}
	for _, t := range c.file.AddedTokens {
		have[t.ID] = true
	}
	for content, id := range ids {
		if id == nil || *id < 0 {
			return fmt.Errorf("%s: found id %d for token %q, needed none below 0", path, or(id, -1), content)
		}
		if !have[*id] {
			(*byID)[content] = addedToken{ID: *id, Content: content, Special: known[content], Normalized: !known[content]}
		}
	}
	return nil
}

// add adds a token. One of the same text stays as it is, or is replaced.
func (c *configured) add(t addedToken, replace bool) {
	at := slices.IndexFunc(c.file.AddedTokens, func(o addedToken) bool { return o.Content == t.Content })
	switch {
	case t.Content == "":
	case at < 0:
		c.file.AddedTokens = append(c.file.AddedTokens, t)
	case replace:
		t.ID = c.file.AddedTokens[at].ID
		c.file.AddedTokens[at] = t
	}
}

// rebuilds are the classes of tokenizers of which transformers before 5 makes the post-processor from add_bos_token and
// add_eos_token, with the values where these are absent. Later versions take the post-processor of tokenizer.json.
var rebuilds = map[string][2]bool{
	"LlamaTokenizer": {true, false}, "CodeLlamaTokenizer": {true, false}, "GemmaTokenizer": {true, false},
	"CohereTokenizer": {true, false}, "GPTNeoXTokenizer": {false, false},
}

// around makes the post-processor where the version that wrote the folder does so.
func (c *configured) around() error {
	wanted, ok := rebuilds[c.class]
	if !ok || c.major >= 5 {
		return nil
	}
	bos, eos := c.text("add_bos_token", &wanted[0]), c.text("add_eos_token", &wanted[1])
	if c.major == 0 && !bos && !eos {
		return nil
	}
	made := &component{Type: "TemplateProcessing", SpecialTokens: map[string]struct{ IDs []int32 }{}}
	var before, after []string
	for i, role := range roles[:2] {
		if !wanted[i] {
			continue
		}
		t, ok := namedToken(c.config[role])
		if !ok {
			return &diagnostic.Error{Path: c.path, Found: "add_" + role + " without " + role, Needed: "both"}
		}
		if i == 0 {
			before = append(before, t.Content)
		} else {
			after = append(after, t.Content)
		}
	}
	for i, one := range []string{"A", "B"} {
		for _, content := range before {
			made.Pair = append(made.Pair, specialPart(content, i))
		}
		made.Pair = append(made.Pair, json.RawMessage(fmt.Sprintf(`{"Sequence":{"id":"%s","type_id":%d}}`, one, i)))
		for _, content := range after {
			made.Pair = append(made.Pair, specialPart(content, i))
		}
		if i == 0 {
			made.Single = slices.Clone(made.Pair)
		}
	}
	c.file.rebuilt, c.file.rebuiltBy = made, ""
	if c.major == 0 {
		c.file.rebuiltBy = c.path
	}
	return nil
}

func specialPart(content string, kind int) json.RawMessage {
	name, _ := json.Marshal(content)
	return json.RawMessage(fmt.Sprintf(`{"SpecialToken":{"id":%s,"type_id":%d}}`, name, kind))
}

// bert are the classes of tokenizers that set the normalizer by do_lower_case and strip_accents, each with whether
// transformers before 5 sets it by tokenize_chinese_chars too, as later versions do.
var bert = map[string]bool{
	"BertTokenizer": true, "ConvBertTokenizer": true, "DPRContextEncoderTokenizer": true,
	"DPRQuestionEncoderTokenizer": true, "DistilBertTokenizer": true, "ElectraTokenizer": true, "FunnelTokenizer": true,
	"LayoutLMTokenizer": true, "LayoutLMv2Tokenizer": false, "LxmertTokenizer": true, "MPNetTokenizer": false,
	"MobileBertTokenizer": true, "SplinterTokenizer": false, "SqueezeBertTokenizer": true,
}

// parts are components that transformers 5 makes by keys of the configuration for classes of tokenizers.
var parts = []struct {
	class, key, part string
	absent           bool // the value where the key is absent
	without          bool // the value without the part
}{
	{"AlbertTokenizer", "do_lower_case", "Lowercase", true, false},
	{"AlbertTokenizer", "keep_accents", "StripAccents", false, true},
	{"DebertaV2Tokenizer", "do_lower_case", "Lowercase", false, false},
	{"DebertaV2Tokenizer", "split_by_punct", "Punctuation", false, false},
	{"RemBertTokenizer", "do_lower_case", "Lowercase", false, false},
	{"RemBertTokenizer", "keep_accents", "StripAccents", true, true},
}

// normalizer sets a BertNormalizer as the classes of its tokenizers do. Where a class makes other components by its
// keys, tokenizer.json has to have them alike.
func (c *configured) normalizer() error {
	for _, p := range parts {
		wanted := p.absent
		given := c.text(p.key, &wanted)
		if has := c.file.Normalizer.has(p.part) || c.file.PreTokenizer.has(p.part); p.class == c.class &&
			has == (wanted == p.without) && (c.major >= 5 || c.major == 0 && given) {
			return &diagnostic.Error{Path: c.path, Found: fmt.Sprintf("%s is %v, and tokenizer.json is made for %v, "+
				"which versions of transformers read in two ways", p.key, wanted, !wanted), Needed: "one of the two in both files",
				Fix: "save the tokenizer again with the version of transformers that is used"}
		}
	}
	n := c.file.Normalizer
	han, ok := bert[c.class]
	if !ok || n == nil || n.Type != "BertNormalizer" {
		return nil
	}
	lower := true
	c.text("do_lower_case", &lower)
	n.Lowercase, n.StripAccents = &lower, nil
	if han || c.major >= 5 {
		han = true
		c.text("tokenize_chinese_chars", &han)
		n.HandleHan = &han
	}
	var accents bool
	if c.text("strip_accents", &accents) {
		n.StripAccents = &accents
	}
	return nil
}

// prefix sets the blank before a text as transformers before 5 does, for every tokenizer whose pre-tokenizer is
// ByteLevel. Later versions leave tokenizer.json as it is, but for classes that make their own.
func (c *configured) prefix() error {
	p := c.file.PreTokenizer
	if p == nil || p.Type != "ByteLevel" || c.major >= 5 && !byteLevels[c.class] {
		return nil
	}
	wanted, stored := false, or(p.AddPrefixSpace, true)
	given := c.text("add_prefix_space", &wanted)
	switch {
	case wanted == stored || c.major == 0 && !given:
		return nil
	case c.major == 0 && !byteLevels[c.class]:
		return &diagnostic.Error{Path: c.path, Found: fmt.Sprintf("add_prefix_space is %v, and in tokenizer.json it is %v, "+
			"which versions of transformers read in two ways", wanted, stored), Needed: "one of the two in both files",
			Fix: "or the version in config.json, transformers_version"}
	}
	p.AddPrefixSpace = &wanted
	return nil
}

// byteLevels are the classes of tokenizers of which transformers 5 makes the pre-tokenizer by add_prefix_space.
var byteLevels = map[string]bool{"GPT2Tokenizer": true, "RobertaTokenizer": true}
