package generations

import (
	"context"
	"fmt"

	"github.com/opgraft/graft/host/generate"
	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/generate/score"
	"github.com/opgraft/graft/host/generate/text"
	"github.com/opgraft/graft/host/measure/comparison/divergence"
)

// forced is what came of the texts, with the scores of each side where there are references.
type forced struct {
	*forcedResult
	scores []*score.Scores
}

// forceAll leads the work on texts; nil where there are none.
func forceAll(ctx context.Context, s stages, folder string, config *modeldir.Config, o Options) (*forced, error) {
	if o.Texts == nil {
		return nil, nil
	}
	o.Step("comparing distributions of the next token")
	f := &forced{}
	for f.forcedResult == nil {
		part, err := s.force(ctx)
		if err != nil {
			return nil, err
		}
		if o.Progress != nil && part.Total > 0 {
			o.Progress(part.Done, part.Total)
		}
		f.forcedResult = part.Result
	}
	t, err := text.Open(folder)
	if err != nil {
		if o.Texts.ReferenceTexts == nil {
			return f, nil // tokens have no words then
		}
		return nil, err
	}
	for _, d := range f.Divergences {
		if d == nil || d.First == nil {
			continue
		}
		for _, c := range []*divergence.Choice{&d.First.A, &d.First.B} {
			c.Text, _ = t.Decode([]int64{int64(c.Token)}, text.DecodeOptions{}) // some tokens have none
		}
	}
	if o.Texts.ReferenceTexts == nil {
		return f, nil
	}
	return f, f.score(t, folder, config, o)
}

// score scores what the sides generated.
func (f *forced) score(t *text.Tokenizer, folder string, config *modeldir.Config, o Options) error {
	so, err := decode.SearchOf(folder, config, o.Search)
	if err != nil {
		return err
	}
	for _, outputs := range f.Outputs {
		texts := make([]string, len(outputs))
		for i, tokens := range outputs {
			if texts[i], err = generate.Text(t, so, tokens); err != nil {
				return fmt.Errorf("text %d: %w", i, err)
			}
		}
		s, err := score.Of(texts, o.Texts.ReferenceTexts)
		if err != nil {
			return err
		}
		f.scores = append(f.scores, s)
	}
	return nil
}

// force takes what came of the texts into the result.
func (c *Compared) force(f *forced) {
	if f == nil {
		return
	}
	if f.Tokens > 0 {
		c.Forced = &f.Forced
	}
	c.A.Likelihood = f.Likelihoods[0]
	for i := range c.Sides {
		c.Sides[i].Likelihood, c.Sides[i].Divergence = f.Likelihoods[i+1], f.Divergences[i+1]
	}
	if f.scores != nil {
		c.A.Scores = f.scores[0]
		for i := range c.Sides {
			c.Sides[i].Scores = f.scores[i+1]
		}
	}
}
