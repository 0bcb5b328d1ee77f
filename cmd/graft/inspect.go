package main

import (
	"cmp"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/patch"
)

// inspection is the JSON object of graft inspect.
type inspection struct {
	Model        string                `json:"model"`
	Device       string                `json:"device"`
	Plugins      []string              `json:"plugins"`
	Producer     string                `json:"producer,omitempty"`
	IRVersion    int64                 `json:"ir_version"`
	Opsets       []inspectedOpset      `json:"opsets"`
	Inputs       []inspectedValue      `json:"inputs"`
	Outputs      []inspectedValue      `json:"outputs"`
	Obstacle     string                `json:"obstacle,omitempty"` // why no block of the model can be replaced
	Padding      *inspectedPadding     `json:"padding,omitempty"`
	Blocks       []inspectedBlock      `json:"blocks"`
	Unrecognised []blocks.Unrecognised `json:"unrecognised"`
	Whole        inspectedWhole        `json:"whole_model"`
}

// inspectedOpset is a set of operators that the model imports; ai.onnx is ONNX's own.
type inspectedOpset struct {
	Domain  string `json:"domain"`
	Version int64  `json:"version"`
}

// inspectedValue is an input or output of the model.
type inspectedValue struct {
	Name   string         `json:"name"`
	Type   string         `json:"type"`
	Shape  []any          `json:"shape"` // lengths, and names of lengths as declared; null where the rank is not
	Role   roles.Input    `json:"role,omitempty"`
	Counts []roles.Length `json:"counts,omitempty"` // what each axis counts, "" where that is not known
}

// inspectedWhole is the estimate of a run of the whole model, and the machine that it rests on.
type inspectedWhole struct {
	plan.Whole
	Machine roofline `json:"machine"`
	fewer   float64  // how many times as fast a run is expected to be without three tokens of four
}

// inspectedPadding says what becomes of tokens that the model's mask of tokens hides.
type inspectedPadding struct {
	Mask     string    `json:"mask,omitempty"` // the inputs that hide them
	Computed plan.Rows `json:"computed"`       // "visible": hidden tokens are not; "masked" and "": they are
	Reason   string    `json:"reason,omitempty"`
	// Outputs are those that hold rows of hidden tokens; with --padding ignore they are zeros there.
	Outputs []string `json:"hidden_rows,omitempty"`
	// Gain is how many times as fast a batch with one visible token in four is expected to be when hidden ones are left
	// out; 0 where that is not estimated.
	Gain float64 `json:"expected_with_one_in_four,omitempty"`
}

type inspectedBlock struct {
	Kind     string            `json:"kind"`
	Node     string            `json:"node"`
	Pattern  string            `json:"pattern,omitempty"` // the operator whose pattern was found
	Facts    *blocks.Attention `json:"facts,omitempty"`
	Plugin   string            `json:"plugin,omitempty"`
	Operator string            `json:"operator,omitempty"`
	Variant  string            `json:"variant,omitempty"` // device of the plugin's library that runs
	Reason   string            `json:"reason"`
	Expected *float64          `json:"expected_speedup"`
	Worst    *float64          `json:"expected_worst,omitempty"`
	Samples  []plan.Sample     `json:"expected_at,omitempty"`
	Verified bool              `json:"verified,omitempty"` // with --verify: it answers as the model
	LeftOut  string            `json:"left_out,omitempty"` // with --verify: how it does not
}

func (c *cli) inspect() *cobra.Command {
	var flags planFlags
	var attention attentionFlags
	var write, maxCache string
	var beams, batch int
	var check verifyFlags
	var timed profileFlags
	var measure bool
	cmd := &cobra.Command{
		Use:   "inspect MODEL.onnx|MODEL_DIR",
		Short: "Show every block recognised, its facts, and the operator that would replace it, or why none",
		Long: `Of a model: every block that was recognised, its facts, and the operator that would
replace it, or why none. Of a folder as graft generate takes it: what the layers of
attention store, what else they could, with the time and memory that is predicted and
was measured (graft tune), and why a layer has another strategy.

With --verify a session with these operators is compared with the model, on synthetic
inputs of two small shapes, in a child process. Each block is then verified or left out, with
the reason. Exit code 5 when one is left out.

With --profile the unpatched model is run and timed, and the estimate for the whole model
rests on what its blocks took (graft profile).`,
		Example: `  graft inspect model.onnx
  graft inspect bart-large-cnn --prefer memory --max-cache 8GiB --beam 4
  graft inspect whisper-small --attention keys --cache bf16
  graft inspect model.onnx -o json | jq '.blocks[].operator'
  graft inspect model.onnx --write-plan plan.json
  graft inspect model.onnx --verify
  graft inspect model.onnx --profile --dim batch=8`,
		Args: exactly(1, "one model or one model folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if info, err := os.Stat(args[0]); err == nil && info.IsDir() {
				if err := without(cmd, args[0], "a model, MODEL.onnx, and not a folder", "plugins", "except", "force",
					"accept-quantization-noise", "padding", "plan", "write-plan", "device", "analysis-time", "verify", "deadline",
					"profile", "dim"); err != nil {
					return err
				}
				return c.inspectFolder(cmd.Context(), args[0], &attention, maxCache, beams, batch)
			}
			if err := without(cmd, args[0], "a model folder", "attention", "cache", "prefer", "max-cache", "beam",
				"batch-size"); err != nil {
				return err
			}
			if err := check.consistent(cmd, &flags, measure); err != nil {
				return err
			}
			if !measure && cmd.Flags().Changed("dim") {
				return misuse("--dim without --profile", "--profile, which runs the model")
			}
			set, err := c.load(false)
			if err != nil {
				return err
			}
			a, o, _, err := c.analyse(cmd.Context(), args[0], set, &flags)
			if err != nil {
				return err
			}
			defer a.Model.Close()
			found, err := check.compare(cmd.Context(), c, args[0], a.Plan, o, flags.time)
			if err != nil {
				return err
			}
			var measured *plan.Measured
			if measure {
				timed.deadline = check.deadline
				if measured, err = c.timedRun(cmd.Context(), args[0], a, o, &timed); err != nil {
					return err
				}
			}
			ctx := graph.WithProcessorTime(cmd.Context(), flags.time)
			var report *inspection
			if err := a.Within(ctx, func() error {
				report = describe(args[0], flags.device, set, a, wholeModel(a, o, measured))
				return nil
			}); err != nil {
				return err
			}
			report.verified(found)
			if write != "" {
				found.leave(a.Plan)
				if err := plan.WriteFile(write, a.Plan); err != nil {
					return err
				}
				c.say("wrote %s", write)
			}
			if err := c.print(report, func(w *page) { report.text(w) }); err != nil {
				return err
			}
			return found.err(args[0])
		},
	}
	flags.add(cmd)
	check.add(cmd)
	cmd.Flags().BoolVar(&measure, "profile", false,
		"measure which share of a run the replaced blocks take, in a child process, in place of predicting it")
	cmd.Flags().StringArrayVar(&timed.dims, "dim", nil,
		"length of an axis of the run of --profile, as for profile; may be repeated")
	attention.add(cmd.Flags())
	cmd.Flags().StringVar(&maxCache, "max-cache", "", "folders: maximum of memory for the KV cache, such as 8GiB")
	between(cmd.Flags(), &beams, "beam", 0, 0, limit.Beams, "folders: beams of a request (default: 1 to 8)")
	between(cmd.Flags(), &batch, "batch-size", 8, 1, limit.Batch, "folders: requests at once")
	cmd.Flags().StringVar(&write, "write-plan", "",
		"write the choices to a plan file, to edit or to compare (graft ab --b FILE)")
	return cmd
}

func describe(path, device string, set *loaded.Set, a *patch.Analysis, whole inspectedWhole) *inspection {
	p := a.Model.Proto()
	r := &inspection{Model: path, Device: device, Plugins: set.Names(),
		Producer: strings.TrimSpace(p.GetProducerName() + " " + p.GetProducerVersion()), IRVersion: p.GetIrVersion(),
		Obstacle: a.Obstacle, Blocks: []inspectedBlock{}, Unrecognised: a.Report.Unrecognised, Whole: whole}
	for _, o := range p.OpsetImport {
		r.Opsets = append(r.Opsets, inspectedOpset{cmp.Or(o.GetDomain(), "ai.onnx"), o.GetVersion()})
	}
	meaning := roles.Find(a.Graph, a.Shapes, a.Report)
	for _, v := range a.Graph.Inputs {
		in := inspectValue(a.Shapes, v)
		in.Role = meaning.Of(v)
		for i := range in.Shape {
			in.Counts = append(in.Counts, meaning.Axis(v, i).Length)
		}
		r.Inputs = append(r.Inputs, in)
	}
	for _, v := range a.Graph.Outputs {
		r.Outputs = append(r.Outputs, inspectValue(a.Shapes, v))
	}
	if r.Unrecognised == nil {
		r.Unrecognised = []blocks.Unrecognised{}
	}
	if f := a.Padding; f != nil {
		r.Padding = &inspectedPadding{Mask: f.From, Computed: a.Plan.Rows(), Reason: a.PaddingReason, Outputs: f.Outputs,
			Gain: whole.fewer}
	} else if a.PaddingReason != "" {
		r.Padding = &inspectedPadding{Reason: a.PaddingReason}
	}
	for _, ch := range a.Plan.Choices {
		b := inspectedBlock{Kind: ch.Kind, Node: ch.Node, Plugin: ch.Plugin, Variant: ch.Variant, Reason: ch.Reason}
		if ch.Block != nil {
			b.Facts = ch.Block.Attention
		}
		if ch.Match != nil {
			b.Pattern = ch.Match.Operator.Name
		}
		if ch.Operator != nil {
			b.Operator = ch.Operator.Name
		}
		if x := ch.Expected; x.Speedup > 0 {
			b.Expected, b.Worst, b.Samples = &x.Speedup, &x.Worst, x.Samples
		}
		r.Blocks = append(r.Blocks, b)
	}
	return r
}

// inspectValue is an input or output as it is declared; where it is not, as it was inferred.
func inspectValue(shapes *graph.Shapes, v *graph.Value) inspectedValue {
	f := shapes.Of(v)
	out := inspectedValue{Name: v.Name, Type: model.TypeName(f.DType)}
	dims := v.Claims()
	if dims == nil && f.Rank >= 0 {
		dims = f.Dims
	}
	if dims != nil || f.Rank == 0 {
		out.Shape = []any{}
	}
	for _, d := range dims {
		if n, ok := d.Const(); ok {
			out.Shape = append(out.Shape, n)
		} else {
			out.Shape = append(out.Shape, d.String())
		}
	}
	return out
}

// wholeModel estimates a run of the whole model on the roofline that was last measured here.
// Where a run was timed it is an estimate for that run.
func wholeModel(a *patch.Analysis, o plan.Options, measured *plan.Measured) inspectedWhole {
	var w inspectedWhole
	o.Machine, w.Machine = recorded()
	if measured != nil {
		w.Whole = a.Plan.WholeMeasured(a.Graph, a.Shapes, a.Report, o, *measured)
	} else {
		w.Whole = a.Plan.Whole(a.Graph, a.Shapes, a.Report, o)
	}
	if a.Padding != nil {
		w.fewer = a.Plan.FewerTokens(a.Graph, a.Shapes, a.Report, a.Padding, o)
	}
	return w
}
