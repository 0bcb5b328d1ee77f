package decode

import (
	"context"
	"slices"
	"time"

	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/generate/search"
)

// request is one input in flight.
type request struct {
	call    *call
	input   *Input
	prompt  []int32
	search  *search.State
	own     *engine.Sequence
	cross   *engine.Encoded
	pledged int64
	output  Output
	parents []int
	drafter drafter // nil: nothing is looked up
	aide    *aide   // nil: no draft model drafts
	drafted int     // positions that the step in flight has after those of the request's rows
}

// release gives a request's place in the cache back.
func (l *loop) release(r *request) {
	l.pledged -= r.pledged
	r.own.Release()
	r.dismiss()
	if r.cross != nil {
		r.cross.Release()
	}
}

// start starts a request: its place in the cache, the encoder's run, its search.
func (l *loop) start(p *pending) (_ *request, err error) {
	in, o, ctx := p.input, p.call.options, p.call.ctx
	r := &request{call: p.call, input: in, output: Output{Index: in.Index}}
	input := search.Input{Vocab: l.config.Vocab, Index: in.Index, Stopped: in.Stopped}
	if l.engine.HasEncoder() {
		prompt, err := o.DecoderPrompt()
		if err != nil {
			return nil, err
		}
		input.Prompt, input.Encoder = append(prompt, in.Prompt...), in.Tokens
	} else {
		input.Prompt = in.Tokens
	}
	r.prompt, r.output.Prompt = input.Prompt, len(input.Prompt)
	limit := o.LengthLimit(len(r.prompt))
	if err := modeldir.CheckLimit(limit, l.engine.Positions()); err != nil {
		return nil, err
	}
	r.pledged = l.engine.Need(len(r.prompt), p.call.rows, limit-len(r.prompt))
	if err := l.left(r.pledged + l.encodedBytes(p)); err != nil {
		return nil, err
	}
	if err := l.config.CheckTokens(in.Tokens); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && r.cross != nil {
			r.cross.Release()
		}
	}()
	if l.engine.HasEncoder() {
		if r.cross, err = l.engine.Encode(ctx, in.features(), p.call.rows); err != nil {
			return nil, err
		}
		if err = l.left(r.pledged); err != nil {
			return nil, err
		}
		r.output.CrossBytes = r.cross.Bytes()
		if open := slices.Index(r.prompt, search.NoToken); open >= 0 {
			if r.prompt[open], err = l.detect(ctx, &o, r.cross, r.prompt[:open]); err != nil {
				return nil, err
			}
		}
	}
	if err = l.config.CheckTokens(r.prompt); err != nil {
		return nil, err
	}
	if r.search, err = search.New(o, input); err != nil {
		return nil, err
	}
	if err = l.assist(r, limit); err != nil {
		return nil, err
	}
	r.drafter = l.drafter(p.call, &input)
	r.own = l.engine.NewSequence()
	l.pledged += r.pledged
	return r, nil
}

// features are what the encoder reads of an input.
func (in *Input) features() (f engine.Features) {
	if in.Features != nil {
		f = *in.Features
	}
	f.Tokens = append(slices.Clone(f.Tokens), int64s(in.Tokens)...)
	return f
}

// detect is the language that the model detects: the best of its languages after a
// prompt's first tokens.
func (l *loop) detect(ctx context.Context, o *search.Options, cross *engine.Encoded, prompt []int32) (int32, error) {
	own := l.engine.NewSequence()
	defer own.Release()
	feed := engine.Feed{Sequence: own, Cross: cross, Prompt: true}
	for _, t := range prompt {
		feed.Tokens = append(feed.Tokens, int64(t))
	}
	scores, err := l.engine.Step(ctx, []engine.Feed{feed})
	if err != nil {
		return 0, err
	}
	return o.Detected(scores.Data)
}

// feed is what a request brings to a step.
func (r *request) feed() engine.Feed {
	f := engine.Feed{Sequence: r.own, Cross: r.cross}
	if r.output.Steps == 0 {
		f.Prompt = true
		for _, t := range r.prompt {
			f.Tokens = append(f.Tokens, int64(t))
		}
		return f
	}
	for _, m := range r.search.Moves() {
		f.Tokens = append(f.Tokens, int64(m.Token))
	}
	return f
}

// tell hands tokens over that were chosen since the last time.
func (r *request) tell() {
	if r.input.Chosen == nil {
		return
	}
	tokens := r.search.Sequence()
	for ; r.input.told < len(tokens); r.input.told++ {
		r.input.Chosen(tokens[r.input.told])
	}
}

// follow moves a request's cache after its search, or takes the results of a search that has ended.
func (r *request) follow() (ended bool, err error) {
	if r.output.Steps++; r.output.Steps == 1 {
		r.output.FirstToken = time.Now()
	}
	r.output.CacheBytes = max(r.output.CacheBytes, r.own.Bytes())
	if err := r.settle(); err != nil {
		return false, err
	}
	r.tell()
	if r.search.Done() {
		r.output.Hypotheses = r.search.Results()
		return true, nil
	}
	moves := r.search.Moves()
	r.parents = r.parents[:0]
	same := len(moves) == r.own.Rows()
	for i, m := range moves {
		r.parents = append(r.parents, m.Parent)
		same = same && m.Parent == i
	}
	if same {
		return false, nil
	}
	if r.output.Steps > 1 {
		r.output.Reorders++
	}
	return false, r.own.Reorder(r.parents)
}
