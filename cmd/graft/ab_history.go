package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/history"
	"github.com/opgraft/graft/host/measure/statistics"
)

// historyFlags are those of ab that store a result and judge it.
type historyFlags struct {
	save, require string
	flags         *pflag.FlagSet
	factor        float64
}

// unnamed is the value of --save without a name.
const unnamed = "-"

func (h *historyFlags) register(f *pflag.FlagSet) {
	f.StringVar(&h.save, "save", "", "store the result for graft ab list, show and compare; --save=NAME gives it a name")
	f.Lookup("save").NoOptDefVal = unnamed
	f.StringVar(&h.require, "require", "",
		"exit code 5 unless every side is known to be so many times as fast as a (1.2x): the lower end of the interval counts")
	h.flags = f
}

// check reads the flags before anything is measured.
func (h *historyFlags) check(rounds int) error {
	if h.flags.Changed("save") && h.save != unnamed {
		if h.save == "" {
			return misuse("--save= without a name", "--save or --save=NAME")
		}
		if err := history.Named(h.save); err != nil {
			return misused("--save", err)
		}
	}
	if h.require == "" {
		return nil
	}
	if 2*rounds < statistics.FewRuns {
		return misuse(fmt.Sprintf("--require with --rounds %d", rounds),
			fmt.Sprintf("at least %d rounds: of fewer, chance decides", statistics.FewRuns/2))
	}
	var err error
	if h.factor, err = history.Factor(h.require); err != nil {
		return misused("--require", err)
	}
	return nil
}

// store saves a result, where that is asked for.
func (h *historyFlags) store(c *cli, m history.Measured, path string) error {
	if h.save == "" {
		return nil
	}
	name := h.save
	if name == unnamed {
		name = ""
	}
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	r, err := history.New(m, name, path, buildVersion(), c.folders)
	if err != nil {
		return err
	}
	at, err := history.User()
	if err != nil {
		return err
	}
	if err := at.Save(r); err != nil {
		return err
	}
	c.say("saved as %s", strings.TrimSpace(r.ID()[:shownID]+" "+name))
	return nil
}

// met is the error that a side of what was measured, or compared, is not as fast as is required.
func (h *historyFlags) met(path, a string, of interface {
	Short(factor float64) []history.Shortfall
}) error {
	if h.require == "" {
		return nil
	}
	list := of.Short(h.factor)
	if len(list) == 0 {
		return nil
	}
	var words []string
	for _, s := range list {
		words = append(words, s.String())
	}
	return &diagnostic.Error{Kind: errSlower, Path: path,
		Found:  fmt.Sprintf("not known to be %gx as fast as %s: %s", h.factor, a, strings.Join(words, "; ")),
		Needed: "intervals that begin there",
		Fix:    "more --rounds make them narrower"}
}

// shownID is how many digits of an ID are shown.
const shownID = 12

// saved finds a result of graft ab's user.
func saved(ref string) (*history.Record, *history.Store, error) {
	s, err := history.User()
	if err != nil {
		return nil, nil, err
	}
	r, err := s.Stored(ref)
	return r, s, err
}

// abPath tells people who meant a model of a subcommand's name how to name it.
func abPath(c *cli, name string) {
	if _, err := os.Stat(name); err == nil {
		c.say("graft: graft ab %s is a command; to compare the model of that name, write ./%s", name, name)
	}
}

// abArgs is exactly for a subcommand of ab, and tells of models.
func abArgs(n int, what, name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		err := exactly(n, what)(cmd, args)
		if e, ok := err.(*diagnostic.Error); ok {
			e.Fix = fmt.Sprintf("see graft ab %s --help; a model of that name is ./%s", name, name)
		}
		return err
	}
}

// saves are the results as a list.
type saves struct {
	SchemaVersion int               `json:"schema_version"`
	Folder        string            `json:"folder"`
	Results       []savedResult     `json:"results"`
	Skipped       []history.Skipped `json:"skipped"`
}

type savedResult struct {
	ID    string        `json:"id"`
	Name  string        `json:"name,omitempty"`
	Time  string        `json:"time"`
	Model history.Model `json:"model"`
	Of    string        `json:"of"` // "model" or "generations"
	A     string        `json:"a"`
	Sides []savedSide   `json:"sides"`
	Cells int           `json:"cells"`
	CPU   string        `json:"cpu"`
	Equal bool          `json:"equal"` // answers of all sides
}

// savedSide is a side with the range of its speed-ups over the cells.
type savedSide struct {
	Name     string  `json:"name"`
	Least    float64 `json:"least"`
	Greatest float64 `json:"greatest"`
}

func (c *cli) abList() *cobra.Command {
	var of string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the results that graft ab --save stored, the newest first",
		Example: "  graft ab list\n  graft ab list --model model.onnx -o json",
		Args:    abArgs(0, "no argument", "list"),
		RunE: func(*cobra.Command, []string) error {
			abPath(c, "list")
			s, err := history.User()
			if err != nil {
				return err
			}
			list, skipped, err := s.List()
			if err != nil {
				return err
			}
			match, err := modelFilter(of)
			if err != nil {
				return err
			}
			out := saves{SchemaVersion: schemaVersion, Folder: s.Folder, Results: []savedResult{}, Skipped: skipped}
			if out.Skipped == nil {
				out.Skipped = []history.Skipped{}
			}
			for _, r := range list {
				if match(r) {
					out.Results = append(out.Results, listed(r))
				}
			}
			for _, x := range skipped {
				c.warn("graft: skipped %s: %s", x.File, x.Reason)
			}
			return c.print(out, func(w *page) { out.text(w) })
		},
	}
	cmd.Flags().StringVar(&of, "model", "",
		"only those of this model or folder: one that is there, whose content counts, or the end of a path")
	return cmd
}

// modelFilter says which results are of a model: of a file or folder by its content, else by the end of its path.
func modelFilter(of string) (func(*history.Record) bool, error) {
	if of == "" {
		return func(*history.Record) bool { return true }, nil
	}
	if _, err := os.Stat(of); err != nil {
		return func(r *history.Record) bool {
			return r.Model.Path == of || strings.HasSuffix(r.Model.Path, string(os.PathSeparator)+of)
		}, nil
	}
	hash, err := history.SHA256(of)
	return func(r *history.Record) bool { return r.Model.SHA256 == hash }, err
}

func listed(r *history.Record) savedResult {
	s := savedResult{ID: r.ID(), Name: r.Name, Time: r.Time, Model: r.Model, Of: "generations", A: r.A(), Cells: 1,
		CPU: r.Environment().CPU, Equal: r.OK()}
	if r.Result != nil {
		s.Of, s.Cells = "model", len(r.Result.Cells)
	}
	for _, side := range r.Sides() {
		x := savedSide{side.Name, math.Inf(1), 0}
		for _, speedup := range side.Speedups {
			x.Least, x.Greatest = min(x.Least, speedup.Median), max(x.Greatest, speedup.Median)
		}
		s.Sides = append(s.Sides, x)
	}
	return s
}

func (s *saves) text(w *page) {
	if len(s.Results) == 0 {
		w.printf("no results in %s; graft ab MODEL --save stores one\n", s.Folder)
		return
	}
	rows := [][]string{{"id", "name", "time", "model", "as fast as", "sides", "answers", "cells"}}
	for _, r := range s.Results {
		var sides []string
		for _, x := range r.Sides {
			gain := fmt.Sprintf("%.2fx", x.Least)
			if r.Cells > 1 {
				gain += fmt.Sprintf(" to %.2fx", x.Greatest)
			}
			sides = append(sides, x.Name+" "+gain)
		}
		answers := "equal"
		if !r.Equal {
			answers = "DIFFERENT"
		}
		rows = append(rows, []string{r.ID[:shownID], r.Name, localTime(r.Time), filepath.Base(r.Model.Path), r.A,
			strings.Join(sides, ", "), answers, fmt.Sprint(r.Cells)})
	}
	w.table(rows)
}

// localTime is a time to the minute where people are.
func localTime(text string) string {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return text
	}
	return t.Local().Format("2006-01-02 15:04")
}

func (c *cli) abShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show a stored result as graft ab printed it, with what it depends on",
		Long: `Shows a result that graft ab --save stored, by its ID, at least four digits of its
beginning, or the name that it was saved under: of several, the newest. With -o json the
record as it is stored, with all times.`,
		Example: "  graft ab show 3f2a\n  graft ab show before -o json",
		Args:    abArgs(1, "one ID or name", "show"),
		RunE: func(_ *cobra.Command, args []string) error {
			abPath(c, "show")
			r, _, err := saved(args[0])
			if err != nil {
				return err
			}
			return c.print(r, func(w *page) {
				w.printf("%s\n%s, %s, graft %s\nmodel %s, sha256 %s\n", strings.TrimSpace(r.ID()+" "+r.Name), localTime(r.Time),
					machineWords(r.Environment()), r.Graft, r.Model.Path, r.Model.SHA256)
				for _, p := range r.Plugins {
					w.printf("plugin %s %s, sha256 %s\n", p.Name, p.Version, p.SHA256)
				}
				w.println()
				if r.Generations != nil {
					comparedGenerations(w, r.Generations, c.width())
				} else if one := r.Result.Result(); one != nil {
					compared(w, one)
				} else {
					swept(w, r.Result, c.width())
				}
			})
		},
	}
}

func machineWords(e comparison.Environment) string {
	return fmt.Sprintf("%s, %d cores (%s)", e.CPU, e.Cores, strings.Join(e.ISA, " "))
}

func (c *cli) abRemove() *cobra.Command {
	return &cobra.Command{
		Use:     "rm ID",
		Short:   "Remove a stored result",
		Example: "  graft ab rm 3f2a",
		Args:    abArgs(1, "one ID or name", "rm"),
		RunE: func(_ *cobra.Command, args []string) error {
			abPath(c, "rm")
			r, s, err := saved(args[0])
			if err != nil {
				return err
			}
			if err := s.Remove(r); err != nil {
				return err
			}
			return c.print(struct {
				SchemaVersion int    `json:"schema_version"`
				ID            string `json:"id"`
			}{schemaVersion, r.ID()}, func(w *page) { w.printf("removed %s\n", strings.TrimSpace(r.ID()[:shownID]+" "+r.Name)) })
		},
	}
}
