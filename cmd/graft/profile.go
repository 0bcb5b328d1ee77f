package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/profile"
	"github.com/opgraft/graft/host/measure/profile/runs"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/patch"
)

// profiled is the JSON object of graft profile.
type profiled struct {
	*runs.Result
	Machine roofline `json:"machine"`
}

// profileFlags are those that say how a model is run for its profile.
type profileFlags struct {
	dims     []string
	o        runs.Options
	deadline time.Duration
}

func (p *profileFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&p.dims, "dim", nil,
		"length of an axis: name=length, where the name may be cut short, or input.axis=length (input_ids.1=128); may be "+
			"repeated")
	f.StringVar(&p.o.Inputs.File, "inputs", "", "a .npz file or an ONNX test-data folder; inputs not in it are synthetic")
	between(f, &p.o.Inputs.Seed, "seed", 1, 0, math.MaxUint64, "seed of synthetic inputs")
	between(f, &p.o.Rounds, "rounds", 15, 1, 100_000, "rounds of two runs with the profiler and two without")
	between(f, &p.o.Warmup, "warmup", 3, 1, 100_000, "runs of each before timing")
	between(f, &p.o.Threads, "threads", 0, 0, limit.Threads, "threads inside an operator (default: one a core)")
	between(f, &p.deadline, "deadline", comparison.DefaultDeadline, time.Second, 24*time.Hour,
		"how long opening the sessions may take, or a round: then a plugin hangs")
}

func (c *cli) profile() *cobra.Command {
	var flags planFlags
	var p profileFlags
	var g generationSize
	var nodes int
	cmd := &cobra.Command{
		Use:   "profile MODEL.onnx|MODEL_DIR",
		Short: "Show where the time of a run goes: by kind, operator, block and node",
		Long: `Runs the model with ONNX Runtime's profiler, and in turn without it, in a child process,
and says where the time goes: by kind of work, by operator, by block that an operator could
take, and by node. What the runtime fused is found in the model again. Beside each stands how
much a run would gain if it took no time at all, and which part of the machine's peak and
bandwidth it reaches. What the profiler takes itself is taken off; the part of a run that no
node accounts for is stated.

With --patched the model runs with operators of plugins, as graft.Enable would place them.

Of a model folder, each graph is run as a generation runs it: the encoder, the prompt, and a
step in the middle, with the share that each has of a generation.`,
		Example: `  graft profile model.onnx
  graft profile model.onnx --dim batch=8 --dim sequence=128 --nodes 20
  graft profile model.onnx --patched
  graft profile bart-large-cnn --beam 4 --prompt-length 704
  graft profile model.onnx -o json | jq '.kinds'`,
		Args: exactly(1, "one model or one model folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.consistent(cmd, &flags); err != nil {
				return err
			}
			if info, err := os.Stat(args[0]); err == nil && info.IsDir() {
				if err := without(cmd, args[0], "a model, MODEL.onnx, and not a folder", "inputs", "plan"); err != nil {
					return err
				}
				r, err := c.profileFolder(cmd.Context(), args[0], &flags, &p, &g)
				if err != nil {
					return err
				}
				return c.print(r, func(w *page) { r.text(w, nodes) })
			}
			if err := without(cmd, args[0], "a model folder", generatedFlags...); err != nil {
				return err
			}
			r, err := c.profiled(cmd.Context(), args[0], &flags, &p)
			if err != nil {
				return err
			}
			return c.print(r, func(w *page) { r.text(w, nodes) })
		},
	}
	flags.add(cmd)
	p.add(cmd)
	g.add(cmd)
	cmd.Flags().BoolVar(&p.o.Patched, "patched", false, "run the model with operators of plugins")
	between(cmd.Flags(), &nodes, "nodes", 10, 0, 1_000_000, "how many nodes are listed, the longest first")
	return cmd
}

// consistent refuses flags that say nothing together.
func (p *profileFlags) consistent(cmd *cobra.Command, flags *planFlags) error {
	if flags.device != "cpu" {
		return misuse("--device "+flags.device, "--device cpu: there the runtime times nodes when they have ended")
	}
	for _, name := range []string{"force", "accept-quantization-noise", "padding", "plan"} {
		if !p.o.Patched && cmd.Flags().Changed(name) {
			return misuse("--"+name+" without --patched", "--patched, which places operators")
		}
	}
	return nil
}

// profiled profiles a model.
func (c *cli) profiled(ctx context.Context, path string, flags *planFlags, p *profileFlags) (*profiled, error) {
	lengths, err := oneEach(p.dims, ": a profile is of one size")
	if err != nil {
		return nil, err
	}
	set, err := c.load(false)
	if err != nil {
		return nil, err
	}
	a, o, _, err := c.analyse(ctx, path, set, flags)
	if err != nil {
		return nil, err
	}
	defer a.Model.Close()
	r, figures, err := c.profileOf(ctx, path, a, o, p, lengths)
	if err != nil {
		return nil, err
	}
	return &profiled{r, figures}, nil
}

// profileOf profiles a model that was analysed with some options.
func (c *cli) profileOf(ctx context.Context, path string, a *patch.Analysis, o plan.Options, p *profileFlags,
	lengths map[string]int64) (*runs.Result, roofline, error) {
	machine, figures := recorded()
	shown := c.progress("profiling")
	defer shown.end()
	j := runs.Job{Model: path, Options: p.o, Runtime: c.runtime, Folders: c.folders, Deadline: p.deadline,
		Output: &printed{to: c.talk}, Refused: func(why string) { c.say("graft: %s", why) }}
	j.Options.Plugins, j.Options.Except, j.Options.Force, j.Options.QuantizationNoise = o.Plugins, o.Except, o.Force,
		o.QuantizationNoise
	j.Options.Padding, j.Options.Fixed, j.Options.Inputs.Dims = o.Padding, o.Fixed, lengths
	j.Options.Step, j.Options.Progress = shown.say, shown.set
	r, err := runs.Apart(ctx, j, a, machine)
	return r, figures, err
}

// timedRun times a run of the model as it is, for an estimate of what a plan gains.
func (c *cli) timedRun(ctx context.Context, path string, a *patch.Analysis, o plan.Options,
	p *profileFlags) (*plan.Measured, error) {
	lengths, err := oneEach(p.dims, ": a profile is of one size")
	if err != nil {
		return nil, err
	}
	p.o.Inputs.Seed, p.o.Rounds, p.o.Warmup, p.o.Patched = 1, 5, 2, false
	r, _, err := c.profileOf(ctx, path, a, o, p, lengths)
	if err != nil {
		return nil, err
	}
	m := r.Measured(r.Lengths)
	return &m, nil
}

// shownOperators is how many operators are listed for people.
const shownOperators = 12

// text prints where the time goes for people.
func (r *profiled) text(w *page, nodes int) {
	side := "as it is"
	if r.Patched {
		side = fmt.Sprintf("with %s replaced (%s)", counted(r.Replaced, "block"), strings.Join(r.Plugins, ", "))
	}
	w.printf("%s %s\n%s\n\n", r.Model, side, r.Workload)
	w.printf("a run takes %.3f ms (the faster half of %d); with the profiler %.3f ms, of which %.3g us a call of a "+
		"node are taken off\n", r.Run.TypicalMS,
		len(r.Run.TimesMS), r.Profiled.TypicalMS, r.RecordingUS)
	w.printf("%d nodes account for %.1f %% of it; %s\n\n", len(r.Nodes), 100*(1-r.UnexplainedShare), r.unexplained())
	w.table(partRows("kind", r.Kinds, len(r.Kinds)))
	for _, k := range r.Kinds {
		if k.Name == "attention" {
			w.printf("\nattention is %.0f %% of the time: at most %s is to be had here\n", 100*k.Share, times(k.AtMost))
		}
	}
	w.println()
	w.table(partRows("operator", r.Operators, shownOperators))
	if rows := blockRows(r.Blocks); len(rows) > 1 {
		w.println()
		w.table(rows)
	}
	if nodes > 0 && len(r.Nodes) > 0 {
		w.println()
		w.table(nodeRows(r.Nodes, nodes))
	}
	w.printf("\nparts of the peak and the bandwidth are of %s\n", r.Machine)
	measuredOn(w, r.Environment)
}

func (r *profiled) unexplained() string {
	if r.UnexplainedMS < 0 {
		return fmt.Sprintf("they took %.3f ms more when they were recorded than a run takes otherwise, which is noise",
			-r.UnexplainedMS)
	}
	return fmt.Sprintf("%.3f ms are between nodes, or not explained", r.UnexplainedMS)
}

// times is a ratio for people.
func times(x float64) string {
	if x >= 100 {
		return "more than 100x"
	}
	return fmt.Sprintf("%.2fx", x)
}

func percent(x *float64) string {
	if x == nil {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100**x)
}

func partRows(what string, list []profile.Part, most int) [][]string {
	rows := [][]string{{what, "nodes", "ms", "share", "at most", "of peak", "of bandwidth"}}
	for i, p := range list {
		if i == most {
			rows = append(rows, []string{fmt.Sprintf("... %d more, see -o json", len(list)-i), "", "", "", "", "", ""})
			break
		}
		rows = append(rows, []string{p.Name, fmt.Sprint(p.Nodes), fmt.Sprintf("%.3f", p.MS),
			fmt.Sprintf("%.1f %%", 100*p.Share), times(p.AtMost),
			percent(p.OfPeak), percent(p.OfBandwidth)})
	}
	return rows
}

// blockRows are a row for each kind of block.
func blockRows(list []profile.Block) [][]string {
	rows := [][]string{{"block", "number", "ms", "share", "at most", "of peak", "of bandwidth", "from"}}
	for _, b := range profile.Alike(list) {
		rows = append(rows, []string{b.Name, fmt.Sprint(b.Nodes), fmt.Sprintf("%.3f", b.MS),
			fmt.Sprintf("%.1f %%", 100*b.Share), times(b.AtMost),
			percent(b.OfPeak), percent(b.OfBandwidth), b.First})
	}
	return rows
}

func nodeRows(list []profile.Entry, most int) [][]string {
	rows := [][]string{{"node", "operator", "ms", "share", "of peak", "of bandwidth", "makes", "of"}}
	for i, n := range list {
		if i == most {
			break
		}
		made, of := "", n.Block
		if len(n.Outputs) > 0 {
			made = strings.ReplaceAll(fmt.Sprint(n.Outputs[0].Shape), " ", "x")
		}
		if len(n.Covers) > 1 {
			of = strings.TrimSpace(fmt.Sprintf("%d nodes %s", len(n.Covers), of))
		}
		rows = append(rows, []string{n.Name, n.Operator, fmt.Sprintf("%.3f", n.MS), fmt.Sprintf("%.1f %%", 100*n.Share),
			percent(n.OfPeak), percent(n.OfBandwidth), made, of})
	}
	return rows
}
