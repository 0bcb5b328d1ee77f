package engine

import (
	"errors"
	"fmt"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// Layer is a block of attention and what it stores. Its Weights are those that the fold
// gave, by name; the fold is the caller's to run.
type Layer struct {
	Strategy plan.Strategy
	Reason   string // why not what was asked for
	Weights  map[string]*Folded

	inputs plan.Strategy // the standard strategy whose inputs the operator takes
	block  *blocks.Block
	from   *source     // what keys and values are projected from; nil where they are stored
	base   *projection // of the first layer's keys, of which a hybrid's layer makes its own
	first  bool        // the first layer of a hybrid, which stores its keys
}

// refuse says why a layer cannot store what it was asked to. It stores something else
// then.
func refuse(format string, args ...any) error {
	return &diagnostic.Error{Kind: refusal.ErrFold, Found: fmt.Sprintf(format, args...)}
}

// Refuse is a refusal for a reason.
func Refuse(why string) error { return refuse("%s", why) }

// Refusal is the reason of a refusal, or false for other errors.
func Refusal(err error) (string, bool) {
	var refused *diagnostic.Error
	if errors.As(err, &refused) && errors.Is(refused.Kind, refusal.ErrFold) {
		return refused.Found, true
	}
	return "", false
}

// Fallback is what a layer stores that cannot store what it was asked to; keys and values
// any layer can.
func Fallback(kind string, strategy plan.Strategy) plan.Strategy {
	switch {
	case kind != "cross" && strategy == plan.Keys:
		return plan.HiddenStates
	case kind == "cross" && (strategy == plan.Keys || strategy == plan.FirstLayerKeys):
		return plan.PromptHiddenStates
	}
	return plan.KeysValues
}

// Layer checks that a block can store what it is asked to, as far as that is known without
// a fold, and gives the fold that it needs, nil for none. before are the layers that stand
// already, in order. An error for which Refusal is true says why it cannot. Weights that
// the fold is made of are large: Forget lets go of them.
func (d *Decoder) Layer(b *blocks.Block, strategy plan.Strategy, before []*Layer) (*Layer, *Fold, error) {
	l := &Layer{Strategy: strategy, inputs: d.signature(strategy), block: b}
	fold := d.selfFold
	if b.Attention.Type == "cross" {
		fold = d.crossFold
	}
	f, err := fold(l, before)
	if err != nil {
		return nil, nil, err
	}
	return l, f, nil
}

// signature is the standard strategy whose inputs a strategy's operator takes; "" where it is not
// known.
func (d *Decoder) signature(k plan.Strategy) plan.Strategy {
	return d.Implementations.Candidate(k, d.Storage).Inputs()
}

// attending is the strategy whose operator attends: in the first layer of a hybrid that of
// keys.
func (l *Layer) attending() plan.Strategy {
	if l.first {
		return plan.Keys
	}
	return l.Strategy
}

// Report says which strategy the layer has.
func (l *Layer) Report(implementations plan.Implementations) plan.LayerStrategy {
	return plan.LayerStrategy{Node: l.block.Node, Type: l.block.Attention.Type, Strategy: l.Strategy,
		Plugin: implementations.Of(l.Strategy).Plugin, Reason: l.Reason}
}

// Forget lets go of the weights that a layer was folded from, but of those from which
// others will be folded. It is for layers that stand.
func (l *Layer) Forget() {
	if l.from != nil && !l.first {
		l.from.forget()
	}
}

// selfFold is the fold of a layer of self attention.
func (d *Decoder) selfFold(l *Layer, _ []*Layer) (_ *Fold, err error) {
	b := l.block
	if l.inputs != plan.KeysValues && d.queryBiasOfBlock(b) != nil {
		return nil, refuse("its queries add numbers of their own to scores, which operators over keys and values take alone")
	}
	if l.inputs != plan.KeysValues && b.Attention.Sinks {
		return nil, refuse("its softmax counts sinks, which operators over keys and values take alone")
	}
	switch l.inputs {
	case plan.Keys:
		a := b.Attention
		if a.Heads != a.KVHeads {
			return nil, refuse("its %d heads share %d of keys and values", a.Heads, a.KVHeads)
		}
		if l.from, err = d.projections(b); err != nil {
			return nil, err
		}
		if err := d.turns(b); err != nil {
			return nil, err
		}
		keyBias := l.from.key.Bias
		if !seesKeyBias(a) {
			keyBias = nil
		}
		return d.fold(l.Strategy, b, l.from, keyBias), nil
	case plan.HiddenStates, plan.PromptHiddenStates:
		if l.from, err = d.sources(b); err != nil {
			return nil, err
		}
		return d.fold(l.Strategy, b, l.from, nil), nil
	}
	return nil, d.keysValues(l)
}

// keysValues checks a layer whose operator takes keys and values.
func (d *Decoder) keysValues(l *Layer) error {
	if l.inputs != plan.KeysValues {
		return refuse("no plugin that is loaded declares it")
	}
	return nil
}

// crossFold is the fold of a layer of cross attention.
func (d *Decoder) crossFold(l *Layer, before []*Layer) (_ *Fold, err error) {
	b := l.block
	switch l.inputs {
	case plan.PromptHiddenStates, plan.Keys, plan.FirstLayerKeys:
	default:
		return nil, d.keysValues(l)
	}
	first := firstCross(before)
	l.first = l.inputs == plan.FirstLayerKeys && first == nil
	if l.inputs == plan.FirstLayerKeys && !l.first && !first.first {
		return nil, refuse("the first layer stores no keys")
	}
	if l.inputs == plan.Keys || l.first {
		if b.Attention.Heads != b.Attention.KVHeads {
			return nil, refuse("its %d heads share %d of keys and values", b.Attention.Heads, b.Attention.KVHeads)
		}
	}
	if l.from, err = d.crossSources(b); err != nil {
		return nil, err
	}
	key := l.from.key
	switch {
	case l.inputs == plan.PromptHiddenStates:
		if !key.From.IsInput {
			return nil, refuse("its keys and values are projected from %s, which is not the encoder's output", key.From.Name)
		}
		return d.fold(l.Strategy, b, l.from, nil), nil
	case b.Attention.Softcap != 0 && key.Bias != nil:
		return nil, refuse("its scores are bent after the bias of keys is in them")
	case l.inputs == plan.Keys || l.first:
		if key.Rows == "" {
			return nil, refuse("its keys have no linear layer of their own")
		}
		return d.fold(l.attending(), b, l.from, nil), nil
	case key.From != first.from.key.From:
		return nil, refuse("its keys are projected from %s, those of the first layer from %s", key.From.Name,
			first.from.key.From.Name)
	}
	l.base = first.from.key
	return d.foldFrom(l.Strategy, b, l.from, l.base), nil
}

// firstCross is the first layer of cross attention, or nil.
func firstCross(layers []*Layer) *Layer {
	for _, l := range layers {
		if l.block.Attention.Type == "cross" {
			return l
		}
	}
	return nil
}
