package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/generate"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/generate/text"
	"github.com/opgraft/graft/host/measure/changes"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/comparison/generations"
	reports "github.com/opgraft/graft/host/measure/report"
	"github.com/opgraft/graft/host/ort"
)

// generationFlags are those of ab that concern whole generations of a folder.
type generationFlags struct {
	beams, promptLength, newTokens, batch int
	input                                 string
	set                                   []string
	maxCache                              string
	texts                                 textFlags
}

// generationFlagNames are those that say nothing about a single model.
var generationFlagNames = append(
	[]string{"beam", "prompt-length", "max-new-tokens", "batch-size", "input", "set", "max-cache"},
	textFlagNames...)

func (g *generationFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	between(f, &g.beams, "beam", 1, 1, limit.Beams, "folders: number of beams")
	between(f, &g.promptLength, "prompt-length", 0, 0, 1<<20,
		"folders: tokens of a synthetic prompt or encoder's input (default: 128, or what the model's positions allow); "+
			"speech models read windows of one length")
	between(f, &g.newTokens, "max-new-tokens", 64, 1, 1<<20,
		"folders: new tokens of every request; end tokens do not count with synthetic inputs")
	between(f, &g.batch, "batch-size", 1, 1, 4096,
		"folders: number of synthetic inputs, or of texts of --input that are generated from, the first ones (default: 1, "+
			"or all texts)")
	f.StringVar(&g.input, "input", "",
		"folders: file of texts, one a line, cut to the shortest, or of paths for a model of speech or images; instead of "+
			"synthetic inputs")
	f.StringArrayVar(&g.set, "set", nil, "folders: any option of generation_config.json, name=JSON; may be repeated")
	f.StringVar(&g.maxCache, "max-cache", "", "folders: maximum of the engine's KV cache, such as 2GiB")
	g.texts.register(f)
}

// abFolder compares whole generations of a model folder.
func (c *cli) abFolder(cmd *cobra.Command, folder string, o comparison.Options, g *generationFlags,
	require *requireFlag,
	deadline time.Duration, to string) error {
	if g.batch*g.promptLength > limit.Tokens {
		return misuse(fmt.Sprintf("--batch-size %d and --prompt-length %d", g.batch, g.promptLength),
			fmt.Sprintf("%d tokens in all", limit.Tokens))
	}
	if err := g.texts.check(cmd, g.input); err != nil {
		return err
	}
	if g.promptLength == 0 {
		var err error
		if g.promptLength, err = generations.PromptLength(folder, g.newTokens); err != nil {
			return err
		}
	}
	options := map[string]json.RawMessage{}
	if g.input == "" {
		// Tokens at random mean nothing, so neither would where they end.
		options["eos_token_id"], options["forced_eos_token_id"] = json.RawMessage("[]"), json.RawMessage("null")
	}
	search, cache, err := g.search(options)
	if err != nil {
		return err
	}
	inputs, features, texts, err := g.inputs(cmd.Context(), folder, search, cmd.Flags().Changed("batch-size"))
	if err != nil {
		return err
	}
	p := c.progress("comparing")
	all, err := generations.Apart(cmd.Context(),
		generations.Job[generations.Options]{Folder: folder, Options: generations.Options{
			A: o.A, B: o.B, Others: o.Others, Search: search, Inputs: inputs, Features: features, Texts: texts, Batch: g.batch,
			PromptLength: g.promptLength, Seed: o.Inputs.Seed,
			Threads: o.Threads, CacheBytes: cache, Rounds: o.Rounds, Step: p.say, Progress: p.set, Child: c.abChild,
			Deadline: deadline,
		}, Runtime: c.runtime, Folders: c.folders, Output: &printed{to: c.talk},
			Refused: func(why string) { c.say("graft: %s", why) }})
	p.end()
	if err != nil {
		return err
	}
	var data any = all
	if r := all.Result(); r != nil {
		data = r
	}
	if err := c.print(data, func(w *page) { comparedGenerations(w, all, c.width()) }); err != nil {
		return err
	}
	if to != "" {
		content, made := reports.Generations(all, reportOptions())
		if err := c.writeReport(to, content, made); err != nil {
			return err
		}
	}
	if list := all.Differ(); len(list) > 0 {
		b := list[0]
		return &diagnostic.Error{Kind: errDiffers, Path: folder,
			Found: fmt.Sprintf("%v between %s and %s: %d of %d sequences are equal", errDiffers, o.A, b.Name, b.Equal,
				b.Sequences)}
	}
	return require.met(folder, o.A, changes.Measured{Generations: all})
}

// search is that of options that every comparison sets and of --set, and the maximum of the cache in bytes.
func (g *generationFlags) search(options map[string]json.RawMessage) (search []byte, cache int64, err error) {
	options["num_beams"], options["max_new_tokens"] = number(g.beams), number(g.newTokens)
	if err := settings(options, g.set); err != nil {
		return nil, 0, err
	}
	if search, err = json.Marshal(options); err == nil {
		cache, err = bytesOf("--max-cache", g.maxCache, limit.Cache)
	}
	return search, cache, err
}

// abSide is the hidden command of a process that measures the memory of one side.
const abSide = "ab-side"

// abChild starts this program anew as that command.
func (c *cli) abChild(ctx context.Context) *exec.Cmd {
	args := []string{abSide, "--quiet"}
	if c.runtime != "" {
		args = append(args, "--onnxruntime", c.runtime)
	}
	for _, folder := range c.folders {
		args = append(args, "--plugins-dir", folder)
	}
	program, err := os.Executable()
	if err != nil {
		program = os.Args[0]
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Args[0] = os.Args[0]
	return cmd
}

func (c *cli) abSide() *cobra.Command {
	return &cobra.Command{
		Use:    abSide,
		Hidden: true,
		Short:  "Generate once with one side of a comparison, for graft ab",
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := ort.FindAndOpen(c.runtime)
			if err != nil {
				return err
			}
			set, err := c.load(false)
			if err != nil {
				return err
			}
			return generations.RunChild(cmd.Context(), l, set, os.Stdin, c.out)
		},
	}
}

func number(n int) json.RawMessage { return json.RawMessage(strconv.Itoa(n)) }

// inputs reads texts and cuts them to one length, which the model as exported
// needs in a batch; for a speech model, the files of sound or features that the
// lines name. Where bounded is set, the first --batch-size lines are generated from. The texts are of all lines, whole.
func (g *generationFlags) inputs(ctx context.Context, folder string, set []byte, bounded bool) (tokens [][]int32,
	features []*engine.Features, texts *generations.Texts, err error) {
	if g.input == "" {
		return nil, nil, nil, nil
	}
	config, err := modeldir.ReadConfig(folder)
	if err != nil {
		return nil, nil, nil, err
	}
	read, err := textsOf(g.input)
	if err != nil {
		return nil, nil, nil, err
	}
	lines := make([]string, len(read))
	for i, line := range read {
		lines[i] = string(line)
	}
	files, err := generate.OpenFiles(folder, config)
	if err != nil {
		return nil, nil, nil, err
	}
	first := lines
	if bounded {
		first = lines[:min(g.batch, len(lines))]
	}
	if texts, err = g.texts.texts(ctx, folder, g.input, config, lines, len(first), set); err != nil {
		return nil, nil, nil, err
	}
	if files != nil {
		features, err = g.features(files, first)
		return nil, features, texts, err
	}
	tokens, err = g.tokens(ctx, folder, first)
	return tokens, nil, texts, err
}

// features reads files of sound, features or images.
func (g *generationFlags) features(files generate.Files, paths []string) ([]*engine.Features, error) {
	var list []*engine.Features
	for i, path := range paths {
		f, err := generate.Features(files, path)
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", g.input, i+1, err)
		}
		list = append(list, f)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: found no line; needed are paths of files of %s", g.input, files.Kind())
	}
	return cut(list), nil
}

// cut cuts features that are as long as their files, to the shortest.
func cut(list []*engine.Features) []*engine.Features {
	shortest := slices.MinFunc(list, func(a, b *engine.Features) int { return len(a.Values) - len(b.Values) })
	for _, f := range list {
		if len(f.Shape) == 2 {
			f.Values, f.Shape = f.Values[:len(shortest.Values)], shortest.Shape
		}
	}
	return list
}

// tokens are those of texts, cut to the shortest.
func (g *generationFlags) tokens(ctx context.Context, folder string, lines []string) ([][]int32, error) {
	t, err := text.Open(folder)
	if err != nil {
		return nil, err
	}
	var list [][]int32
	shortest := -1
	for i, line := range lines {
		ids, err := t.Encode(ctx, line, text.EncodeOptions{MaxLength: g.promptLength})
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", g.input, i+1, err)
		}
		tokens := make([]int32, len(ids))
		for i, id := range ids {
			tokens[i] = int32(id)
		}
		if list = append(list, tokens); shortest < 0 || len(tokens) < shortest {
			shortest = len(tokens)
		}
	}
	if shortest < 1 {
		return nil, fmt.Errorf("%s: found no line with tokens in it, or an empty one; needed are texts of at least one token",
			g.input)
	}
	for i := range list {
		list[i] = list[i][:shortest]
	}
	return list, nil
}

// inputSize is the size of one input, in words.
func inputSize(r *generations.Compared) string {
	switch f := r.InputFeatures; len(f) {
	case 0:
		return counted(r.InputTokens, "token")
	case 2:
		return fmt.Sprintf("%d samples", f[1])
	case 3:
		return fmt.Sprintf("%d mel bins and %d frames", f[1], f[2])
	default:
		return fmt.Sprintf("%d by %d pixels", f[2], f[3])
	}
}

// comparedGenerations prints a comparison for people.
func comparedGenerations(w *page, r *generations.Compared, width int) {
	only := len(r.Sides) == 1
	which := func(i int) string {
		if only {
			return "b"
		}
		return fmt.Sprintf("b%d", i+1)
	}
	if only {
		w.printf("%s of %s, %d new tokens; sequences equal: %d of %d\n\n", counted(r.Batch, "input"), inputSize(r),
			r.Sides[0].NewTokens, r.Sides[0].Equal, r.Sides[0].Sequences)
	} else {
		w.printf("%s of %s\n", counted(r.Batch, "input"), inputSize(r))
		for i := range r.Sides {
			b := &r.Sides[i]
			w.printf("%s: %d new tokens; sequences equal: %d of %d\n", b.Name, b.NewTokens, b.Equal, b.Sequences)
		}
		w.println()
	}
	row := func(which string, s *generations.Side) []string {
		return []string{which, s.Name, fmt.Sprintf("%.1f", s.TokensPerSecond), fmt.Sprintf("%.1f", s.DecodeTokensPerSecond),
			fmt.Sprintf("%.0f", 1e3*s.TTFTMedianSeconds), megabytes(s.CacheBytes), megabytes(s.RequestBytes),
			megabytes(s.OpenedRSSBytes), megabytes(s.GeneratingPeakRSSBytes), megabytes(s.PeakRSSBytes)}
	}
	rows := [][]string{{"", "operators", "tokens/s", "decode tokens/s", "TTFT ms", "cache MB", "cache MB a request",
		"RSS opened MB", "RSS generating MB", "peak RSS MB"}, row("a", &r.A)}
	var bars []reports.Row
	for i := range r.Sides {
		b := &r.Sides[i]
		rows = append(rows, row(which(i), &b.Side))
		bars = append(bars, reports.Row{Label: diagnostic.Printable(b.Name), Speedup: b.Speedup},
			reports.Row{Label: diagnostic.Printable(b.Name) + ", decode steps", Speedup: b.DecodeSpeedup})
	}
	w.table(rows)
	named := map[string]bool{}
	for _, s := range append([]generations.Against{{Side: r.A}}, r.Sides...) {
		if !named[s.Name] {
			w.printf("%s\n", comparison.OfGenerations.Describe(s.Name, s.Plugins, s.Versions))
		}
		named[s.Name] = true
	}
	w.println()
	for i := range r.Sides {
		b := &r.Sides[i]
		if !only {
			w.printf("%s: ", b.Name)
		}
		w.printf("%s\nin decode steps alone: %s\n", faster(which(i), b.Speedup, len(r.A.Seconds)),
			faster(which(i), b.DecodeSpeedup, len(r.A.Seconds)))
		if r.A.PeakRSSBytes > 0 && b.PeakRSSBytes > 0 {
			w.printf("peak RSS of %s's process is %.2fx that of a's; its KV cache takes %.3fx the bytes\n", which(i),
				float64(b.PeakRSSBytes)/float64(r.A.PeakRSSBytes), float64(b.CacheBytes)/float64(max(r.A.CacheBytes, 1)))
		}
	}
	if !only {
		w.printf("\nhow many times as fast as a (%s): o in its 95 %% interval, | is 1x\n", r.A.Name)
		w.text.WriteString(reports.Text(bars, width))
		w.println()
	}
	overTexts(w, r)
	sides := []*generations.Side{&r.A}
	for i := range r.Sides {
		sides = append(sides, &r.Sides[i].Side)
	}
	for _, s := range sides {
		if s.Cache != "" {
			w.printf("%s: the cache is %s\n", s.Name, s.Cache)
		}
		if s.Weights != nil {
			w.printf("%s: ", s.Name)
			weighed(w, s.Weights)
		}
		if d := s.Drafts; d != nil {
			w.printf("%s: drafts: %d of %d accepted, %.2f a step\n", s.Name, d.Accepted, d.Drafted, d.AcceptedPerStep)
			if d.Model != nil {
				w.printf("%s: draft model: %s of its own, a cache of at most %s MB\n", s.Name, counted(d.Model.Steps, "step"),
					megabytes(d.Model.SelfCacheBytes+d.Model.CrossCacheBytes))
			}
		}
		for _, l := range s.Attention {
			if l.Reason != "" {
				w.printf("%s: %s uses %s: %s\n", s.Name, l.Node, l.Strategy, l.Reason)
			}
		}
	}
	measuredOn(w, r.Environment)
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f", float64(n)/1e6) }
