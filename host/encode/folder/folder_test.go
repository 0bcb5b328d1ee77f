package folder

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// FuzzRead: no configuration of a folder makes its reader panic.
func FuzzRead(f *testing.F) {
	transformer := `[{"path": "", "type": "sentence_transformers.models.Transformer"}, ` +
		`{"path": "p", "type": "sentence_transformers.models.`
	f.Add(transformer+`Pooling"}]`, `{"word_embedding_dimension": 32, "pooling_mode_lasttoken": true}`)
	f.Add(transformer+`Pooling"}]`, `{"embedding_dimension": 32, "pooling_mode": ["cls", "mean"]}`)
	f.Add(transformer+`Dense"}]`,
		`{"in_features": 3, "out_features": 99999999999, "activation_function": "torch.nn.Tanh"}`)
	f.Add(`[{"path": "/etc", "type": "sentence_transformers.models.Transformer"}]`, `{"max_seq_length": -1}`)
	f.Add(`[null]`, `{"prompts": {"a": null}, "default_prompt_name": "a"}`)
	dir := f.TempDir()
	must.Succeed(f, os.Mkdir(filepath.Join(dir, "p"), 0o755))
	f.Fuzz(func(t *testing.T, modules, other string) {
		for i, name := range []string{"modules.json", "p/config.json", "sentence_bert_config.json",
			"config_sentence_transformers.json", "config.json", "tokenizer_config.json"} {
			text := other
			if i == 0 {
				text = modules
			}
			must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		}
		must.CostLittle(t, len(modules)+6*len(other), func() {
			got, err := Read(dir)
			if err == nil && (!strings.HasPrefix(got.Path, dir) || got.MaxTokens < 0 || got.Pad < 0 ||
				got.Pooling() != nil && len(got.Pooling().Modes) == 0) {
				t.Errorf("%+v", got)
			}
			if err != nil && err.Error() == "" {
				t.Error("an error without words")
			}
		})
	})
}

// TestPoolingOfAnotherWidth: a graph that does not say how wide its hidden states are is held to the Pooling's when it
// runs.
func TestPoolingOfAnotherWidth(t *testing.T) {
	p := &Pooling{Modes: []string{"mean"}, path: "config.json", width: 3}
	must.Succeed(t, p.Check(Widths{}))
	must.Fail(t, p.Apply(&Features{Length: 1, Tokens: Rows{[]float32{1, 2}, 2}}),
		"config.json: a Pooling of hidden states of width 3, needed 2, the width of the model's")
}
