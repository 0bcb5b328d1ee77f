// Package modeldir reads what a model folder holds beside its tokenizer: which graphs
// there are, and the model's configuration.
package modeldir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// Files are the graphs of a model folder, as optimum names them, or as a genai_config.json or an export.json does.
type Files struct {
	Folder  string
	Encoder string // "" for a decoder alone
	Decoder string // the decoder that takes a past, or the merged one
	// First is the decoder without a past, or the merged one: it makes the encoder's keys and values. Of a decoder alone
	// it is what reads prompts where Decoder takes single tokens, "" where there is none.
	First string
}

// Find looks through a model folder, and through its subfolder onnx, where some
// repositories have the graphs.
func Find(folder string) (*Files, error) {
	if info, err := os.Stat(folder); err != nil {
		return nil, &diagnostic.Error{Path: folder, Found: diagnostic.Cause(err), Cause: err,
			Needed: "the folder of a model as optimum writes it", Fix: "graft pull brings one"}
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%s: found a file, needed is the folder of a model as optimum writes it", folder)
	}
	var unreadable error // the first file that is there, or may be, and cannot be looked at
	for _, in := range []string{folder, filepath.Join(folder, "onnx")} {
		has := func(names ...string) string {
			for _, name := range names {
				path := filepath.Join(in, name)
				_, err := os.Stat(path)
				if err == nil {
					return path
				}
				if !errors.Is(err, fs.ErrNotExist) && unreadable == nil {
					unreadable = err
				}
			}
			return ""
		}
		if f, err := exported(folder, in); !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		f := &Files{Folder: folder, Encoder: has("encoder_model.onnx")}
		if f.Encoder == "" {
			f.Decoder = has("model.onnx", "decoder_with_past_model.onnx", "decoder_model_merged.onnx")
			if c, err := readGenai(in); f.Decoder == "" && err == nil && c.graph() != "" {
				f.Decoder = has(c.graph())
			}
			if f.Decoder != "" {
				return f, nil
			}
			continue
		}
		f.Decoder = has("decoder_with_past_model.onnx", "decoder_model_merged.onnx")
		f.First = has("decoder_model.onnx", "decoder_model_merged.onnx")
		if f.Decoder != "" && f.First != "" {
			return f, nil
		}
		if unreadable != nil {
			break
		}
		return nil, fmt.Errorf("%s: found an encoder without its decoders; needed are decoder_model.onnx and "+
			"decoder_with_past_model.onnx, or decoder_model_merged.onnx", in)
	}
	if unreadable != nil {
		return nil, fmt.Errorf("%s: cannot look for the model's graphs: %w", strings.TrimSuffix(folder, "/"), unreadable)
	}
	return nil, fmt.Errorf("%s: found no model.onnx and no encoder_model.onnx; needed is a folder as `optimum-cli "+
		"export onnx` or Transformers' exporter writes it", strings.TrimSuffix(folder, "/"))
}

// Genai reports a folder of the model builder of onnxruntime-genai: one graph reads prompts and steps there, and what
// it is given of tokens before is nothing, or zeros.
func (f *Files) Genai() bool {
	_, err := os.Stat(filepath.Join(filepath.Dir(f.Decoder), GenaiConfigName))
	return err == nil && f.First == "" && f.Encoder == ""
}

// NoDecoder refuses the graph of an encoder, or of a classifier, where one that generates is needed.
func (f *Files) NoDecoder() error {
	return &diagnostic.Error{Path: f.Decoder, Found: "no output logits of a vocabulary",
		Needed: "a decoder, which generates text",
		Fix: fmt.Sprintf("this looks like an encoder: graft embed %s or graft rerank %s runs it, and graft inspect, ab and "+
			"patch take its file, %s", f.Folder, f.Folder, f.Decoder)}
}

// About names the file that an error is about, unless the error does so itself.
func About(path string, err error) error {
	if strings.HasPrefix(err.Error(), path) {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}
