package main

import (
	"github.com/spf13/pflag"

	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
)

// attentionFlags choose the KV-cache strategy of a generating model.
type attentionFlags struct {
	name, prefer, cache string
}

func (a *attentionFlags) add(f *pflag.FlagSet) {
	f.StringVar(&a.name, "attention", "",
		"KV-cache strategy: keys_values, prompt_hidden_states, keys, hidden_states, first_layer_keys or a plugin that "+
			"implements one, or self=NAME,cross=NAME; after it :float16, :bfloat16, :int8 or :skip=P, which cost accuracy "+
			"(default: as predicted)")
	f.StringVar(&a.cache, "cache", "",
		"what the KV cache stores: bf16, fp16 or int8, which cost accuracy, or float32 (default: float32)")
	f.StringVar(&a.prefer, "prefer", string(plan.PreferSpeed),
		"speed or memory: what attention that is not named is chosen for")
}

// parse reads them; the names of plugins are those of manifests.
func (a *attentionFlags) parse(manifests []*manifest.Manifest) (o prepare.Attention, err error) {
	if a.name != "" {
		if o, err = prepare.ParseAttention(a.name, manifests); err != nil {
			return o, misused("--attention", err)
		}
	}
	if a.cache != "" {
		s, err := plan.ParseStorage(a.cache)
		if err == nil {
			err = o.Cache(s)
		}
		if err != nil {
			return o, misused("--cache", err)
		}
	}
	if a.prefer == "" {
		return o, nil
	}
	if o.Prefer, err = plan.ParsePrefer(a.prefer); err != nil {
		return o, misused("--prefer", err)
	}
	return o, nil
}
