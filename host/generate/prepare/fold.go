package prepare

import (
	"context"
	"fmt"

	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/rewrite/engine"
	"github.com/opgraft/graft/host/session/loaded"
)

// fold finds what each layer can store of what its kind was chosen to, and has the weights
// of its operator folded. A layer that cannot says why, and stores what stands in for it.
func (c *chooser) fold(ctx context.Context, d *engine.Decoder) (layers []*engine.Layer, err error) {
	g := c.generation
	self, cross := storedBy(g.Choices, "self"), storedBy(g.Choices, "cross")
	switch d.Implementations.Candidate(cross, d.Storage).Inputs() {
	case plan.PromptHiddenStates, plan.Keys, plan.FirstLayerKeys:
		if d.First, err = c.withoutPast(ctx); err != nil {
			return nil, modeldir.About(g.Model.Files.First, err)
		}
	}
	// Reading and folding weights takes the time that their size asks for: only steps through the graph are counted.
	err = d.Graph.Bounded(ctx, func() error {
		var refused string
		// then no layer stores hidden states of a prompt
		if layers, refused, err = c.layers(d, self, cross, ""); err == nil && refused != "" {
			layers, _, err = c.layers(d, plan.KeysValues, cross, refused)
		}
		return err
	})
	return layers, err
}

// layers are those of all blocks. The inputs of prompts lie in one pool for all layers of
// self attention, so all store them or none does: refused is why one cannot. reason is why
// self attention does not store what it was asked to, or "".
func (c *chooser) layers(d *engine.Decoder, self, cross plan.Strategy, reason string) (layers []*engine.Layer,
	refused string, err error) {
	c.generation.drop()
	for _, b := range d.Report.Blocks {
		strategy, why := self, reason
		if b.Attention.Type == "cross" {
			strategy, why = cross, ""
		}
		l, err := c.layer(d, b, strategy, why, layers)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", b.Node, err)
		}
		if b.Attention.Type != "cross" && self == plan.PromptHiddenStates && l.Strategy != self {
			return nil, fmt.Sprintf("%s: %s: %s", self, b.Node, l.Reason[len(string(self)+": "):]), nil
		}
		layers = append(layers, l)
	}
	return layers, "", nil
}

// layer is what a block stores: what it is asked to, or what stands in for that.
func (c *chooser) layer(d *engine.Decoder, b *blocks.Block, strategy plan.Strategy, reason string,
	before []*engine.Layer) (*engine.Layer, error) {
	for {
		l, err := c.try(d, b, strategy, before)
		if err == nil {
			l.Reason = reason
			return l, nil
		}
		why, refused := engine.Refusal(err)
		if !refused {
			return nil, err
		}
		if reason != "" {
			reason += "; "
		}
		reason += fmt.Sprintf("%s: %s", strategy, why)
		strategy = engine.Fallback(b.Attention.Type, strategy)
	}
}

// try is a layer that stores what it is asked to, or an error.
func (c *chooser) try(d *engine.Decoder, b *blocks.Block, strategy plan.Strategy,
	before []*engine.Layer) (*engine.Layer, error) {
	l, f, err := d.Layer(b, strategy, before)
	if err != nil || f == nil {
		return l, err
	}
	if why := c.options.Plan.RulesOut(f.Implementation.Plugin); why != "" {
		return nil, engine.Refuse(why)
	}
	p, err := loaded.Named(c.options.Plugins.Plugins, f.Implementation.Plugin)
	if err != nil {
		return nil, engine.Refuse(err.Error())
	}
	r, err := c.options.Folds.Get(p, f.Implementation.Operator, f.Constants, f.Attributes)
	if err != nil {
		return nil, err
	}
	c.generation.Folded = append(c.generation.Folded, r)
	l.Weights = map[string]*engine.Folded{}
	for _, w := range r.Weights() {
		l.Weights[w.Name] = &engine.Folded{Shape: w.Shape, Data: w.Floats}
	}
	l.Forget()
	return l, nil
}

// withoutPast is the decoder without a past, viewed once.
func (c *chooser) withoutPast(ctx context.Context) (*engine.Decoder, error) {
	if c.first != nil {
		return c.first, nil
	}
	x, err := c.generation.Model.withoutPast(ctx)
	if err != nil {
		return nil, err
	}
	c.first = &engine.Decoder{Graph: x.Graph, Shapes: x.Shapes, Report: x.Report,
		Placeholder: c.generation.Model.Placeholder != nil}
	return c.first, nil
}
