package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/blocks"
	"github.com/opgraft/graft/host/diagnostic"
	"github.com/opgraft/graft/host/loaded"
	"github.com/opgraft/graft/host/model"
	"github.com/opgraft/graft/host/patch"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// planFlags are the flags that narrow or force a plan.
type planFlags struct {
	plugins, except []string
	force           bool
	file            string
	device          string
}

func (p *planFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&p.plugins, "plugins", nil, "use only these plugins, by name")
	f.StringSliceVar(&p.except, "except", nil, "never use these plugins")
	f.BoolVar(&p.force, "force", false, "use every operator that can serve, whatever it is expected to gain")
	f.StringVar(&p.file, "plan", "", "use the choices of a plan file (see inspect --write-plan)")
	f.StringVar(&p.device, "device", "cpu", "device that sessions of the model compute on: cpu, cuda or cuda:NUMBER")
}

// on is what serves on the flags' device, nil for the CPU.
func (p *planFlags) on(set *loaded.Set) (*loaded.Backend, error) {
	d, err := tensor.ParseDevice(p.device)
	if err != nil {
		return nil, misused("--device", err)
	}
	return set.On(d), nil
}

// options are those of the flags, for the plugins of set.
func (p *planFlags) options(c *cli, set *loaded.Set) (plan.Options, error) {
	o := plan.Options{Except: p.except, Force: p.force}
	if err := set.Require(p.plugins); err != nil {
		return o, err
	}
	for _, name := range p.except {
		if _, err := loaded.Named(set.Plugins, name); err != nil {
			c.say("graft: --except %s: %v", name, err)
		}
	}
	if len(p.plugins) > 0 {
		o.Plugins = p.plugins
	}
	if p.file != "" {
		fixed, err := plan.ReadFile(p.file, set.Manifests())
		if err != nil {
			return o, err
		}
		o.Fixed = fixed
	}
	return o, nil
}

// inspection is the JSON object of graft inspect.
type inspection struct {
	SchemaVersion int                   `json:"schema_version"`
	Model         string                `json:"model"`
	Device        string                `json:"device"`
	Plugins       []string              `json:"plugins"`
	Blocks        []inspectedBlock      `json:"blocks"`
	Unrecognised  []blocks.Unrecognised `json:"unrecognised"`
}

type inspectedBlock struct {
	Kind     string            `json:"kind"`
	Node     string            `json:"node"`
	Pattern  string            `json:"pattern,omitempty"` // the operator whose pattern was found
	Facts    *blocks.Attention `json:"facts,omitempty"`
	Plugin   string            `json:"plugin,omitempty"`
	Operator string            `json:"operator,omitempty"`
	Variant  string            `json:"variant,omitempty"` // device of the plugin's library that serves
	Reason   string            `json:"reason"`
	Expected *float64          `json:"expected_speedup"`
	Worst    *float64          `json:"expected_worst,omitempty"`
	Samples  []plan.Sample     `json:"expected_at,omitempty"`
}

func (c *cli) inspect() *cobra.Command {
	var flags planFlags
	var attention attentionFlags
	var write, maxCache string
	var beams, batch int
	cmd := &cobra.Command{
		Use:   "inspect MODEL.onnx|MODEL_DIR",
		Short: "Show every block recognised, its facts, and the operator that would replace it, or why none",
		Long: `Of a model: every block that was recognised, its facts, and the operator that would
replace it, or why none. Of a folder as graft generate takes it: what the layers of
attention keep, what else they could, with the time and memory that is predicted and
was measured (graft tune), and why a layer keeps something else.`,
		Example: `  graft inspect model.onnx
  graft inspect bart-large-cnn --prefer memory --max-cache 8GiB --beam 4
  graft inspect whisper-small --attention keys
  graft inspect model.onnx -o json | jq '.blocks[].operator'
  graft inspect model.onnx --write-plan plan.json`,
		Args: exactly(1, "one model or one model folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if info, err := os.Stat(args[0]); err == nil && info.IsDir() {
				if err := without(cmd, args[0], "a model, MODEL.onnx, and not a folder", "plugins", "except", "force", "plan", "write-plan", "device"); err != nil {
					return err
				}
				if err := cmp.Or(atLeast(cmd, 1, "batch-size"), atLeast(cmd, 0, "beam")); err != nil {
					return err
				}
				return c.inspectFolder(args[0], &attention, maxCache, beams, batch)
			}
			if err := without(cmd, args[0], "a model folder", "attention", "prefer", "max-cache", "beam", "batch-size"); err != nil {
				return err
			}
			set, err := c.load(false)
			if err != nil {
				return err
			}
			a, _, err := c.analyse(args[0], set, &flags)
			if err != nil {
				return err
			}
			defer a.Model.Close()
			if write != "" {
				if err := plan.WriteFile(write, a.Plan); err != nil {
					return err
				}
				c.say("wrote %s", write)
			}
			report := describe(args[0], flags.device, set, a)
			return c.print(report, func(w io.Writer) { report.text(w) })
		},
	}
	flags.add(cmd)
	attention.add(cmd.Flags())
	cmd.Flags().StringVar(&maxCache, "max-cache", "", "folders: most memory for what attention keeps, such as 8GiB")
	cmd.Flags().IntVar(&beams, "beam", 0, "folders: beams of a sample (default: 1 to 8)")
	cmd.Flags().IntVar(&batch, "batch-size", 8, "folders: samples at once")
	cmd.Flags().StringVar(&write, "write-plan", "", "write the choices to a plan file, to edit or to compare (graft ab --b FILE)")
	return cmd
}

// analyse opens a model, which is the caller's to close, and plans it for the flags' device, of which it
// says what serves there.
func (c *cli) analyse(path string, set *loaded.Set, flags *planFlags) (*patch.Analysis, *loaded.Backend, error) {
	o, err := flags.options(c, set)
	if err != nil {
		return nil, nil, err
	}
	on, err := flags.on(set)
	if err != nil {
		return nil, nil, err
	}
	manifests := set.Manifests()
	o = set.Plan(o)
	if on != nil {
		o, manifests = on.Plan(o), on.Manifests(manifests)
	}
	p := c.progress("reading " + path)
	defer p.end()
	m, err := model.Open(path)
	if err != nil {
		return nil, nil, err
	}
	p.say("analysing " + path)
	a, err := patch.Analyse(m, manifests, o)
	if err != nil {
		m.Close()
	}
	return a, on, err
}

func describe(path, device string, set *loaded.Set, a *patch.Analysis) *inspection {
	r := &inspection{SchemaVersion: schemaVersion, Model: path, Device: device, Plugins: set.Names(),
		Blocks: []inspectedBlock{}, Unrecognised: a.Report.Unrecognised}
	if r.Unrecognised == nil {
		r.Unrecognised = []blocks.Unrecognised{}
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

// text prints blocks that are the same in everything but their place once, with
// the number of them.
func (r *inspection) text(w io.Writer) {
	type group struct {
		block inspectedBlock
		nodes []string
	}
	var groups []*group
	for _, b := range r.Blocks {
		key := b.alike()
		i := slices.IndexFunc(groups, func(g *group) bool { return g.block.alike() == key })
		if i < 0 {
			groups = append(groups, &group{block: b})
			i = len(groups) - 1
		}
		groups[i].nodes = append(groups[i].nodes, b.Node)
	}
	replaced := 0
	for _, b := range r.Blocks {
		if b.Operator != "" {
			replaced++
		}
	}
	fmt.Fprintf(w, "%s: %d blocks recognised, %d would be replaced; %d softmax or attention nodes not recognised\n",
		r.Model, len(r.Blocks), replaced, len(r.Unrecognised))
	for _, g := range groups {
		b := g.block
		fmt.Fprintf(w, "\n%d x %s\n", len(g.nodes), b.title())
		if f := b.Facts; f != nil {
			for _, line := range factLines(f) {
				fmt.Fprintln(w, "  "+line)
			}
		}
		if b.Operator != "" {
			plugin := "plugin " + b.Plugin
			if b.Variant != "" && b.Variant != "cpu" {
				plugin += ", variant for " + b.Variant
			}
			fmt.Fprintf(w, "  -> %s (%s): %s\n", b.Operator, plugin, b.Reason)
		} else {
			fmt.Fprintf(w, "  stays as drawn: %s\n", b.Reason)
		}
		fmt.Fprintf(w, "  at %s", g.nodes[0])
		if n := len(g.nodes); n > 1 {
			fmt.Fprintf(w, " ... %s", g.nodes[n-1])
		}
		fmt.Fprintln(w)
	}
	for _, u := range r.Unrecognised {
		fmt.Fprintf(w, "\nnot recognised: %s (%s)\n  %s\n", u.Node, u.Op, u.Reason)
	}
}

func (b inspectedBlock) title() string {
	if b.Facts == nil {
		return b.Kind + " of " + b.Pattern
	}
	return b.Facts.Type + " " + b.Kind
}

// alike is everything that is said of a block but names of its own.
func (b inspectedBlock) alike() string {
	b.Node = ""
	if b.Facts != nil {
		f := *b.Facts
		f.Projections, f.Past = nil, nil
		b.Facts = &f
	}
	j, err := json.Marshal(b)
	if err != nil {
		return b.Reason
	}
	return string(j)
}

func factLines(f *blocks.Attention) []string {
	heads := fmt.Sprintf("%d heads of %d", f.Heads, f.HeadSize)
	if f.KVHeads != f.Heads {
		heads += fmt.Sprintf(", %d of keys and values", f.KVHeads)
	}
	if f.ValueSize != f.HeadSize {
		heads += fmt.Sprintf(", values of %d", f.ValueSize)
	}
	lines := []string{fmt.Sprintf("%s, scale %.6g, %s, drawn as %s", heads, f.Scale, f.DType, f.Form)}
	mask := "no mask"
	if f.Mask != nil && len(f.Mask.Kinds) > 0 {
		mask = "mask " + strings.Join(f.Mask.Kinds, " and ")
		if len(f.Mask.Sources) > 0 {
			mask += " from " + strings.Join(f.Mask.Sources, ", ")
		}
	}
	if f.Causal {
		mask += ", causal"
	}
	if f.Window > 0 {
		mask += fmt.Sprintf(", window %d", f.Window)
	}
	lines = append(lines, mask+", positions "+f.Positions)
	if f.Past != nil {
		lines = append(lines, "past on the model's face, "+f.PastLayout)
	}
	return lines
}

func (c *cli) patch() *cobra.Command {
	var flags planFlags
	cmd := &cobra.Command{
		Use:         "patch MODEL.onnx -o OUT.onnx",
		Short:       "Write the model with operators swapped in, for any language",
		Annotations: map[string]string{writesFile: "yes"},
		Long: `Writes the same rewrite that graft.Enable makes in memory to a file, with its
weights. The file needs the operator libraries that the command names: load them
with register_custom_ops_library (Python) or RegisterCustomOpsLibrary_V2 (C).
With --device cuda the rewrite is that for sessions with the CUDA provider, and the
libraries for CUDA are named after those for the CPU: register both.`,
		Example: `  graft patch model.onnx -o patched.onnx
  graft patch model.onnx -o patched.onnx --force --plugins flash-decode -o json`,
		Args: exactly(1, "one model"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.file == "" {
				return misuse("no file to write", "-o FILE")
			}
			set, err := c.load(true)
			if err != nil {
				return err
			}
			a, on, err := c.analyse(args[0], set, &flags)
			if err != nil {
				return err
			}
			defer a.Model.Close()
			if a.Plan.Replaced() == 0 {
				return &diagnostic.Error{Path: args[0], Found: "no installed operator is expected to gain, nothing written",
					Fix: "graft inspect shows why, --force uses them all the same"}
			}
			if err := a.Apply(); err != nil {
				return err
			}
			done := c.progress("writing " + c.file)
			err = a.Write(cmd.Context(), c.file, model.WriteOptions{Progress: done.set})
			done.end()
			if err != nil {
				return err
			}
			result := &patched{SchemaVersion: schemaVersion, Model: args[0], Output: c.file,
				Replaced: a.Plan.Replaced(), Blocks: len(a.Plan.Choices), Libraries: set.Libraries(a.Plugins(), on)}
			if fi, err := os.Stat(c.file); err == nil {
				result.Bytes = fi.Size()
			}
			return c.print(result, func(w io.Writer) {
				fmt.Fprintf(w, "%s: %d of %d blocks replaced\n", result.Output, result.Replaced, result.Blocks)
				for _, l := range result.Libraries {
					fmt.Fprintf(w, "needs %s\n", l)
				}
			})
		},
	}
	flags.add(cmd)
	return cmd
}

// patched is the JSON object of graft patch.
type patched struct {
	SchemaVersion int      `json:"schema_version"`
	Model         string   `json:"model"`
	Output        string   `json:"output"`
	Bytes         int64    `json:"bytes"`
	Blocks        int      `json:"blocks"`
	Replaced      int      `json:"replaced"`
	Libraries     []string `json:"libraries"`
}
