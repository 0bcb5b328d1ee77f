package generations

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/opgraft/graft/host/generate"
	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/exported"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
)

// way is one open side.
type way struct {
	Side
	device generate.Device
	engine *engine.Engine // nil for the model as exported
	search search.Options
	inputs []*decode.Input
	// steps and reorders of all requests so far.
	steps, reorders int
	// stepBytes is what a step reads at least; 0 where that is not known.
	stepBytes int64
}

func (w *way) close() { w.device.Close() }

// share is that of steps after which a request's rows were not those before.
func (w *way) share() float64 { return float64(w.reorders) / float64(max(w.steps, 1)) }

// rounded is what a side's name says that costs accuracy.
type rounded struct {
	weights prepare.Weights
	cache   plan.Storage // "": what the attention says
}

// sideOf is what a side's name says of weights and of the cache, and what is left of it.
func sideOf(name string) (base string, r rounded, err error) {
	said := map[string]bool{}
	if name == "" {
		return name, r, nil
	}
	for i, part := range strings.Split(name, "+") {
		what, value, ok := strings.Cut(part, "=")
		if what != "weights" && what != "cache" || !ok {
			if i > 0 {
				return "", r, fmt.Errorf("%q is not understood, needed is weights=TYPE or cache=TYPE after a +", part)
			}
			base = part
			continue
		}
		if said[what] {
			return "", r, fmt.Errorf("%s is named twice", what)
		}
		said[what] = true
		if base == "none" {
			return "", r, fmt.Errorf("the model as exported has the %s that it has; needed is %s, or the engine's attention "+
				"before it", what, part)
		}
		if what == "weights" {
			r.weights, err = prepare.ParseWeights(value)
		} else {
			r.cache, err = plan.ParseStorage(value)
		}
		if err != nil {
			return "", r, err
		}
	}
	return cmp.Or(base, "auto"), r, nil
}

// openWay opens a side by its name, as Options says.
func openWay(ctx context.Context, l *ort.Library, set *loaded.Set, folder, name string, config *modeldir.Config,
	inputs []*decode.Input,
	o Options) (_ *way, err error) {
	w := &way{Side: Side{Name: name}, inputs: inputs}
	name, other := folderOf(name)
	if other != "" {
		if err := takes(other, config); err != nil {
			return nil, err
		}
		folder = other
	}
	if w.search, err = decode.SearchOf(folder, config, o.Search); err != nil {
		return nil, err
	}
	rest, drafts, err := draftsOf(name)
	if err != nil {
		return nil, err
	}
	base, lossy, err := sideOf(rest)
	if err != nil {
		return nil, err
	}
	options := decode.Options{Library: l, Plugins: set, Threads: o.Threads, CacheBytes: o.CacheBytes, Batch: len(inputs),
		Weights: lossy.weights, Draft: drafts.model}
	if drafts.from != "" {
		w.search.Draft, w.Drafts = drafts.kind, &Drafts{From: drafts.from}
	}
	if base == "none" {
		w.device, err = exported.Open(ctx, folder, options)
	} else if err = attend(&options, base, w.search, lossy.cache); err == nil {
		var g *decode.Generator
		if g, err = decode.Open(ctx, folder, options); err == nil {
			w.device, w.engine, w.Attention = g, g.Engine(), g.Engine().Strategies()
			if r := g.Weights(); r.Quantized() {
				w.Weights = r
			}
			if c := g.Cache(); c.Rounds() {
				w.Cache = c
			}
		}
	}
	if err != nil {
		return nil, err
	}
	w.Plugins = w.device.Plugins()
	w.Versions = set.Versions(w.Plugins)
	if err := fits(inputs, w.device.Positions(w.search)); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// attend sets what a side's name says of the engine.
func attend(o *decode.Options, name string, so search.Options, cache plan.Storage) error {
	if attention, err := prepare.ParseAttention(name, o.Plugins.Manifests()); err == nil {
		o.Attention = attention
	} else if strings.ContainsAny(name, "=:") {
		return err // no plugin has such a name
	} else if name != "auto" {
		if err := o.Plugins.Require([]string{name}); err != nil {
			return err
		}
		o.Plan = plan.Options{Plugins: []string{name}}
	}
	o.Attention.Beams = max(so.NumBeams, so.NumReturnSequences)
	if cache != "" {
		return o.Attention.Cache(cache)
	}
	return nil
}

// run generates for all inputs. The duration is that until every request had its first
// token.
func (w *way) run(ctx context.Context) ([][]search.Hypothesis, time.Duration, error) {
	results := make([][]search.Hypothesis, len(w.inputs))
	i := -1
	start, prompt, read := time.Now(), time.Duration(0), int64(0)
	err := w.device.Run(ctx, w.search, func() (*decode.Input, error) {
		if i++; i >= len(w.inputs) {
			return nil, nil
		}
		return w.inputs[i], nil
	}, func(out decode.Output) error {
		results[out.Index] = out.Hypotheses
		w.RequestBytes = max(w.RequestBytes, out.CacheBytes+out.CrossBytes)
		w.steps, w.reorders = w.steps+out.Steps, w.reorders+out.Reorders
		if w.Drafts != nil {
			w.Drafts.count(out)
		}
		prompt = max(prompt, out.FirstToken.Sub(start))
		if w.engine != nil {
			read += out.CrossBytes + int64(out.Prompt)*w.engine.PromptBytes()
		}
		return nil
	})
	self, cross := w.device.Peak()
	w.CacheBytes = self + cross
	if g, ok := w.device.(*decode.Generator); ok && w.Drafts != nil {
		if w.Drafts.Model = g.DraftModel(); w.Drafts.Model != nil {
			w.CacheBytes += w.Drafts.Model.SelfCacheBytes + w.Drafts.Model.CrossCacheBytes
		}
	}
	if w.engine != nil && w.engine.StepBytes() > 0 {
		w.stepBytes = w.engine.StepBytes() + read
	}
	return results, prompt, err
}
