package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plan/machine"
	"github.com/opgraft/graft/host/plan/tune"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/rewrite/engine"
	"github.com/opgraft/graft/host/session/loaded"
)

// chooser decides what the decoder's attention stores.
type chooser struct {
	generation *Generation
	options    Options
	evaluator  *evaluator
	answers    engine.Answers
	first      *engine.Decoder // without a past; nil before it is needed
}

// choose plans what each kind of attention stores and tries the folds that this needs.
// What weights rule out goes back to the planner, until a plan holds.
func (c *chooser) choose(ctx context.Context) ([]*engine.Layer, *engine.Decoder, error) {
	g, o := c.generation, c.options
	layers := plan.LayersOf(g.Model.decoder.Report.Blocks)
	kinds, open, err := c.kinds(layers)
	if err != nil {
		return nil, nil, err
	}
	// Any layer may come to store keys and values.
	if err := o.implements(plan.KeysValues); err != nil {
		return nil, nil, err
	}
	c.answers = engine.Answers{}
	limits := plan.CacheOptions{Prefer: o.Attention.Prefer, Within: o.CacheBytes}
	if o.Bounded {
		limits.MaxBytes = o.CacheBytes
	}
	p := plan.NewPredictor(plan.ThisMachine(), o.Plugins.Manifests(), o.Attention.Implementations, nil)
	if open || o.Explain { // only a choice is worth knowing the machine for
		p = c.predictor(layers)
	}
	for {
		if g.Choices, err = plan.ChooseCaches(p, kinds, limits); err != nil {
			return nil, nil, err
		}
		d, err := c.planned(ctx)
		if err != nil {
			return nil, nil, err
		}
		layers, err := c.fold(ctx, d)
		if err != nil {
			return nil, nil, err
		}
		var reports []plan.LayerStrategy
		for _, l := range layers {
			reports = append(reports, l.Report(d.Implementations))
		}
		i, ruledOut, why := broken(g.Choices, o.Attention, reports)
		if i < 0 {
			return layers, d, nil
		}
		kinds[i].Refused[ruledOut] = why
	}
}

// kinds are what the planner chooses from, and whether anything is open.
func (c *chooser) kinds(layers []plan.Layers) (list []plan.Kind, open bool, err error) {
	o := c.options
	for _, l := range layers {
		if err := o.typed(c.generation.Model.Files.Decoder, l.Type); err != nil {
			return nil, false, err
		}
		if err := o.sinks(c.generation.Model.Files.Decoder, l); err != nil {
			return nil, false, err
		}
		k := plan.Kind{Layers: l, Named: o.Attention.named(l.Type), Candidates: o.candidates(l.Type),
			Range: c.generation.Model.Range(l, o.expected()), Either: true}
		if k.Named != "" {
			if err := o.implements(k.Named); err != nil {
				return nil, false, err
			}
			implementation := o.Attention.Implementations.Of(k.Named)
			if why := o.Plan.RulesOut(implementation.Plugin); why != "" && k.Named != plan.KeysValues {
				return nil, false, fmt.Errorf("%s attention is to use %s, and %s", l.Type, k.Named, why)
			}
		}
		k.Refused = o.refused(l, k)
		open = open || k.Named == "" && len(k.Candidates) > 1
		list = append(list, k)
	}
	return list, open, nil
}

// implements is an error where no plugin that is loaded attends over a strategy.
func (o *Options) implements(k plan.Strategy) error {
	if name := o.Attention.Implementations.Of(k).Plugin; name != "" {
		return o.Plugins.Require([]string{name})
	}
	have := o.Plugins.Names()
	if len(have) == 0 {
		have = []string{"none"}
	}
	return &diagnostic.Error{Kind: refusal.ErrNotFound, Fix: "see graft plugin list",
		Found: fmt.Sprintf("no plugin that attends over %s is loaded, found %s", k, strings.Join(have, ", "))}
}

// candidates are what a kind of attention could store with the plugins that are loaded and
// that the caller lets in, the default first.
func (o *Options) candidates(kind string) (list []plan.Candidate) {
	for _, strategy := range o.Attention.Implementations.Strategies() {
		implementation := o.Attention.Implementations.Of(strategy)
		if strategy != plan.KeysValues && o.Plan.RulesOut(implementation.Plugin) != "" {
			continue
		}
		if _, err := loaded.Named(o.Plugins.Plugins, implementation.Plugin); err == nil && strategy.Within(kind) == strategy {
			list = append(list, o.Attention.Implementations.Candidate(strategy, o.Attention.Storage))
		}
	}
	return list
}

// refused are candidates that cannot be used with the plugins that are loaded, or not without
// being named.
func (o *Options) refused(l plan.Layers, k plan.Kind) map[plan.Candidate]string {
	refused := map[plan.Candidate]string{}
	for _, c := range k.Candidates {
		store, stores := o.Attention.Implementations.Store(c.Strategy)
		_, missing := loaded.Named(o.Plugins.Plugins, store.Plugin)
		untyped := o.stores(l.Type, c.Strategy)
		switch {
		case l.Sinks && o.takesSinks(c.Strategy) != "":
			refused[c] = o.takesSinks(c.Strategy)
		case untyped != "":
			refused[c] = untyped
		case l.Type == "cross" && !stores:
			refused[c] = fmt.Sprintf("no plugin that is loaded has an operator that stores what an encoder made: no manifest "+
				"declares kv_cache.store for %s", c.Strategy)
		case l.Type == "cross" && missing != nil:
			refused[c] = missing.Error()
		case !c.Layout().Exact && k.Named != c.Strategy:
			refused[c] = "its results differ from the exported model's by more than rounding: it is used only where it is named"
		}
	}
	return refused
}

// What a request is taken to be where its cache is planned: maxBeams where the beams are
// not known, expectedSteps tokens that it generates, and at most maxPlanned positions of
// an encoder, as far as graft tune measures.
const (
	maxBeams      = 8
	expectedSteps = 64
	maxPlanned    = 2048
)

// expected are the shapes that are planned for.
func (o *Options) expected() Expected {
	beams := [2]int64{1, maxBeams}
	if n := int64(o.Attention.Beams); n > 0 {
		beams = [2]int64{n, n}
	}
	return Expected{Beams: beams, Batch: int64(Limit(o.Batch, int(beams[1]))), NewTokens: expectedSteps,
		MaxPositions: o.MaxPositions, MaxInput: maxPlanned}
}

// predictor knows this machine, and what was measured on it.
func (c *chooser) predictor(layers []plan.Layers) *plan.Predictor {
	g, o := c.generation, c.options
	implementations := o.Attention.Implementations
	m, err := tune.Machine(o.Plugins.Plugins, implementations, machine.Options{Threads: o.Threads})
	if err != nil {
		g.Notes = append(g.Notes, err) // m is an estimate then
	}
	measured, notes := tune.Load("", o.Plugins.Plugins, implementations, o.Threads, layers...)
	g.Notes = append(g.Notes, notes...)
	return plan.NewPredictor(m, o.Plugins.Manifests(), implementations, measured)
}

// planned is the decoder as the choices have it.
func (c *chooser) planned(ctx context.Context) (*engine.Decoder, error) {
	g, o, x := c.generation, c.options, c.generation.Model.decoder
	g.Choose = nil
	for i := range g.Choices {
		if choice := &g.Choices[i]; choice.Kind.Layers.Type == "cross" {
			g.Choose = chosenByRequest(choice, o)
		}
	}
	d := &engine.Decoder{Graph: x.Graph, Shapes: x.Shapes, Report: x.Report, Positions: g.Positions,
		Logits: g.Model.Logits, Either: g.Choose != nil,
		Implementations: o.Attention.Implementations, Storage: o.Attention.Storage, Skip: o.Attention.Skip,
		Answers:     c.answers,
		Placeholder: g.Model.Placeholder != nil}
	var asked []engine.Question
	var err error
	if err := x.Within(ctx, func() error {
		if err := d.Check(); err != nil {
			return err
		}
		asked = d.Questions(storedBy(g.Choices, "self"))
		return nil
	}); err != nil {
		return nil, err
	}
	c.evaluator.answer(asked, c.answers)
	if d.Steps, err = c.steps(ctx, d); err != nil {
		return nil, modeldir.About(g.Model.Files.First, err)
	}
	if d.Recurrent() && (!d.Steps && !g.Model.Files.Genai() || g.Model.Placeholder != nil) {
		return nil, errors.New("it has recurrent states, and is no graph of steps beside one that reads prompts, by which " +
			"they are checked: export it with transformers' export_for_generation, or with onnxruntime-genai's builder")
	}
	return d, nil
}

// steps reports a decoder that hides nothing because it is meant for one query after its past: the decoder without a
// past, which reads whole prompts, hides what comes after each query.
func (c *chooser) steps(ctx context.Context, d *engine.Decoder) (bool, error) {
	g := c.generation
	if d.SelfLayers() == 0 && d.Recurrent() {
		return g.Model.Files.First != "" && g.Model.Files.Encoder == "", nil // states alone go from token to token
	}
	single := d.Single() && g.Model.Files.Encoder == ""
	if !d.Sees() && !single || g.Model.Files.First == "" {
		return false, nil
	}
	first, err := c.withoutPast(ctx)
	if err != nil {
		return false, err
	}
	first.Positions, first.Answers = g.Positions, engine.Answers{}
	e := newEvaluator(c.options.Library, g.Model.without)
	defer e.close()
	e.answer(first.HidesQuestions(), first.Answers)
	if single {
		return true, first.SeesLater()
	}
	return first.Hides(d.SelfLayers()), nil
}

// chosenByRequest is what is left to decide for each request, or nil.
func chosenByRequest(c *plan.CacheChoice, o Options) func(positions, beams int) bool {
	if c.Either == nil {
		if c.Kind.Named == plan.PromptHiddenStates {
			return o.Attention.Choose
		}
		return nil
	}
	either, steps, batch := c.Either, c.Kind.Range.Steps, o.Batch
	return func(positions, beams int) bool {
		return either.Pick(plan.Shape{Keys: int64(positions), Beams: int64(beams), Batch: int64(Limit(batch, beams)),
			Steps: steps}) == 1
	}
}

// storedBy is what a kind of attention is to store.
func storedBy(choices []plan.CacheChoice, kind string) plan.Strategy {
	for i := range choices {
		if c := &choices[i]; c.Kind.Layers.Type == kind {
			if c.Either != nil {
				return plan.PromptHiddenStates
			}
			return c.Candidate.Strategy
		}
	}
	return ""
}

// broken finds a choice that the planner made for speed and that does not hold in every
// layer: its number, or -1, what the weights rule out, and why. What would stand in for
// it may be slower than the default.
func broken(choices []plan.CacheChoice, a Attention, reports []plan.LayerStrategy) (int, plan.Candidate, string) {
	if a.Prefer == plan.PreferMemory {
		return -1, plan.Candidate{}, "" // what stands in for keys takes no more than they
	}
	for i := range choices {
		c := &choices[i]
		kind := c.Kind.Layers.Type
		at := slices.IndexFunc(reports, func(s plan.LayerStrategy) bool { return s.Type == kind && s.Reason != "" })
		if at < 0 || a.named(kind) != "" {
			continue
		}
		ruledOut := c.Candidate
		if c.Either != nil {
			ruledOut = c.Either.Candidates()[1]
		}
		if ruledOut != c.Options[0].Candidate {
			return i, ruledOut, reports[at].Node + ": " + reports[at].Reason
		}
	}
	return -1, plan.Candidate{}, ""
}
