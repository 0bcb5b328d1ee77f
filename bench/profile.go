package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"

	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/generate/decode"
	hostprofile "github.com/opgraft/graft/host/measure/profile"
	"github.com/opgraft/graft/models"
)

// operatorTime is what the nodes of one operator take in one run of the decoder.
type operatorTime struct {
	Operator string  `json:"operator"`
	MS       float64 `json:"ms"`
	Nodes    int     `json:"nodes"`
}

// runTime is one run of the decoder, or the mean of several.
type runTime struct {
	MS        float64        `json:"ms"`
	Operators []operatorTime `json:"operators"` // the longest first
}

// profiled is where the time of a generation goes.
type profiled struct {
	Prompt runTime `json:"prompt"`
	Step   runTime `json:"step"`
	Steps  int     `json:"steps"`
}

// profile shows what the time of a generation figure goes into: the decoder's
// nodes, as ONNX Runtime times them, of the prompt and of a step.
func profile(name, what, subject string, prompt, tokens int, v varied) figure {
	return figure{name, what, "nothing: it stands beside the figure",
		func(ctx context.Context, b *bench) (*outcome, error) {
			folder, err := models.Cached(subject, say)
			if err != nil {
				return nil, err
			}
			temp, err := storage.Temporary("")
			if err != nil {
				return nil, err
			}
			defer temp.Remove()
			dir := temp.Path
			if err := generateOnce(ctx, b, folder, filepath.Join(dir, "decoder"), prompt, tokens, v); err != nil {
				return nil, err
			}
			files, err := filepath.Glob(filepath.Join(dir, "decoder*"))
			if err != nil || len(files) != 1 {
				return nil, fmt.Errorf("found %d profiles, needed is one: %w", len(files), err)
			}
			read, err := hostprofile.ReadFile(files[0])
			if err != nil {
				return nil, err
			}
			p, err := summed(read)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", files[0], err)
			}
			return &outcome{Met: true, Detail: p, Answers: "not compared",
				Got: fmt.Sprintf("prompt %s; step %s", p.Prompt, p.Step)}, nil
		}}
}

// String is the run and what takes most of it.
func (r runTime) String() string {
	text := fmt.Sprintf("%.1f ms", r.MS)
	for i, o := range r.Operators {
		if i == 4 {
			break
		}
		text += fmt.Sprintf(", %s %.2f", o.Operator, o.MS)
	}
	return text
}

// generateOnce generates twice with a profile: what is first read and made in the
// first run is there in the second.
func generateOnce(ctx context.Context, b *bench, folder, prefix string, prompt, tokens int, v varied) error {
	g, err := decode.Open(ctx, folder,
		decode.Options{Library: b.library, Plugins: b.set, CacheBytes: 8 << 30, Batch: 1, Profile: prefix})
	if err != nil {
		return err
	}
	defer g.Close()
	object, err := v.search(tokens)
	if err != nil {
		return err
	}
	o, err := g.SearchWith(object)
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(v.seed, 5))
	ids := make([]int32, prompt)
	for i := range ids {
		ids[i] = int32(r.IntN(g.Config().Inputs))
	}
	for range 2 {
		given := false
		if err := g.Run(ctx, o, func() (*decode.Input, error) {
			if given {
				return nil, nil
			}
			given = true
			return &decode.Input{Tokens: ids}, nil
		}, func(decode.Output) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// summed sums up the second half of a profile's runs: a prompt, which takes longest, and its steps.
func summed(p *hostprofile.Profile) (*profiled, error) {
	from := len(p.Runs) / 2
	steps := len(p.Runs) - from - 1
	if steps < 1 {
		return nil, fmt.Errorf("it holds %d runs, needed are a prompt and its steps", len(p.Runs)-from)
	}
	return &profiled{Prompt: sumUp(p, from, 1), Step: sumUp(p, from+1, steps), Steps: steps}, nil
}

// sumUp is the mean of some runs.
func sumUp(p *hostprofile.Profile, from, count int) runTime {
	var out runTime
	times := map[string]*operatorTime{}
	for _, ms := range p.Runs[from : from+count] {
		out.MS += ms / float64(count)
	}
	for _, n := range p.Nodes {
		o := times[n.Operator]
		if o == nil {
			o = &operatorTime{Operator: n.Operator}
			times[n.Operator] = o
		}
		sum := 0.0
		for _, ms := range n.Self[from : from+count] {
			sum += ms / float64(count)
		}
		if sum > 0 {
			o.MS, o.Nodes = o.MS+sum, o.Nodes+1
		}
	}
	for _, o := range times {
		if o.Nodes > 0 {
			out.Operators = append(out.Operators, *o)
		}
	}
	slices.SortFunc(out.Operators, func(a, b operatorTime) int { return cmp.Compare(b.MS, a.MS) })
	return out
}
