package textgen

import (
	"context"
	"iter"
	"sync"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/host/generate"
	"github.com/opgraft/graft/internal/opening"
)

// Token is one token of a stream.
type Token struct {
	// ID is its number in the vocabulary; -1 for the rest of the text after the last token, where there is some.
	ID int32
	// Text is what it adds to the text: "" for a special token, and while a character is not whole.
	Text string
}

// Stream generates for one input, as [Generator.GenerateText] does, and yields each token as soon as it is chosen. The
// texts of all tokens make that text. It is for greedy search and sampling of one sequence: with beams, or with several
// sequences, it is graft.ErrOption. Leaving the loop ends the generation. Other errors are those of
// [Generator.Generate].
func (g *Generator) Stream(ctx context.Context, input string, s Search) iter.Seq2[Token, error] {
	return g.stream(ctx, g.generator, input, s)
}

func (g *Generator) stream(ctx context.Context, with *generate.Generator, input string, s Search) iter.Seq2[Token,
	error] {
	return func(yield func(Token, error) bool) {
		o, err := g.searched(&s)
		if err == nil && (o.NumBeams > 1 || o.NumReturnSequences > 1) {
			err = opening.Refuse("num_beams is %d and num_return_sequences is %d: a stream needs 1 of each, or Hypotheses",
				o.NumBeams, o.NumReturnSequences)
		}
		if err != nil {
			yield(Token{}, err)
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		var ended sync.WaitGroup
		defer ended.Wait()
		defer cancel()
		q := newQueue()
		var r generate.Result
		var failed error
		ended.Go(func() {
			defer q.close()
			r, failed = with.Stream(ctx, o, input, q.put)
		})
		text := with.Incremental(o)
		for id := range q.all {
			piece, err := text.Add(id)
			if err != nil {
				yield(Token{}, opening.Public(err, nil, kinds))
				return
			}
			if !yield(Token{ID: id, Text: piece}, nil) {
				return
			}
		}
		switch {
		case failed != nil:
			yield(Token{}, opening.Public(failed, nil, kinds))
		case r.Err != nil:
			yield(Token{}, &graft.InputError{Err: r.Err})
		default:
			rest, err := text.Finish()
			switch {
			case err != nil:
				yield(Token{}, opening.Public(err, nil, kinds))
			case rest != "":
				yield(Token{ID: -1, Text: rest}, nil)
			}
		}
	}
}

// queue hands tokens from the generator, which must not wait, to a consumer.
type queue struct {
	mu     sync.Mutex
	more   sync.Cond
	tokens []int32
	closed bool
}

func newQueue() *queue {
	q := &queue{}
	q.more.L = &q.mu
	return q
}

func (q *queue) put(id int32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tokens = append(q.tokens, id)
	q.more.Signal()
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.more.Signal()
}

// all yields tokens until the queue is closed and empty.
func (q *queue) all(yield func(int32) bool) {
	for {
		q.mu.Lock()
		for len(q.tokens) == 0 && !q.closed {
			q.more.Wait()
		}
		tokens := q.tokens
		q.tokens = nil
		q.mu.Unlock()
		if len(tokens) == 0 {
			return
		}
		for _, id := range tokens {
			if !yield(id) {
				return
			}
		}
	}
}
