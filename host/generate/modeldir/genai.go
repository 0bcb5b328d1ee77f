package modeldir

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/base/storage"
)

// ConfigName and GenaiConfigName are the files that hold a model's configuration: that of a checkpoint, and what the
// model builder of onnxruntime-genai writes in its place.
const (
	ConfigName      = "config.json"
	GenaiConfigName = "genai_config.json"
)

// genaiConfig is what is read of a genai_config.json.
type genaiConfig struct {
	Model struct {
		Type          string          `json:"type"`
		VocabSize     int             `json:"vocab_size"`
		ContextLength int64           `json:"context_length"`
		BOS           json.RawMessage `json:"bos_token_id"`
		EOS           json.RawMessage `json:"eos_token_id"`
		Pad           json.RawMessage `json:"pad_token_id"`
		Decoder       struct {
			FileName string            `json:"filename"`
			HeadSize int64             `json:"head_size"`
			Pipeline []json.RawMessage `json:"pipeline"`
		} `json:"decoder"`
		Encoder   json.RawMessage `json:"encoder"`
		Vision    json.RawMessage `json:"vision"`
		Speech    json.RawMessage `json:"speech"`
		Embedding json.RawMessage `json:"embedding"`
	} `json:"model"`
	Search map[string]json.RawMessage `json:"search"`
}

// readGenai reads a folder's genai_config.json. The error is one of kind [os.ErrNotExist] where there is none.
func readGenai(folder string) (*genaiConfig, error) {
	path := filepath.Join(folder, GenaiConfigName)
	data, err := storage.ReadRegular(path, limit.Config)
	if err != nil {
		return nil, err
	}
	c := &genaiConfig{}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, part := range []struct {
		name string
		is   bool
	}{{"encoder", c.Model.Encoder != nil}, {"vision", c.Model.Vision != nil}, {"speech", c.Model.Speech != nil},
		{"embedding", c.Model.Embedding != nil}, {"decoder.pipeline", c.Model.Decoder.Pipeline != nil}} {
		if part.is {
			return nil, &diagnostic.Error{Path: path, Found: "the model has a part " + part.name,
				Needed: "a decoder alone, in one graph that reads tokens",
				Fix:    "export the model with `optimum-cli export onnx`"}
		}
	}
	return c, nil
}

// graph is the decoder's file, "" where none is named that could lie in the folder.
func (c *genaiConfig) graph() string {
	name := c.Model.Decoder.FileName
	if name == "" || name != filepath.Base(name) || name == "." || name == ".." {
		return ""
	}
	return name
}

// genaiSearch are options of the search that both configurations know by one name.
var genaiSearch = []string{"do_sample", "early_stopping", "length_penalty", "min_length", "no_repeat_ngram_size",
	"num_beams", "num_return_sequences",
	"diversity_penalty", "repetition_penalty", "temperature", "top_k", "top_p"}

// checkpoint is the configuration in the words of config.json. The builder's max_length is the number of positions,
// and says no more.
func (c *genaiConfig) checkpoint() ([]byte, error) {
	out := map[string]any{"model_type": c.Model.Type, "vocab_size": c.Model.VocabSize,
		"max_position_embeddings": c.Model.ContextLength,
		"head_dim":                c.Model.Decoder.HeadSize}
	for name, value := range map[string]json.RawMessage{"bos_token_id": c.Model.BOS, "eos_token_id": c.Model.EOS,
		"pad_token_id": c.Model.Pad} {
		if value != nil {
			out[name] = value
		}
	}
	for name, value := range c.Search {
		if slices.Contains(genaiSearch, name) {
			out[name] = value
		}
	}
	var longest int64
	if value := c.Search["max_length"]; json.Unmarshal(value, &longest) == nil && longest != c.Model.ContextLength {
		out["max_length"] = value
	}
	return json.Marshal(out)
}

// HeadSize is the size of a head of the decoder's attention, 0 where the configuration does not tell.
func (c *Config) HeadSize() int64 {
	var of struct {
		HeadDim int64 `json:"head_dim"`
		Width   int64 `json:"hidden_size"`
		Heads   int64 `json:"num_attention_heads"`
	}
	switch err := json.Unmarshal(c.JSON, &of); {
	case err != nil:
		return 0
	case of.HeadDim > 0 && of.HeadDim <= limit.Tokens:
		return of.HeadDim
	case of.Heads > 0 && of.Width > 0 && of.Width <= limit.Tokens:
		return of.Width / of.Heads
	}
	return 0
}

// Window is how many tokens layers with a sliding window see, 0 where the configuration does not tell.
func (c *Config) Window() int64 {
	var of struct {
		Window int64 `json:"sliding_window"`
	}
	if err := json.Unmarshal(c.JSON, &of); err != nil || of.Window < 0 || of.Window > limit.Tokens {
		return 0
	}
	return of.Window
}

// HasConfig reports a folder with a configuration, of either name.
func HasConfig(folder string) bool {
	for _, name := range []string{ConfigName, GenaiConfigName} {
		if _, err := os.Stat(filepath.Join(folder, name)); err == nil {
			return true
		}
	}
	return false
}

// alone says what can be done with a folder that has graphs and no configuration.
func alone(folder string) string {
	f, err := Find(folder)
	if err != nil {
		return ""
	}
	return "copy it there from where the model comes from; or give the graph alone: graft inspect, ab and patch take " +
		f.Decoder
}

// pythonNumber is what Python writes for numbers that JSON has none for, such as bounds of time steps of Mamba-2.
var pythonNumber = regexp.MustCompile(`([:,\[]\s*)(?:-?Infinity|NaN)\b`)

// readCheckpoint reads the configuration of a folder, of either name, and gives the path that it was read of.
func readCheckpoint(folder string) (data []byte, path string, err error) {
	path = filepath.Join(folder, ConfigName)
	if data, err = storage.ReadRegular(path, limit.Config); !errors.Is(err, os.ErrNotExist) {
		if !json.Valid(data) {
			data = pythonNumber.ReplaceAll(data, []byte("${1}null"))
		}
		return data, path, err
	}
	c, genai := readGenai(folder)
	if errors.Is(genai, os.ErrNotExist) {
		return nil, path, &diagnostic.Error{Path: path, Found: "not found", Cause: os.ErrNotExist,
			Needed: "the model's configuration, which exporters write beside it, or " + GenaiConfigName,
			Fix:    alone(folder)}
	}
	path = filepath.Join(folder, GenaiConfigName)
	if genai == nil {
		data, genai = c.checkpoint()
	}
	return data, path, genai
}
