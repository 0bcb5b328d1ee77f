package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/models"
)

// KV-cache strategies of the figures, as prepare.ParseAttention reads them.
const (
	strategyShared = "keys_values"
	strategyOutput = "self=keys_values,cross=prompt_hidden_states"
	strategyLeast  = "self=keys,cross=prompt_hidden_states"
)

// attentionFigures are those of KV-cache strategies.
func attentionFigures() []figure {
	return []figure{attentionBytes(), attentionBatch(), attentionSpeed()}
}

// openAttention opens a model whose layers all use the named strategies.
func openAttention(ctx context.Context, l *ort.Library, set *loaded.Set, folder, strategy string,
	batch int) (*decode.Generator, error) {
	attention, err := prepare.ParseAttention(strategy, nil)
	if err != nil {
		return nil, err
	}
	g, err := decode.Open(ctx, folder,
		decode.Options{Library: l, Plugins: set, CacheBytes: 32 << 30, Batch: batch, Attention: attention})
	if err != nil {
		return nil, err
	}
	for _, s := range g.Engine().Strategies() {
		if s.Reason != "" {
			g.Close()
			return nil, fmt.Errorf("%s uses %s instead of what was named: %s", s.Node, s.Strategy, s.Reason)
		}
	}
	return g, nil
}

// generateChild is the hidden first argument of a process that generates once.
const generateChild = "generate-one"

// generateJob is what such a process is to do.
type generateJob struct {
	Folder, Strategy      string
	Batch, Prompt, Tokens int
	Search                json.RawMessage
	Seed                  uint64
	Progress              bool // lines on standard error
	// Last runs the last steps of the generation alone, with one input really encoded and
	// the requests as they are then: the peak of a process, in minutes.
	Last bool
}

// generateTook is what it measured of itself.
type generateTook struct {
	Batch int `json:"batch"`
	// OpenedRSSBytes is what was resident when the model was open, PeakRSSBytes the peak at any
	// time; AnonBytes of the process's own and FileBytes of mapped files at the end.
	OpenedRSSBytes int64 `json:"opened_rss_bytes"`
	PeakRSSBytes   int64 `json:"peak_rss_bytes"`
	AnonBytes      int64 `json:"anon_bytes"`
	FileBytes      int64 `json:"file_bytes"`
	// The maximum that the pools counted.
	SelfBytes  int64 `json:"self_bytes"`
	CrossBytes int64 `json:"cross_bytes"`
	Tokens     int   `json:"tokens"` // of all best sequences
	// Seconds are of all, TTFTSeconds until the last request had its first token.
	Seconds     float64 `json:"seconds"`
	TTFTSeconds float64 `json:"ttft_seconds"`
}

// generateIn lets a process of its own do a job.
func generateIn(ctx context.Context, j generateJob) (t generateTook, err error) {
	self, err := os.Executable()
	if err != nil {
		return t, err
	}
	task, err := json.Marshal(j)
	if err != nil {
		return t, err
	}
	cmd := exec.CommandContext(ctx, self, generateChild)
	cmd.Stdin, cmd.Stderr = strings.NewReader(string(task)), os.Stderr
	data, err := cmd.Output()
	if err != nil {
		return t, fmt.Errorf("generating %d requests with %s: %w", j.Batch, j.Strategy, err)
	}
	return t, json.Unmarshal(data, &t)
}

// generateOneChild is the process.
func generateOneChild(ctx context.Context, in io.Reader, out io.Writer) error {
	var j generateJob
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return err
	}
	l, err := ort.FindAndOpen("")
	if err != nil {
		return err
	}
	set, err := loaded.Load(nil, false)
	if err != nil {
		return err
	}
	g, err := openAttention(ctx, l, set, j.Folder, j.Strategy, j.Batch)
	if err != nil {
		return err
	}
	defer g.Close()
	run := j.run
	if j.Last {
		run = j.runLast
	}
	t, err := run(ctx, g)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(t)
}

func (j generateJob) run(ctx context.Context, g *decode.Generator) (*generateTook, error) {
	o, err := g.SearchWith(j.Search)
	if err != nil {
		return nil, err
	}
	t := &generateTook{Batch: j.Batch}
	if t.OpenedRSSBytes, err = statusBytes("VmRSS"); err != nil {
		return nil, err
	}
	// The inputs hold the same tokens in another order, so that as much of the mapped
	// embedding is resident with two inputs as with many.
	tokens, r := madeTokens(j.Seed, j.Prompt, g.Config().Inputs), rand.New(rand.NewPCG(j.Seed, 6))
	sound := madeSound(j.Seed, g.Config())
	start, given := time.Now(), 0
	var first time.Time
	err = g.Run(ctx, o, func() (*decode.Input, error) {
		if given == j.Batch {
			return nil, nil
		}
		given++
		if given%16 == 0 || given == j.Batch {
			j.say("input %d of %d, after %.0f s", given, j.Batch, time.Since(start).Seconds())
		}
		in := &decode.Input{Index: uint64(given - 1)}
		if sound != nil {
			in.Features = &engine.Features{Values: sound, Shape: g.Config().FeatureShape()}
			return in, nil
		}
		r.Shuffle(len(tokens), func(i, j int) { tokens[i], tokens[j] = tokens[j], tokens[i] })
		in.Tokens = slices.Clone(tokens)
		return in, nil
	}, func(out decode.Output) error {
		if len(out.Hypotheses) == 0 {
			return fmt.Errorf("input %d has no output", out.Index)
		}
		t.Tokens += len(out.Hypotheses[0].Tokens)
		if out.FirstToken.After(first) {
			first = out.FirstToken
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	t.Seconds, t.TTFTSeconds = time.Since(start).Seconds(), first.Sub(start).Seconds()
	return t, t.weigh(g)
}

// runLast makes the requests of a batch as they are two steps before their end, and runs
// these steps.
func (j generateJob) runLast(ctx context.Context, g *decode.Generator) (*generateTook, error) {
	o, err := g.SearchWith(j.Search)
	if err != nil {
		return nil, err
	}
	prompt, err := o.DecoderPrompt()
	if err != nil {
		return nil, err
	}
	e, t, start := g.Engine(), &generateTook{Batch: j.Batch}, time.Now()
	if t.OpenedRSSBytes, err = statusBytes("VmRSS"); err != nil {
		return nil, err
	}
	const steps = 2
	var feeds []engine.Feed
	input := engine.Features{}
	for _, token := range madeTokens(j.Seed, j.Prompt, g.Config().Inputs) {
		input.Tokens = append(input.Tokens, int64(token))
	}
	err = e.EncodeCopies(ctx, input, o.NumBeams, j.Batch, func(encoded *engine.Encoded) error {
		own, err := e.Imagine(len(prompt), o.NumBeams, j.Tokens-steps)
		feeds = append(feeds, engine.Feed{Sequence: own, Cross: encoded, Tokens: make([]int64, o.NumBeams)})
		return err
	})
	if err != nil {
		return nil, err
	}
	for range steps {
		scores, err := e.Step(ctx, feeds)
		if err != nil {
			return nil, err
		}
		t.Tokens += scores.Rows / o.NumBeams
	}
	t.Seconds = time.Since(start).Seconds()
	return t, t.weigh(g)
}

// weigh asks the pools and the system.
func (t *generateTook) weigh(g *decode.Generator) (err error) {
	_, t.SelfBytes, _, t.CrossBytes = g.Engine().Memory()
	for field, to := range map[string]*int64{"VmHWM": &t.PeakRSSBytes, "RssAnon": &t.AnonBytes, "RssFile": &t.FileBytes} {
		if *to, err = statusBytes(field); err != nil {
			return err
		}
	}
	return nil
}

// say writes a line of progress where that is wanted.
func (j generateJob) say(format string, args ...any) {
	if j.Progress {
		fmt.Fprintf(os.Stderr, j.Strategy+": "+format+"\n", args...)
	}
}

// statusBytes is a field of what the system says of this process's memory.
func statusBytes(field string) (int64, error) {
	mb, err := statusMB(field)
	return int64(mb * (1 << 20)), err
}

// madeTokens are random tokens.
func madeTokens(seed uint64, length, vocab int) []int32 {
	r := rand.New(rand.NewPCG(seed, 5))
	list := make([]int32, length)
	for i := range list {
		list[i] = int32(r.IntN(vocab))
	}
	return list
}

// madeSound are features for a speech model; nil for others.
func madeSound(seed uint64, c *modeldir.Config) []float32 {
	shape := c.FeatureShape()
	if shape == nil {
		return nil
	}
	n := 1
	for _, d := range shape {
		n *= int(d)
	}
	return models.Normal(seed, "features", n)
}
