package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/measure/changes"
)

func (c *cli) abCompare() *cobra.Command {
	var require requireFlag
	cmd := &cobra.Command{
		Use:   "compare OLD.json NEW.json",
		Short: "Say what changed between two results of graft ab, and whether it is significant",
		Long: `Compares two files of graft ab -o json. Of each size and side it shows the times, medians
with their 95 % intervals, and how the speed-up over side a changed. ~ is a change that is
not significant. What else changed is listed: model, plan, machine. Of whole generations,
time to the first token, decode steps and memory are shown as well.

With --require the exit code is 5 unless every side's new speed-up over a is known to be so many
times the old one: the lower end of the interval counts. Speed-ups are compared
and not times, since each was measured beside its own a: an hour in which the machine is
slower counts on both.`,
		Example: "  graft ab compare main.json new.json --require 0.95x",
		Args: func(cmd *cobra.Command, args []string) error {
			err := exactly(2, "two results, OLD.json and NEW.json")(cmd, args)
			if e, ok := err.(*diagnostic.Error); ok {
				e.Fix = "see graft ab compare --help; a model of that name is ./compare"
			}
			return err
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := require.parse(); err != nil {
				return err
			}
			from, err := changes.Read(args[0])
			if err != nil {
				return err
			}
			to, err := changes.Read(args[1])
			if err != nil {
				return err
			}
			r, err := changes.Compare(from, to)
			if e, ok := err.(*diagnostic.Error); ok {
				e.Path = args[1]
			}
			if err != nil {
				return err
			}
			if err := c.print(r, func(w *page) { changed(w, r) }); err != nil || require.text == "" {
				return err
			}
			if why := r.Incomparable(); why != "" {
				return &diagnostic.Error{Path: args[1], Found: why,
					Needed: "for --require the sides and sizes of " + args[0] + ", of the same model"}
			}
			return require.met(args[1], "in "+args[0], r)
		},
	}
	cmd.Flags().StringVar(&require.text, "require", "",
		"exit code 5 unless each side's new speed-up over a is known to be so many times the old one (0.95x)")
	return cmd
}

// changed prints what changed for people, in the manner of benchstat.
func changed(w *page, r *changes.Comparison) {
	for _, o := range []struct {
		what string
		of   changes.Origin
	}{{"old", r.Old}, {"new", r.New}} {
		w.printf("%s: %s %s\n", o.what, o.of.Model, localTime(o.of.Time))
	}
	for _, n := range r.Notes {
		w.printf("NOTE: %s\n", n)
	}
	if len(r.Changed) > 0 {
		w.println()
		rows := [][]string{{"changed", "old", "new"}}
		for _, x := range r.Changed {
			rows = append(rows, []string{x.What, x.Old, x.New})
		}
		w.table(rows)
	}
	if len(r.Times) > 0 {
		w.println()
		rows := [][]string{{"ms a run", "", "old", "new", "delta", ""}}
		for _, t := range r.Times {
			rows = append(rows, []string{t.Cell, t.Side, interval(t.Old), interval(t.New), delta(t.Delta, t.Significant),
				fmt.Sprintf("(p=%.3f n=%d+%d)", t.P, t.Old.Runs, t.New.Runs)})
		}
		w.table(rows)
	}
	if len(r.Speedups) > 0 {
		w.println()
		rows := [][]string{{"speed-up over a", "", "old", "new", "change", ""}}
		for _, g := range r.Speedups {
			rows = append(rows, []string{g.Cell, g.Side, fmt.Sprintf("%.2fx", g.Old.Median), fmt.Sprintf("%.2fx", g.New.Median),
				delta(g.Change.Median-1, g.Change.Significant),
				fmt.Sprintf("(95 %% %s to %s, p=%.3f)", signedPercent(g.Change.CI95[0]-1), signedPercent(g.Change.CI95[1]-1),
					g.Change.P)})
		}
		if mean, of := r.GeometricMean(); of > 1 {
			rows = append(rows, []string{"geometric mean", "", "", "", signedPercent(mean - 1), ""})
		}
		w.table(rows)
	}
	if len(r.Memory) > 0 {
		w.println()
		rows := [][]string{{"MB", "", "old", "new", "delta"}}
		for _, m := range r.Memory {
			rows = append(rows, []string{m.Side, strings.ReplaceAll(strings.TrimSuffix(m.What, "_bytes"), "_", " "),
				megabytes(m.Old), megabytes(m.New), signedPercent(m.Delta)})
		}
		w.table(rows)
	}
	for _, list := range []struct {
		where string
		names []string
	}{{"old", r.OnlyOld}, {"new", r.OnlyNew}} {
		if len(list.names) > 0 {
			w.printf("\nonly in %s: %s\n", list.where, strings.Join(list.names, ", "))
		}
	}
}

// interval is a median and half the width of its interval, the wider half, as a share of it.
func interval(e changes.Estimate) string {
	if e.LowMS == nil || e.MedianMS == 0 {
		return fmt.Sprintf("%.3f ± ?", e.MedianMS)
	}
	return fmt.Sprintf("%.3f ± %.0f%%", e.MedianMS, 100*max(e.MedianMS-*e.LowMS, *e.HighMS-e.MedianMS)/e.MedianMS)
}

func delta(x float64, significant bool) string {
	if !significant {
		return "~"
	}
	return signedPercent(x)
}

func signedPercent(x float64) string {
	if math.Abs(x) < 5e-5 {
		x = 0
	}
	return fmt.Sprintf("%+.2f%%", 100*x)
}
