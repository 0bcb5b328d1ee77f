// Command demo shows graft on real text: what is found in a trained GPT-2 type
// model, its continuation with and without graft, words that an encoder-decoder
// pronounces with beams, and the time of a step of the 124M shape at several past lengths. `make demo` runs it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opgraft/graft/cmd/demo/greedy"
	"github.com/opgraft/graft/host/generate/text"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/host/session/sessions"
	"github.com/opgraft/graft/models"
)

const (
	tiny      = "models/tiny-gpt2"
	subject   = "gpt2-124m"
	batch     = 4
	rounds    = 12
	newTokens = 48
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	start := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "[%3.0f s] %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
	}
	d := &demo{ctx: ctx, out: os.Stdout, say: say}
	if err := d.run(); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// demo is one demonstration.
type demo struct {
	ctx     context.Context
	out     io.Writer                        // results
	say     func(format string, args ...any) // what begins
	library *ort.Library
	set     *loaded.Set
}

func (d *demo) run() (err error) {
	d.say("loading ONNX Runtime and the plugins")
	if d.library, err = ort.FindAndOpen(""); err != nil {
		return err
	}
	if d.set, err = loaded.Load(nil, false); err != nil {
		return err
	}
	d.print("ONNX Runtime %s, plugins: %s\n\n", d.library.Version(), strings.Join(d.set.Names(), ", "))
	for _, part := range []func() error{d.continuation, d.pronounce, d.steps} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) print(format string, args ...any) { fmt.Fprintf(d.out, format, args...) }

// continuation prints what was found and the text with and without graft.
func (d *demo) continuation() error {
	path := filepath.Join(tiny, "model.onnx")
	d.say("opening %s twice: unpatched, and with graft", path)
	var found *patch.Analysis
	patcher := &sessions.Patcher{Plugins: d.set.Plugins, Options: d.set.Plan(plan.Options{})}
	patched, err := session.Open(d.library, path,
		session.Options{Patcher: func(r session.Request) (*session.Patch, error) {
			p, err := patcher.Plan(context.Background(), r)
			if err != nil {
				return nil, err
			}
			found = p.Analysis
			return p.Patch()
		}})
	if err != nil {
		return err
	}
	defer patched.Close()
	unpatched, err := session.Open(d.library, path, session.Options{Unpatched: true})
	if err != nil {
		return err
	}
	defer unpatched.Close()

	d.print("%s, trained on public-domain English:\n", path)
	d.blocks(found)

	tokenizer, err := text.Open(tiny)
	if err != nil {
		return err
	}
	prompts, err := readPrompts(filepath.Join(tiny, "prompts.json"))
	if err != nil {
		return err
	}
	same := 0
	picked := []int{1, 8}
	for at, i := range picked {
		d.say("continuing prompt %d of %d by %d tokens", at+1, len(picked), newTokens)
		without, err := greedy.Continue(d.ctx, d.library, unpatched, prompts[i], newTokens)
		if err != nil {
			return err
		}
		with, err := greedy.Continue(d.ctx, d.library, patched, prompts[i], newTokens)
		if err != nil {
			return err
		}
		for j := range with {
			if with[j] == without[j] {
				same++
			}
		}
		for _, part := range []struct {
			name   string
			tokens []int64
		}{{"\n  prompt   ", prompts[i]}, {"  without  ", without}, {"  with     ", with}} {
			line, err := oneLine(tokenizer, part.tokens)
			if err != nil {
				return err
			}
			d.print("%s%s\n", part.name, line)
		}
	}
	d.print("\n  %d of %d tokens equal\n\n", same, newTokens*len(picked))
	if same != newTokens*len(picked) {
		return errors.New("the tokens differ")
	}
	return nil
}

// blocks says what was recognised and what replaced it, alike ones once.
func (d *demo) blocks(a *patch.Analysis) {
	counts := map[string]int{}
	var order []string
	for _, c := range a.Plan.Choices {
		what := "nodes"
		if c.Match != nil {
			what = "nodes that are a " + c.Match.Operator.Name
		}
		if c.Block != nil {
			f := c.Block.Attention
			what = fmt.Sprintf("%s attention, %d heads of %d", f.Type, f.Heads, f.HeadSize)
		}
		line := fmt.Sprintf("%s, left unchanged", what)
		if c.Operator != nil {
			line = fmt.Sprintf("%s -> %s", what, c.Operator.Name)
		} else if c.Block == nil {
			continue
		}
		if counts[line] == 0 {
			order = append(order, line)
		}
		counts[line]++
	}
	for _, line := range order {
		d.print("  %d x %s\n", counts[line], line)
	}
	d.print("  %d softmax or attention operators not recognised\n", len(a.Report.Unrecognised))
}

// steps prints the time of a step of the full-size shape, unpatched and patched.
func (d *demo) steps() error {
	dir, err := models.Cached(subject, func(dir string) { d.say("making %s, once", dir) })
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "model.onnx")
	d.print("GPT-2-124M as exported (weights from a seed), fp32, %d rows, ms a step:\n\n", batch)
	d.print("  past   ONNX Runtime   with graft   speed-up   answers\n")
	var last *comparison.Result
	for _, past := range []int64{16, 256, 512, 960} {
		d.say("timing steps after %d positions, unpatched and with graft", past)
		r, err := comparison.Run(d.ctx, d.library, d.set, path, comparison.Options{A: "none", B: "auto", Rounds: rounds,
			Inputs: inputs.Options{Seed: 1, Dims: map[string]int64{"batch_size": batch, "past_sequence_length": past}}})
		if err != nil {
			return err
		}
		answers := "equal"
		if !r.Parity.OK {
			answers = "DIFFERENT"
		}
		speedup := fmt.Sprintf("%.2fx", r.Speedup.Median)
		if !r.Speedup.Significant {
			speedup = "~"
		}
		d.print("  %4d   %12.1f   %10.1f   %8s   %s\n", past, r.A.MedianMS, r.B.MedianMS, speedup, answers)
		if !r.Parity.OK {
			return errors.New("the answers differ")
		}
		last = r
	}
	e := last.Environment
	d.print("\n%s, %d cores, memory bandwidth %.0f GB/s; medians of %d interleaved runs, ~ is not significant\n", e.CPU,
		e.Cores, e.MemoryBandwidthGB, 2*rounds)
	d.print("next: bin/graft inspect YOUR-MODEL.onnx, then bin/graft ab YOUR-MODEL.onnx\n")
	return nil
}

func readPrompts(path string) ([][]int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var prompts [][]int64
	return prompts, json.Unmarshal(data, &prompts)
}

// oneLine is the text of tokens with its lines side by side.
func oneLine(t *text.Tokenizer, tokens []int64) (string, error) {
	s, err := t.Decode(tokens, text.DecodeOptions{})
	lines := slices.DeleteFunc(strings.Split(s, "\n"), func(s string) bool { return s == "" })
	return strings.Join(lines, " / "), err
}
