// Package embed turns texts into vectors, scores and labels with encoders that sentence-transformers or optimum saved,
// and gathers single inputs of many goroutines into batches.
//
//	e, err := embed.NewEmbedder(ctx, "all-MiniLM-L6-v2", embed.Options{})
//	if err != nil { ... }
//	defer e.Close()
//	vectors, err := e.Embed(ctx, "a text", "another")
//
// Errors are those of package graft.
package embed

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/host/encode/batch"
	"github.com/opgraft/graft/host/encode/encoder"
	"github.com/opgraft/graft/host/encode/folder"
	"github.com/opgraft/graft/internal/opening"
)

// Embedder turns texts into vectors with an exported encoder: a folder as sentence-transformers or optimum saves it,
// with its tokenizer, or static embeddings, which need no graph. Pooling, normalisation and prompts are those of the
// model's own configuration. Most models give one vector of a text; [Embedder.Gives] says what this one gives.
//
// It is safe for concurrent use. Texts of all calls that come at once share batches, as inputs of a [Batcher] do.
type Embedder struct{ inner *encoder.Embedder }

// Reranker scores how well documents answer a query, with an exported cross-encoder of one label, or with an embedder
// whose vectors are compared as its configuration says (similarity_fn_name): by cosine, dot product, MaxSim.
//
// It is safe for concurrent use. Documents of all calls that come at once share batches, as inputs of a [Batcher] do.
type Reranker struct{ inner encoder.Ranker }

// Task is what a text is for, where a model treats queries and documents in two ways: with prompts, marks or modules.
type Task string

// The tasks. "" is neither, as encode of sentence-transformers takes it; with the others it is encode_query and
// encode_document.
const (
	Query    Task = "query"
	Document Task = "document"
)

// As says what texts are. The zero value is a text without a task, with the model's default prompt.
type As struct {
	Task Task
	// Prompt is the name of the prompt before the text, as the model's configuration names it; "" is the task's prompt, or
	// without a task the default one, where the model has it.
	Prompt string
}

// Gives says what a model makes of a text: most give one of them, BGE-M3 gives all.
type Gives struct {
	Dense  bool // a vector
	Sparse bool // a vector of which most numbers are 0, as SPLADE's
	Tokens bool // a vector for each token, as ColBERT's
}

// Embedding is what a model makes of a text. What it does not give is nil.
type Embedding struct {
	Dense  []float32
	Sparse Sparse
	Tokens [][]float32
}

// Sparse is a vector of which most numbers are 0.
type Sparse struct {
	Indices []int32 // of the others, the least first
	Weights []float32
	Width   int // numbers of the whole vector
}

// Ranked is a document with its score.
type Ranked struct {
	Index int // the document's number, from 0
	Score float32
}

// NewEmbedder opens a folder. Where it says nothing of pooling (no modules.json, no output sentence_embedding) it is
// graft.ErrBadModel without Options.Pooling. A context that ends makes it return at once.
func NewEmbedder(ctx context.Context, folder string, o Options) (*Embedder, error) {
	if o.RawScores {
		return nil, opening.Refuse("RawScores is set and would be ignored: an embedder gives vectors")
	}
	e, err := opened(ctx, folder, &o, encoder.OpenEmbedder)
	if err != nil {
		return nil, err
	}
	return &Embedder{e}, nil
}

// NewReranker opens a folder of a model for text classification with one label. Scores are what CrossEncoder of
// sentence-transformers gives: the activation of the model's configuration (sentence_transformers.activation_fn), and
// a sigmoid where it has none; Options.RawScores leaves it out.
func NewReranker(ctx context.Context, folder string, o Options) (*Reranker, error) {
	if len(o.Pooling) > 0 || o.Normalize {
		return nil, opening.Refuse("Pooling and Normalize would be ignored: a reranker gives scores")
	}
	r, err := opened(ctx, folder, &o, encoder.OpenRanker)
	if err != nil {
		return nil, err
	}
	return &Reranker{r}, nil
}

// opened opens an encoder with what options need: the runtime and the plugins.
func opened[T interface{ Close() }](ctx context.Context, folder string, o *Options,
	open func(context.Context, string, encoder.Options) (T, error)) (made T, err error) {
	in, err := o.prepared()
	if err != nil {
		return made, err
	}
	return opening.Abandon(ctx, func() (none T, err error) {
		if in.Library, err = o.common().Library(); err != nil {
			return none, err
		}
		if in.Plugins, err = o.common().Load(nil); err != nil {
			return none, err
		}
		made, err := open(ctx, folder, in)
		return made, opening.Public(err, graft.ErrBadModel)
	})
}

// Embed returns a vector for each text, in their order. Texts are cut where the model's configuration says.
//
// A text that has no vector is nil there, and the error joins a *graft.InputError for each; the others are not
// affected. Any other error is that of the call, without vectors: the context's, graft.ErrClosed, or
// graft.ErrQueueFull where the queue is full as the call comes. A call of many texts waits for room after the first.
func (e *Embedder) Embed(ctx context.Context, texts ...string) ([][]float32, error) {
	return e.EmbedAs(ctx, "", texts...)
}

// EmbedAs is Embed with a prompt before each text: query or document, for example, as the model's configuration names
// them (config_sentence_transformers.json). With "" it is the configuration's default, which is none in most models.
func (e *Embedder) EmbedAs(ctx context.Context, prompt string, texts ...string) ([][]float32, error) {
	if !e.Gives().Dense {
		return nil, opening.Refuse("the model gives no dense vectors, needed is Encode, which returns what it gives")
	}
	list, err := e.Encode(ctx, As{Prompt: prompt}, texts...)
	if list == nil {
		return nil, err
	}
	vectors := make([][]float32, len(list))
	for i, v := range list {
		vectors[i] = v.Dense
	}
	return vectors, err
}

// Encode returns what the model makes of each text, in their order: the zero Embedding for a text that failed. Errors
// are those of [Embedder.Embed]; a task that the model has no way for is graft.ErrOption.
func (e *Embedder) Encode(ctx context.Context, as As, texts ...string) ([]Embedding, error) {
	in := encoder.As{Task: folder.Task(as.Task), Prompt: as.Prompt}
	if err := e.inner.Takes(in); err != nil {
		return nil, opening.Public(err, graft.ErrOption)
	}
	list, err := all(ctx, len(texts), e.inner.MaxQueue(),
		func(i int) (encoder.Row, error) { return e.inner.Row(ctx, texts[i], in) }, e.inner.Start)
	if list == nil {
		return nil, err
	}
	out := make([]Embedding, len(list))
	for i, v := range list {
		out[i] = Embedding{Dense: v.Dense, Sparse: Sparse(v.Sparse), Tokens: v.Tokens.List()}
	}
	return out, err
}

// Gives is what the model makes of a text.
func (e *Embedder) Gives() Gives { return Gives(e.inner.Gives()) }

// Token is the token that a number of a sparse vector is of; "" where it is of none.
func (e *Embedder) Token(index int32) string { return e.inner.Token(index) }

// Dimensions is the number of a vector's elements; 0 where the model does not say it before it runs.
func (e *Embedder) Dimensions() int { return e.inner.Dimensions() }

// Metrics is what the batches did.
func (e *Embedder) Metrics() Metrics { return Metrics(e.inner.Metrics()) }

// Close refuses what waits with graft.ErrClosed, lets what runs end, and frees the model.
func (e *Embedder) Close() error {
	e.inner.Close()
	return nil
}

// Rank returns the documents with their scores, the best first. Query and document are cut together where the model's
// configuration says, the longer one first. Errors are as those of [Embedder.Embed]; a document without a score is
// left out.
func (r *Reranker) Rank(ctx context.Context, query string, documents ...string) ([]Ranked, error) {
	scores, failed, err := r.score(ctx, query, documents)
	var list []Ranked
	for i, s := range scores {
		if !failed[i] {
			list = append(list, Ranked{i, s})
		}
	}
	slices.SortStableFunc(list, func(a, b Ranked) int { return cmp.Compare(b.Score, a.Score) })
	return list, err
}

// Scores returns the score of each document, in their order; 0 for one that has none, which the error names.
func (r *Reranker) Scores(ctx context.Context, query string, documents ...string) ([]float32, error) {
	scores, _, err := r.score(ctx, query, documents)
	return scores, err
}

func (r *Reranker) score(ctx context.Context, query string, documents []string) (scores []float32, failed []bool,
	err error) {
	switch ranker := r.inner.(type) {
	case *encoder.Reranker:
		scores, err = all(ctx, len(documents), ranker.MaxQueue(),
			func(i int) (encoder.Row, error) { return ranker.Row(ctx, query, documents[i]) }, ranker.Start)
	case *encoder.Comparer:
		var made []encoder.Embedding
		made, err = all(ctx, 1+len(documents), ranker.MaxQueue(), func(i int) (encoder.Row, error) {
			if i == 0 {
				return ranker.Query(ctx, query)
			}
			return ranker.Document(ctx, documents[i-1])
		}, ranker.Start)
		if made == nil {
			return nil, nil, err
		}
		for _, one := range inputErrors(err) {
			if one.Index--; one.Index < 0 {
				return nil, nil, one.Err // the query's
			}
		}
		scores = ranker.Scores(made)
	}
	failed = make([]bool, len(scores))
	for _, one := range inputErrors(err) {
		if one.Index < len(failed) {
			failed[one.Index], scores[one.Index] = true, 0
		}
	}
	return scores, failed, err
}

// Metrics is what the batches did.
func (r *Reranker) Metrics() Metrics { return Metrics(r.inner.Metrics()) }

// Close refuses what waits with graft.ErrClosed, lets what runs end, and frees the model.
func (r *Reranker) Close() error {
	r.inner.Close()
	return nil
}

// all computes the inputs of one call. At most half of the queue is one call's, so that a long list leaves room for
// others.
func all[R any](ctx context.Context, n, queue int, row func(int) (encoder.Row, error),
	start func(context.Context, encoder.Row, bool) (*batch.Call[encoder.Row, R], error)) ([]R, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results, errs := make([]R, n), make([]error, n)
	calls := make([]*batch.Call[encoder.Row, R], n)
	begun := 0
	wait := func(i int) {
		if calls[i] != nil {
			results[i], errs[i] = calls[i].Wait(ctx)
			calls[i] = nil
		}
	}
	var whole error
	for i := 0; i < n && whole == nil; i++ {
		if ahead := i - max(queue/2, 1); ahead >= 0 {
			wait(ahead)
		}
		if whole = context.Cause(ctx); whole != nil { // no more texts are made tokens
			break
		}
		r, err := row(i)
		if err != nil {
			errs[i] = err
			continue
		}
		if calls[i], err = start(ctx, r, begun > 0); err != nil {
			calls[i], whole = nil, err
			cancel() // what waits is taken out
		}
		begun++
	}
	for i := range n {
		wait(i)
		if errs[i] != nil && (ctx.Err() != nil || errors.Is(errs[i], batch.ErrClosed)) && whole == nil {
			whole = errs[i]
		}
	}
	if whole != nil {
		return nil, opening.Public(whole, nil, kinds...)
	}
	for i, err := range errs {
		if err != nil {
			errs[i] = &graft.InputError{Index: i, Err: opening.Public(err, nil, kinds...)}
		}
	}
	return results, errors.Join(errs...)
}

// inputErrors are those that an error joins.
func inputErrors(err error) (list []*graft.InputError) {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return nil
	}
	for _, e := range joined.Unwrap() {
		var one *graft.InputError
		if errors.As(e, &one) {
			list = append(list, one)
		}
	}
	return list
}
