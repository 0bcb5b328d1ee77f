package chat_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/generate/chat"
	"github.com/opgraft/graft/internal/must"
)

// folderOf is a folder with files of these names and contents.
func folderOf(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		must.Succeed(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	return folder
}

// TestGolden: templates in the style of the well-known families give what jinja2 gives in transformers' environment
// (testdata/golden.py), and refuse what they refuse there.
func TestGolden(t *testing.T) {
	data := must.Value(os.ReadFile("testdata/golden.json"))(t)
	var cases []struct {
		Template, Name, Text, Error string
		Messages                    []json.RawMessage
		Tools                       []json.RawMessage
		Variables                   map[string]any
		Prompt                      bool `json:"add_generation_prompt"`
	}
	must.Succeed(t, json.Unmarshal(data, &cases))
	for _, c := range cases {
		source := must.Value(os.ReadFile(filepath.Join("testdata", c.Template)))(t)
		template, err := chat.Read(folderOf(t, map[string]string{"chat_template.jinja": string(source),
			"tokenizer_config.json": `{"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": "older"}`}))
		must.Succeed(t, err)
		in := chat.Input{Tools: c.Tools, Variables: c.Variables, Prompt: c.Prompt}
		for _, raw := range c.Messages {
			var m struct{ Role, Content string }
			must.Succeed(t, json.Unmarshal(raw, &m))
			in.Messages = append(in.Messages, chat.Message{Role: m.Role, Content: m.Content, More: raw})
		}
		got, err := template.Render(in)
		switch {
		case c.Error == "" && (err != nil || got != c.Text):
			t.Errorf("%s, %s:\n%q, %v, want\n%q", c.Template, c.Name, got, err, c.Text)
		case c.Error != "" && (err == nil || !strings.Contains(err.Error(), c.Error)):
			t.Errorf("%s, %s: %q, %v, want the error %s", c.Template, c.Name, got, err, c.Error)
		}
	}
}

// TestRead: the template is read where transformers reads it.
func TestRead(t *testing.T) {
	messages := []chat.Message{{Role: "user", Content: "x"}}
	tool := []json.RawMessage{json.RawMessage(`{"name": "f"}`)}
	for _, c := range []struct {
		files map[string]string
		tools []json.RawMessage
		want  string
	}{
		{map[string]string{"tokenizer_config.json": `{"chat_template": "a{{ bos_token }}"}`,
			"special_tokens_map.json": `{"bos_token": "<b>"}`}, nil, "a<b>"},
		{map[string]string{"tokenizer_config.json": `{"chat_template": "a{{ bos_token }}", "bos_token": null}`}, nil, "a"},
		{map[string]string{"tokenizer_config.json": `{"chat_template": [{"name": "default", "template": "d"},
			{"name": "tool_use", "template": "{{ tools | length }}"}]}`}, nil, "d"},
		{map[string]string{"tokenizer_config.json": `{"chat_template": [{"name": "default", "template": "d"},
			{"name": "tool_use", "template": "{{ tools | length }}"}]}`}, tool, "1"},
	} {
		template := must.Value(chat.Read(folderOf(t, c.files)))(t)
		if got, err := template.Render(chat.Input{Messages: messages, Tools: c.tools}); err != nil || got != c.want {
			t.Errorf("%v: %q, %v, want %q", c.files, got, err, c.want)
		}
	}
}

// TestRange: numbers as Python's range has them, and not more than the sandbox of transformers takes.
func TestRange(t *testing.T) {
	for arguments, want := range map[string]string{
		"3": "[0, 1, 2]", "2, 5": "[2, 3, 4]", "5, 2": "[]", "1, 10, 4": "[1, 5, 9]", "3, 0, -2": "[3, 1]", "0": "[]",
		"9223372036854775800, 9223372036854775807, 5": "[9223372036854775800, 9223372036854775805]",
		"100001":                     "range has 100001 numbers, at most 100000 are taken",
		"0, 9223372036854775807":     "range has 9223372036854775807 numbers",
		"-9, 9223372036854775807, 1": "range has 9223372036854775816 numbers",
		"1, 2, 0":                    "the step of range is 0", "1.5": "range takes integers",
	} {
		template := must.Value(chat.Read(
			folderOf(t, map[string]string{"chat_template.jinja": "{{ range(" + arguments + ") | list }}"})))(t)
		got, err := template.Render(chat.Input{})
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("range(%s): %s, want %s", arguments, got, want)
		}
	}
}

// TestRefused: what cannot be read or rendered is one line with the path, the reason and what to do.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ template, want string }{
		{"{% if %}", "chat_template.jinja: its chat template cannot be read: "},
		{"{{ (a or b) | tojson(indent=4) }}", "it indents the JSON of more than a name"},
		{"{{ nothing() }}", "its chat template cannot be rendered for these messages: "},
		{"{{ raise_exception('only one turn') }}", "only one turn"},
	} {
		template, err := chat.Read(folderOf(t, map[string]string{"chat_template.jinja": c.template}))
		must.Succeed(t, err)
		_, err = template.Render(chat.Input{Messages: []chat.Message{{Role: "user"}}})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "change the messages") ||
			bytes.ContainsRune([]byte(err.Error()), '\n') {
			t.Errorf("%s: %v, want %s", c.template, err, c.want)
		}
	}
	must.Fail(t, must.Error(chat.Read(t.TempDir())), fs.ErrNotExist, "no chat_template")
	for _, config := range []string{`{"chat_template": 4}`, `[`} {
		if _, err := chat.Read(folderOf(t, map[string]string{"tokenizer_config.json": config})); err == nil {
			t.Errorf("%s: no error", config)
		}
	}
	template := must.Value(chat.Read(folderOf(t, map[string]string{"chat_template.jinja": "x"})))(t)
	for _, in := range []chat.Input{{Messages: []chat.Message{{More: json.RawMessage("[]")}}},
		{Tools: []json.RawMessage{json.RawMessage("{")}}, {Variables: map[string]any{"f": func() {}}}} {
		if _, err := template.Render(in); err == nil {
			t.Errorf("%+v: no error", in)
		}
	}
}
