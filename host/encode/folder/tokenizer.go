package folder

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/opgraft/graft/host/base/diagnostic"
)

func isBlank(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// readTokenizer reads what concerns an encoder in tokenizer_config.json. What concerns tokens themselves
// package text reads. It returns model_max_length, 0 where it is not said.
func (f *Folder) readTokenizer(class string) (longest float64, err error) {
	o, _, err := readObject(filepath.Join(f.Path, "tokenizer_config.json"), "tokenizer_config.json")
	if err != nil {
		return 0, err
	}
	side := func(key string) Side {
		s, ok := o.text(key)
		if ok && s != "left" && s != "right" && o.err == nil {
			o.err = &diagnostic.Error{Path: o.path, Found: fmt.Sprintf("%s is %q", key, diagnostic.Clip(s)),
				Needed: "left or right"}
		}
		return Side(s)
	}
	f.Cuts, f.Pads = side("truncation_side"), side("padding_side")
	if o.value("model_max_length", "a number", &longest) && !(longest >= 1) && f.MaxTokens == 0 && o.err == nil {
		o.err = &diagnostic.Error{Path: o.path, Found: fmt.Sprintf("model_max_length is %v", longest),
			Needed: "a number of tokens of at least 1"}
	}
	var names []string
	if own, ok := o.text("tokenizer_class"); ok {
		class = own
	}
	if f.Pads == "" && slices.Contains(padsLeft, strings.TrimSuffix(class, "Fast")) {
		f.Pads = "left"
	}
	f.Types = typed(strings.TrimSuffix(class, "Fast"), f.transformers)
	if o.value("model_input_names", "a list of names", &names) {
		f.Types = slices.Contains(names, "token_type_ids")
	}
	o.refuse("split_special_tokens", "false", "")
	for key := range o.keys {
		if strings.HasSuffix(key, "_token") || readByText[key] {
			delete(o.keys, key)
		}
	}
	return longest, o.close()
}

// padsLeft are the classes of tokenizers that pad on the left unless told otherwise.
var padsLeft = []string{"CodeLlamaTokenizer", "CohereTokenizer", "GemmaTokenizer", "LlamaTokenizer", "Siglip2Tokenizer",
	"XLNetTokenizer"}

// typed is whether a class of tokenizers gives the model types of tokens: unless it says otherwise, before
// transformers 5 and not since. What a class gives whose model has no input of types does not matter.
func typed(class string, by Version) bool {
	if class == "TokenizersBackend" || by.AtLeast(5, 0) {
		return slices.Contains([]string{"BertTokenizer", "CanineTokenizer", "ConvBertTokenizer", "DebertaTokenizer",
			"DebertaV2Tokenizer", "ElectraTokenizer", "FNetTokenizer", "LayoutLMTokenizer", "LayoutLMv2Tokenizer",
			"LxmertTokenizer", "MarkupLMTokenizer", "MobileBertTokenizer", "SqueezeBertTokenizer", "TapasTokenizer"}, class)
	}
	return true
}

// readByText are the keys of tokenizer_config.json that package text reads.
var readByText = map[string]bool{
	"add_bos_token": true, "add_eos_token": true, "add_prefix_space": true, "added_tokens_decoder": true,
	"additional_special_tokens": true, "clean_up_tokenization_spaces": true, "do_lower_case": true,
	"extra_ids": true, "extra_special_tokens": true, "keep_accents": true, "model_specific_special_tokens": true,
	"separate_vocabs": true, "split_by_punct": true, "strip_accents": true, "tokenize_chinese_chars": true,
}
