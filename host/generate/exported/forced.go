package exported

import (
	"context"
	"errors"
	"fmt"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/ort"
)

// Force begins a text as decode.Generator.Force does. The model is run once, over the whole text, since exporters
// promise no more of a decoder than a prompt without a past and then single tokens; so the logits of all its tokens
// are in memory at once.
func (g *Generator) Force(ctx context.Context, in *decode.Input) (decode.Forced, error) {
	r := request{prompt: in.Tokens}
	if g.encoder {
		r = request{encoder: in.Tokens, features: in.Features, prompt: in.Prompt}
	}
	if err := g.config.CheckTokens(in.Tokens, in.Prompt); err != nil {
		return nil, err
	}
	if err := modeldir.CheckLimit(len(r.prompt)+1, g.positions()); err != nil {
		return nil, err
	}
	if len(r.prompt) == 0 {
		return nil, fmt.Errorf("%w: none", decode.ErrForcedEnd)
	}
	f := &forced{vocab: g.config.Vocab}
	b := &batch{sessions: g.model, beams: 1, size: 1}
	defer b.close()
	if b.encoder != nil {
		if err := b.encode(ctx, []request{r}); err != nil {
			return nil, err
		}
	}
	feed := b.feeds()
	defer feed.close()
	s := b.decoder
	if b.first != nil {
		s = b.first
	}
	if err := b.prefill(feed, s, []request{r}, len(r.prompt)); err != nil {
		return nil, err
	}
	results, err := s.Run(ctx, feed.values, b.First.Logits)
	if err != nil {
		return nil, err
	}
	f.value = results[0]
	switch f.logits, err = ort.Data[float32](f.value); {
	case err != nil:
	case len(f.logits) == f.vocab && len(r.prompt) > 1:
		err = errors.New("the model gives logits after the last of its tokens alone, so a text cannot be read at once; " +
			"compare sides of the engine")
	case len(f.logits) != len(r.prompt)*f.vocab:
		err = fmt.Errorf("the model gives %d logits for %d tokens, its config.json says %d a token (vocab_size): they are "+
			"not of one model; export it again", len(f.logits), len(r.prompt), f.vocab)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// forced are the logits of a text.
type forced struct {
	value  *ort.Value
	logits []float32 // that are left
	vocab  int
}

func (f *forced) Close() { f.value.Close() }

func (f *forced) Skip(ctx context.Context, n int) error {
	_, err := f.Next(ctx, n)
	return err
}

func (f *forced) Next(_ context.Context, n int) ([]float32, error) {
	if left := len(f.logits) / f.vocab; n > left {
		return nil, fmt.Errorf("%w: %d, asked for are %d", decode.ErrForcedEnd, left, n)
	}
	rows := f.logits[:n*f.vocab]
	f.logits = f.logits[n*f.vocab:]
	return rows, nil
}
