package decode

import (
	"github.com/opgraft/graft/host/decode/draft"
	"github.com/opgraft/graft/host/decode/search"
)

// drafter guesses what a request will choose next: draft.Drafter, or another in tests.
type drafter interface {
	// Next gives up to n tokens of each row, equally many: those of which the chance is above a price.
	Next(n int, price float64) [][]int32
	// Chosen says how many positions of the draft were accepted since, and which moves came after them.
	Chosen(accepted int, moves []search.Move)
}

// rowTime is what a row more adds to the time of a step, over the time of a step of one row, which reads all weights. It is
// what the steps of GPT-2's shape take (RATIONALE.md).
const rowTime = 0.06

// caution is what the chance of a drafted token must be above its price at the least: guesses of chances are rough, and a draft has
// costs beside those of its rows.
const caution = 0.05

// price is the least chance that a drafted position needs in a step that has that many rows before it. A step of R rows takes 1 + t R;
// with a row more, which stands a chance p of taking the place of another, it does more in its time where p > t R / (1 + t R).
func price(rows int) float64 {
	t := rowTime * float64(rows)
	return t/(1+t) + caution
}

// drafter is that of a new request; nil where nothing is drafted.
func (l *loop) drafter(c *call, in *search.Input) drafter {
	o := &c.options
	switch {
	case l.drafts != nil && !l.engine.HasPlaceholder():
		return l.drafts(in)
	case o.Draft != search.DraftLookup || l.engine.HasPlaceholder() || o.NumBeamGroups > 1 || o.NumBeams == 1 && o.NumReturnSequences > 1:
		return nil
	case len(in.Encoder) > 0:
		return draft.New(&c.odds, c.rows > 1, o.DraftTokens, in.Encoder, in.Prompt)
	}
	return draft.New(&c.odds, c.rows > 1, o.DraftTokens, in.Prompt)
}

// extend adds what is drafted to what the requests in flight bring to a step.
func (l *loop) extend() error {
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
		if err := r.search.Draft(r.drafter.Next(most, price(rows))...); err != nil {
			return err
		}
		f := &l.feeds[i]
		r.drafted = len(r.search.Drafted()) / len(f.Tokens)
		f.Drafted = len(r.search.Drafted())
		for _, t := range r.search.Drafted() {
			f.Tokens = append(f.Tokens, int64(t))
		}
		rows += f.Drafted
	}
	return nil
}

// settle takes the positions that were drafted and not chosen out of a request's cache after its search, and tells what was
// chosen.
func (r *request) settle() error {
	if r.drafter == nil {
		return nil
	}
	drafted, accepted := r.drafted, r.search.Accepted()
	r.drafted = 0
	r.output.Drafted += drafted
	r.output.Accepted += accepted
	if r.search.Done() {
		return nil
	}
	r.drafter.Chosen(accepted, r.search.Moves())
	if drafted == accepted {
		return nil
	}
	return r.own.Truncate(drafted - accepted)
}
