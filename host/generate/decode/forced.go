package decode

import (
	"context"
	"errors"
	"fmt"

	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/modeldir"
)

// Forced is a text that a model is fed as it is, whatever it would have generated itself (teacher forcing): its
// logits after each token. It is not for concurrent use.
type Forced interface {
	// Skip feeds the next n tokens and computes no logits that anybody needs.
	Skip(ctx context.Context, n int) error
	// Next feeds the next n tokens, n at least 1, and gives the logits after each of them: n rows of as many floats as
	// the vocabulary has tokens, valid until the next call.
	Next(ctx context.Context, n int) ([]float32, error)
	// Close gives the text's place in the cache back.
	Close()
}

// ErrForcedEnd reports that a text has fewer tokens left than were asked for.
var ErrForcedEnd = errors.New("the text has fewer tokens left")

// Force begins a text: the tokens of a decoder alone, or, of an encoder-decoder, what the encoder reads with Prompt
// as all the decoder is fed, its start tokens first. Everything is fed as prompts are. No call of Run may be in
// flight until the text is closed.
func (g *Generator) Force(ctx context.Context, in *Input) (Forced, error) {
	f := &forced{engine: g.engine, vocab: g.config.Vocab}
	tokens := in.Tokens
	if g.engine.HasEncoder() {
		tokens = in.Prompt
	}
	if err := g.config.CheckTokens(in.Tokens, in.Prompt); err != nil {
		return nil, err
	}
	if err := modeldir.CheckLimit(len(tokens)+1, g.engine.Positions()); err != nil {
		return nil, err
	}
	f.tokens = int64s(tokens)
	if g.engine.HasEncoder() {
		var features engine.Features
		if in.Features != nil {
			features = *in.Features
		}
		features.Tokens = int64s(in.Tokens)
		var err error
		if f.cross, err = g.engine.Encode(ctx, features, 1); err != nil {
			return nil, err
		}
	}
	f.own = g.engine.NewSequence()
	return f, nil
}

func int64s(list []int32) []int64 {
	out := make([]int64, len(list))
	for i, t := range list {
		out[i] = int64(t)
	}
	return out
}

// forced is a text in the engine.
type forced struct {
	engine *engine.Engine
	own    *engine.Sequence
	cross  *engine.Encoded // nil for a decoder alone
	tokens []int64         // that are left
	vocab  int
	rows   []float32
}

func (f *forced) Close() {
	f.own.Release()
	if f.cross != nil {
		f.cross.Release()
	}
}

func (f *forced) Skip(ctx context.Context, n int) error {
	_, err := f.feed(ctx, n, false)
	return err
}

func (f *forced) Next(ctx context.Context, n int) ([]float32, error) { return f.feed(ctx, n, true) }

func (f *forced) feed(ctx context.Context, n int, all bool) ([]float32, error) {
	if n > len(f.tokens) {
		return nil, fmt.Errorf("%w: %d, asked for are %d", ErrForcedEnd, len(f.tokens), n)
	}
	if n == 0 {
		return nil, nil
	}
	if !all || !f.engine.HasPlaceholder() {
		return f.step(ctx, n, all)
	}
	f.rows = f.rows[:0] // there are logits after the last token of a step alone
	for range n {
		row, err := f.step(ctx, 1, false)
		if err != nil {
			return nil, err
		}
		f.rows = append(f.rows, row...)
	}
	return f.rows, nil
}

// step feeds the next n tokens in one step.
func (f *forced) step(ctx context.Context, n int, all bool) ([]float32, error) {
	scores, err := f.engine.Step(ctx,
		[]engine.Feed{{Sequence: f.own, Cross: f.cross, Tokens: f.tokens[:n], Prompt: true, All: all}})
	if err != nil {
		return nil, err
	}
	if scores.Vocab != f.vocab {
		return nil, fmt.Errorf("the model gives %d logits a token, its config.json says %d (vocab_size): they are not of "+
			"one model; export it again", scores.Vocab, f.vocab)
	}
	f.tokens = f.tokens[n:]
	return scores.Data, nil
}
