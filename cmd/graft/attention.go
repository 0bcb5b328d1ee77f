package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/opgraft/graft/host/decode"
	"github.com/opgraft/graft/host/plan"
)

// attentionFlags say what the attention of a generating model keeps.
type attentionFlags struct {
	name, prefer string
}

func (a *attentionFlags) add(f *pflag.FlagSet) {
	f.StringVar(&a.name, "attention", "", "what attention keeps: flash-decode, el-attention, slim-keys, slim-inputs or slim-hybrid, or self=NAME,cross=NAME; behind it :float16, :bfloat16 or :skip=P, which cost accuracy (default: as predicted)")
	f.StringVar(&a.prefer, "prefer", string(plan.PreferSpeed), "speed or memory: what attention that is not named is chosen for")
}

func (a *attentionFlags) parse() (o decode.Attention, err error) {
	if a.name != "" {
		if o, err = decode.ParseAttention(a.name); err != nil {
			return o, fmt.Errorf("--attention: %w", err)
		}
	}
	if o.Prefer, err = plan.ParsePrefer(a.prefer); err != nil {
		return o, fmt.Errorf("--prefer: %w", err)
	}
	return o, nil
}
