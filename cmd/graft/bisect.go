package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/measure/bisect"
)

func (c *cli) bisect() *cobra.Command {
	var s sideFlags
	var j bisect.Job
	cmd := &cobra.Command{
		Use:   "bisect MODEL.onnx",
		Short: "Find which replaced block changes the answers, fails, or is slower",
		Long: `Where graft ab says that answers differ, that a side fails, or (--slower) that it is
slower, this finds the blocks that do it: it compares side A with sides that have some of
B's blocks, fewer each time, each in a child process. It names every smallest set of
blocks that does it: several blocks, where it takes them together. Of other answers it also names
the first tensor in the model's order that leaves the tolerance.

--extract writes the culprit's part of the model, with what it was fed, and prints the
graft ab command that shows it there. Exit code 5 when a culprit is found, 0 when B does as A.`,
		Example: `  graft bisect model.onnx --b flash-decode --dim batch=4
  graft bisect model.onnx --b plan.json --inputs inputs.npz --extract culprit
  graft bisect model.onnx --slower --rounds 30`,
		Args: exactly(1, "one model"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if info, err := os.Stat(args[0]); err == nil && info.IsDir() {
				return misuse("the folder "+args[0], "a model, MODEL.onnx")
			}
			if !j.Slower {
				if err := without(cmd, args[0], "--slower, which compares times", "rounds", "warmup"); err != nil {
					return err
				}
			}
			if err := s.parse(); err != nil {
				return err
			}
			if list, err := sides(s.B); err != nil {
				return err
			} else if len(list) > 1 {
				return misuse("--b "+s.B, "one side, whose culprit is searched")
			}
			if len(s.Axes) > 0 {
				return misuse("--dim with several lengths", "one of each, at which b does otherwise than a")
			}
			p := c.progress("planning")
			j.Model, j.Options, j.Runtime, j.Folders, j.Output = args[0], s.Options, c.runtime, c.folders, &printed{to: c.talk}
			j.Options.Step, j.Refused = p.say, func(why string) { c.say("graft: %s", why) }
			if cmd.Flags().Changed("deadline") {
				j.Deadline = s.deadline
			}
			r, err := bisect.Apart(cmd.Context(), j)
			p.end()
			if err != nil {
				return err
			}
			if err := c.print(r, func(w *page) { bisected(w, r) }); err != nil {
				return err
			}
			if len(r.Culprits) == 0 {
				return nil
			}
			if j.Plan != "" {
				c.say("wrote %s", j.Plan)
			}
			return &diagnostic.Error{Kind: errDiffers, Path: args[0],
				Found: fmt.Sprintf("%s between %s and %s", verdictOf(r), r.A, r.B), Fix: remedy(r)}
		},
	}
	s.register(cmd.Flags())
	f := cmd.Flags()
	f.BoolVar(&j.Slower, "slower", false, "find what takes longer, instead of what answers otherwise")
	f.StringVar(&j.Extract, "extract", "",
		"an empty or new folder for the culprit's part of the model and its inputs; of several culprits, folders 1, 2, "+
			"... in it")
	f.StringVar(&j.Plan, "write-plan", "",
		"write B's choices without the culprits to a plan file, where there are culprits")
	f.Lookup("dim").Usage = "length of an axis: name=length, or input.axis=length, as for graft ab; may be repeated"
	f.Lookup("b").Usage = "operators of the side with the culprit"
	f.Lookup("deadline").Usage = "how long a probe may take (default: ten times what side A takes, from 30s to 10m): " +
		"then a plugin hangs"
	return cmd
}

// verdictOf says in words what was found.
func verdictOf(r *bisect.Result) string {
	switch r.Whole.How {
	case bisect.Differs:
		return errDiffers.Error()
	case bisect.Slower:
		return "the times differ"
	}
	return "the outcome differs"
}

// remedy is what leaves the culprits out.
func remedy(r *bisect.Result) string {
	for _, c := range r.Culprits {
		if c.Padding && len(c.Blocks) == 0 {
			return "--padding keep leaves padding in"
		}
	}
	return "--write-plan writes a plan without these blocks; report it to the plugin's author"
}

// bisected prints a result for people.
func bisected(w *page, r *bisect.Result) {
	what := "answers as"
	if r.Searched == "time" {
		what = "is not slower than"
	}
	if len(r.Culprits) == 0 {
		w.printf("b (%s) %s a (%s): no culprit among %s\n", r.B, what, r.A, counted(r.Blocks, "block"))
		if s := r.Whole.Speedup; s != nil {
			w.printf("%s\n", faster("b", *s, 2*r.Rounds))
		}
		return
	}
	w.printf("%s of %s: %s\n", counted(r.Probes, "probe"), counted(r.Blocks, "block"), counted(len(r.Culprits), "culprit"))
	for i := range r.Culprits {
		if r.Culprits[i].Like == 0 || i == 0 || r.Culprits[i-1].Like == 0 {
			w.println()
		}
		culprit(w, &r.Culprits[i], i+1)
	}
}

// shownOutputs is how many outputs that differ are listed for people.
const shownOutputs = 3

func culprit(w *page, c *bisect.Culprit, number int) {
	rows := [][]string{}
	for _, b := range c.Blocks {
		with := b.Operator + " of " + b.Plugin
		if b.Operator == "" {
			with = "left unchanged"
		}
		if b.OperatorA != "" {
			with += ", in a " + b.OperatorA
		}
		rows = append(rows, []string{"  " + b.Kind, b.Node, with})
	}
	head := outcomeWords(c.Outcome)
	switch {
	case c.Padding:
		head = "the removal of padding " + head
	case len(c.Blocks) > 1:
		head = fmt.Sprintf("%d blocks together: b %s; with fewer of them it does not", len(c.Blocks), head)
	default:
		head = "b " + head
	}
	if c.Like > 0 {
		head = fmt.Sprintf("as %d", c.Like)
	}
	w.printf("%d. %s\n", number, head)
	w.table(rows)
	if c.Like > 0 {
		return
	}
	for i, o := range c.Outcome.Outputs {
		if i == shownOutputs {
			w.printf("  ... %d more outputs, see -o json\n", len(c.Outcome.Outputs)-i)
			break
		}
		w.printf("  output %s: %s\n", o.Name, off(o.Problem, o.MaxAbsolute, o.MaxRelative, o.Disagree))
	}
	if t := c.First; t != nil {
		w.printf("  first tensor outside the tolerance (%.3g + %.3g relative): %s, %s%v, made by %s %s\n    %s\n", t.Absolute,
			t.Relative, t.Name, t.Type, t.Shape, t.Op, t.Node,
			off(t.Problem, t.MaxAbsolute, t.MaxRelative, t.Disagree))
	} else if c.Outcome.How == bisect.Differs && len(c.Blocks) > 0 {
		w.printf("  no tensor inside the model leaves the tolerance when ONNX Runtime fuses nothing: the outputs do by " +
			"what it fuses\n")
	}
	if e := c.Extract; e != nil {
		switch {
		case e.Whole:
			w.printf("  no part of the model that was tried shows it; the whole model does%s:\n",
				map[bool]string{false: " not either, when tried again"}[e.Shown])
		default:
			w.printf("  extract: %s, %d nodes\n", e.Model, e.Nodes)
		}
		w.printf("  run: %s\n", e.Command)
	}
}

// off says how far a tensor is off.
func off(problem string, absolute, relative float64, disagree int64) string {
	if problem != "" {
		return problem
	}
	return fmt.Sprintf("off by up to %s (%s relative), %d elements outside", difference(absolute), difference(relative),
		disagree)
}

func outcomeWords(o bisect.Outcome) string {
	switch o.How {
	case bisect.Differs:
		return "answers otherwise than a"
	case bisect.Slower:
		return fmt.Sprintf("is slower by %.3g ms a run: %.2fx as fast as a (95%% confidence %.2fx to %.2fx)", o.LongerMS,
			o.Speedup.Median, o.Speedup.CI95[0], o.Speedup.CI95[1])
	case bisect.Fails:
		return "fails: " + o.Detail
	}
	return "ends its process: " + o.Detail
}
