package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/measure/quantization"
)

func (c *cli) quantize() *cobra.Command {
	var weights string
	var threads int
	var within within
	cmd := &cobra.Command{
		Use:         "quantize MODEL -o OUT",
		Short:       "Write a model with weights of eight or four bits, for any program",
		Annotations: map[string]string{writesFile: "yes"},
		Long: `Writes a model whose linear layers have weights of eight or four bits, as ONNX
Runtime's own MatMulNBits: any program that runs ONNX Runtime opens it, without
graft. MODEL is a folder, of which every .onnx is quantised and the other files are
copied, or a single .onnx. The integers are those that graft generate --weights
makes of the same model as it opens it. Nothing of MODEL is changed, and OUT is
whole or not there.
It costs accuracy: graft ab says how much, on texts of your own. With --calibrate
scales are chosen by texts, and the integers are others than those of graft
generate. With --max-kl
each weight of a folder that generates has the type that was asked for, eight bits or
float32, so that the mean divergence of a token over --input stays below.`,
		Example: `  graft quantize smollm2-135m -o smollm2-135m-int8 --weights int8
  graft quantize bert-base/model.onnx -o bert-int4.onnx --weights int4,group=64`,
		Args: exactly(1, "one model or folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.file == "" {
				return misuse("no file or folder to write", "-o OUT")
			}
			r := quantization.Request{Runtime: c.runtime, Threads: threads}
			var err error
			if r.Weights, err = prepare.ParseWeights(weights); err == nil {
				err = quantization.Check(r.Weights)
			}
			if err != nil {
				return misused("--weights", err)
			}
			if err := within.check(cmd); err != nil {
				return err
			}
			if info, err := os.Stat(args[0]); err == nil && !info.IsDir() {
				if err := without(cmd, "a single file", "a folder that generates", "max-kl"); err != nil {
					return err
				}
			}
			if err := within.read(&r); err != nil {
				return err
			}
			if err := r.Check(); err != nil {
				return misused("", err)
			}
			if r.Plugins, err = c.load(true); err != nil {
				return err
			}
			done := c.progress("quantising " + args[0])
			defer done.end()
			r.Step, r.Progress = done.say, done.set
			report, err := quantization.Quantize(cmd.Context(), args[0], c.file, r)
			done.end()
			if err != nil {
				return err
			}
			return c.print(&quantized{Model: args[0], Output: c.file, Report: report},
				func(w *page) { quantizedTo(w, c.file, report) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&weights, "weights", "int8",
		"int8 or int4, which both cost accuracy; after it ,logits=int8|int4|float32 of the last layer, ,group=32|64|128, "+
			",zero-points=true for integers that have them, and ,activations=float32 for no rounding of what is multiplied")
	within.add(f)
	between(f, &threads, "threads", 0, 0, limit.Threads, "threads that round (default: one a core)")
	return cmd
}

// quantized is the JSON object of graft quantize.
type quantized struct {
	Model  string `json:"model"`
	Output string `json:"output"`
	*quantization.Report
}

// quantizedTo prints what became of a model.
func quantizedTo(w *page, output string, r *quantization.Report) {
	w.printf("%s: %s, %s MB of %s MB\n", output, r.Requested, megabytes(r.BytesAfter), megabytes(r.BytesBefore))
	for _, g := range r.Graphs {
		w.printf("  %s: %s MB of %s MB\n", g.File, megabytes(g.BytesAfter), megabytes(g.BytesBefore))
		for _, l := range g.Linear {
			w.printf("    %s: %s of linear layers, %s MB of %s MB\n", l.Type, counted(l.Matrices, "matrix"), megabytes(l.Bytes),
				megabytes(l.Float32Bytes))
		}
		for _, f := range g.Float32 {
			w.printf("    as it was: %s, %s MB: %s\n", counted(f.Tensors, "tensor"), megabytes(f.Bytes), f.Reason)
		}
	}
	if chosen := r.Chosen; chosen != nil {
		w.printf("mean divergence of a token %s, at most %g was asked for; %s where all are %s (%s, %s measured)\n",
			difference(chosen.Reached.KLMean), chosen.Bound,
			difference(chosen.Cheapest), r.Requested, counted(chosen.Reached.Tokens, "token"), counted(chosen.Measured, "model"))
		w.printf("perplexity %.5g, as exported %.5g; %s equal greedy tokens\n", chosen.Perplexity[1], chosen.Perplexity[0],
			share(chosen.Reached))
	}
	if len(r.Left) > 0 {
		w.printf("not copied: %s\n", strings.Join(r.Left, ", "))
	}
}
