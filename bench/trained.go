package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/text"
)

// Names of what make trained-models makes in the user's cache.
const (
	smollm2      = "smollm2-135m"
	trainedTexts = "texts"
	heldOutFile  = "held-out.txt"
)

// trainedFolder is the folder of a trained model, or of texts.
func trainedFolder(name string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "graft", "trained", name)
	if _, err := os.Stat(dir); err != nil {
		return "", &diagnostic.Error{Path: dir, Found: "there is no such folder",
			Needed: "what packages carry of trained models and texts",
			Fix:    "run make trained-models", Cause: err}
	}
	return dir, nil
}

// heldOutTokens are the tokens of each held-out text, as the tokenizer of a model's folder has them, without special
// tokens.
func heldOutTokens(ctx context.Context, folder string) ([][]int32, error) {
	texts, err := trainedFolder(trainedTexts)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(texts, heldOutFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	tokenizer, err := text.Open(folder)
	if err != nil {
		return nil, err
	}
	var list [][]int32
	for i, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		ids, err := tokenizer.Encode(ctx, line, text.EncodeOptions{OmitSpecialTokens: true})
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, i+1, err)
		}
		tokens := make([]int32, len(ids))
		for j, id := range ids {
			tokens[j] = int32(id)
		}
		list = append(list, tokens)
	}
	return list, nil
}

// newTextWork is newPeerWork of a trained model: each request is the beginning of a held-out text, and nothing but an
// end is banned.
func newTextWork(ctx context.Context, g *decode.Generator, folder string, s peerSubject) (*peerWork, error) {
	texts, err := heldOutTokens(ctx, folder)
	if err != nil {
		return nil, err
	}
	w := &peerWork{generator: g, banned: g.Search().EOSTokenID}
	for _, tokens := range texts {
		if len(w.inputs) == s.batch {
			break
		}
		if len(tokens) >= s.input {
			w.inputs = append(w.inputs, &decode.Input{Index: uint64(len(w.inputs)), Tokens: tokens[:s.input]})
		}
	}
	if len(w.inputs) < s.batch {
		return nil, fmt.Errorf("%d of the held-out texts have %d tokens, needed are %d", len(w.inputs), s.input, s.batch)
	}
	return w, nil
}
