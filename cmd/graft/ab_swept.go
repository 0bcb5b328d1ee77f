package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/profile/runs"
	reports "github.com/opgraft/graft/host/measure/report"
	"github.com/opgraft/graft/host/measure/statistics"
)

// usualWidth is that of lines where no terminal says its own.
const usualWidth = 80

// mostBars is how many rows of a comparison are drawn for people.
const mostBars = 64

// width is the number of columns of the terminal that data go to.
func (c *cli) width() int {
	if f, ok := c.out.to.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
			return int(size.Col)
		}
	}
	return usualWidth
}

// swept prints a comparison of several sides or sizes for people.
func swept(w *page, s *comparison.Swept, width int) {
	rows := [][]string{{"", "operators", "replaced", "load ms"}}
	for i, o := range slices.Concat([]comparison.Opened{s.A}, s.Sides) {
		which := "a"
		if i > 0 {
			which = "b"
			if len(s.Sides) > 1 {
				which = fmt.Sprintf("b%d", i)
			}
		}
		rows = append(rows, sideRow(which, &comparison.Side{Opened: o})[:4])
	}
	w.table(rows)
	described(w, comparison.OfModel, slices.Concat([]comparison.Opened{s.A}, s.Sides)...)
	w.println()
	head := []string{}
	for _, a := range s.Axes {
		head = append(head, a.Name)
	}
	rows = [][]string{append(head, "operators", "a ms", "ms", "speed-up", "95 % interval", "answers", "max abs",
		"least cosine")}
	var bars []reports.Row
	few := false
	for i := range s.Cells {
		c := &s.Cells[i]
		for j := range c.Sides {
			b := &c.Sides[j]
			var row []string
			for _, a := range s.Axes {
				row = append(row, fmt.Sprint(c.Lengths[a.Name]))
			}
			furthest, cosine := 0.0, math.Inf(1)
			for _, o := range b.Parity.Outputs {
				if furthest = max(furthest, o.MaxAbsolute); o.Cosine != nil {
					cosine = min(cosine, *o.Cosine)
				}
			}
			similar := ""
			if !math.IsInf(cosine, 1) {
				similar = similarity(&cosine)
			}
			row = append(row, b.Name, fmt.Sprintf("%.3f", c.A.MedianMS), fmt.Sprintf("%.3f", b.MedianMS), gained(b.Speedup),
				fmt.Sprintf("%.2fx to %.2fx", b.Speedup.CI95[0], b.Speedup.CI95[1]), answered(&b.Parity), difference(furthest),
				similar)
			rows, few = append(rows, row), few || b.Speedup.Few
			label := strings.TrimSpace(comparison.Label(s.Axes, c.Lengths) + " " + b.Name)
			bars = append(bars, reports.Row{Label: diagnostic.Printable(label), Speedup: b.Speedup})
		}
	}
	w.table(rows)
	w.printf("\nhow many times as fast as a (%s): o in its 95 %% interval, | is 1x\n", s.A.Name)
	left := max(len(bars)-mostBars, 0)
	w.text.WriteString(reports.Text(bars[:len(bars)-left], width))
	if left > 0 {
		w.printf("... %d more, see -o json or --report\n", left)
	}
	w.println()
	for _, one := range s.Sides {
		if !one.Changed && !s.A.Changed && one.Name != s.A.Name && s.ModelB == "" {
			w.printf("%s replaces nothing, as a: what its times differ by is noise\n", one.Name)
		}
	}
	if few {
		w.printf("these are few runs, and more of them may say something else: try more --rounds\n")
	}
	w.printf("%d rounds; ", s.Rounds)
	measuredOn(w, s.Environment)
}

// answered is a word on answers.
func answered(p *comparison.Parity) string {
	switch {
	case p.OK:
		return "equal"
	case p.Random != "":
		return "random"
	}
	return "DIFFERENT"
}

// partsOf measures where the time of each side goes. A report does without where that cannot be measured.
func (c *cli) partsOf(ctx context.Context, j comparison.Job, s *comparison.Swept) error {
	set, err := c.load(false)
	if err == nil {
		err = runs.TimeSides(ctx, j, set, s)
	}
	if err != nil && ctx.Err() == nil {
		c.say("graft: the report says nothing of nodes: %v", err)
		err = nil
	}
	return err
}

// reportTo checks where a report is to be written, before anything is measured.
func reportTo(path string) error {
	if path == "" {
		return nil
	}
	if err := newFile("--report", path); err != nil {
		return err
	}
	fail := func(found, fix string) error {
		return &diagnostic.Error{Path: path, Found: found,
			Needed: "a name of --report that is not there yet, in a folder that is", Fix: fix}
	}
	folder := filepath.Dir(path)
	switch info, err := os.Stat(folder); {
	case err != nil:
		return fail("its folder cannot be read: "+diagnostic.Cause(err), "make the folder "+folder)
	case !info.IsDir():
		return fail("its folder is a file", "name another folder")
	case unix.Access(folder, unix.W_OK) != nil:
		return fail("its folder cannot be written", "name another folder")
	}
	return nil
}

// writeReport writes a report, which reportTo has checked.
func (c *cli) writeReport(path string, content []byte, err error) error {
	if err != nil {
		return err
	}
	if err := reportTo(path); err != nil {
		return err
	}
	if err := storage.Write(path, content, storage.Shared); err != nil {
		return err
	}
	c.say("report written to %s", path)
	return nil
}

// reportOptions are what a report says of this command.
func reportOptions() reports.Options {
	words := []string{"graft"}
	for _, arg := range os.Args[1:] {
		if arg == "" || strings.ContainsAny(arg, " \t\n\"'\\$`*?[]{}()<>|&;#~!") {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		words = append(words, arg)
	}
	return reports.Options{Command: strings.Join(words, " "), Version: buildVersion()}
}

// gained prints a gain, with a ~ where it is within the noise.
func gained(s statistics.Speedup) string {
	if s.Significant {
		return fmt.Sprintf("%.2fx", s.Median)
	}
	return fmt.Sprintf("~%.2fx", s.Median)
}
