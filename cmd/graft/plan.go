package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/tensor"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/patch"
)

// planFlags are the flags that narrow or force a plan.
type planFlags struct {
	plugins, except []string
	force, noise    bool
	padding         string
	file            string
	device          string
	time            time.Duration
}

func (p *planFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&p.plugins, "plugins", nil, "use only these plugins, by name")
	f.StringSliceVar(&p.except, "except", nil, "never use these plugins")
	f.BoolVar(&p.force, "force", false, "use every operator that applies, whatever it is expected to gain")
	f.BoolVar(&p.noise, "accept-quantization-noise", false, acceptNoise)
	f.StringVar(&p.padding, "padding", "exact", paddingHelp)
	f.StringVar(&p.file, "plan", "", "use the choices of a plan file (see inspect --write-plan)")
	f.StringVar(&p.device, "device", "cpu", "device that sessions of the model compute on: cpu, cuda or cuda:NUMBER")
	between(f, &p.time, "analysis-time", patch.DefaultTime, time.Millisecond, 24*time.Hour,
		"how long the model may be analysed, such as 60s; it is left alone after that")
}

// acceptNoise is the help of --accept-quantization-noise.
const acceptNoise = "also use operators before what a quantised model rounds to integers, where its answers move " +
	"within the noise of that"

// paddingHelp is the help of --padding.
const paddingHelp = "what becomes of tokens that the attention mask hides: exact leaves them out where no output " +
	"depends on them; ignore leaves them out, and outputs are zeros there; keep computes them"

// on is the backend of the flags' device, nil for the CPU.
func (p *planFlags) on(set *loaded.Set) (*loaded.Backend, error) {
	d, err := tensor.ParseDevice(p.device)
	if err != nil {
		return nil, misused("--device", err)
	}
	return set.On(d), nil
}

// options are those of the flags, for the plugins of set.
func (p *planFlags) options(c *cli, set *loaded.Set) (plan.Options, error) {
	o := plan.Options{Except: p.except, Force: p.force, QuantizationNoise: p.noise}
	padding, err := plan.ParsePadding(p.padding)
	if err != nil {
		return o, misused("--padding", err)
	}
	o.Padding = padding
	if err := set.Require(p.plugins); err != nil {
		return o, err
	}
	for _, name := range p.except {
		if _, err := loaded.Named(set.Plugins, name); err != nil {
			c.say("graft: --except %s: %v", name, err)
		}
	}
	if len(p.plugins) > 0 {
		o.Plugins = p.plugins
	}
	if p.file != "" {
		fixed, err := plan.ReadFile(p.file, set.Manifests())
		if err != nil {
			return o, err
		}
		o.Fixed = fixed
	}
	return o, nil
}

// analyse opens a model, which is the caller's to close, and plans what can be placed in it for the flags'
// device: with which options, and with what of that device.
func (c *cli) analyse(ctx context.Context, path string, set *loaded.Set, flags *planFlags) (*patch.Analysis,
	plan.Options, *loaded.Backend, error) {
	if flags.time <= 0 {
		return nil, plan.Options{}, nil, misused("--analysis-time", fmt.Errorf("%v, needed is a time above 0", flags.time))
	}
	o, err := flags.options(c, set)
	if err != nil {
		return nil, o, nil, err
	}
	on, err := flags.on(set)
	if err != nil {
		return nil, o, nil, err
	}
	manifests := set.Manifests()
	o = set.Plan(o)
	if on != nil {
		o, manifests = on.Plan(o), on.Manifests(manifests)
	}
	p := c.progress("reading " + path)
	defer p.end()
	m, err := model.Open(path)
	if err != nil {
		return nil, o, nil, err
	}
	p.say("analysing " + path)
	ctx = graph.WithProcessorTime(ctx, flags.time)
	a, err := patch.Analyse(ctx, m, manifests, o)
	if err == nil {
		err = a.Settle(ctx, manifests, o)
	}
	if err != nil {
		m.Close()
	}
	return a, o, on, err
}
