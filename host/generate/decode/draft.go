package decode

import (
	"context"

	"github.com/opgraft/graft/host/generate/draft"
	"github.com/opgraft/graft/host/generate/search"
)

// drafter guesses what a request will choose next: draft.Drafter, or another in tests.
type drafter interface {
	// Next gives up to n tokens of each row, equally many: those of which the chance is above a price.
	Next(n int, price float64) [][]int32
	// Chosen says how many positions of the draft were accepted since, and which moves came after them.
	Chosen(accepted int, moves []search.Move)
}

// drafter is that of a new request; nil where nothing is drafted.
func (l *loop) drafter(c *call, in *search.Input) drafter {
	o := &c.options
	switch {
	case l.drafts != nil && !l.engine.HasPlaceholder():
		return l.drafts(in)
	case o.Draft != search.DraftLookup || l.engine.HasPlaceholder() || o.NumBeamGroups > 1 ||
		o.NumBeams == 1 && o.NumReturnSequences > 1:
		return nil
	case len(in.Encoder) > 0:
		return draft.New(&c.odds, c.rows > 1, o.DraftTokens, in.Encoder, in.Prompt)
	}
	return draft.New(&c.odds, c.rows > 1, o.DraftTokens, in.Prompt)
}

// extend adds what is drafted to what the requests in flight bring to a step.
func (l *loop) extend(ctx context.Context) error {
	rows := 0
	for _, f := range l.feeds {
		rows += len(f.Tokens)
	}
	for i, r := range l.active {
		if r.drafter == nil {
			continue
		}
		most := r.search.Drafts()
		if most == 0 {
			continue
		}
		n, err := l.draft(i, r, r.drafter.Next(most, l.price.Chance(rows)))
		if err != nil {
			return err
		}
		rows += n
	}
	if err := l.propose(ctx, rows); err != nil {
		return err
	}
	for i, r := range l.active {
		if r.aide == nil {
			continue
		}
		if _, err := l.draft(i, r, r.aide.length.Drafted()); err != nil {
			return err
		}
	}
	return nil
}

// draft adds what is drafted for a request to its feed, and says how many rows that is.
func (l *loop) draft(i int, r *request, tokens [][]int32) (rows int, err error) {
	if err := r.search.Draft(tokens...); err != nil {
		return 0, err
	}
	f := &l.feeds[i]
	r.drafted = len(r.search.Drafted()) / len(f.Tokens)
	f.Drafted = len(r.search.Drafted())
	for _, t := range r.search.Drafted() {
		f.Tokens = append(f.Tokens, int64(t))
	}
	return f.Drafted, nil
}

// settle takes the positions that were drafted and not chosen out of a request's cache after its search, and tells
// what was chosen.
func (r *request) settle() error {
	if r.drafter == nil && r.aide == nil {
		return nil
	}
	drafted, accepted := r.drafted, r.search.Accepted()
	r.drafted = 0
	r.output.Drafted += drafted
	r.output.Accepted += accepted
	if r.search.Done() {
		return nil
	}
	if r.drafter != nil {
		r.drafter.Chosen(accepted, r.search.Moves())
	}
	if r.aide != nil {
		if err := r.aide.settle(accepted, r.search.Moves()); err != nil {
			return err
		}
	}
	if drafted == accepted {
		return nil
	}
	return r.own.Truncate(drafted - accepted)
}
