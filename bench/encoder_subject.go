package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// encoder is a model that reads its input at once, and makes no use of a cache.
type encoder struct {
	name string
	// model is a full-size subject, with weights from a seed; zoo the path of a trained model below the folder that
	// tests/zoo/fetch.sh fills. One of the two is set.
	model, zoo string
	longest    int // tokens that it has positions for; 0 for images and sound
	tokens     vocabulary
}

// vocabulary is what the benchmark knows of a model's tokens.
type vocabulary struct {
	size, pad, first, last int64
	from                   int64 // the least that stands for text
}

var (
	bertTokens    = vocabulary{30522, 0, 101, 102, 1000}
	robertaTokens = vocabulary{250002, 1, 0, 2, 10}
	modernTokens  = vocabulary{50368, 50283, 50281, 50282, 100}
	debertaTokens = vocabulary{128100, 0, 1, 2, 10}
	clipTokens    = vocabulary{49408, 49407, 49406, 49407, 300}
)

// trained is the path of a trained model in the zoo.
func trained(folder, file string) string {
	return filepath.Join("langchain4j-embeddings-"+folder+"-"+langchain, file+".onnx")
}

// langchain is the version of the packages that hold them.
const langchain = "1.0.0-beta1"

var encoders = []encoder{
	{name: "minilm", zoo: trained("all-minilm-l6-v2", "all-minilm-l6-v2"), longest: 512, tokens: bertTokens},
	{name: "bge-small", zoo: trained("bge-small-en-v15", "bge-small-en-v1.5"), longest: 512, tokens: bertTokens},
	{name: "e5-small", zoo: trained("e5-small-v2", "e5-small-v2"), longest: 512, tokens: bertTokens},
	{name: "minilm-int8", zoo: trained("all-minilm-l6-v2-q", "all-minilm-l6-v2-q"), longest: 512, tokens: bertTokens},
	{name: "bge-small-int8", zoo: trained("bge-small-en-v15-q", "bge-small-en-v1.5-q"), longest: 512, tokens: bertTokens},
	{name: "bert-base", model: "bert-base", longest: 512, tokens: bertTokens},
	{name: "minilm-l6", model: "minilm-l6", longest: 512, tokens: bertTokens},
	{name: "minilm-l6-pooled", model: "minilm-l6-pooled", longest: 512, tokens: bertTokens},
	{name: "minilm-l12-reranker", model: "minilm-l12-reranker", longest: 512, tokens: bertTokens},
	{name: "xlm-roberta-base", model: "xlm-roberta-base", longest: 512, tokens: robertaTokens},
	{name: "modernbert-base", model: "modernbert-base", longest: 8192, tokens: modernTokens},
	{name: "deberta-v3-small", model: "deberta-v3-small", longest: 512, tokens: debertaTokens},
	{name: "clip-text", model: "clip-text", longest: 77, tokens: clipTokens},
	{name: "clip-vision", model: "clip-vision"},
	{name: "vit-b16", model: "vit-b16"},
	{name: "wav2vec2-base", model: "wav2vec2-base"},
	{name: "whisper-small-encoder", model: "whisper-small"},
}

// encoderNamed finds a subject of this file's table.
func encoderNamed(name string) *encoder {
	for i := range encoders {
		if encoders[i].name == name {
			return &encoders[i]
		}
	}
	panic("bench: no encoder " + name)
}

// quantised says that a trained model's weights are integers.
func (e *encoder) quantised() bool { return strings.HasSuffix(e.name, "-int8") }

// path is the model's file, made where it is missing and can be.
func (e *encoder) path() (string, error) {
	if e.model != "" {
		file := "model.onnx"
		if e.model == "whisper-small" {
			file = "encoder_model.onnx"
		}
		return subject(e.model, file)
	}
	cache, err := zoo()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, e.zoo)
	if _, err := os.Stat(path); err != nil {
		return "", &diagnostic.Error{Path: path, Found: "no file", Needed: "the trained model", Fix: "run tests/zoo/fetch.sh"}
	}
	return path, nil
}

// zoo is the folder that tests/zoo/fetch.sh fills.
func zoo() (string, error) {
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "graft", "zoo"), err
}

// tokenizer is that of the trained BERT models.
func tokenizer() (string, error) {
	cache, err := zoo()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, filepath.Dir(trained("all-minilm-l6-v2", "all-minilm-l6-v2")),
		"all-minilm-l6-v2-tokenizer.json")
	if _, err := os.Stat(path); err != nil {
		return "", &diagnostic.Error{Path: path, Found: "no file", Needed: "the tokenizer of BERT's vocabulary",
			Fix: "run tests/zoo/fetch.sh"}
	}
	return path, nil
}
