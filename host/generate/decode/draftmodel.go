package decode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/memory"
	"github.com/opgraft/graft/host/generate/cache"
	"github.com/opgraft/graft/host/generate/draft"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/generate/text"
)

// DraftModel names a smaller model of the same vocabulary that guesses what a generator's model chooses, for searches
// with search.DraftModel.
type DraftModel struct {
	Folder  string // "" is none
	Weights prepare.Weights
}

// String is the model in the words of ParseDraftModel.
func (d DraftModel) String() string {
	if d.Folder == "" || !d.Weights.Quantizes() {
		return d.Folder
	}
	return d.Folder + draftWeights + d.Weights.String()
}

// draftWeights is between a draft model's folder and what its weights are stored as.
const draftWeights = ",weights="

// ParseDraftModel reads DIR, the path of a model folder, or DIR,weights=W with W as prepare.ParseWeights reads it.
func ParseDraftModel(s string) (d DraftModel, err error) {
	d.Folder = s
	if _, err := os.Stat(s); err != nil {
		folder, weights, ok := strings.Cut(s, draftWeights)
		if d.Folder = folder; ok {
			if d.Weights, err = prepare.ParseWeights(weights); err != nil {
				return d, fmt.Errorf("weights of the draft model: %w", err)
			}
		}
	}
	if info, err := os.Stat(d.Folder); err != nil || !info.IsDir() {
		return d, &diagnostic.Error{Path: d.Folder, Found: "found no folder of this name",
			Needed: "lookup, none, or the folder of a draft model, which ,weights=TYPE may follow"}
	}
	return d, nil
}

// ErrNoDraftModel is the error of a search with search.DraftModel by a generator that was opened without one.
var ErrNoDraftModel = errors.New(
	"drafts of a model are asked for, and none was opened with the generator; name its folder when the model is opened")

// helper is an open draft model.
type helper struct {
	DraftModel
	engine *engine.Engine
	config *modeldir.Config
	price  *draft.Price // of its steps
	// of a step of the model, that one of its own takes, before any was timed
	share   float64
	advance func(context.Context, []engine.Feed) (*engine.Scores, error) // the engine's step
	stepper search.Stepper
	feeds   []engine.Feed
	forks   []*search.State
	logits  []float32 // as wide as the model's
	steps   int
}

// checkDraftModel reports a draft model whose tokens are not those of the model in a folder, or that reads something
// else.
func checkDraftModel(folder string, config *modeldir.Config, d DraftModel) (*modeldir.Config, error) {
	refuse := func(found, needed string) error {
		return &diagnostic.Error{Path: d.Folder, Found: found, Needed: needed,
			Fix: "draft with a smaller model of the same family, or with --draft lookup"}
	}
	small, err := modeldir.ReadConfig(d.Folder)
	if err != nil {
		return nil, err
	}
	for _, c := range []struct {
		path   string
		config *modeldir.Config
	}{{folder, config}, {d.Folder, small}} {
		if t := c.config.ModelType; t == modeldir.ProphetNet || t == modeldir.UniLM {
			return nil, refuse(fmt.Sprintf("%s is a %s, which predicts in the place of a placeholder", c.path, t),
				"two models that predict after each token")
		}
	}
	large, err := SearchOf(folder, config, nil)
	if err != nil {
		return nil, err
	}
	o, err := SearchOf(d.Folder, small, nil)
	if err != nil {
		return nil, err
	}
	kind := func(o search.Options) string {
		if o.IsEncoderDecoder {
			return "an encoder-decoder"
		}
		return "a decoder alone"
	}
	if o.IsEncoderDecoder != large.IsEncoderDecoder {
		return nil, refuse("the draft model is "+kind(o), kind(large)+", as the model that it drafts for")
	}
	if a, b := small.FeatureShape(), config.FeatureShape(); !slices.Equal(a, b) {
		return nil, refuse(fmt.Sprintf("the draft model's encoder reads features of the shape %v", a),
			fmt.Sprintf("%v, which the model reads that it drafts for (none are tokens)", b))
	}
	return small, sameTokens(folder, config, d.Folder, small, refuse)
}

// sameTokens compares the vocabularies of two folders; of folders without tokenizers, their sizes.
func sameTokens(folder string, config *modeldir.Config, draft string, small *modeldir.Config,
	refuse func(found, needed string) error) error {
	a, err := text.Open(folder)
	if err != nil && !errors.Is(err, text.ErrNoTokenizer) {
		return err
	}
	b, otherErr := text.Open(draft)
	if otherErr != nil && !errors.Is(otherErr, text.ErrNoTokenizer) {
		return otherErr
	}
	switch {
	case err == nil && otherErr == nil:
		if found := b.Differs(a); found != "" {
			return refuse("the draft model has other tokens: "+found, "the vocabulary of the model that it drafts for")
		}
	case err == nil:
		return otherErr
	case otherErr == nil:
		return err
	case config.Vocab != small.Vocab:
		return refuse(fmt.Sprintf("the draft model has %d tokens", small.Vocab),
			fmt.Sprintf("the vocabulary of the model that it drafts for, which has %d", config.Vocab))
	}
	return nil
}

// openHelper opens a draft model that checkDraftModel has passed. Its cache takes its bytes from the budget.
func openHelper(ctx context.Context, d DraftModel, config *modeldir.Config, o Options, bounded bool,
	budget *cache.Budget,
	target *engine.Engine) (_ *helper, err error) {
	watch := modeldir.NewWatch(d.Folder)
	m, err := prepare.Open(ctx, d.Folder)
	if err != nil {
		return nil, err
	}
	p, err := m.Make(ctx,
		prepare.Options{Library: o.Library, Plugins: o.Plugins, Plan: o.Plan, Threads: o.Threads,
			Attention: prepare.Attention{Beams: o.Attention.Beams}, CacheBytes: o.CacheBytes, Bounded: bounded,
			MaxPositions: o.MaxPositions, Batch: o.Batch, Folds: o.Folds})
	if err != nil {
		return nil, err
	}
	h := &helper{DraftModel: d, config: config, share: 0.25}
	h.engine, err = engine.Open(ctx, p,
		engine.Options{Library: o.Library, Plugins: o.Plugins, Threads: o.Threads,
			CacheBytes: o.CacheBytes, Budget: budget,
			PanelBytes: memory.Available() / 2, Weights: d.Weights, Quantized: o.Quantized, MapWeights: o.MapWeights,
			Share: o.Share})
	if err != nil {
		return nil, err
	}
	err = errors.Join(takesDrafts(h.engine, search.DraftModel), takesDrafts(target, search.DraftModel))
	if err == nil {
		err = watch.Unchanged()
	}
	if err != nil {
		h.engine.Close()
		return nil, err
	}
	if a, b := h.engine.StepBytes(), target.StepBytes(); a > 0 && b > 0 {
		h.share = float64(a) / float64(b) // a step of few rows waits for its weights
	}
	h.price, h.advance = draft.NewPrice(h.share), h.engine.Step
	return h, nil
}

func (h *helper) close() {
	if h != nil {
		h.engine.Close()
	}
}

// DraftReport says what a draft model has done and what it takes.
type DraftReport struct {
	Model string `json:"model"` // its folder
	Steps int    `json:"steps"`
	// SelfCacheBytes and CrossCacheBytes are the maximum that its keys and values took, beside those of the model.
	SelfCacheBytes  int64 `json:"self_cache_bytes"`
	CrossCacheBytes int64 `json:"cross_cache_bytes"`
	// Weights says what its weights are stored as, where some are quantised.
	Weights *engine.WeightReport `json:"weights,omitempty"`
}

// report is what a draft model has done so far; nil of none.
func (h *helper) report() *DraftReport {
	if h == nil {
		return nil
	}
	r := &DraftReport{Model: h.Folder, Steps: h.steps}
	_, r.SelfCacheBytes, _, r.CrossCacheBytes = h.engine.Memory()
	if w := h.engine.Weights(); w.Quantized() {
		r.Weights = w
	}
	return r
}

// DraftModel is what the draft model had done at the end of the last run; nil where the generator has none.
func (g *Generator) DraftModel() *DraftReport { return g.used().draft }
