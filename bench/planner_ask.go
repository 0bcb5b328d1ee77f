package main

import (
	"context"
	"slices"

	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plan/machine"
	"github.com/opgraft/graft/host/plan/tune"
	"github.com/opgraft/graft/host/session/loaded"
)

// asked is the planner as a user has it who just ran graft tune on a model.
type asked struct {
	predictor *plan.Predictor
	kinds     []plan.Kind // without ranges
	tables    []*tune.Table
	encoder   bool
}

// ask makes it, and measures what graft tune measures.
func (b *bench) ask(ctx context.Context, folder string, m plannerModel) (*asked, error) {
	opened, err := prepare.Open(ctx, folder)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	layers, err := opened.Layers()
	if err != nil {
		return nil, err
	}
	// With 8 beams and a batch of 16, what graft tune measures by default.
	expected := prepare.Expected{Beams: [2]int64{1, slices.Max(m.beams)}, Batch: slices.Max(m.batches),
		NewTokens: plannerSteps, MaxPositions: 2048, MaxInput: 2048}
	roofline, err := tune.Machine(b.set.Plugins, plan.Implementations{}, machine.Options{Again: true})
	if err != nil {
		return nil, err
	}
	a, measured := &asked{}, &tune.Tables{}
	for _, l := range layers {
		table, err := tune.Measure(ctx, l, tune.Options{Plugins: b.set.Plugins, Range: opened.Range(l, expected)})
		if err != nil {
			return nil, err
		}
		measured.With(table)
		k := plan.Kind{Layers: l, Either: true}
		for _, strategy := range plan.StandardStrategies() {
			if _, missing := loaded.Named(b.set.Plugins,
				plan.Implementations{}.Among(b.set.Manifests()).Of(strategy).Plugin); missing == nil &&
				strategy.Within(l.Type) == strategy {
				k.Candidates = append(k.Candidates, plan.Candidate{Strategy: strategy})
			}
		}
		a.kinds, a.encoder = append(a.kinds, k), a.encoder || l.Type == "cross"
	}
	a.tables = measured.All()
	a.predictor = plan.NewPredictor(roofline, b.set.Manifests(), plan.Implementations{}, measured)
	return a, nil
}

// refuse notes what a layer's weights rule out, so that the planner is asked without it,
// as prepare does.
func (a *asked) refuse(kind string, c plan.Candidate, why string) {
	for i := range a.kinds {
		k := &a.kinds[i]
		if k.Layers.Type != kind || k.Refused[c] != "" {
			continue
		}
		if k.Refused == nil {
			k.Refused = map[plan.Candidate]string{}
		}
		k.Refused[c] = why
	}
}

// choose asks for one cell, which is all that is expected then.
func (a *asked) choose(c *plannerCell) error {
	kinds := slices.Clone(a.kinds)
	for i := range kinds {
		kinds[i].Range = a.shapes(kinds[i].Layers, c)
	}
	choices, err := plan.ChooseCaches(a.predictor, kinds, plan.CacheOptions{})
	if err != nil {
		return err
	}
	strategies := map[string]plan.Strategy{}
	c.Options = map[string][]foreseen{}
	for _, x := range choices {
		kind := x.Kind.Layers.Type
		strategies[kind] = x.Candidate.Strategy
		if x.Either != nil {
			strategies[kind] = x.Either.Candidates()[x.Either.Pick(x.Kind.Range.Largest())].Strategy
		}
		c.Reasons = append(c.Reasons, kind+": "+x.Reason)
		for _, o := range x.Options {
			c.Options[kind] = append(c.Options[kind], foreseen{o.Name, o.Speedup, o.Refused})
		}
	}
	c.Choice = sideName(strategies)
	return nil
}

// shapes are those that a kind meets in a cell.
func (a *asked) shapes(l plan.Layers, c *plannerCell) plan.Range {
	one := func(n int64) [2]int64 { return [2]int64{n, n} }
	r := plan.Range{Keys: one(c.Length), Beams: one(c.Beams), Batch: one(c.Batch), Steps: plannerSteps}
	if l.Type == "self" {
		r.Own = [2]int64{0, plannerSteps}
		if a.encoder {
			r.Keys = one(1)
		}
	}
	return r
}

// sides are the strategies that are timed: the default first, then each other that
// can be used for one kind of attention, the other kind as it is by default, and each that
// does for both.
func (a *asked) sides() (names []string) {
	base := map[string]plan.Strategy{}
	for _, k := range a.kinds {
		base[k.Layers.Type] = plan.KeysValues
	}
	add := func(change func(plan.Layers) plan.Strategy) {
		strategies := map[string]plan.Strategy{}
		for _, k := range a.kinds {
			l := k.Layers
			c := plan.Candidate{Strategy: change(l)}
			if c.Strategy == plan.Exported || !slices.Contains(k.Candidates, c) || c.Lacks(l) != "" {
				c.Strategy = plan.KeysValues
			}
			strategies[l.Type] = c.Strategy
		}
		if name := sideName(strategies); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	add(func(plan.Layers) plan.Strategy { return plan.KeysValues })
	for _, strategy := range plan.StandardStrategies()[1:] {
		if strategy.Within("self") == strategy {
			add(func(l plan.Layers) plan.Strategy { return strategy.Within(l.Type) })
		}
		if a.encoder {
			add(func(l plan.Layers) plan.Strategy {
				if l.Type == "cross" {
					return strategy
				}
				return plan.Exported
			})
		}
	}
	return names
}
