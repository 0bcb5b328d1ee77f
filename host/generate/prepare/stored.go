package prepare

import (
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/signature"
	"github.com/opgraft/graft/host/session/loaded"
)

// storageAttribute is the attribute by which operators are told what a cache stores.
const storageAttribute = "storage"

// Cache says what all caches store. Attention that was named with another type, as keys:float16, contradicts it.
func (a *Attention) Cache(s plan.Storage) error {
	if a.Storage != "" && a.Storage != s.Whole() {
		return fmt.Errorf("the attention is to store %s, and the cache %s", a.Storage, s.Whole())
	}
	a.Storage = s.Whole()
	return nil
}

// stores says why a strategy cannot store what was asked for with the plugins that are loaded, or "".
func (o *Options) stores(kind string, strategy plan.Strategy) string {
	a := &o.Attention
	if !a.Storage.Rounds() {
		return ""
	}
	if !a.Implementations.Candidate(strategy, a.Storage).Rounds() {
		return fmt.Sprintf("the layout of %s is its plugin's, and of float32", strategy)
	}
	list := []plan.Implementation{a.Implementations.Of(strategy)}
	if store, ok := a.Implementations.Store(strategy); ok && kind == "cross" {
		list = append(list, store)
	}
	for _, x := range list {
		p, err := loaded.Named(o.Plugins.Plugins, x.Plugin)
		if err != nil {
			continue // who needs it says so
		}
		op, _, ok := p.Info.Operator(x.Operator)
		if ok && !slices.ContainsFunc(op.Attributes,
			func(at signature.Attribute) bool { return at.Name == storageAttribute }) {
			return fmt.Sprintf("%s of the plugin %s reads float32 alone: it has no attribute %s", x.Operator, x.Plugin,
				storageAttribute)
		}
	}
	return ""
}

// sinksInput is the input by which operators are told the sinks that a softmax counts.
const sinksInput = "sinks"

// takesSinks says why a strategy cannot run layers whose softmax counts sinks, or "".
func (o *Options) takesSinks(strategy plan.Strategy) string {
	a := &o.Attention
	if a.Implementations.Candidate(strategy, a.Storage).Inputs() != plan.KeysValues {
		return "its softmax counts sinks, which operators over keys and values take alone"
	}
	by := a.Implementations.Of(strategy)
	p, err := loaded.Named(o.Plugins.Plugins, by.Plugin)
	if err != nil {
		return "" // who needs it says so
	}
	op, _, ok := p.Info.Operator(by.Operator)
	if !ok || slices.ContainsFunc(op.Inputs, func(x signature.Parameter) bool { return x.Name == sinksInput }) {
		return ""
	}
	return fmt.Sprintf("its softmax counts sinks, and %s of the plugin %s has no input %s", by.Operator, by.Plugin,
		sinksInput)
}

// sinks refuses layers whose softmax counts sinks that neither keys and values can have, which any layer may come to,
// nor what was named.
func (o *Options) sinks(path string, l plan.Layers) error {
	if !l.Sinks {
		return nil
	}
	for _, strategy := range []plan.Strategy{o.Attention.named(l.Type), plan.KeysValues} {
		inputs := o.Attention.Implementations.Candidate(strategy, o.Attention.Storage).Inputs()
		if strategy == "" || inputs != plan.KeysValues {
			continue // a layer that cannot have what was named stores keys and values
		}
		if why := o.takesSinks(strategy); why != "" {
			return &diagnostic.Error{Path: path,
				Found:  fmt.Sprintf("%s attention is to store %s, and %s", l.Type, strategy, why),
				Needed: "an operator with that input", Fix: "leave the plugin out, or choose another"}
		}
	}
	return nil
}

// typed refuses a type of the cache that a kind of attention cannot have: what was named must store it, and keys and
// values, which any layer may come to.
func (o *Options) typed(path, kind string) error {
	for _, strategy := range []plan.Strategy{o.Attention.named(kind), plan.KeysValues} {
		if strategy == "" {
			continue
		}
		if why := o.stores(kind, strategy); why != "" {
			return &diagnostic.Error{Path: path,
				Found:  fmt.Sprintf("%s attention is to store %s in %s, and %s", kind, strategy, o.Attention.Storage, why),
				Needed: "operators that store it", Fix: "leave the type of the cache out, or the plugin"}
		}
	}
	return nil
}
