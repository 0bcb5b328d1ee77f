package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/decode"
	"github.com/opgraft/graft/host/storage"
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
	return figure{name, what, "nothing: it stands beside the figure", func(ctx context.Context, b *bench) (*outcome, error) {
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
		p, err := readProfile(files[0])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", files[0], err)
		}
		return &outcome{Met: true, Detail: p, Answers: "not compared", Got: fmt.Sprintf("prompt %s; step %s", p.Prompt, p.Step)}, nil
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
	g, err := decode.Open(folder, decode.Options{Library: b.library, Plugins: b.set, CacheBytes: 8 << 30, Batch: 1, Profile: prefix})
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

// event is one of ONNX Runtime's profile; times are in microseconds.
type event struct {
	Category string  `json:"cat"`
	Name     string  `json:"name"`
	Start    float64 `json:"ts"`
	Duration float64 `json:"dur"`
	Args     struct {
		Operator string `json:"op_name"`
	} `json:"args"`
}

// readProfile sums up the second half of the runs: a prompt, which takes longest,
// and its steps.
func readProfile(path string) (*profiled, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var events []event
	if err := json.Unmarshal(data, &events); err != nil {
		return nil, err
	}
	var runs, nodes []event
	for _, e := range events {
		switch {
		case e.Name == "model_run":
			runs = append(runs, e)
		case e.Category == "Node" && strings.HasSuffix(e.Name, "_kernel_time"):
			nodes = append(nodes, e)
		}
	}
	if runs = runs[len(runs)/2:]; len(runs) < 2 {
		return nil, fmt.Errorf("it holds %d runs, needed are a prompt and its steps", len(runs))
	}
	return &profiled{Prompt: sumUp(runs[:1], nodes), Step: sumUp(runs[1:], nodes), Steps: len(runs) - 1}, nil
}

// sumUp is the mean of runs.
func sumUp(runs, nodes []event) runTime {
	var out runTime
	times := map[string]*operatorTime{}
	count := float64(len(runs))
	for _, r := range runs {
		out.MS += r.Duration / 1e3 / count
		for _, n := range nodes {
			if n.Start < r.Start || n.Start >= r.Start+r.Duration {
				continue
			}
			if times[n.Args.Operator] == nil {
				times[n.Args.Operator] = &operatorTime{Operator: n.Args.Operator}
			}
			times[n.Args.Operator].MS += n.Duration / 1e3 / count
			times[n.Args.Operator].Nodes++
		}
	}
	for _, o := range times {
		o.Nodes /= len(runs)
		out.Operators = append(out.Operators, *o)
	}
	slices.SortFunc(out.Operators, func(a, b operatorTime) int { return cmp.Compare(b.MS, a.MS) })
	return out
}
