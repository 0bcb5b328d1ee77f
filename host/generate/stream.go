package generate

import (
	"context"
	"strings"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/generate/text"
)

// Stream generates for one input with a search of one sequence, greedy or sampled, and hands each token over as soon as
// it is chosen. chosen must not wait.
func (g *Generator) Stream(ctx context.Context, o search.Options, input string, chosen func(int32)) (r Result,
	err error) {
	in, err := g.encode(ctx, o, input)
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

// Incremental is the text of a sequence whose tokens come one by one.
type Incremental struct {
	decoder      *text.Decoder
	noTimestamps int32
}

// Incremental begins the text of a sequence that is generated with these options.
func (g *Generator) Incremental(o search.Options) *Incremental {
	return &Incremental{decoder: g.Tokenizer.Decoder(decoding), noTimestamps: o.Speech.NoTimestamps}
}

// Add returns what a token adds to the text, without what the next one can still change.
func (t *Incremental) Add(id int32) (string, error) {
	if isTimestamp(t.noTimestamps, id) {
		return "", nil
	}
	return t.decoder.Add(int64(id))
}

// Finish returns the rest of the text, after the last token.
func (t *Incremental) Finish() (string, error) { return t.decoder.Finish() }

// stopped is what ends sequences at stop strings; nil for none.
func (g *Generator) stopped(o search.Options) func(tokens []int32) bool {
	if len(o.StopStrings) == 0 {
		return nil
	}
	return func(tokens []int32) bool {
		whole, err := Text(g.Tokenizer, o, tokens)
		if err != nil {
			return false
		}
		for _, s := range o.StopStrings {
			if strings.Contains(whole, s) {
				return true
			}
		}
		return false
	}
}
