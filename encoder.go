package graft

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/encode/batch"
	"github.com/opgraft/graft/host/encode/encoder"
	"github.com/opgraft/graft/host/ort"
)

// Embedder turns texts into vectors with an exported encoder: a folder as sentence-transformers or optimum saves it,
// with its tokenizer. Pooling, normalisation and prompts are those of the model's own configuration.
//
// It is safe for concurrent use. Texts of all calls that come at once share batches, as those of a [Batcher].
type Embedder struct{ inner *encoder.Embedder }

// Reranker scores how well documents answer a query, with an exported cross-encoder of one label.
//
// It is safe for concurrent use. Documents of all calls that come at once share batches, as inputs of a [Batcher] do.
type Reranker struct{ inner *encoder.Reranker }

// Ranked is a document with its score.
type Ranked struct {
	Index int // the document's number, from 0
	Score float32
}

type encoderOptions struct {
	pluginOptions
	batch   batchOptions
	inner   encoder.Options
	runtime string
	logger  *slog.Logger
	err     error // the first option that is wrong
}

type encoderOption func(*encoderOptions)

func (f encoderOption) embedder(o *encoderOptions) { f(o) }
func (f encoderOption) reranker(o *encoderOptions) { f(o) }

type (
	embedderOption func(*encoderOptions)
	rerankerOption func(*encoderOptions)
)

func (f embedderOption) embedder(o *encoderOptions) { f(o) }
func (f rerankerOption) reranker(o *encoderOptions) { f(o) }

// warnings is a handler's warnings and errors.
type warnings struct{ slog.Handler }

func (h warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && h.Handler.Enabled(ctx, l)
}

// ModelFile names the graph of a folder that has several, such as onnx/model_quantized.onnx. Without it, it is
// onnx/model.onnx, model.onnx, or the only one.
func ModelFile(path string) EncoderOption {
	return encoderOption(func(o *encoderOptions) { o.inner.ModelFile = path })
}

// Pooling says how hidden states become a vector, for a folder that does not say it or in place of what it says: cls,
// max, mean, mean_sqrt_len_tokens, weightedmean or lasttoken, or several with + between, which are joined.
func Pooling(mode string) EmbedderOption {
	return embedderOption(func(o *encoderOptions) {
		var err error
		if o.inner.Pooling, err = encoder.ParsePooling(mode); err != nil && o.err == nil {
			o.err = public(err, ErrOption)
		}
	})
}

// Normalize gives vectors the length 1, also where the model's configuration does not say so.
func Normalize() EmbedderOption {
	return embedderOption(func(o *encoderOptions) { o.inner.Normalize = true })
}

// RawScores has scores be the model's logits, whatever its configuration does with them.
func RawScores() RerankerOption {
	return rerankerOption(func(o *encoderOptions) { o.inner.Raw = true })
}

// ready reads what options need: the runtime and the plugins.
func (o *encoderOptions) ready() (encoder.Options, error) {
	in := o.inner
	if err := cmp.Or(o.err, o.batch.err); err != nil {
		return in, err
	}
	in.Batch = batch.Options[encoder.Row]{MaxTokens: o.batch.tokens, MaxDelay: o.batch.delay, MaxQueue: o.batch.queue,
		Runs: o.batch.runs, Unpadded: o.batch.unpadded}
	library, err := ort.FindAndOpen(o.runtime)
	if err != nil {
		return in, public(err, ErrNoRuntime)
	}
	set, err := o.load()
	if err != nil {
		return in, err
	}
	if in.Logger = o.logger; in.Logger == nil {
		in.Logger = slog.New(warnings{slog.Default().Handler()})
	}
	in.Logger = diagnostic.Logger(in.Logger)
	in.Library, in.Plugins, in.Plan, in.MapWeights, in.Share = library, set, o.plan, o.mapWeights, o.wish()
	return in, nil
}

// opened makes something that takes long, and returns when the context ends.
func opened[T interface{ Close() }](ctx context.Context, open func() (T, error)) (T, error) {
	var none T
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	type result struct {
		made T
		err  error
	}
	done := make(chan result, 1)
	go func() {
		made, err := open()
		done <- result{made, public(err, ErrBadModel)}
	}()
	select {
	case r := <-done:
		return r.made, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.err == nil {
				r.made.Close()
			}
		}()
		return none, context.Cause(ctx)
	}
}

// NewEmbedder opens a folder. Where it says nothing of pooling (no modules.json, no output sentence_embedding) it is
// [ErrBadModel] without [Pooling]. A context that ends makes it return at once.
func NewEmbedder(ctx context.Context, folder string, opts ...EmbedderOption) (*Embedder, error) {
	var o encoderOptions
	for _, x := range opts {
		x.embedder(&o)
	}
	e, err := opened(ctx, func() (*encoder.Embedder, error) {
		in, err := o.ready()
		if err != nil {
			return nil, err
		}
		return encoder.OpenEmbedder(folder, in)
	})
	if err != nil {
		return nil, err
	}
	return &Embedder{e}, nil
}

// NewReranker opens a folder of a model for text classification with one label. Scores are what CrossEncoder of
// sentence-transformers gives: the activation of the model's configuration (sentence_transformers.activation_fn), and
// a sigmoid where it has none; [RawScores] leaves it out.
func NewReranker(ctx context.Context, folder string, opts ...RerankerOption) (*Reranker, error) {
	var o encoderOptions
	for _, x := range opts {
		x.reranker(&o)
	}
	r, err := opened(ctx, func() (*encoder.Reranker, error) {
		in, err := o.ready()
		if err != nil {
			return nil, err
		}
		return encoder.OpenReranker(folder, in)
	})
	if err != nil {
		return nil, err
	}
	return &Reranker{r}, nil
}

// Embed returns a vector for each text, in their order. Texts are cut where the model's configuration says.
//
// A text that has no vector is nil there, and the error joins an [*InputError] for each; the others are not affected.
// Any other error is that of the call, without vectors: the context's, [ErrClosed], or [ErrQueueFull] where the queue
// is full as the call comes. A call of many texts waits for room after the first.
func (e *Embedder) Embed(ctx context.Context, texts ...string) ([][]float32, error) {
	return e.EmbedAs(ctx, "", texts...)
}

// EmbedAs is Embed with a prompt before each text: query or document, for example, as the model's configuration names
// them (config_sentence_transformers.json). With "" it is the configuration's default, which is none in most models.
func (e *Embedder) EmbedAs(ctx context.Context, prompt string, texts ...string) ([][]float32, error) {
	return all(ctx, len(texts), e.inner.MaxQueue(),
		func(i int) (encoder.Row, error) { return e.inner.Row(texts[i], prompt) }, e.inner.Start)
}

// Dimensions is the number of a vector's elements; 0 where the model does not say it before it runs.
func (e *Embedder) Dimensions() int { return e.inner.Dimensions() }

// Metrics is what the batches did.
func (e *Embedder) Metrics() BatchMetrics { return e.inner.Metrics() }

// Close refuses what waits with [ErrClosed], lets what runs end, and frees the model.
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
	scores, err = all(ctx, len(documents), r.inner.MaxQueue(),
		func(i int) (encoder.Row, error) { return r.inner.Row(query, documents[i]) }, r.inner.Start)
	failed = make([]bool, len(scores))
	for _, one := range inputErrors(err) {
		if one.Index < len(failed) {
			failed[one.Index] = true
		}
	}
	return scores, failed, err
}

// Metrics is what the batches did.
func (r *Reranker) Metrics() BatchMetrics { return r.inner.Metrics() }

// Close refuses what waits with [ErrClosed], lets what runs end, and frees the model.
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
		return nil, public(whole, nil)
	}
	for i, err := range errs {
		if err != nil {
			errs[i] = &InputError{Index: i, Err: public(err, nil)}
		}
	}
	return results, errors.Join(errs...)
}

// inputErrors are those that an error joins.
func inputErrors(err error) (list []*InputError) {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return nil
	}
	for _, e := range joined.Unwrap() {
		var one *InputError
		if errors.As(e, &one) {
			list = append(list, one)
		}
	}
	return list
}
