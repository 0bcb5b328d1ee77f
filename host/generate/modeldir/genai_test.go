package modeldir_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/internal/must"
)

// genai is a genai_config.json with a decoder of some fields, and options of the search.
func genai(decoder, rest, search string) string {
	return `{"model": {"type": "qwen3", "vocab_size": 320, "context_length": 192, "bos_token_id": 1, "eos_token_id": [44, 45], "pad_token_id": 0,
		"decoder": {"filename": "model.onnx", "head_size": 24` + decoder + `}` + rest + `}, "search": {` + search + `}}`
}

// folderOf makes files in a folder.
func folderOf(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return dir
}

// TestGenaiConfig: a genai_config.json says what a config.json does, where there is none.
func TestGenaiConfig(t *testing.T) {
	for _, c := range []struct {
		name      string
		files     map[string]string
		kind      string
		positions int64
		head      int64
		check     func(o search.Options) bool
	}{
		{"as the builder writes it",
			map[string]string{"genai_config.json": genai("", "",
				`"early_stopping": true, "max_length": 192, "num_beams": 1, "top_k": 50, "past_present_share_buffer": true`)},
			"qwen3", 192, 24,
			func(o search.Options) bool {
				return o.MaxLength == 0 && o.EarlyStopping == search.StopFirst && len(o.EOSTokenID) == 2 && o.EOSTokenID[1] == 45
			}},
		{"options of the search",
			map[string]string{"genai_config.json": genai("", "",
				`"max_length": 64, "num_beams": 3, "repetition_penalty": 1.25`)}, "qwen3", 192, 24,
			func(o search.Options) bool {
				return o.MaxLength == 64 && o.NumBeams == 3 && o.RepetitionPenalty == 1.25
			}},
		{"beside a config.json", map[string]string{"genai_config.json": genai("", "", `"num_beams": 3`),
			"config.json": `{"model_type": "llama", "vocab_size": 320, "max_position_embeddings": 100, "hidden_size": 64, "num_attention_heads": 4}`}, "llama", 100, 16,
			func(o search.Options) bool { return o.NumBeams == 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := must.Value(modeldir.ReadConfig(folderOf(t, c.files)))(t)
			must.Equal(t, found.HeadSize(), c.head)
			if found.ModelType != c.kind || found.Vocab != 320 || found.Positions != c.positions || !json.Valid(found.JSON) {
				t.Errorf("found %+v", found)
			}
			o, err := search.FromConfig(nil, found.JSON)
			if err != nil || !c.check(o) {
				t.Errorf("options of the search are %+v, %v", o, err)
			}
		})
	}
}

// TestGenaiRefused: what an engine does not run, and what is no configuration, is one error that names the file.
func TestGenaiRefused(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"an encoder", genai("", `, "encoder": {"filename": "encoder.onnx"}`, ""), "the model has a part encoder"},
		{"images", genai("", `, "vision": {}`, ""), "the model has a part vision"},
		{"sound", genai("", `, "speech": {}`, ""), "the model has a part speech"},
		{"an embedding of its own", genai("", `, "embedding": {}`, ""), "the model has a part embedding"},
		{"a decoder in parts", genai(`, "pipeline": []`, "", ""), "the model has a part decoder.pipeline"},
		{"no JSON", "{", "unexpected end of JSON input"},
		{"no size", `{"model": {}}`, "vocab_size is 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := folderOf(t, map[string]string{"genai_config.json": c.text})
			_, err := modeldir.ReadConfig(dir)
			if err == nil || !strings.Contains(err.Error(), c.want) ||
				!strings.HasPrefix(err.Error(), filepath.Join(dir, "genai_config.json")) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	if _, err := modeldir.ReadConfig(t.TempDir()); err == nil ||
		!strings.Contains(err.Error(),
			"config.json: not found, needed the model's configuration, which exporters write beside it, or genai_config.json") {
		t.Errorf("an empty folder: %v", err)
	}
}

// TestGenaiGraph: the graph is the file that genai_config.json names, in the folder itself.
func TestGenaiGraph(t *testing.T) {
	const named = "phi3-cpu-int4.onnx"
	for _, c := range []struct{ filename, file, want string }{
		{named, named, named},
		{named, "model.onnx", "model.onnx"},
		{"../" + named, named, ""},
		{"..", named, ""},
		{"", named, ""},
		{"other.onnx", named, ""},
	} {
		dir := folderOf(t, map[string]string{c.file: "",
			"genai_config.json": strings.Replace(genai("", "", ""), "model.onnx", c.filename, 1)})
		found, err := modeldir.Find(dir)
		switch {
		case c.want == "":
			if err == nil || !strings.Contains(err.Error(), "found no model.onnx") {
				t.Errorf("%q: %+v, %v", c.filename, found, err)
			}
		case err != nil || found.Decoder != filepath.Join(dir, c.want):
			t.Errorf("%q: %+v, %v", c.filename, found, err)
		}
	}
}
