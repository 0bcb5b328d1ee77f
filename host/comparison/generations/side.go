package generations

import (
	"context"
	"strings"
	"time"

	"github.com/opgraft/graft/host/decode"
	"github.com/opgraft/graft/host/decode/modeldir"
	"github.com/opgraft/graft/host/decode/plain"
	"github.com/opgraft/graft/host/decode/prepare"
	"github.com/opgraft/graft/host/decode/search"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/patch"
	"github.com/opgraft/graft/host/plan"
)

// way is one open side.
type way struct {
	Side
	run   func(ctx context.Context) ([][]search.Hypothesis, time.Duration, error)
	share func() float64
	close func()
	// stepBytes is what a step reads at least; 0 where that is not known.
	stepBytes int64
}

func openWay(l *ort.Library, set *patch.Set, folder, name string, config *modeldir.Config, inputs []*decode.Input, o Options) (*way, error) {
	if name == "none" {
		return openPlain(l, set, folder, config, inputs, o)
	}
	w := &way{Side: Side{Name: name}}
	options := decode.Options{Library: l, Plugins: set, Threads: o.Threads, CacheBytes: o.CacheBytes, Batch: len(inputs)}
	if attention, err := prepare.ParseAttention(name, set.Manifests()); err == nil {
		options.Attention = attention
	} else if strings.ContainsAny(name, "=:") {
		return nil, err // no plugin has such a name
	} else if name != "auto" {
		if err := set.Require([]string{name}); err != nil {
			return nil, err
		}
		options.Plan = plan.Options{Plugins: []string{name}}
	}
	so, err := decode.SearchOf(folder, config, o.Search)
	if err != nil {
		return nil, err
	}
	options.Attention.Beams = max(so.NumBeams, so.NumReturnSequences)
	g, err := decode.Open(folder, options)
	if err != nil {
		return nil, err
	}
	if err := fits(inputs, g.Positions(so)); err != nil {
		g.Close()
		return nil, err
	}
	w.close, w.Plugins, w.Attention = g.Close, g.Engine().Plugins(), g.Engine().Strategies()
	steps, reorders := 0, 0
	w.share = func() float64 { return float64(reorders) / float64(max(steps, 1)) }
	w.run = func(ctx context.Context) ([][]search.Hypothesis, time.Duration, error) {
		results := make([][]search.Hypothesis, len(inputs))
		i := -1
		start, prompt, read := time.Now(), time.Duration(0), int64(0)
		err := g.Run(ctx, so, func() (*decode.Input, error) {
			if i++; i >= len(inputs) {
				return nil, nil
			}
			return inputs[i], nil
		}, func(out decode.Output) error {
			results[out.Index] = out.Hypotheses
			w.SampleBytes = max(w.SampleBytes, out.CacheBytes+out.CrossBytes)
			read += out.CrossBytes + int64(out.Prompt)*g.Engine().PromptBytes()
			steps, reorders = steps+out.Steps, reorders+out.Reorders
			prompt = max(prompt, out.FirstToken.Sub(start))
			return nil
		})
		_, self, _, cross := g.Engine().Memory()
		w.CacheBytes = self + cross
		if weights := g.Engine().StepBytes(); weights > 0 {
			w.stepBytes = weights + read
		}
		return results, prompt, err
	}
	return w, nil
}

func openPlain(l *ort.Library, set *patch.Set, folder string, config *modeldir.Config, made []*decode.Input, o Options) (*way, error) {
	files, err := modeldir.Find(folder)
	if err != nil {
		return nil, err
	}
	so, err := decode.SearchOf(folder, config, o.Search)
	if err != nil {
		return nil, err
	}
	if err := fits(made, config.InputLimit(so, files.Encoder != "", min(config.Positions, modeldir.DefaultPositions))); err != nil {
		return nil, err
	}
	m, err := plain.Open(l, files, o.Threads)
	if err != nil {
		return nil, err
	}
	tail, closeTail, err := decode.TailOf(set, o.Threads)
	if err != nil {
		m.Close()
		return nil, err
	}
	w := &way{Side: Side{Name: "none", Plugins: []string{}}, close: func() { m.Close(); closeTail() }, share: func() float64 { return 0 }}
	var inputs []plain.Input
	for _, given := range made {
		in := plain.Input{Index: given.Index, Prompt: given.Tokens}
		if files.Encoder != "" {
			prompt, err := so.DecoderPrompt()
			if err != nil {
				w.close()
				return nil, err
			}
			in.Encoder, in.Features, in.Prompt = given.Tokens, given.Features, prompt
		}
		inputs = append(inputs, in)
	}
	w.run = func(ctx context.Context) ([][]search.Hypothesis, time.Duration, error) {
		start := time.Now()
		results, err := m.Generate(ctx, tail, so, inputs, config.Vocab)
		w.CacheBytes = m.Self + m.Cross
		w.SampleBytes = w.CacheBytes / int64(len(inputs))
		lists := make([][]search.Hypothesis, len(results))
		for i, r := range results {
			lists[i] = r.Hypotheses
		}
		return lists, m.FirstToken.Sub(start), err
	}
	return w, nil
}
