package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plan/machine"
	"github.com/opgraft/graft/host/plan/tune"
)

// tuning is the JSON object of graft tune.
type tuning struct {
	Model   string       `json:"model"`
	Machine tunedMachine `json:"machine"`
	Kinds   []tunedKind  `json:"kinds"`

	roofline plan.Machine
}

type tunedMachine struct {
	machine.ID
	ReadGB      float64 `json:"read_gb_s"`
	CacheReadGB float64 `json:"cache_read_gb_s,omitempty"`
	CacheBytes  float64 `json:"cache_bytes,omitempty"`
	GFLOPS      float64 `json:"gflop_s"`
	Problem     string  `json:"problem,omitempty"` // why these are estimates
}

type tunedKind struct {
	*tune.Report
	Range plan.Range `json:"range"`
	Table string     `json:"table"` // its file
}

func (c *cli) tune() *cobra.Command {
	var threads, repeats int
	var o prepare.Expected
	var beams int64
	var attention attentionFlags
	cmd := &cobra.Command{
		Use:   "tune MODEL_DIR",
		Short: "Measure on this machine what the attention of a model folder could store, for later sessions to choose by",
		Long: `Measures how long a step's attention takes with each KV-cache strategy that
the loaded plugins implement, their own ones included. No model runs:
the operators work on made-up caches of the model's own layer shapes, over a grid of
lengths, beams and batches. The tables are stored in the user's cache folder, and hold
for this machine, these builds of the plugins and this number of threads.`,
		Example: `  graft tune models/g2p
  graft tune models/g2p --beam 4 --batch-size 8 -o json`,
		Args: exactly(1, "one model folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Beams, o.MaxInput = [2]int64{1, beams}, o.MaxPositions
			t, err := c.measure(cmd.Context(), args[0], o, attention, threads, repeats)
			if err != nil {
				return err
			}
			return c.print(t, func(w *page) { t.text(w) })
		},
	}
	f := cmd.Flags()
	between(f, &beams, "beam", 8, 1, limit.Beams, "maximum number of beams of a request")
	between(f, &o.Batch, "batch-size", 16, 1, 4096,
		"maximum number of requests of a step; fewer where memory holds no more")
	between(f, &o.NewTokens, "max-new-tokens", 64, 1, 1<<20, "maximum number of tokens that a request generates")
	between(f, &o.MaxPositions, "max-positions", 2048, 1, 1<<20,
		"the longest prompt or encoder's input, where the model allows more")
	f.StringVar(&attention.name, "attention", "", "a plugin whose operators are measured in place of graft's own")
	between(f, &threads, "threads", 0, 0, limit.Threads, "threads inside an operator (0: one a core)")
	between(f, &repeats, "rounds", 7, 1, 10_000,
		"how often each time is taken; what takes long is taken three times at least")
	return cmd
}

// measure measures the attention of a model folder and stores the tables.
func (c *cli) measure(ctx context.Context, folder string, o prepare.Expected, attention attentionFlags, threads,
	repeats int) (*tuning, error) {
	opened, err := prepare.Open(ctx, folder)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	layers, err := opened.Layers()
	if err != nil {
		return nil, err
	}
	set, err := c.load(true)
	if err != nil {
		return nil, err
	}
	named, err := attention.parse(set.Manifests())
	if err != nil {
		return nil, err
	}
	b := c.progress("measuring this machine")
	defer b.end()
	t := &tuning{Model: folder, Kinds: []tunedKind{}}
	implementations := named.Implementations.Among(set.Manifests())
	m, problem := tune.Machine(set.Plugins, implementations, machine.Options{Threads: threads, Again: true})
	t.roofline = m
	t.Machine = tunedMachine{ID: tune.Identify(set.Plugins, implementations, threads), ReadGB: m.Bandwidth / 1e9,
		CacheReadGB: m.LastCacheBandwidth / 1e9,
		CacheBytes:  m.LastCacheBytes, GFLOPS: m.FLOPS / 1e9}
	if problem != nil {
		t.Machine.Problem = problem.Error()
		c.say("graft: %v", problem)
	}
	for _, l := range layers {
		b.say("measuring " + l.Type + " attention")
		r := opened.Range(l, o)
		table, err := tune.Measure(ctx, l,
			tune.Options{Plugins: set.Plugins, Implementations: implementations, Threads: threads, Range: r, Repeats: repeats,
				Progress: b.set})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", folder, err)
		}
		path, err := table.Save("")
		if err != nil {
			return nil, err
		}
		report := table.Report(plan.NewPredictor(m, set.Manifests(), implementations, nil), set.Plugins, implementations)
		t.Kinds = append(t.Kinds, tunedKind{report, r, path})
	}
	return t, nil
}

func (t *tuning) text(w *page) {
	estimated := ""
	if t.Machine.Problem != "" {
		estimated = ", as estimated"
	}
	w.printf("%s, %d cores, %d threads: %s%s\n", t.Machine.CPU, t.Machine.Cores, t.Machine.Threads, t.roofline, estimated)
	for _, k := range t.Kinds {
		w.printf("\n%s: milliseconds of a step, measured (predicted)\n", k.Layers)
		rows := [][]string{{"shared", "own", "beams", "batch"}}
		for _, x := range k.Candidates {
			rows[0] = append(rows[0], x.Name)
		}
		for _, s := range k.Shapes {
			row := []string{fmt.Sprint(s.Keys), fmt.Sprint(s.Own), fmt.Sprint(s.Beams), fmt.Sprint(s.Batch)}
			for i, x := range s.Measured {
				mark := ""
				if k.Candidates[i].Name == s.Fastest && len(s.Measured) > 1 {
					mark = " *"
				}
				row = append(row, fmt.Sprintf("%.3g (%.3g)%s", x*1e3, s.Predicted[i]*1e3, mark))
			}
			rows = append(rows, row)
		}
		w.table(rows)
		for i, x := range k.Candidates {
			line := fmt.Sprintf("%s: measured %.2f times what was predicted, %.2f to %.2f", x.Name, x.Ratio, x.Least, x.Greatest)
			if i > 0 {
				line += fmt.Sprintf("; %.2fx the speed of %s, fastest at %d of %d shapes", x.Speedup, k.Candidates[0].Name,
					x.Fastest, len(k.Shapes))
			}
			w.println(line)
		}
		for _, s := range k.Skipped {
			w.printf("%s was not measured: %s\n", s.Name, strings.TrimSpace(s.Reason))
		}
		w.printf("stored in %s\n", k.Table)
	}
}
