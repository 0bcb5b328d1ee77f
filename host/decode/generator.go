// Package decode generates: it leads samples through an engine's steps, asks the
// search what follows, and moves the cache after it. Samples of different length
// share steps, one that ends leaves at once, and the next takes its place.
package decode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/opgraft/graft/host/decode/engine"
	"github.com/opgraft/graft/host/decode/modeldir"
	"github.com/opgraft/graft/host/decode/prepare"
	"github.com/opgraft/graft/host/decode/search"
	"github.com/opgraft/graft/host/decode/tail"
	"github.com/opgraft/graft/host/fold"
	"github.com/opgraft/graft/host/memory"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/patch"
	"github.com/opgraft/graft/host/plan"
)

// Options are what a generator is opened with.
type Options struct {
	Library *ort.Library
	Plugins *patch.Set
	Plan    plan.Options
	Threads int // 0: one a core
	// CacheBytes is the most that keys and values may take; 0 is half of the
	// machine's memory.
	CacheBytes int64
	// MaxPositions bounds the sequences of the decoder below what the model
	// allows; 0 is 4,096.
	MaxPositions int64
	// Batch is the most samples that are under way at once; 0 is 8, and prepare.AutoBatch as
	// many as memory holds.
	Batch int
	// StepTokens is the most tokens of prompts that one step takes, the last prompt
	// whole; 0 is 2,048.
	StepTokens int
	// Profile is that of engine.Options.
	Profile string
	// Attention says what layers keep; the zero value leaves it to the planner.
	Attention prepare.Attention
	// Explain predicts times for Choices where nothing is left to choose, too.
	Explain bool
	// Folds keeps folded weights; nil: the user's own cache.
	Folds *fold.Cache
	// PlainTail takes candidates off the scores in plain Go although the plugin
	// step-tail is at hand.
	PlainTail bool
}

// Generator is an open model with its configuration. It is not for concurrent
// use.
type Generator struct {
	engine  *engine.Engine
	options Options
	config  *modeldir.Config
	search  search.Options // as the model's configuration says
	tail    search.Tail
	bounded bool // the caller bounded the cache
	batch   int  // see Batch
	choices []plan.CacheChoice
	notes   []error
	advance func(context.Context, []engine.Feed) (*engine.Scores, error) // the engine's step

	closeTail func()
}

// Input is one sample's: tokens of the encoder's input or, without an encoder, of
// the prompt; or features for an encoder that takes them. Prompt continues the
// decoder's start where there is an encoder.
type Input struct {
	Index    uint64 // the place in the whole input, from which its random numbers are made
	Tokens   []int32
	Features *engine.Features
	Prompt   []int32
}

// Output is what became of an input.
type Output struct {
	Index      uint64
	Hypotheses []search.Hypothesis
	Prompt     int   // tokens that the decoder began with
	Steps      int   // steps the sample took
	Reorders   int   // steps after which its rows were not those before
	CacheBytes int64 // the most that its own keys and values took
	CrossBytes int64
	FirstToken time.Time // when its first token was chosen
}

// Prepare leads a model folder to what an engine is opened with, and opens none.
func Prepare(path string, o Options) (*prepare.Generation, error) {
	bounded := o.CacheBytes > 0
	o = o.withDefaults()
	m, err := prepare.Open(path)
	if err != nil {
		return nil, err
	}
	return m.Make(prepare.Options{Library: o.Library, Plugins: o.Plugins, Plan: o.Plan, Threads: o.Threads, Attention: o.Attention, Explain: o.Explain,
		CacheBytes: o.CacheBytes, Bounded: bounded, MaxPositions: o.MaxPositions, Batch: o.Batch, Folds: o.Folds})
}

// Open opens a model folder.
func Open(path string, o Options) (_ *Generator, err error) {
	prepared, err := Prepare(path, o)
	if err != nil {
		return nil, err
	}
	g := &Generator{options: o.withDefaults(), config: prepared.Model.Config, bounded: o.CacheBytes > 0, choices: prepared.Choices, notes: prepared.Notes,
		tail: &search.Plain{}, closeTail: func() {}}
	defer func() {
		if err != nil {
			prepared.Close()
			g.closeTail()
		}
	}()
	g.batch = max(1, g.options.Batch)
	if g.search, err = SearchOf(path, g.config, nil); err != nil {
		return nil, err
	}
	if !o.PlainTail {
		if g.tail, g.closeTail, err = TailOf(o.Plugins, o.Threads); err != nil {
			return nil, err
		}
	}
	g.engine, err = engine.Open(prepared, engine.Options{Library: o.Library, Plugins: o.Plugins, Threads: o.Threads, Profile: o.Profile,
		CacheBytes: g.options.CacheBytes, PanelBytes: memory.Available() / 2})
	if err != nil {
		return nil, err
	}
	g.advance = g.engine.Step
	return g, nil
}

// Choices are what each kind of attention keeps, with what else it could.
func (g *Generator) Choices() []plan.CacheChoice { return g.choices }

// Notes are what the planner went without, and why: figures of this machine.
func (g *Generator) Notes() []error { return g.notes }

// TailOf takes the tail of a step from its plugin where that is at hand, else from
// plain Go. What it returns second frees it.
func TailOf(set *patch.Set, threads int) (search.Tail, func(), error) {
	p, missing := patch.Named(set.Plugins, tail.Name)
	if missing != nil {
		return &search.Plain{}, func() {}, nil
	}
	t, err := tail.New(p, threads)
	if err != nil {
		return nil, func() {}, err
	}
	return t, t.Close, nil
}

func (o Options) withDefaults() Options {
	if o.CacheBytes == 0 {
		o.CacheBytes = memory.Half()
	}
	if o.MaxPositions == 0 {
		o.MaxPositions = modeldir.DefaultPositions
	}
	if o.Batch == 0 {
		o.Batch = 8
	}
	if o.StepTokens == 0 {
		o.StepTokens = 2048
	}
	return o
}

// Close frees the engine.
func (g *Generator) Close() {
	g.engine.Close()
	g.closeTail()
}

// Search are the options of the model's own configuration, a copy.
func (g *Generator) Search() search.Options { return g.search }

// Engine is what the generator runs on.
func (g *Generator) Engine() *engine.Engine { return g.engine }

// Run generates for every input that next gives, until it gives none, and hands
// each output over when its sample ends, in the order of endings. An error of one
// input ends the run: what was handed over before is whole.
func (g *Generator) Run(ctx context.Context, o search.Options, next func() (*Input, error), done func(Output) error) error {
	rows := max(o.NumBeams, o.NumReturnSequences)
	r := &run{Generator: g, o: o, next: next, done: done, batch: g.limit(rows), budget: g.budget()}
	defer func() {
		r.release()
		if g.batch = r.batch; g.options.Batch == AutoBatch {
			g.batch = r.most
		}
	}()
	for {
		if err := r.admit(ctx); err != nil || len(r.active) == 0 {
			return err
		}
		if err := r.step(ctx); err != nil {
			if err = r.retreat(err); err != nil {
				return err
			}
		}
	}
}

// run is the samples under way.
type run struct {
	*Generator
	o       search.Options
	next    func() (*Input, error)
	done    func(Output) error
	active  []*sample
	again   []*Input // to be begun before those that next gives
	batch   int      // the most samples under way
	most    int      // that were under way at once
	budget  int64    // bytes of keys and values; 0 is what the pools hold
	pledged int64    // bytes that the active samples' own positions may come to take
	ended   bool     // next has no more
	stepper search.Stepper
}

// sample is one input under way.
type sample struct {
	input   *Input
	prompt  []int32
	search  *search.State
	own     *engine.Sample
	cross   *engine.Encoded
	pledged int64
	output  Output
	parents []int
}

func (r *run) release() {
	for _, s := range r.active {
		s.release()
	}
}

func (s *sample) release() {
	s.own.Release()
	if s.cross != nil {
		s.cross.Release()
	}
}

// start begins a sample: its place in the cache, the encoder's run, its search.
func (r *run) start(ctx context.Context, in *Input) (_ *sample, err error) {
	s := &sample{input: in, output: Output{Index: in.Index}}
	o := r.o
	input := search.Input{Vocab: r.config.Vocab, Index: in.Index}
	if r.engine.HasEncoder() {
		prompt, err := o.DecoderPrompt()
		if err != nil {
			return nil, err
		}
		input.Prompt, input.Encoder = append(prompt, in.Prompt...), in.Tokens
	} else {
		input.Prompt = in.Tokens
	}
	s.prompt, s.output.Prompt = input.Prompt, len(input.Prompt)
	limit := o.LengthLimit(len(s.prompt))
	if err := modeldir.CheckLimit(limit, r.engine.Positions()); err != nil {
		return nil, err
	}
	rows := max(o.NumBeams, o.NumReturnSequences)
	s.pledged = r.engine.Need(len(s.prompt), rows, limit-len(s.prompt))
	if err := r.left(s.pledged + r.encodedBytes(in)); err != nil {
		return nil, err
	}
	if err := r.config.CheckTokens(in.Tokens); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && s.cross != nil {
			s.cross.Release()
		}
	}()
	if r.engine.HasEncoder() {
		f := engine.Features{}
		if in.Features != nil {
			f = *in.Features
		}
		for _, t := range in.Tokens {
			f.Tokens = append(f.Tokens, int64(t))
		}
		if s.cross, err = r.engine.Encode(ctx, f, rows); err != nil {
			return nil, err
		}
		if err = r.left(s.pledged); err != nil {
			return nil, err
		}
		s.output.CrossBytes = s.cross.Bytes()
		if open := slices.Index(s.prompt, search.NoToken); open >= 0 {
			if s.prompt[open], err = r.detect(ctx, s.cross, s.prompt[:open]); err != nil {
				return nil, err
			}
		}
	}
	if err = r.config.CheckTokens(s.prompt); err != nil {
		return nil, err
	}
	if s.search, err = search.New(o, input); err != nil {
		return nil, err
	}
	s.own = r.engine.NewSample()
	r.pledged += s.pledged
	return s, nil
}

// detect is the language that the model hears: the best of its languages behind a
// prompt's first tokens.
func (r *run) detect(ctx context.Context, cross *engine.Encoded, prompt []int32) (int32, error) {
	own := r.engine.NewSample()
	defer own.Release()
	feed := engine.Feed{Sample: own, Cross: cross, Prompt: true}
	for _, t := range prompt {
		feed.Tokens = append(feed.Tokens, int64(t))
	}
	scores, err := r.engine.Step(ctx, []engine.Feed{feed})
	if err != nil {
		return 0, err
	}
	return r.o.Heard(scores.Data)
}

// step takes every sample one token further, or through its prompt.
func (r *run) step(ctx context.Context) error {
	feeds := make([]engine.Feed, len(r.active))
	searches := make([]*search.State, len(r.active))
	for i, s := range r.active {
		f := engine.Feed{Sample: s.own, Cross: s.cross}
		if s.output.Steps == 0 {
			f.Prompt = true
			for _, t := range s.prompt {
				f.Tokens = append(f.Tokens, int64(t))
			}
		} else {
			for _, m := range s.search.Moves() {
				f.Tokens = append(f.Tokens, int64(m.Token))
			}
		}
		feeds[i], searches[i] = f, s.search
	}
	scores, err := r.advance(ctx, feeds)
	if err != nil {
		return err
	}
	if scores.Vocab != r.config.Vocab {
		return fmt.Errorf("the model gives %d scores a token, its config.json says %d (vocab_size): they are not of one model; export it again", scores.Vocab, r.config.Vocab)
	}
	if err := r.stepper.Step(r.tail, scores.Data, scores.Vocab, searches); err != nil {
		return r.named(err)
	}
	return r.follow()
}

// named says which input a refused row belongs to.
func (r *run) named(err error) error {
	var at *search.StepError
	if errors.As(err, &at) {
		return fmt.Errorf("input %d, step %d: %w", r.active[at.Sample].input.Index, at.Step, at.Err)
	}
	return err
}

// follow moves the cache after the search, and lets go of samples that ended.
func (r *run) follow() error {
	kept := r.active[:0]
	var failed error
	for _, s := range r.active {
		if s.output.Steps++; s.output.Steps == 1 {
			s.output.FirstToken = time.Now()
		}
		s.output.CacheBytes = max(s.output.CacheBytes, s.own.Bytes())
		if !s.search.Done() {
			moves := s.search.Moves()
			s.parents = s.parents[:0]
			same := len(moves) == s.own.Rows()
			for i, m := range moves {
				s.parents = append(s.parents, m.Parent)
				same = same && m.Parent == i
			}
			if !same {
				if s.output.Steps > 1 {
					s.output.Reorders++
				}
				if err := s.own.Reorder(s.parents); err != nil {
					failed = errors.Join(failed, err)
				}
			}
			kept = append(kept, s)
			continue
		}
		s.output.Hypotheses = s.search.Results()
		r.pledged -= s.pledged
		s.release()
		if failed == nil {
			failed = r.done(s.output)
		}
	}
	clear(r.active[len(kept):])
	r.active = kept
	return failed
}

// Positions is the most tokens that an input may have: of the encoder's input, or
// of a prompt that leaves room for what is asked to follow it.
func (g *Generator) Positions(o search.Options) int {
	return g.config.InputLimit(o, g.engine.HasEncoder(), g.engine.Positions())
}

// Plugins are those whose operators the engine runs.
func (g *Generator) Plugins() []string { return g.engine.Plugins() }

// Peak is the most that the decoder's and the encoder's keys and values took, in
// bytes.
func (g *Generator) Peak() (self, cross int64) {
	_, self, _, cross = g.engine.Memory()
	return self, cross
}

// Check reports an input that the model cannot take.
func (g *Generator) Check(tokens []int32) error { return g.config.CheckTokens(tokens) }

// Config is the model's configuration.
func (g *Generator) Config() *modeldir.Config { return g.config }
