package folder

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// Chat says that a pair of texts is a conversation, of a query and a document, which the folder's chat template
// renders.
type Chat struct {
	Begin     bool           // add_generation_prompt: the template begins the model's turn
	Cut       bool           // what the template puts after the texts may be cut off
	Variables map[string]any // further ones of the template
}

// LogitScore makes a score of the logits of the token after a text: how much likelier one word is than another.
type LogitScore struct {
	path      string
	yes, no   int
	contrasts bool // there is a no
}

// NewLogitScore is what CrossEncoder makes of a causal model without modules: yes against no.
func NewLogitScore(path string, yes, no int) *LogitScore { return &LogitScore{path, yes, no, true} }

// readLogitScore reads a LogitScore.
func readLogitScore(folder string, in *Folder) (Module, error) {
	path := filepath.Join(folder, "config.json")
	o, _, err := readObject(path, "LogitScore")
	if err != nil {
		return nil, err
	}
	m := &LogitScore{path: path, yes: -1}
	needed := "the number of a token"
	whole := func(key string) (n int, ok bool) {
		f := 0.
		if ok = o.value(key, needed, &f); ok && (f != float64(int(f)) || f < 0) && o.err == nil {
			o.err = &diagnostic.Error{Path: path, Found: fmt.Sprintf("%s is %v", key, f), Needed: needed}
		}
		return int(f), ok
	}
	given := false
	m.yes, given = whole("true_token_id")
	m.no, m.contrasts = whole("false_token_id")
	o.refuse("module_input_name", `"causal_logits"`, "")
	switch err := o.close(); {
	case err != nil:
		return nil, err
	case !given:
		return nil, &diagnostic.Error{Path: path, Found: "no true_token_id", Needed: needed}
	case !in.Causal:
		return nil, &diagnostic.Error{Path: path, Found: "a LogitScore after a Transformer that gives no causal_logits",
			Needed: "transformer_task text-generation in sentence_bert_config.json"}
	}
	return m, nil
}

// Check is Module's.
func (m *LogitScore) Check(w Widths) error {
	if n := w[TokenEmbeddings]; n > 0 && max(m.yes, m.no) >= n {
		return m.unfit(n)
	}
	w[Scores] = 1
	return nil
}

func (m *LogitScore) unfit(n int) error {
	return &diagnostic.Error{Path: m.path, Found: fmt.Sprintf("the tokens %d and %d", m.yes, m.no),
		Needed: fmt.Sprintf("some of the %d that the graph has logits of", n)}
}

// Apply is Module's: features of tokens are their logits.
func (m *LogitScore) Apply(f *Features) error {
	if max(m.yes, m.no) >= f.Tokens.Width {
		return m.unfit(f.Tokens.Width)
	}
	last := f.Tokens.Values[(f.Length-1)*f.Tokens.Width:]
	score := last[m.yes]
	if m.contrasts {
		score -= last[m.no]
	}
	f.Scores = []float32{score}
	return nil
}

// readConversation reads chat_template of processing_kwargs.
func (f *Folder) readConversation(o *object) {
	var keys map[string]json.RawMessage
	if !o.value("chat_template", "an object", &keys) {
		return
	}
	if f.Chat == nil {
		if len(keys) > 0 && o.err == nil {
			o.err = &diagnostic.Error{Path: o.path,
				Found:  "chat_template in processing_kwargs, and no message in modality_config",
				Needed: "both, or none"}
		}
		return
	}
	in := &object{path: o.path, kind: o.kind + " chat_template", within: o.within + "chat_template.", keys: keys}
	f.Chat.Begin = in.bool("add_generation_prompt", false)
	f.Chat.Cut = !in.bool("restore_suffix", true)
	for _, key := range []string{"chat_template", "continue_final_message", "documents", "max_length", "messages",
		"padding", "padding_side", "return_assistant_tokens_mask", "return_tensors", "tokenize", "tools", "truncation"} {
		in.refuse(key, "", "")
	}
	for key, value := range in.keys {
		var v any
		if json.Unmarshal(value, &v) == nil {
			f.Chat.Variables[key] = v
		}
	}
	if o.err == nil {
		o.err = in.err
	}
}
