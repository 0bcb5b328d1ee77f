// Package engine runs a prepared decoder: keys and values live in pools of the host's
// (package cache), and one Step feeds any number of sequences, prompts and continuations
// together.
package engine

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/base/memory/shared"
	"github.com/opgraft/graft/host/generate/cache"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/rewrite/engine"
	"github.com/opgraft/graft/host/session/fold"
	"github.com/opgraft/graft/host/session/loaded"
)

// Options are what an engine is opened with.
type Options struct {
	Library *ort.Library
	Plugins *loaded.Set
	Threads int // 0: one a core
	// Profile is the prefix of a file that the decoder's times of nodes are written to
	// when the engine is closed, as ONNX Runtime writes them; empty: none.
	Profile string
	// Config holds ONNX Runtime's session config entries.
	Config map[string]string
	// CacheBytes is the maximum that all pools may take together.
	CacheBytes int64
	// Budget is what the pools take their bytes from, together with those of other engines that have it; nil: one of
	// CacheBytes.
	Budget *cache.Budget
	// PanelBytes is the maximum that weights may take when they are laid out anew: the
	// decoder's, then those that make an encoder's keys and values, then the encoder's.
	// Those of a session for which that is too little are read as stored in the
	// model's file.
	PanelBytes int64
	// Weights says which weights are stored in fewer bits, whatever PanelBytes is.
	Weights prepare.Weights
	// Quantized stores these; nil: the user's own cache.
	Quantized *fold.Cache
	// MapWeights maps weights that are not laid out anew from the model's files, which must not change then.
	MapWeights bool
	// Share says whether weights that are not laid out anew are shared with other processes.
	Share shared.Wish
}

// Engine is an open model: sessions and the pools of its sequences. It is not for
// concurrent use.
type Engine struct {
	graph   *engine.Interface
	library *ort.Library
	decoder *Session
	weights weights // of operators, beside those of linear layers
	plugins []*plugin.Plugin
	encoder *Session // nil for a decoder alone
	filler  *Session // fills the cross pool from an encoder's output; nil where none is read
	// fillerLengths and encoderMasks are those of prepare.Generation.
	fillerLengths map[string][]int
	encoderMasks  []string
	budget        *cache.Budget
	self          *pool
	prompt        *pool // nil where prompts are stored as what follows them is
	cross         *pool // keys, or keys and values, of an encoder's output; nil where none are stored
	output        *pool // the encoder's output; nil where it is not stored
	choose        func(keys, beams int) bool
	storage       plan.Storage
	storing       plan.Implementation // of an encoder's output
	threads       int
	store         *plugin.Kernel // puts the encoder's output into its pool; nil where it is not stored
	skipped       Skipped
	skips         int64 // queries and heads that skipped counts
	report        *WeightReport
	positions     int64
	states        states
	placeholder   *int64 // fed after each row, for the logits; nil where a row's own are wanted
	step          stepBuffers
}

// pool is a cache with the tensor over its memory.
type pool struct {
	*cache.Pool
	tensor *ort.Value
}

// Open makes an engine of a prepared generation, which it takes over, also where there is
// an error. The context ends the opening, loads within ONNX Runtime too.
func Open(ctx context.Context, g *prepare.Generation, o Options) (_ *Engine, err error) {
	e := &Engine{graph: g.Interface, library: o.Library, plugins: o.Plugins.Plugins, positions: g.Positions,
		threads: o.Threads,
		storage: g.Storage, storing: g.Store, fillerLengths: g.FillerLengths,
		encoderMasks: g.EncoderMasks, choose: g.Choose,
		states: states{list: g.Interface.States}, placeholder: g.Model.Placeholder, weights: weights{folded: g.Folded}}
	g.Folded = nil
	defer g.Close() // sessions have read the files then
	if e.threads == 0 {
		e.threads = runtime.NumCPU()
	}
	defer func() {
		if err != nil {
			e.Close()
		}
	}()
	if err := e.weights.open(o.Library, e.graph.Weights); err != nil {
		return nil, err
	}
	// Weights that were folded went through Go's memory, several times as much as there
	// is left of it.
	debug.FreeOSMemory()
	files := g.Model.Files
	r := &report{}
	for _, s := range []struct {
		graph *prepare.Graph
		path  string
		to    **Session
	}{{g.Decoder, files.Decoder, &e.decoder}, {g.Filler, files.First, &e.filler}, {g.Encoder, files.Encoder, &e.encoder}} {
		if s.graph == nil {
			continue
		}
		if *s.to, err = openSession(ctx, s.graph, o, r); err != nil {
			return nil, modeldir.About(s.path, err)
		}
		o.Profile = "" // of the decoder alone
		o.PanelBytes -= (*s.to).size()
	}
	e.decoder.given = e.weights.tensors
	if e.report, err = r.end(files.Decoder, o.Weights, &e.weights); err != nil {
		return nil, err
	}
	debug.FreeOSMemory()
	return e, e.openPools(o)
}

// openPools reserves the pools that the graph reads.
func (e *Engine) openPools(o Options) error {
	if e.budget = o.Budget; e.budget == nil {
		e.budget = cache.NewBudget(o.CacheBytes)
	}
	for _, p := range []struct {
		floats int64
		to     **pool
	}{{e.graph.Self, &e.self}, {e.graph.Prompt, &e.prompt}, {e.graph.Cross, &e.cross}, {e.graph.Encoder, &e.output}} {
		if p.floats == 0 && p.to == &e.self && e.HasStates() {
			p.floats = abi.CacheBlockSize // without attention nobody reads it: sequences count their positions by it
		}
		if p.floats == 0 {
			continue
		}
		c, err := cache.NewPool(p.floats, e.budget)
		if err != nil {
			return err
		}
		*p.to = &pool{Pool: c}
		if (*p.to).tensor, err = ort.NewTensor(e.library, c.Shape(), c.Floats()); err != nil {
			return err
		}
	}
	return nil
}

func (p *pool) close() {
	if p == nil {
		return
	}
	if p.tensor != nil {
		p.tensor.Close()
	}
	p.Pool.Close()
}

// Close frees the sessions and the pools.
func (e *Engine) Close() {
	for _, s := range []*Session{e.decoder, e.encoder, e.filler} {
		s.Close()
	}
	if e.store != nil {
		e.store.Destroy()
	}
	e.weights.close()
	e.step.close()
	for _, p := range []*pool{e.self, e.prompt, e.cross, e.output} {
		p.close()
	}
}

// Plugins are those whose operators the decoder runs.
func (e *Engine) Plugins() []string { return e.decoder.plugins }

// Positions is the longest sequence of tokens.
func (e *Engine) Positions() int64 { return e.positions - int64(e.beside()) }

// HasEncoder reports an encoder-decoder.
func (e *Engine) HasEncoder() bool { return e.encoder != nil }

// FillsCross reports that keys, or keys and values, of an encoder's output are computed
// before the first token.
func (e *Engine) FillsCross() bool { return e.filler != nil }

// Strategies says which operator runs each layer of attention, in the order of the graph.
func (e *Engine) Strategies() []plan.LayerStrategy { return e.graph.Strategies }

// Memory is what the caches take: now, and at most since the engine was opened,
// in bytes; the decoder's own and the encoder's side.
func (e *Engine) Memory() (self, selfPeak, cross, crossPeak int64) {
	for _, p := range []*pool{e.self, e.prompt} {
		self, selfPeak = self+p.bytes(), selfPeak+p.peak()
	}
	self, selfPeak = self+e.states.bytes, selfPeak+e.states.peak
	for _, p := range []*pool{e.cross, e.output} {
		cross, crossPeak = cross+p.bytes(), crossPeak+p.peak()
	}
	return self, selfPeak, cross, crossPeak
}

func (p *pool) bytes() int64 {
	if p == nil {
		return 0
	}
	return p.Bytes()
}

func (p *pool) peak() int64 {
	if p == nil {
		return 0
	}
	return p.Peak()
}

// StepBytes is what a step reads at least, whatever it is fed: the weights of the
// decoder's linear layers and of its attention, once; 0 where some lie in the model's file.
func (e *Engine) StepBytes() int64 {
	if p := e.decoder.panels; p != nil && p.all {
		return p.size() + e.weights.size()
	}
	return 0
}

// Weights says what the model's weights are stored as.
func (e *Engine) Weights() *WeightReport { return e.report }

// PromptBytes is what a step reads for each position of a prompt.
func (e *Engine) PromptBytes() int64 {
	if e.prompt != nil {
		return e.prompt.BlockBytes() / abi.CacheBlockSize
	}
	return e.self.BlockBytes() / abi.CacheBlockSize
}

// Skipped is the probability of keys whose values were left out of sums.
type Skipped struct {
	Greatest float64 `json:"greatest"` // of one query and head
	Mean     float64 `json:"mean"`     // of all queries, heads and layers
}

// Skipped says how much attention left out since the engine was opened; nil where no
// layer was asked to.
func (e *Engine) Skipped() *Skipped {
	if len(e.graph.Skipped) == 0 {
		return nil
	}
	left := e.skipped
	return &left
}

// Feed is what one sequence brings to a step: a prompt, of which only the last
// token's scores are computed unless All is set; or one token for each of its rows, and drafted ones after these, for
// each row equally many.
type Feed struct {
	Sequence *Sequence
	Cross    *Encoded // the encoder's side, for decoders that have one
	Tokens   []int64
	Prompt   bool
	All      bool // the scores of every token of a prompt
	// Drafted is the number of tokens at the end of Tokens that nobody has chosen yet, position by position, each with a
	// token for each row; not in a prompt.
	Drafted int
	// Last leaves out the scores of all positions but the last where tokens are Drafted.
	Last bool

	unscored bool // no scores are asked for
}

// Scores are the scores of a step: for each feed in order one row for a prompt, or with All one a token of it, or one
// for each of its tokens. They are valid until the next step.
type Scores struct {
	Data  []float32
	Rows  int
	Vocab int
}

// Step feeds tokens and computes scores.
func (e *Engine) Step(ctx context.Context, feeds []Feed) (*Scores, error) {
	if len(feeds) == 0 {
		return nil, errors.New("a step of no sequences")
	}
	if e.HasStates() {
		return e.oneByOne(ctx, feeds)
	}
	return e.together(ctx, feeds)
}

// together feeds all tokens in one run.
func (e *Engine) together(ctx context.Context, feeds []Feed) (*Scores, error) {
	if err := e.step.fill(e, feeds); err != nil {
		return nil, err
	}
	return e.step.run(ctx, e)
}
