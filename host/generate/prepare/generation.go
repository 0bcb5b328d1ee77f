package prepare

import (
	"context"
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/rewrite/engine"
	"github.com/opgraft/graft/host/session/fold"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/patch"
)

// Options are what a generation is prepared with.
type Options struct {
	Library *ort.Library // evaluates masks and tables of positions
	Plugins *loaded.Set
	Plan    plan.Options // which plugins may be used beside the cache's own
	Threads int          // of an operator; 0: one a core
	// Attention says what layers store; the zero value leaves it to the planner.
	Attention Attention
	// Explain predicts times also where nothing is left to choose.
	Explain bool
	// CacheBytes is the maximum that keys and values may take, Bounded that the caller said
	// so: the planner then fits the largest batch into it.
	CacheBytes int64
	Bounded    bool
	// MaxPositions bounds the sequences of the decoder below what the model allows.
	MaxPositions int64
	// Batch is the maximum number of requests that are in flight at once, AutoBatch as many as memory
	// holds.
	Batch int
	// Folds stores folded weights; nil: the user's own cache.
	Folds *fold.Cache
}

// AutoBatch as Options.Batch lets as many requests be in flight as memory holds, up to
// autoRows rows.
const AutoBatch = -1

// autoRows is the maximum number of rows of a step that are worth having. A step of few rows waits
// for the weights, which are read once for all; at 128 it computes several times
// longer than it reads, and more rows take longer in proportion.
const autoRows = 128

// Limit is the maximum number of requests of `rows` rows that may be in flight.
func Limit(batch, rows int) int {
	if batch != AutoBatch {
		return batch
	}
	return max(1, autoRows/rows)
}

// Generation is all that an engine is opened with. It is a value: nothing runs.
type Generation struct {
	Model   *Model
	Decoder *Graph
	Filler  *Graph // makes what cross attention stores of an encoder's output; nil where nothing is made
	Encoder *Graph // nil for a decoder alone
	// EncoderMasks are the encoder's inputs that say which of its tokens, or samples of sound, are any.
	EncoderMasks []string
	// FillerLengths say how long each axis of the filler's integer inputs is: the axis of the
	// encoder's output (1, positions, width), or -1 for 1.
	FillerLengths map[string][]int
	// Interface is that of the decoder's graph.
	Interface *engine.Interface
	// Choices are what each kind of attention stores, with what else it could, and why not.
	Choices []plan.CacheChoice
	// Notes are what the planner went without, and why: figures of this machine.
	Notes []error
	// Choose is the one choice that is left: true for requests whose layers of cross
	// attention read the encoder's output, false for keys and values, by positions and
	// beams. nil: all store what Choices say.
	Choose func(positions, beams int) bool
	// Folded are the weights that operators read beside the model's.
	Folded  []*fold.Result
	Storage plan.Storage
	// Store is the operator that puts an encoder's output into its pool; the zero value where it
	// is not stored.
	Store plan.Implementation
	// Positions is the longest sequence of the decoder, a placeholder after it included, EncoderPositions that of the
	// encoder.
	Positions, EncoderPositions int64
}

// Close frees the folded weights and closes the model's files.
func (g *Generation) Close() {
	g.drop()
	g.Model.Close()
}

// drop frees the folded weights.
func (g *Generation) drop() {
	for _, r := range g.Folded {
		_ = r.Close() // nothing can be done about a mapping that stays
	}
	g.Folded = nil
}

// Make prepares a generation of an open model, which belongs to the result then, also
// where there is an error. Walks through its graphs are bounded as those of [patch.Analyse] are, with errors of
// kind [graph.ErrBounds]; a context that ends ends them too.
func (m *Model) Make(ctx context.Context, o Options) (_ *Generation, err error) {
	if o.Folds == nil {
		o.Folds = fold.User(nil)
	}
	o.Attention.Implementations = o.Attention.Implementations.Among(o.Plugins.Manifests())
	g := &Generation{Model: m, Storage: o.Attention.Storage, Positions: min(m.Config.Positions, o.MaxPositions),
		EncoderPositions: m.Config.EncoderPositions}
	if m.Placeholder != nil {
		g.Positions++
	}
	defer func() {
		if err != nil {
			g.Close()
		}
	}()
	if err := g.decoder(ctx, o); err != nil {
		return nil, modeldir.About(m.Files.Decoder, err)
	}
	if len(g.Interface.Layers) == 0 {
		return g, nil
	}
	for _, l := range g.Interface.Layers {
		if l.Inputs == plan.PromptHiddenStates {
			g.Store, _ = o.Attention.Implementations.Store(l.Strategy)
		}
	}
	if m.Files.Encoder == "" {
		return nil, fmt.Errorf("%s: the decoder attends over an encoder, of which the folder has none", m.Files.Decoder)
	}
	if err := g.filler(ctx, o); err != nil {
		return nil, modeldir.About(m.Files.First, err)
	}
	if err := g.encoder(ctx, o); err != nil {
		return nil, modeldir.About(m.Files.Encoder, err)
	}
	return g, nil
}

// decoder plans what the decoder's attention stores and rewrites it.
func (g *Generation) decoder(ctx context.Context, o Options) error {
	x := g.Model.decoder
	c := &chooser{generation: g, options: o, evaluator: newEvaluator(o.Library, x)}
	defer c.evaluator.close()
	layers, d, err := c.choose(ctx)
	if err != nil {
		return err
	}
	var attended *engine.Attended
	var asked []engine.Question
	if err := x.Graph.Bounded(ctx, func() error { // it copies weights, as fold does
		if attended, err = d.Attend(layers); err == nil {
			asked = attended.Questions()
		}
		return err
	}); err != nil {
		return err
	}
	c.evaluator.answer(asked, d.Answers)
	if err := x.Within(ctx, func() error { g.Interface, err = attended.Finish(); return err }); err != nil {
		return err
	}
	if g.Choose != nil && slices.ContainsFunc(g.Interface.Layers,
		func(l engine.CrossLayer) bool { return l.Strategy != plan.PromptHiddenStates }) {
		g.Choose = func(int, int) bool { return false } // a layer has nothing but keys and values to read
	}
	rewrittenGraph, err := graph.NewWithin(ctx, x.Graph.Model(), x.Model)
	if err != nil {
		return err
	}
	// its attention is replaced
	rewritten := &patch.Analysis{Model: x.Model, Graph: rewrittenGraph, Report: &blocks.Report{}}
	if err := rewritten.Within(ctx, func() error {
		rewritten.Shapes = graph.Infer(rewrittenGraph)
		if err := engine.SelectEarly(rewrittenGraph, rewritten.Shapes); err != nil {
			return err
		}
		return engine.TurnAtOnce(rewrittenGraph, rewritten.Shapes)
	}); err != nil {
		return err
	}
	if g.Decoder, err = replace(ctx, rewritten, o, nil, g.Interface.Plugins...); err == nil {
		g.Decoder.Logits = g.Interface.Logits
	}
	return err
}
