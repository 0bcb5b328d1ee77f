package generate

import (
	"context"
	"strings"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/search"
)

// Stream generates for one input with a search of one sequence, greedy or sampled, and hands each token over as soon as
// it is chosen. chosen must not wait.
func (g *Generator) Stream(ctx context.Context, o search.Options, input string, chosen func(int32)) (r Result,
	err error) {
	in, err := g.encode(o, input)
	if err != nil {
		return Result{Error: err.Error(), Err: err}, nil
	}
	in.Chosen, in.Index = chosen, uint64(g.First)
	err = g.Device.Run(ctx, o, func() (next *decode.Input, err error) {
		next, in = in, nil
		return next, nil
	}, func(out decode.Output) (err error) {
		r, err = g.decode(o, 0, out)
		return err
	})
	return r, err
}

// stopped is what ends sequences at stop strings; nil for none.
func (g *Generator) stopped(o search.Options) func(tokens []int32) bool {
	if len(o.StopStrings) == 0 {
		return nil
	}
	return func(tokens []int32) bool {
		text, err := Text(g.Tokenizer, o, tokens)
		if err != nil {
			return false
		}
		for _, s := range o.StopStrings {
			if strings.Contains(text, s) {
				return true
			}
		}
		return false
	}
}
