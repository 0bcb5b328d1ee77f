// Package textgen generates text with model folders as Hugging Face's optimum exports them: of decoders and
// encoder-decoders with their tokenizers, of models that listen to sound or look at images included.
//
//	g, err := textgen.New(ctx, "bart-large-cnn", textgen.Options{Search: textgen.Search{Beams: 4, MaxNewTokens: 128}})
//	if err != nil { ... }
//	defer g.Close()
//	text, err := g.GenerateText(ctx, "a long text", textgen.Search{})
//
// Options have the names and the meaning of Hugging Face's generation configuration, and so have the tokens. Errors are
// those of package graft.
package textgen

import (
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"sync"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/generate"
	"github.com/opgraft/graft/host/generate/chat"
	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/pipeline"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/internal/opening"
)

// Generator generates text with an exported model.
//
// It is safe for concurrent use. Inputs of all calls that run at once share the steps of the model, each with the
// options of its call, and calls take turns where there is more than fits. What is generated does not depend on what
// else runs.
type Generator struct {
	generator *generate.Generator
	search    search.Options
	drafts    bool // a draft model is open
	template  func() (*chat.Template, error)
}

// Generation is what was generated for one input.
type Generation struct {
	Index      int          // the input's number, from 0
	Hypotheses []Hypothesis // the best first; one, unless Search.ReturnSequences asks for more
}

// Hypothesis is one generated text.
type Hypothesis struct {
	Text   string
	Tokens []int32 // the generated ones, without the prompt
	// Score is the sum of the tokens' log-probabilities, with beams divided by a power of the length
	// (Search.LengthPenalty). In greedy search it is 0 unless output_scores is set.
	Score float64
	// Ended says that an end token, or one of Search.StopStrings, ended it: otherwise the limit of length was reached.
	Ended bool
}

// kinds are the errors of the host's that calls may meet.
var kinds = opening.Kind{Host: decode.ErrClosed, Public: graft.ErrClosed}

// New opens a model folder. A context that ends makes it return at once with the context's error; what was being
// loaded is loaded no further, and freed.
func New(ctx context.Context, folder string, o Options) (*Generator, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	made, err := opening.Abandon(ctx, func() (*generate.Generator, error) { return o.open(ctx, folder) })
	if err != nil {
		return nil, err
	}
	g := &Generator{generator: made, search: made.Search(), drafts: o.Draft.Folder != "",
		template: sync.OnceValues(func() (*chat.Template, error) { return chat.Read(folder) })}
	if g.drafts && o.Search.Drafts == "" {
		o.Search.Drafts = ModelDrafts
	}
	if g.search, err = g.searched(&o.Search); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// open is New after the options are checked.
func (o *Options) open(ctx context.Context, folder string) (*generate.Generator, error) {
	common := o.common()
	library, err := common.Library()
	if err != nil {
		return nil, err
	}
	d := decode.Options{Library: library, Plan: common.Plan(), Threads: o.Threads, CacheBytes: o.MaxCache,
		Batch: o.BatchSize, MapWeights: o.MapWeights, Share: common.Share()}
	if d.Weights, err = o.Weights.prepared(); err != nil {
		return nil, err
	}
	if d.Draft, err = o.Draft.prepared(); err != nil {
		return nil, err
	}
	if d.Plugins, err = common.Load(nil); err != nil {
		return nil, err
	}
	if d.Attention, err = o.Attention.prepared(d.Plugins.Manifests(), o.Cache); err != nil {
		return nil, err
	}
	d.Attention.Beams = o.Search.Beams
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	g, err := generate.Open(ctx, folder, d)
	if err != nil {
		return nil, opening.Public(err, graft.ErrBadModel)
	}
	g.MaxInput = o.MaxInputTokens
	return g, nil
}

// prepared is the draft model as the host has it.
func (d Draft) prepared() (p decode.DraftModel, err error) {
	if d.Folder == "" {
		if d.Weights != (Weights{}) {
			err = opening.Refuse("Draft.Weights is set without a folder")
		}
		return p, err
	}
	p.Folder = d.Folder
	if info, err := os.Stat(d.Folder); err != nil || !info.IsDir() {
		return p, opening.Public(&diagnostic.Error{Path: d.Folder, Found: "found no folder of this name",
			Needed: "the folder of a draft model"}, graft.ErrOption)
	}
	if p.Weights, err = d.Weights.prepared(); err != nil {
		err = fmt.Errorf("Draft: %w", err)
	}
	return p, err
}

// searched are the generator's options with those of a call.
func (g *Generator) searched(s *Search) (search.Options, error) {
	o := g.search
	if err := s.apply(&o); err != nil {
		return o, err
	}
	if o.Draft == search.DraftModel && !g.drafts {
		return o, opening.Refuse("draft is model, and none was opened with the generator (Options.Draft)")
	}
	return o, nil
}

// Close ends what is being generated with graft.ErrClosed and frees the model.
func (g *Generator) Close() error {
	g.generator.Close()
	return nil
}

// Generate generates for every input and yields the results in the order of the inputs, each as soon as all before it
// are there. An input is a text; for a speech model it is the path of a WAV file or of a NumPy file of features, for a
// model of images that of a PNG or JPEG file. Inputs are read ahead, by another goroutine.
//
// For an input from which nothing can be generated the error is a *graft.InputError, and the loop may go on. Any other
// error is the last of the loop: the context's, graft.ErrOption, graft.ErrClosed, or that of the engine. Leaving the
// loop withdraws the inputs that are left.
func (g *Generator) Generate(ctx context.Context, inputs iter.Seq[string], s Search) iter.Seq2[Generation, error] {
	return g.run(ctx, g.generator, inputs, s)
}

// run is Generate with a generator that reads inputs in its way.
func (g *Generator) run(ctx context.Context, with *generate.Generator, inputs iter.Seq[string],
	s Search) iter.Seq2[Generation, error] {
	return func(yield func(Generation, error) bool) {
		o, err := g.searched(&s)
		if err == nil && inputs == nil { // read by a goroutine whose panic no caller could recover
			err = opening.Refuse("the inputs are nil, needed is a sequence")
		}
		if err != nil {
			yield(Generation{}, err)
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		next, stop := iter.Pull(inputs)
		results := make(chan generate.Result)
		failed := make(chan error, 1)
		go func() {
			defer close(results)
			_, err := with.Run(ctx, o, reader(next), func(r generate.Result) error {
				select {
				case results <- r:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}, pipeline.Options{})
			failed <- err
		}()
		defer stop() // after the run, which reads the inputs
		left := false
		for r := range results {
			if !left && !yield(generation(r)) {
				left = true
				cancel()
			}
		}
		if err := <-failed; err != nil && !left {
			yield(Generation{}, opening.Public(err, nil, kinds))
		}
	}
}

// Hypotheses is Generate for one input: Search.ReturnSequences of them, the best first, with their scores.
func (g *Generator) Hypotheses(ctx context.Context, input string, s Search) ([]Hypothesis, error) {
	for out, err := range g.Generate(ctx, slices.Values([]string{input}), s) {
		return out.Hypotheses, err
	}
	return nil, context.Cause(ctx)
}

// GenerateText is the text of the best hypothesis for one input.
func (g *Generator) GenerateText(ctx context.Context, input string, s Search) (string, error) {
	return best(g.Hypotheses(ctx, input, s))
}

// best is the text of the first of hypotheses.
func best(list []Hypothesis, err error) (string, error) {
	if err != nil || len(list) == 0 {
		return "", err
	}
	return list[0].Text, nil
}

// generation is what is yielded of a result.
func generation(r generate.Result) (Generation, error) {
	out := Generation{Index: r.Index}
	if r.Err != nil {
		return out, &graft.InputError{Index: r.Index, Err: r.Err}
	}
	for _, s := range r.Sequences {
		out.Hypotheses = append(out.Hypotheses,
			Hypothesis{Text: s.Text, Tokens: s.Tokens, Score: s.Score, Ended: s.Ended})
	}
	return out, nil
}

// reader reads a sequence as a pipeline does a file.
func reader(next func() (string, bool)) func() (string, error) {
	return func() (string, error) {
		if s, ok := next(); ok {
			return s, nil
		}
		return "", io.EOF
	}
}
