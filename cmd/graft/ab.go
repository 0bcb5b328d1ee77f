package main

import (
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/distribute/author"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/measure/changes"
	"github.com/opgraft/graft/host/measure/comparison"
	reports "github.com/opgraft/graft/host/measure/report"
	"github.com/opgraft/graft/host/measure/statistics"
	"github.com/opgraft/graft/host/plugin/manifest"
)

func (c *cli) ab() *cobra.Command {
	var f sideFlags
	var g generationFlags
	var to string
	var require requireFlag
	cmd := &cobra.Command{
		Use:   "ab MODEL.onnx|MODEL_DIR",
		Short: "Compare sets of operators on a model: answers first, then interleaved times",
		Long: `Runs the model with operators A and B. Each is one of: none (ONNX Runtime as it
is), auto (what graft.Enable would do), a plugin's name, or a plan file (a path
or a name ending in .json). Answers are compared output by output; then runs are
timed in the order A B B A. A difference is printed as ~ unless the U-test finds it
significant and its interval leaves out 1. Exit code 5 when the answers differ.
Where no side replaces anything, their times are not compared: an error; but --a none
--b none is the A/A check, which shows how far two equal sides are apart here.

With several sides of --b each is compared with A, and several lengths of --dim are
swept. --report writes the result as one HTML file, which needs no network.

Of a model folder, whole generations are compared: none is the model as exported
with its past and present as tensors, auto the engine. Tokens are compared first.`,
		Example: `  graft ab model.onnx --a none --b auto --dim batch=4 --dim past_sequence_length=960
  graft ab model.onnx --a none --b flash-decode --inputs inputs.npz -o json
  graft ab model.onnx --a auto --b plan.json --rounds 50
  graft ab model.onnx --b flash-decode,auto --dim batch=1,8 --report report.html
  graft ab model.onnx --b flash-decode --require 1.2x
  graft ab bart-large-cnn --a none --b auto --beam 4 --prompt-length 704 --max-new-tokens 64 -o json`,
		Args: exactly(1, "one model or model folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := sides(f.B)
			if err != nil {
				return err
			}
			f.B, f.Others = list[0], list[1:]
			if err := reportTo(to); err != nil {
				return err
			}
			if err := require.check(f.Rounds); err != nil {
				return err
			}
			if info, err := os.Stat(args[0]); err == nil && info.IsDir() {
				if !modeldir.HasConfig(args[0]) && manifest.Exists(args[0]) {
					return &diagnostic.Error{Path: args[0], Found: "found the folder of a plugin",
						Needed: "a model, or a model folder",
						Fix:    "name a model that holds what the plugin replaces; graft plugin new writes one, " + author.Example}
				}
				if err := without(cmd, args[0], "a model, MODEL.onnx, and not a folder", "dim", "inputs", "warmup", "force",
					"accept-quantization-noise", "padding", "absolute", "relative"); err != nil {
					return err
				}
				return c.abFolder(cmd, args[0], f.Options, &g, &require, f.deadline, to)
			}
			if err := without(cmd, args[0], "a model folder", generationFlagNames...); err != nil {
				return err
			}
			if err := f.parse(); err != nil {
				return err
			}
			o := f.Options
			o.Unoptimized = true
			p := c.progress("comparing")
			o.Step, o.Progress = p.say, p.set
			j := comparison.Job{Model: args[0], Options: o, Runtime: c.runtime, Folders: c.folders, Deadline: f.deadline,
				Memory: to != "",
				Output: &printed{to: c.talk}, Refused: func(why string) { c.say("graft: %s", why) }}
			s, err := comparison.SweepApart(cmd.Context(), j)
			if err == nil && to != "" {
				err = c.partsOf(cmd.Context(), j, s)
			}
			p.end()
			if err != nil {
				return err
			}
			if r := s.Result(); r != nil {
				err = c.print(r, func(w *page) { compared(w, r) })
			} else {
				err = c.print(s, func(w *page) { swept(w, s, c.width()) })
			}
			if err == nil && to != "" {
				content, made := reports.Model(s, reportOptions())
				err = c.writeReport(to, content, made)
			}
			if err == nil && s.OK() {
				return require.met(args[0], o.A, changes.Measured{Result: s})
			}
			if err != nil {
				return err
			}
			return &diagnostic.Error{Kind: errDiffers, Path: args[0],
				Found: fmt.Sprintf("%v between %s and %s", errDiffers, o.A, strings.Join(s.Differ(), ", "))}
		},
	}
	g.register(cmd)
	f.register(cmd.Flags())
	require.register(cmd.Flags())
	cmd.AddCommand(c.abCompare())
	cmd.Flags().StringVar(&to, "report", "",
		"HTML file to write with charts, answers, memory, plan and the raw data: one file that needs no network")
	return cmd
}

// shownInputs is how many inputs a comparison lists for people: a decoder has a past for each layer.
const shownInputs = 6

// compared prints a result for people.
func compared(w *page, r *comparison.Result) {
	verdict := "equal"
	if !r.Parity.OK {
		verdict = "DIFFERENT"
	}
	if r.Parity.Random != "" {
		verdict = "cannot be compared: " + r.Parity.Random
	}
	if size := r.Workload.String(); size != "" {
		w.printf("%s\n\n", size)
	}
	inputs := [][]string{{"input", "type", "shape", "holds"}}
	for i, in := range r.Inputs {
		if i == shownInputs {
			inputs = append(inputs, []string{fmt.Sprintf("... %d more, see -o json", len(r.Inputs)-i), "", "", ""})
			break
		}
		inputs = append(inputs, []string{in.Name, in.Type, fmt.Sprint(in.Shape), in.From})
	}
	w.table(inputs)
	w.printf("\nanswers of b against a: %s\n", verdict)
	if len(r.B.Zeros) > 0 {
		w.printf("b has zeros in %s where tokens are hidden; these rows are not compared\n", strings.Join(r.B.Zeros, ", "))
	}
	rows := [][]string{{"output", "type", "max abs", "of tolerance", "least cosine", "top-1", "from unoptimised", ""}}
	for _, o := range r.Parity.Outputs {
		top := ""
		if o.Top1 != nil {
			top = fmt.Sprintf("%.4g%%", *o.Top1*100)
		}
		note := o.Problem
		if !o.OK && note == "" {
			note = fmt.Sprintf("%d elements outside %.3g + %.3g relative", o.Disagree, o.Absolute, o.Relative)
		}
		unoptimized := ""
		if o.Unoptimized != nil {
			unoptimized = difference(o.Unoptimized.MaxAbsolute)
		}
		if o.SameMistake() {
			note = "a and b agree, and are both far from the model without ONNX Runtime's optimisations, which may be right"
		}
		if o.Noise != nil {
			note += fmt.Sprintf("; the runtime is %.3g from itself without its optimisations", o.Noise.MaxAbsolute)
		}
		if o.WideA != nil {
			note += fmt.Sprintf("; from the model in float64 a is %.3g, b %.3g", o.WideA.MaxAbsolute, o.WideB.MaxAbsolute)
		}
		note = strings.TrimPrefix(note, "; ")
		rows = append(rows, []string{o.Name, o.Type, difference(o.MaxAbsolute), difference(o.OfTolerance),
			similarity(o.Cosine), top, unoptimized, note})
	}
	w.table(shorten(rows))
	w.println()
	w.table([][]string{
		{"", "operators", "replaced", "load ms", "median ms"},
		sideRow("a", &r.A), sideRow("b", &r.B),
	})
	described(w, comparison.OfModel, r.A.Opened, r.B.Opened)
	w.printf("\n%s\n", faster("b", r.Speedup, len(r.A.TimesMS)))
	measuredOn(w, r.Environment)
}

// described says what sides are, each once.
func described(w *page, as comparison.Meanings, sides ...comparison.Opened) {
	seen := map[string]bool{}
	for _, s := range sides {
		if !seen[s.Name] {
			w.printf("%s\n", as.Describe(s.Name, s.Plugins, s.Versions))
		}
		seen[s.Name] = true
	}
}

// measuredOn prints where figures were measured.
func measuredOn(w *page, e comparison.Environment) {
	w.printf("%s, %d cores, onnxruntime %s, memory bandwidth %.0f GB/s\n", e.CPU, e.Cores, e.ONNXRuntime,
		e.MemoryBandwidthGB)
	if e.Busy() {
		w.printf("the machine is busy: a thread gets %.0f %% of a core, so these times say little\n", 100*e.CoreShare)
	}
}

// faster says how times compare: never as a fact where the interval holds 1.
func faster(which string, s statistics.Speedup, runs int) string {
	line := fmt.Sprintf("%s is %.2fx as fast as a (95%% confidence %.2fx to %.2fx, p = %.2g, %d runs each)", which,
		s.Median, s.CI95[0], s.CI95[1], s.P, runs)
	if !s.Significant {
		line = "~ no significant difference in time: " + line
	}
	switch {
	case s.Few:
		line += "; these are few runs, and more of them may say something else: try more --rounds"
	case !s.Significant:
		line += "; try more --rounds"
	}
	return line
}

// similarity prints a cosine so that 1 means 1: below it a digit is left that says how far.
func similarity(x *float64) string {
	if x == nil {
		return ""
	}
	digits := 6
	for digits < 10 && *x < 1 && fmt.Sprintf("%.*f", digits, *x) == fmt.Sprintf("%.*f", digits, 1.0) {
		digits++
	}
	if digits == 10 { // that is rounding
		digits = 6
	}
	return fmt.Sprintf("%.*f", digits, *x)
}

func sideRow(which string, s *comparison.Side) []string {
	replaced := "-"
	if s.Blocks > 0 {
		replaced = fmt.Sprintf("%d of %d", s.Replaced, s.Blocks)
	}
	return []string{which, s.Name, replaced, fmt.Sprintf("%.0f", s.LoadMS), fmt.Sprintf("%.3f", s.MedianMS)}
}

// difference prints an error; the largest there is stands for NaN and infinity.
func difference(x float64) string {
	if x == math.MaxFloat64 {
		return "not finite"
	}
	return fmt.Sprintf("%.3g", x)
}

// shorten leaves out the middle of a long table whose rows say little.
func shorten(rows [][]string) [][]string {
	const limit = 9
	if len(rows) <= limit {
		return rows
	}
	out := rows[: limit-2 : limit-2]
	for _, row := range rows[limit-2 : len(rows)-1] {
		if row[len(row)-1] != "" {
			out = append(out, row)
		}
	}
	if left := len(rows) - 1 - len(out); left > 0 {
		out = append(out, []string{fmt.Sprintf("... %d more, see -o json", left), "", "", "", "", "", "", ""})
	}
	return append(out, rows[len(rows)-1])
}
