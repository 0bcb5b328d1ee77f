package text

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// decode reads JSON, with an error that says where in it another kind of value stands than what is needed.
func decode(data []byte, into any) error {
	err := json.Unmarshal(data, into)
	var kind *json.UnmarshalTypeError
	if !errors.As(err, &kind) {
		return err
	}
	where := ""
	if kind.Field != "" {
		where = " as " + kind.Field
	}
	return fmt.Errorf("found %s%s, needed %s", kind.Value, where, kindOf(kind.Type))
}

// kindOf is the kind of JSON that a type is read from.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object"
	}
	return "a number that fits " + t.Kind().String()
}

// settings are the keys of tokenizer_config.json and special_tokens_map.json that are read, by what their values are.
var settings = map[string]setting{
	"add_bos_token": flag, "add_eos_token": flag, "add_prefix_space": flag, "clean_up_tokenization_spaces": flag,
	"do_lower_case": flag, "keep_accents": flag, "separate_vocabs": flag, "split_by_punct": flag,
	"strip_accents": flag, "tokenize_chinese_chars": flag,
	"extra_ids": {"a number of tokens from 0 to 10000", func(data json.RawMessage) bool {
		var n int
		return json.Unmarshal(data, &n) == nil && n >= 0 && n <= 10000
	}},
	"tokenizer_class": {"a string", func(data json.RawMessage) bool { return json.Unmarshal(data, new(string)) == nil }},
	"bos_token":       token, "cls_token": token, "eos_token": token, "mask_token": token, "pad_token": token,
	"sep_token": token, "unk_token": token,
	"additional_special_tokens": tokens, "extra_special_tokens": tokens, "model_specific_special_tokens": tokens,
}

// setting is what a value has to be.
type setting struct {
	needed string
	fits   func(json.RawMessage) bool
}

var (
	flag = setting{"true or false", func(data json.RawMessage) bool { return json.Unmarshal(data, new(bool)) == nil }}

	token = setting{"a token: a string, or an object with its content", isToken}

	tokens = setting{"a list of tokens, or an object of them", func(data json.RawMessage) bool {
		var list []json.RawMessage
		if json.Unmarshal(data, &list) != nil {
			var named map[string]json.RawMessage
			if json.Unmarshal(data, &named) != nil {
				return false
			}
			for _, one := range named {
				list = append(list, one)
			}
		}
		for _, one := range list {
			if !isToken(one) {
				return false
			}
		}
		return true
	}}
)

func isToken(data json.RawMessage) bool {
	if bytes.HasPrefix(data, []byte("{")) {
		var t struct{ addedToken }
		return json.Unmarshal(data, &t) == nil
	}
	return string(data) != "null" && json.Unmarshal(data, new(string)) == nil
}

// checkSettings refuses values of another kind than what a key needs. null is a key that is not there.
func checkSettings(path string, keys map[string]json.RawMessage) error {
	for _, key := range sortedKeys(keys) {
		s, known := settings[key]
		if value := keys[key]; known && string(value) != "null" && !s.fits(value) {
			return &diagnostic.Error{Path: path, Found: fmt.Sprintf("%s is %s", key, diagnostic.Clip(string(value))),
				Needed: s.needed}
		}
	}
	return nil
}
