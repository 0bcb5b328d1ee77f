package generations

import (
	"context"

	"github.com/opgraft/graft/host/generate/text"
	"github.com/opgraft/graft/host/measure/comparison/divergence"
)

// forceAll leads the work on texts; nil where there are none.
func forceAll(ctx context.Context, s stages, folder string, o Options) (*forcedResult, error) {
	if o.Texts == nil {
		return nil, nil
	}
	o.Step("comparing distributions of the next token")
	var f *forcedResult
	for f == nil {
		part, err := s.force(ctx)
		if err != nil {
			return nil, err
		}
		if o.Progress != nil && part.Total > 0 {
			o.Progress(part.Done, part.Total)
		}
		f = part.Result
	}
	t, err := text.Open(folder)
	if err != nil {
		return f, nil // tokens have no words then
	}
	for _, d := range f.Divergences {
		if d == nil || d.First == nil {
			continue
		}
		for _, c := range []*divergence.Choice{&d.First.A, &d.First.B} {
			c.Text, _ = t.Decode([]int64{int64(c.Token)}, text.DecodeOptions{}) // some tokens have none
		}
	}
	return f, nil
}

// force takes what came of the texts into the result.
func (c *Compared) force(f *forcedResult) {
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
}
