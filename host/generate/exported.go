package generate

import (
	"context"
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/decode"
	"github.com/opgraft/graft/host/decode/modeldir"
	"github.com/opgraft/graft/host/decode/plain"
	"github.com/opgraft/graft/host/decode/search"
)

// Exported generates with the model as exported, its past and present as tensors
// (package plain): what a program without graft would do, and what the engine is
// compared with. A batch is inputs of one length.
type Exported struct {
	model     *plain.Model
	config    *modeldir.Config
	search    search.Options
	encoder   bool
	batch     int
	tail      search.Tail
	closeTail func()

	self, cross int64
}

// OpenExported opens a model folder as it is. Of the options the cache's own do
// not count: memory is taken as a batch needs it. A decoder that was exported
// without a past is refused (plain.ErrNoPast).
func OpenExported(folder string, o decode.Options) (*Generator, error) {
	g, err := around(folder)
	if err != nil {
		return nil, err
	}
	e, err := openExported(folder, o)
	if err != nil {
		return nil, err
	}
	g.Device = e
	return g, nil
}

func openExported(folder string, o decode.Options) (*Exported, error) {
	files, err := modeldir.Find(folder)
	if err != nil {
		return nil, err
	}
	config, err := modeldir.ReadConfig(folder)
	if err != nil {
		return nil, err
	}
	e := &Exported{config: config, encoder: files.Encoder != "", batch: max(1, o.Batch), tail: &search.Plain{}, closeTail: func() {}}
	if e.search, err = decode.SearchOf(folder, config, nil); err != nil {
		return nil, err
	}
	if e.model, err = plain.Open(o.Library, files, o.Threads); err != nil {
		return nil, err
	}
	if !o.PlainTail {
		if e.tail, e.closeTail, err = decode.TailOf(o.Plugins, o.Threads); err != nil {
			e.model.Close()
			return nil, err
		}
	}
	return e, nil
}

// InBatches is the same open model with batches of so many inputs. One of the two
// may run at a time, and one of them is to be closed.
func (e *Exported) InBatches(n int) *Exported {
	other := *e
	other.batch, other.self, other.cross = max(1, n), 0, 0
	return &other
}

// Close frees the sessions.
func (e *Exported) Close() {
	e.model.Close()
	e.closeTail()
}

// Search are the options of the model's own configuration, a copy.
func (e *Exported) Search() search.Options { return e.search }

// Config is the model's configuration.
func (e *Exported) Config() *modeldir.Config { return e.config }

// Check reports an input that the model cannot take.
func (e *Exported) Check(tokens []int32) error { return e.config.CheckTokens(tokens) }

// Plugins are those whose operators run: none.
func (e *Exported) Plugins() []string { return []string{} }

// Batch is the most inputs of a batch.
func (e *Exported) Batch() int { return e.batch }

func (e *Exported) positions() int64 { return min(e.config.Positions, modeldir.DefaultPositions) }

// Positions is the most tokens that an input may have.
func (e *Exported) Positions(o search.Options) int {
	return e.config.InputLimit(o, e.encoder, e.positions())
}

// Peak is the most that the decoder's and the encoder's keys and values took in
// one batch, all copies counted, in bytes.
func (e *Exported) Peak() (self, cross int64) { return e.self, e.cross }

// Run generates for every input that next gives, until it gives none. Inputs that
// follow one another and are equally long make a batch.
func (e *Exported) Run(ctx context.Context, o search.Options, next func() (*decode.Input, error), done func(decode.Output) error) error {
	var waiting *decode.Input
	for {
		if waiting == nil {
			var err error
			if waiting, err = next(); waiting == nil || err != nil {
				return err
			}
		}
		batch := []*decode.Input{waiting}
		for waiting = nil; len(batch) < e.batch; {
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
		if err := e.generate(ctx, o, batch, done); err != nil {
			return err
		}
	}
}

// alike says whether two inputs may be of one batch.
func alike(a, b *decode.Input) bool {
	if (a.Features == nil) != (b.Features == nil) || a.Features != nil && !slices.Equal(a.Features.Shape, b.Features.Shape) {
		return false
	}
	return len(a.Tokens) == len(b.Tokens) && len(a.Prompt) == len(b.Prompt)
}

// generate runs one batch.
func (e *Exported) generate(ctx context.Context, o search.Options, batch []*decode.Input, done func(decode.Output) error) error {
	inputs := make([]plain.Input, len(batch))
	for i, in := range batch {
		p := plain.Input{Index: in.Index, Prompt: in.Tokens, Features: in.Features}
		if e.encoder {
			start, err := o.DecoderPrompt()
			if err != nil {
				return err
			}
			p.Encoder, p.Prompt = in.Tokens, append(start, in.Prompt...)
		}
		known := slices.DeleteFunc(slices.Clone(p.Prompt), func(t int32) bool { return t == search.NoToken }) // the language comes later
		if err := e.config.CheckTokens(in.Tokens, known); err != nil {
			return fmt.Errorf("input %d: %w", in.Index, err)
		}
		if err := modeldir.CheckLimit(o.LengthLimit(len(p.Prompt)), e.positions()); err != nil {
			return fmt.Errorf("input %d: %w", in.Index, err)
		}
		inputs[i] = p
	}
	results, err := e.model.Generate(ctx, e.tail, o, inputs, e.config.Vocab)
	if err != nil {
		return fmt.Errorf("inputs %d to %d: %w", batch[0].Index, batch[len(batch)-1].Index, err)
	}
	e.self, e.cross = max(e.self, e.model.Self), max(e.cross, e.model.Cross)
	for i, r := range results {
		out := decode.Output{
			Index: batch[i].Index, Hypotheses: r.Hypotheses, Steps: r.Steps, Reorders: r.Reorders, FirstToken: e.model.FirstToken,
			CacheBytes: e.model.Self / int64(len(batch)), CrossBytes: e.model.Cross / int64(len(batch)),
		}
		if err := done(out); err != nil {
			return err
		}
	}
	return nil
}
