package decode

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/opgraft/graft/host/generate/draft"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/search"
)

// aide is a request's place in the draft model: a cache of its own, which follows the request's rows when the draft
// model runs for it again.
type aide struct {
	length *draft.Model
	own    *engine.Sequence
	cross  *engine.Encoded // nil before the first draft, and without an encoder
	read   bool            // the cache has the prompt
	fed    int             // drafted positions that the cache has
	// parents are, for each row of the request, the row of the cache that it goes on from, with the tokens of pending,
	// equally many for each.
	parents []int
	pending [][]int32
	fork    *search.State
}

// aide is that of a new request; nil where no draft model runs.
func (l *loop) aide(c *call) *aide {
	o := &c.options
	if o.Draft != search.DraftModel || o.NumBeamGroups > 1 || o.NumBeams == 1 && o.NumReturnSequences > 1 {
		return nil
	}
	return &aide{length: draft.NewModel(&c.trust, o.DraftTokens), own: l.helper.engine.NewSequence(), parents: []int{0},
		pending: make([][]int32, 1)}
}

// assist gives a new request, which may grow to a limit of tokens, a place in the draft model. It is an error that
// the cache has no room for that while others are in flight; alone, a request goes on without.
func (l *loop) assist(r *request, limit int) error {
	a := l.aide(r.call)
	if a == nil {
		return nil
	}
	encoded := 0
	if r.cross != nil {
		encoded = r.cross.Len()
	}
	more := l.helper.need(len(r.prompt), r.call.rows, limit-len(r.prompt), encoded)
	if err := l.left(r.pledged + more); err != nil {
		if len(l.active) > 0 {
			return err
		}
		return nil
	}
	r.aide = a
	r.pledged += more
	return nil
}

// dismiss gives the place in the draft model's cache back. The request goes on without drafts.
func (r *request) dismiss() {
	if r.aide == nil {
		return
	}
	r.aide.own.Release()
	if r.aide.cross != nil {
		r.aide.cross.Release()
	}
	r.aide = nil
}

// need is the maximum number of bytes that a request takes of the draft model's cache.
func (h *helper) need(prompt, rows, rest, encoded int) int64 {
	n := h.engine.Need(prompt, rows, rest)
	if h.engine.HasEncoder() {
		n += h.engine.EncodedBytes(encoded, rows)
	}
	return n
}

// readable says whether the draft model knows tokens: a model may have more than its tokenizer names.
func (h *helper) readable(lists ...[]int32) bool { return h.config.CheckTokens(lists...) == nil }

// settle moves the place after a search: of the draft that was verified, the positions accepted stay, and moves come
// after them.
func (a *aide) settle(accepted int, moves []search.Move) error {
	defer a.length.Chosen(accepted, moves)
	kept := min(accepted, a.fed)
	if n := a.fed - kept; n > 0 {
		if err := a.own.Truncate(n); err != nil {
			return err
		}
	}
	a.fed = 0
	for i, row := range a.length.Drafted() {
		if kept < accepted {
			a.pending[i] = append(a.pending[i], row[kept:accepted]...)
		}
	}
	if len(moves) == 1 && len(a.pending) == 1 {
		a.pending[0] = append(a.pending[0], moves[0].Token)
		return nil
	}
	parents, pending := make([]int, len(moves)), make([][]int32, len(moves))
	for i, m := range moves {
		parents[i] = a.parents[m.Parent]
		pending[i] = append(slices.Clone(a.pending[m.Parent]), m.Token)
	}
	a.parents, a.pending = parents, pending
	return nil
}

// catchUp is what the draft model is fed so that its cache has the rows of the request, as they stand.
func (a *aide) catchUp() (engine.Feed, error) {
	same := len(a.parents) == a.own.Rows()
	for i, p := range a.parents {
		same = same && i == p
	}
	if !same {
		if err := a.own.Reorder(a.parents); err != nil {
			return engine.Feed{}, err
		}
	}
	rows := len(a.pending)
	f := engine.Feed{Sequence: a.own, Cross: a.cross, Last: true, Drafted: (len(a.pending[0]) - 1) * rows}
	for at := range a.pending[0] {
		for i := range a.pending {
			f.Tokens = append(f.Tokens, int64(a.pending[i][at]))
		}
	}
	for i := range a.pending {
		a.parents[i], a.pending[i] = i, a.pending[i][:0]
	}
	return f, nil
}

// propose lets the draft model draft for the requests in flight that have a place in it and whose drafts are expected
// to pay, in a step of the model that has that many rows. They go through the draft model's steps together, each as
// far as its drafts pay.
func (l *loop) propose(ctx context.Context, rows int) error {
	h := l.helper
	if h == nil || !l.price.Known() {
		return nil
	}
	var list []*request
	width := 0
	for _, r := range l.active {
		if r.aide != nil && r.search.Drafts() > 0 {
			list, width = append(list, r), width+r.search.Rows()
		}
	}
	if len(list) == 0 {
		return nil
	}
	price, step, row := h.price.After(l.price, h.share), l.price.Step(rows)/float64(rows), l.price.Row()
	list = slices.DeleteFunc(list, func(r *request) bool {
		a := r.aide
		if !h.readable(a.pending...) || !a.read && !h.readable(r.prompt) {
			r.dismiss()
			return true
		}
		past := a.own.Len() + len(a.pending[0])
		if !a.read {
			past += len(r.prompt)
		}
		room := int(h.engine.Positions()) - past + 1 // what is drafted last is never fed
		if room < 1 {
			r.dismiss()
			return true
		}
		return !a.length.Begin(min(r.search.Drafts(), room), step, price.Step(width)/float64(width)+row)
	})
	err := l.begin(ctx, list)
	for first := true; err == nil && len(list) > 0; first = false {
		list, err = l.guess(ctx, list, first, row)
	}
	if err != nil && exhausted(err) { // the model itself may have memory enough
		for _, r := range l.active {
			r.dismiss()
		}
		return nil
	}
	return err
}

// begin has the draft model read the inputs and prompts of requests for which it drafts for the first time.
func (l *loop) begin(ctx context.Context, list []*request) error {
	h := l.helper
	h.feeds = h.feeds[:0]
	for _, r := range list {
		if r.aide.read {
			continue
		}
		if h.engine.HasEncoder() {
			var err error
			if r.aide.cross, err = h.engine.Encode(ctx, r.input.features(), r.call.rows); err != nil {
				return err
			}
		}
		r.aide.read = true
		h.feeds = append(h.feeds,
			engine.Feed{Sequence: r.aide.own, Cross: r.aide.cross, Prompt: true, Tokens: int64s(r.prompt)})
	}
	if len(h.feeds) == 0 {
		return nil
	}
	h.steps++
	_, err := h.advance(ctx, h.feeds)
	return err
}

// guess takes one step of the draft model for requests, and gives those that want another.
func (l *loop) guess(ctx context.Context, list []*request, first bool, row float64) (_ []*request, err error) {
	h := l.helper
	h.feeds = h.feeds[:0]
	rows, width := 0, 0
	for _, r := range list {
		a := r.aide
		width += r.search.Rows()
		f := engine.Feed{Sequence: a.own, Cross: a.cross}
		if first {
			if f, err = a.catchUp(); err != nil {
				return nil, err
			}
			a.fork = r.search.Fork()
		} else {
			for _, m := range a.fork.Moves() {
				f.Tokens = append(f.Tokens, int64(m.Token))
			}
			a.fed++
		}
		rows += len(f.Tokens)
		h.feeds = append(h.feeds, f)
	}
	begun := l.now()
	scores, err := h.advance(ctx, h.feeds)
	if err != nil {
		return nil, err
	}
	h.price.Note(rows, l.now().Sub(begun).Seconds())
	h.steps++
	if scores.Vocab != h.config.Vocab {
		return nil, fmt.Errorf("the draft model %s gives %d logits a token, its config.json says %d (vocab_size): they "+
			"are not of one model; export it again", h.Folder, scores.Vocab, h.config.Vocab)
	}
	h.forks = h.forks[:0]
	for _, r := range list {
		h.forks = append(h.forks, r.aide.fork)
	}
	if err := h.stepper.Step(l.selector, h.widened(scores, l.config.Vocab), l.config.Vocab, h.forks); err != nil {
		// Logits that cannot be searched: what was guessed so far stands, and there are no more of the request at fault.
		if at := (*search.StepError)(nil); errors.As(err, &at) {
			list[at.Input].dismiss()
			return nil, nil
		}
		return nil, err
	}
	took := h.price.After(l.price, h.share).Step(rows) / float64(width)
	return slices.DeleteFunc(list, func(r *request) bool {
		f := r.aide.fork
		if !f.Stays(r.search.Rows()) {
			return true
		}
		tokens := make([]int32, 0, r.search.Rows())
		for _, m := range f.Moves() {
			tokens = append(tokens, m.Token)
		}
		return l.config.CheckTokens(tokens) != nil || !r.aide.length.Guess(tokens, f.Confidence(), took, row) ||
			!h.readable(tokens)
	}), nil
}

// widened are logits of the draft model as wide as those of the model: tokens that one of them has beyond its
// vocabulary are never drafted.
func (h *helper) widened(s *engine.Scores, vocab int) []float32 {
	if s.Vocab == vocab {
		return s.Data
	}
	h.logits = slices.Grow(h.logits[:0], s.Rows*vocab)[:s.Rows*vocab]
	for i := range s.Rows {
		to := h.logits[i*vocab : (i+1)*vocab]
		for j := copy(to, s.Data[i*s.Vocab:(i+1)*s.Vocab]); j < vocab; j++ {
			to[j] = float32(math.Inf(-1))
		}
	}
	return h.logits
}
