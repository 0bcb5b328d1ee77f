// Package exported generates as a program would without graft: the model as exported,
// its past and present as tensors. It is what the engine is compared with, and written
// as well as that way allows: a prompt runs once a request and is then repeated for the
// beams, an encoder's keys and values are repeated once and never moved again, the
// decoder's own are moved at most once a step, into memory that is used again, and
// everything is bound (OrtIoBinding), so that nothing is allocated while it runs.
package exported

import (
	"context"
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/ort/session"
)

// Generator is an open model with its configuration, as decode.Generator is one. A
// batch is inputs of one length. It is not for concurrent use.
type Generator struct {
	model         *sessions
	config        *modeldir.Config
	search        search.Options
	encoder       bool
	batch         int
	selector      search.Selector
	closeSelector func()

	self, cross int64
}

// Open opens a model folder as it is. Of the options the cache's own do not count:
// memory is taken as a batch needs it. A decoder that was exported without a past is
// refused (ErrNoPast).
func Open(ctx context.Context, folder string, o decode.Options) (*Generator, error) {
	return OpenAt(ctx, folder, o, session.OptimizeDefault)
}

// OpenAt is Open with a level of ONNX Runtime's own optimiser, which rounds otherwise in places: of models that round
// rows as they run, how many answers differ between two levels says how many a rounding decides.
func OpenAt(ctx context.Context, folder string, o decode.Options,
	level session.OptimizationLevel) (*Generator, error) {
	files, err := modeldir.Find(folder)
	if err != nil {
		return nil, err
	}
	config, err := modeldir.ReadConfig(folder)
	if err != nil {
		return nil, err
	}
	g := &Generator{config: config, encoder: files.Encoder != "", batch: max(1, o.Batch), selector: &search.Reference{},
		closeSelector: func() {}}
	if g.search, err = decode.SearchOf(folder, config, nil); err != nil {
		return nil, err
	}
	if g.model, err = openSessions(ctx, o.Library, files, config.Vocab, o.Threads, level); err != nil {
		return nil, err
	}
	g.model.headSize, g.model.window = config.HeadSize(), config.Window()
	if !o.ReferenceSelector {
		if g.selector, g.closeSelector, err = decode.SelectorOf(o.Plugins, o.Threads); err != nil {
			g.model.close()
			return nil, err
		}
	}
	return g, nil
}

// Close frees the sessions.
func (g *Generator) Close() {
	g.model.close()
	g.closeSelector()
}

// Search are the options of the model's own configuration, a copy.
func (g *Generator) Search() search.Options { return g.search }

// Config is the model's configuration.
func (g *Generator) Config() *modeldir.Config { return g.config }

// Check reports an input that the model cannot take.
func (g *Generator) Check(tokens []int32) error { return g.config.CheckTokens(tokens) }

// Plugins are those whose operators run: none.
func (g *Generator) Plugins() []string { return []string{} }

// Batch is the maximum of inputs in a batch.
func (g *Generator) Batch() int { return g.batch }

func (g *Generator) positions() int64 { return min(g.config.Positions, modeldir.DefaultPositions) }

// Positions is the maximum of tokens in an input.
func (g *Generator) Positions(o search.Options) int {
	return g.config.InputLimit(o, g.encoder, g.positions())
}

// Peak is the maximum that the decoder's and the encoder's keys and values took in
// one batch, all copies counted, in bytes.
func (g *Generator) Peak() (self, cross int64) { return g.self, g.cross }

// Run generates for every input that next gives, until it gives none. Inputs that
// follow one another and are equally long make a batch.
func (g *Generator) Run(ctx context.Context, o search.Options, next func() (*decode.Input, error),
	done func(decode.Output) error) error {
	var waiting *decode.Input
	for {
		if waiting == nil {
			var err error
			if waiting, err = next(); waiting == nil || err != nil {
				return err
			}
		}
		batch := []*decode.Input{waiting}
		for waiting = nil; len(batch) < g.batch; {
			in, err := next()
			if err != nil {
				return err
			}
			if in == nil || !alike(in, batch[0]) {
				waiting = in
				break
			}
			batch = append(batch, in)
		}
		if err := g.generate(ctx, o, batch, done); err != nil {
			return err
		}
	}
}

// alike says whether two inputs may be of one batch.
func alike(a, b *decode.Input) bool {
	if (a.Features == nil) != (b.Features == nil) ||
		a.Features != nil && !slices.Equal(a.Features.Shape, b.Features.Shape) {
		return false
	}
	return len(a.Tokens) == len(b.Tokens) && len(a.Prompt) == len(b.Prompt)
}

// generate runs one batch.
func (g *Generator) generate(ctx context.Context, o search.Options, batch []*decode.Input,
	done func(decode.Output) error) error {
	requests := make([]request, len(batch))
	for i, in := range batch {
		p := request{index: in.Index, prompt: in.Tokens, features: in.Features, stopped: in.Stopped}
		if g.encoder {
			start, err := o.DecoderPrompt()
			if err != nil {
				return err
			}
			p.encoder, p.prompt = in.Tokens, append(start, in.Prompt...)
		}
		// the language comes later
		known := slices.DeleteFunc(slices.Clone(p.prompt), func(t int32) bool { return t == search.NoToken })
		if err := g.config.CheckTokens(in.Tokens, known); err != nil {
			return fmt.Errorf("input %d: %w", in.Index, err)
		}
		if err := modeldir.CheckLimit(o.LengthLimit(len(p.prompt)), g.positions()); err != nil {
			return fmt.Errorf("input %d: %w", in.Index, err)
		}
		requests[i] = p
	}
	results, err := g.model.generate(ctx, g.selector, o, requests, g.config.Vocab)
	if err != nil {
		return fmt.Errorf("inputs %d to %d: %w", batch[0].Index, batch[len(batch)-1].Index, err)
	}
	g.self, g.cross = max(g.self, g.model.self), max(g.cross, g.model.cross)
	for i, r := range results {
		out := decode.Output{
			Index: batch[i].Index, Hypotheses: r.hypotheses, Steps: r.steps, Reorders: r.reorders,
			FirstToken: g.model.firstToken,
			CacheBytes: g.model.self / int64(len(batch)), CrossBytes: g.model.cross / int64(len(batch)),
		}
		if err := done(out); err != nil {
			return err
		}
	}
	return nil
}
