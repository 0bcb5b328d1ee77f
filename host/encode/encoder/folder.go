package encoder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/base/storage"
)

// readJSON reads a configuration. found is false where there is no such file.
func readJSON(path string, into any) (found bool, err error) {
	data, err := storage.ReadRegular(path, limit.Config)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	return true, nil
}

// inside is the path of a part of a folder that a configuration names. It does not lead out of the folder.
func inside(folder, file, name string) (string, error) {
	if name == "" {
		return folder, nil
	}
	if !filepath.IsLocal(name) {
		return "", &diagnostic.Error{Path: file, Found: fmt.Sprintf("the path %q", diagnostic.Clip(name)),
			Needed: "a folder below " + folder}
	}
	return filepath.Join(folder, name), nil
}

// graphFile finds the graph of a folder: the one that is asked for, onnx/model.onnx, model.onnx, or the only one
// there is.
func graphFile(folder, asked string) (string, error) {
	if info, err := os.Stat(folder); err != nil {
		return "", &diagnostic.Error{Path: folder, Found: "cannot be read: " + diagnostic.Cause(err),
			Needed: "the folder of a model", Cause: err}
	} else if !info.IsDir() {
		return "", &diagnostic.Error{Path: folder, Found: "a file", Needed: "the folder of a model, with its tokenizer"}
	}
	if asked != "" {
		path, err := inside(folder, folder, asked)
		if err == nil {
			_, err = os.Stat(path)
		}
		if err != nil {
			return "", &diagnostic.Error{Path: filepath.Join(folder, asked), Found: diagnostic.Cause(err),
				Needed: "the model's graph", Cause: err}
		}
		return path, nil
	}
	var all []string
	for _, below := range []string{"onnx", "."} {
		path := filepath.Join(folder, below, "model.onnx")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		list, err := os.ReadDir(filepath.Join(folder, below))
		if err != nil {
			continue
		}
		for _, f := range list {
			if strings.HasSuffix(f.Name(), ".onnx") && !f.IsDir() {
				all = append(all, filepath.Join(below, f.Name()))
			}
		}
	}
	switch len(all) {
	case 1:
		return filepath.Join(folder, all[0]), nil
	case 0:
		return "", &diagnostic.Error{Kind: fs.ErrNotExist, Path: folder, Found: "no .onnx file",
			Needed: "model.onnx or onnx/model.onnx",
			Fix:    "export the model: optimum-cli export onnx --model NAME FOLDER"}
	}
	return "", &diagnostic.Error{Path: folder, Found: "several graphs: " + diagnostic.Clip(strings.Join(all, ", ")),
		Needed: "one, or model.onnx",
		Fix:    "name it (ModelFile, --model-file)"}
}

// config is what encoders need of config.json and tokenizer_config.json.
type config struct {
	Pad           *int64            `json:"pad_token_id"`
	Positions     *int64            `json:"max_position_embeddings"`
	Labels        *int              `json:"num_labels"`
	LabelNames    map[string]string `json:"id2label"`
	OldActivation *string           `json:"sbert_ce_default_activation_function"`
	Sentence      struct {
		Activation *string `json:"activation_fn"`
	} `json:"sentence_transformers"`

	longest float64 // model_max_length of the tokenizer; 0 for none
}

func readConfig(folder string) (*config, error) {
	var c config
	if _, err := readJSON(filepath.Join(folder, "config.json"), &c); err != nil {
		return nil, err
	}
	var tokenizer struct {
		Longest *float64 `json:"model_max_length"`
	}
	if _, err := readJSON(filepath.Join(folder, "tokenizer_config.json"), &tokenizer); err != nil {
		return nil, err
	}
	if tokenizer.Longest != nil {
		c.longest = *tokenizer.Longest
	}
	return &c, nil
}

// pad is what rows are filled up with.
func (c *config) pad() int64 {
	if c.Pad == nil || *c.Pad < 0 {
		return 0
	}
	return *c.Pad
}

// limit is the number of tokens that an input may have as the configurations say; 0 for no limit.
func (c *config) limit() int {
	n := 0
	if c.Positions != nil && *c.Positions > 0 && *c.Positions <= limit.Tokens {
		n = int(*c.Positions)
	}
	if c.longest >= 1 && c.longest <= limit.Tokens && (n == 0 || int(c.longest) < n) {
		n = int(c.longest)
	}
	return n
}
