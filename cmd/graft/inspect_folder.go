package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
)

// folderInspection is the JSON object of graft inspect for the folder of a model that
// generates.
type folderInspection struct {
	Model     string               `json:"model"`
	Plugins   []string             `json:"plugins"`
	Machine   roofline             `json:"machine"`
	Attention []attentionKind      `json:"attention"`
	Layers    []plan.LayerStrategy `json:"layers"`
}

// attentionKind is one kind of attention with all that it could store.
type attentionKind struct {
	plan.Layers
	Range      plan.Range    `json:"range"`
	Chosen     string        `json:"chosen"`
	PerRequest bool          `json:"per_request"` // each request's shape decides
	Reason     string        `json:"reason"`
	Options    []plan.Option `json:"options"`
}

// inspectFolder prepares a folder for generation and says which strategy its attention has, and
// why. No engine is opened.
func (c *cli) inspectFolder(ctx context.Context, folder string, flags *attentionFlags, maxCache string, beams,
	batch int) error {
	cache, err := bytesOf("--max-cache", maxCache, limit.Cache)
	if err != nil {
		return err
	}
	l, err := ort.FindAndOpen(c.runtime)
	if err != nil {
		return err
	}
	set, err := c.load(true)
	if err != nil {
		return err
	}
	attention, err := flags.parse(set.Manifests())
	if err != nil {
		return err
	}
	attention.Beams = beams
	p := c.progress("planning " + folder)
	g, err := decode.Prepare(ctx, folder,
		decode.Options{Library: l, Plugins: set, Attention: attention, CacheBytes: cache, Batch: batch, Explain: true})
	p.end()
	if err != nil {
		return err
	}
	defer g.Close()
	for _, note := range g.Notes {
		c.say("graft: %v", note)
	}
	r := &folderInspection{Model: folder, Plugins: g.Decoder.Plugins,
		Layers: g.Interface.Strategies}
	for _, x := range g.Choices {
		r.Attention = append(r.Attention,
			attentionKind{x.Kind.Layers, x.Kind.Range, x.Candidate.String(), x.Either != nil, x.Reason, x.Options})
	}
	_, r.Machine = recorded()
	return c.print(r, func(w *page) { r.text(w) })
}

func (r *folderInspection) text(w *page) {
	for _, k := range r.Attention {
		s := k.Range.Largest()
		if k.PerRequest {
			w.printf("%s\n%s\n", k.Layers, k.Reason)
		} else {
			w.printf("%s\n%s: %s\n", k.Layers, k.Chosen, k.Reason)
		}
		w.printf("at %d positions, %d beams and %d requests at once:\n", s.Keys+s.Own, s.Beams, s.Batch)
		rows := [][]string{{"strategy", "MB a request", "predicted ms a step", "measured", "speed over the range", "at worst",
			"requests in the cache"}}
		for _, o := range k.Options {
			if o.Refused != "" {
				rows = append(rows, []string{o.Name, "-", "-", "-", "-", "-", o.Refused})
				continue
			}
			measured, requests := "-", "-"
			if o.Largest.Measured {
				measured = fmt.Sprintf("%.2f", 1e3*o.Largest.Seconds)
			}
			if o.Batch > 0 {
				requests = fmt.Sprint(o.Batch)
			}
			rows = append(rows, []string{o.Name, megabytes(o.Largest.Bytes), fmt.Sprintf("%.2f", 1e3*o.Largest.Model), measured,
				fmt.Sprintf("%.2fx", o.Speedup), fmt.Sprintf("%.2fx", o.Worst), requests})
		}
		w.table(rows)
		w.println()
	}
	w.printf("predictions are for %s\n\n", r.Machine)
	stored := map[string]int{}
	for _, l := range r.Layers {
		strategy := string(l.Strategy)
		if slices.ContainsFunc(r.Attention, func(k attentionKind) bool { return k.PerRequest && k.Type == l.Type }) {
			strategy = "each request's shape decides"
		}
		stored[l.Type+" attention: "+strategy]++
	}
	for _, what := range slices.Sorted(maps.Keys(stored)) {
		w.printf("%d of %s\n", stored[what], what)
	}
	for _, l := range r.Layers {
		if l.Reason != "" {
			w.printf("  %s: %s\n", l.Node, l.Reason)
		}
	}
}
