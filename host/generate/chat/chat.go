// Package chat renders the chat template of a model folder, a Jinja program, as transformers does.
package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/ardanlabs/jinja"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/base/storage"
)

// Message is one turn of a conversation.
type Message struct {
	Role, Content string
	// More is a JSON object of further keys, such as tool_calls, in the order in which templates see them; nil for none.
	More json.RawMessage
}

// Input is what a template is rendered with.
type Input struct {
	Messages []Message
	Tools    []json.RawMessage // JSON schemas of functions; nil for none
	// Variables are further ones of the template, such as enable_thinking.
	Variables map[string]any
	// Prompt has the template begin the model's own turn.
	Prompt bool
}

// Template is the chat template of a folder, with the special tokens that it may name.
type Template struct {
	path   string
	named  map[string]string // by name; "default" where there is one
	tokens map[string]jinja.Value
}

// specials are the special tokens that templates may name.
var specials = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// Read reads a folder's template where transformers does: chat_template.jinja, else chat_template of
// tokenizer_config.json. A folder without one is an error.
func Read(folder string) (*Template, error) {
	t := &Template{named: map[string]string{}, tokens: map[string]jinja.Value{}}
	config := map[string]json.RawMessage{}
	for _, name := range []string{"special_tokens_map.json", "tokenizer_config.json"} { // the second says more
		data, err := storage.ReadRegular(filepath.Join(folder, name), limit.Config)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(data, &object); err != nil {
			return nil, &diagnostic.Error{Path: filepath.Join(folder, name), Found: err.Error(), Needed: "a JSON object",
				Fix: "copy it from where the model comes from"}
		}
		for key, value := range object {
			config[key] = value
		}
	}
	for _, name := range specials {
		if token, ok := tokenOf(config[name]); ok {
			t.tokens[name] = jinja.NewString(token)
		}
	}
	t.path = filepath.Join(folder, "chat_template.jinja")
	data, err := storage.ReadRegular(t.path, limit.Config)
	switch {
	case err == nil:
		t.named["default"] = string(data)
		return t, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	t.path = filepath.Join(folder, "tokenizer_config.json")
	return t, t.configured(config["chat_template"])
}

// tokenOf reads a special token: a string, or an object with its content.
func tokenOf(raw json.RawMessage) (string, bool) {
	var object struct{ Content *string }
	var text *string
	switch {
	case json.Unmarshal(raw, &text) == nil && text != nil:
		return *text, true
	case json.Unmarshal(raw, &object) == nil && object.Content != nil:
		return *object.Content, true
	}
	return "", false
}

// configured reads chat_template of tokenizer_config.json: one template, or several by name.
func (t *Template) configured(raw json.RawMessage) error {
	var one *string
	var list []struct{ Name, Template string }
	switch {
	case raw == nil:
		return &diagnostic.Error{Path: t.path, Kind: fs.ErrNotExist, Found: "no chat_template, nor a chat_template.jinja",
			Needed: "a model that was trained to chat",
			Fix:    "copy the template from where the model comes from, or generate from text that has its form"}
	case json.Unmarshal(raw, &one) == nil && one != nil:
		t.named["default"] = *one
		return nil
	case json.Unmarshal(raw, &list) == nil && len(list) > 0:
		for _, l := range list {
			t.named[l.Name] = l.Template
		}
		return nil
	}
	return &diagnostic.Error{Path: t.path, Found: "chat_template is neither a text nor a list of texts by name",
		Needed: "what transformers writes", Fix: "copy it from where the model comes from"}
}

// Render is the text that a conversation becomes. It has its special tokens.
func (t *Template) Render(in Input) (string, error) {
	source, ok := t.named["default"]
	if tools, special := t.named["tool_use"]; special && in.Tools != nil {
		source, ok = tools, true
	}
	if !ok {
		return "", &diagnostic.Error{Path: t.path, Found: "no chat template of the name default", Needed: "one",
			Fix: "name it default in the file"}
	}
	compiled, err := compile(source)
	if err != nil {
		return "", t.refused("cannot be read", err)
	}
	values, err := t.values(in)
	if err != nil {
		return "", err
	}
	text, err := rendered(compiled, values)
	if err != nil {
		return "", t.refused("cannot be rendered for these messages", err)
	}
	return text, nil
}

// rendered is what a template gives; a panic of the engine is an error.
func rendered(t *jinja.Template, values map[string]jinja.Value) (text string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	return t.RenderValues(values)
}

func (t *Template) refused(what string, err error) error {
	return &diagnostic.Error{Path: t.path, Found: fmt.Sprintf("its chat template %s: %s", what, line(err)),
		Needed: "messages that the template takes, and what the engine knows of Jinja",
		Fix:    "change the messages or the template, or render it with transformers and generate from that text"}
}

// line is the text of an error on one line, of at most 300 characters.
func line(err error) string {
	text := []rune(strings.Join(strings.Fields(err.Error()), " "))
	return string(text[:min(len(text), 300)])
}

// values are the template's variables.
func (t *Template) values(in Input) (map[string]jinja.Value, error) {
	messages := jinja.NewList(nil)
	for i, m := range in.Messages {
		v := jinja.NewDict()
		v.AsDict().Set("role", jinja.NewString(m.Role))
		v.AsDict().Set("content", jinja.NewString(m.Content))
		if m.More != nil {
			more, err := ordered(m.More)
			if err != nil || !more.IsDict() {
				return nil, &diagnostic.Error{Found: fmt.Sprintf("message %d has more that is no JSON object", i),
					Needed: `an object, such as {"tool_calls": []}`}
			}
			for _, key := range more.AsDict().OrderedKeys() {
				value, _ := more.AsDict().Get(key)
				v.AsDict().Set(key, value)
			}
		}
		messages.AsList().Append(v)
	}
	values := map[string]jinja.Value{"messages": messages, "tools": jinja.None(), "documents": jinja.None(),
		"add_generation_prompt": jinja.NewBool(in.Prompt),
		call:                    jinja.NewCallable(call, pythonJSON),
		"range":                 jinja.NewCallable("range", boundedRange)}
	if in.Tools != nil {
		tools := jinja.NewList(nil)
		for i, raw := range in.Tools {
			tool, err := ordered(raw)
			if err != nil {
				return nil, &diagnostic.Error{Found: fmt.Sprintf("tool %d is no JSON: %v", i, err),
					Needed: "the JSON schema of a function"}
			}
			tools.AsList().Append(tool)
		}
		values["tools"] = tools
	}
	for name, token := range t.tokens {
		values[name] = token
	}
	for name, value := range in.Variables {
		data, err := json.Marshal(value)
		if err == nil {
			values[name], err = ordered(data)
		}
		if err != nil {
			return nil, &diagnostic.Error{Found: fmt.Sprintf("the variable %s: %v", name, err), Needed: "what JSON can write"}
		}
	}
	return values, nil
}

// ordered is a JSON value, whose objects have their keys in the order of the text and whose integers stay integers.
func ordered(raw json.RawMessage) (jinja.Value, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := next(d)
	if err != nil {
		return v, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return v, errors.New("more than one value")
	}
	return v, nil
}

// next reads one value.
func next(d *json.Decoder) (jinja.Value, error) {
	token, err := d.Token()
	if err != nil {
		return jinja.Undefined(), err
	}
	delimiter, compound := token.(json.Delim)
	if !compound {
		return jinja.FromGoValue(token), nil
	}
	list, dict := jinja.NewList(nil), jinja.NewDict()
	for d.More() {
		if delimiter == '{' {
			key, err := d.Token()
			if err != nil {
				return list, err
			}
			value, err := next(d)
			if err != nil {
				return list, err
			}
			dict.AsDict().Set(key.(string), value)
			continue
		}
		value, err := next(d)
		if err != nil {
			return list, err
		}
		list.AsList().Append(value)
	}
	if _, err := d.Token(); err != nil {
		return list, err
	}
	if delimiter == '{' {
		return dict, nil
	}
	return list, nil
}
