// Package decode generates: it leads requests through an engine's steps, lets the
// search choose what follows, and moves the cache after it. Requests of different length, of one call or
// several, share steps; one that ends leaves at once, and the next takes its place.
package decode

import (
	"context"
	"time"

	"github.com/opgraft/graft/host/base/memory"
	"github.com/opgraft/graft/host/base/memory/shared"
	"github.com/opgraft/graft/host/generate/cache"
	"github.com/opgraft/graft/host/generate/draft"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/generate/topk"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/capability"
	"github.com/opgraft/graft/host/session/fold"
	"github.com/opgraft/graft/host/session/loaded"
)

// Options are what a generator is opened with.
type Options struct {
	Library *ort.Library
	Plugins *loaded.Set
	Plan    plan.Options
	Threads int // 0: one a core
	// CacheBytes is the maximum that keys and values may take; 0 is half of the
	// machine's memory.
	CacheBytes int64
	// MaxPositions bounds the sequences of the decoder below what the model
	// allows; 0 is 4,096.
	MaxPositions int64
	// Batch is the maximum number of requests in flight at once, of all calls together; 0 is 8, and prepare.AutoBatch as
	// many as memory holds.
	Batch int
	// StepTokens is the maximum number of prompt tokens that one step takes, the last prompt
	// whole; 0 is 2,048.
	StepTokens int
	// Profile is that of engine.Options.
	Profile string
	// Attention says what layers store; the zero value leaves it to the planner.
	Attention prepare.Attention
	// Explain predicts times for Choices where nothing is left to choose, too.
	Explain bool
	// Folds stores folded weights; nil: the user's own cache.
	Folds *fold.Cache
	// Weights says what the weights of linear layers are stored as, Quantized where those are that are quantised; nil:
	// in the user's own cache.
	Weights   prepare.Weights
	Quantized *fold.Cache
	// MapWeights is that of engine.Options.
	MapWeights bool
	// Share is that of engine.Options.
	Share shared.Wish
	// Draft is a smaller model that drafts for searches with search.DraftModel; the zero value is none.
	Draft DraftModel
	// ReferenceSelector selects candidates in Go although a plugin that provides select-tokens/1 is loaded.
	ReferenceSelector bool
}

// Generator is an open model with its configuration. It is safe for concurrent
// use; its Engine is not, and is the generator's own while a Run is in flight.
type Generator struct {
	engine   *engine.Engine
	options  Options
	config   *modeldir.Config
	search   search.Options // as the model's configuration says
	selector search.Selector
	bounded  bool // the caller bounded the cache
	choices  []plan.CacheChoice
	notes    []error
	advance  func(context.Context, []engine.Feed) (*engine.Scores, error) // the engine's step
	drafts   func(*search.Input) drafter                                  // other drafts than those looked up, for tests
	helper   *helper                                                      // nil: no draft model
	price    *draft.Price                                                 // of the engine's steps; the loop's
	now      func() time.Time

	closeSelector func()
	calls
}

// Input is what a request starts from: tokens of the encoder's input or, without an encoder, of
// the prompt; or features for an encoder that takes them. Prompt continues the
// decoder's start where there is an encoder.
type Input struct {
	Index    uint64 // the place in the whole input, from which its random numbers are made
	Tokens   []int32
	Features *engine.Features
	Prompt   []int32
	// Stopped is that of search.Input.
	Stopped func(tokens []int32) bool
	// Chosen is told of every token of a search of one sequence, greedy or sampled, as soon as it is chosen; nil for
	// none. It must not wait.
	Chosen func(token int32)

	told int // tokens that Chosen was told of, also before the request was started again
}

// Output is what became of an input.
type Output struct {
	Index      uint64
	Hypotheses []search.Hypothesis
	Prompt     int // tokens of the decoder's prompt
	Steps      int // steps of the request
	Reorders   int // steps after which its rows were not those before
	Drafted    int // positions that were drafted, and of them those that were chosen
	Accepted   int
	CacheBytes int64 // the maximum that its own keys and values took
	CrossBytes int64
	FirstToken time.Time // when its first token was chosen
}

// Prepare leads a model folder to what an engine is opened with, and opens none.
func Prepare(ctx context.Context, path string, o Options) (*prepare.Generation, error) {
	bounded := o.CacheBytes > 0
	o = o.withDefaults()
	m, err := prepare.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	return m.Make(ctx,
		prepare.Options{Library: o.Library, Plugins: o.Plugins, Plan: o.Plan, Threads: o.Threads, Attention: o.Attention,
			Explain:    o.Explain,
			CacheBytes: o.CacheBytes, Bounded: bounded, MaxPositions: o.MaxPositions, Batch: o.Batch, Folds: o.Folds})
}

// Open opens a model folder. One that changes meanwhile is an error of kind model.ErrInUse: generate.Open opens it
// once more. The context ends the opening, loads within ONNX Runtime too.
func Open(ctx context.Context, path string, o Options) (_ *Generator, err error) {
	watch := modeldir.NewWatch(path)
	var small *modeldir.Config
	if o.Draft.Folder != "" { // before anything large is read
		config, err := modeldir.ReadConfig(path)
		if err != nil {
			return nil, err
		}
		if small, err = checkDraftModel(path, config, o.Draft); err != nil {
			return nil, err
		}
	}
	prepared, err := Prepare(ctx, path, o)
	if err != nil {
		return nil, err
	}
	g := &Generator{options: o.withDefaults(), config: prepared.Model.Config, bounded: o.CacheBytes > 0,
		choices: prepared.Choices, notes: prepared.Notes,
		selector: &search.Reference{}, closeSelector: func() {}, price: draft.NewPrice(1), now: time.Now}
	defer func() {
		if err != nil {
			prepared.Close()
			g.closeSelector()
		}
	}()
	g.usage.batch = max(1, g.options.Batch)
	g.wake = make(chan struct{}, 1)
	if g.search, err = SearchOf(path, g.config, nil); err != nil {
		return nil, err
	}
	if !o.ReferenceSelector {
		if g.selector, g.closeSelector, err = SelectorOf(o.Plugins, o.Threads); err != nil {
			return nil, err
		}
	}
	files := prepared.Model.Files
	budget := cache.NewBudget(g.options.CacheBytes)
	g.engine, err = engine.Open(ctx, prepared,
		engine.Options{Library: o.Library, Plugins: o.Plugins, Threads: o.Threads, Profile: o.Profile,
			CacheBytes: g.options.CacheBytes, Budget: budget, PanelBytes: memory.Available() / 2, Weights: o.Weights,
			Quantized: o.Quantized, MapWeights: o.MapWeights, Share: o.Share})
	if err != nil {
		return nil, err
	}
	if err := g.checkStates(ctx, files); err != nil {
		g.engine.Close()
		return nil, err
	}
	if small != nil {
		if g.helper, err = openHelper(ctx, o.Draft, small, g.options, g.bounded, budget, g.engine); err != nil {
			g.engine.Close()
			return nil, err
		}
	}
	if err := watch.Unchanged(); err != nil {
		g.helper.close()
		g.engine.Close()
		return nil, err
	}
	g.advance = g.engine.Step
	g.ctx, g.stop = context.WithCancel(context.Background())
	return g, nil
}

// Choices are the strategies of each kind of attention, with the others considered.
func (g *Generator) Choices() []plan.CacheChoice { return g.choices }

// Notes are what the planner went without, and why: figures of this machine.
func (g *Generator) Notes() []error { return g.notes }

// Cache is what caches store.
func (g *Generator) Cache() plan.Storage { return g.options.Attention.Storage.Whole() }

// Weights says what the model's weights are stored as.
func (g *Generator) Weights() *engine.WeightReport { return g.engine.Weights() }

// SelectorOf takes top-k selection from its plugin where that is loaded, else from
// plain Go. What it returns second frees it.
func SelectorOf(set *loaded.Set, threads int) (search.Selector, func(), error) {
	p, operator, missing := plugin.Provider(set.Plugins, capability.SelectTokens, nil)
	if missing != nil {
		return &search.Reference{}, func() {}, nil
	}
	t, err := topk.New(p, operator, threads)
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

// Search are the options of the model's own configuration, a copy.
func (g *Generator) Search() search.Options { return g.search }

// Engine is what the generator runs on.
func (g *Generator) Engine() *engine.Engine { return g.engine }

// Positions is the maximum number of tokens that an input may have: of the encoder's input, or
// of a prompt that leaves room for the tokens that are to follow it.
func (g *Generator) Positions(o search.Options) int {
	return g.config.InputLimit(o, g.engine.HasEncoder(), g.engine.Positions())
}

// Plugins are those whose operators the engine runs.
func (g *Generator) Plugins() []string { return g.engine.Plugins() }

// Batch is the maximum number of requests that are let in flight at once, or, with AutoBatch and
// after a run, the number that were.
func (g *Generator) Batch() int { return g.used().batch }

// Peak is the maximum that the decoder's and the encoder's keys and values took until the end of the last
// run, in bytes.
func (g *Generator) Peak() (self, cross int64) {
	u := g.used()
	return u.self, u.cross
}

// Skipped is what attention left out until the end of the last run; nil where no layer may.
func (g *Generator) Skipped() *engine.Skipped { return g.used().skipped }

// Check reports an input that the model cannot take.
func (g *Generator) Check(tokens []int32) error { return g.config.CheckTokens(tokens) }

// Config is the model's configuration.
func (g *Generator) Config() *modeldir.Config { return g.config }
