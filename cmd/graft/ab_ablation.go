package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/comparison/generations"
	"github.com/opgraft/graft/host/measure/statistics"
)

// ablationBatch is the batch of an ablation where none is given.
const ablationBatch = 8

// abAblation turns techniques on one at a time.
func (c *cli) abAblation(cmd *cobra.Command, folder string, o comparison.Options, g *generationFlags,
	deadline time.Duration) error {
	given := cmd.Flags().Changed
	switch {
	case given("a") || given("b"):
		return misuse("--ablation with --a or --b", "--ablation alone: it has rows instead of two sides")
	case g.input == "":
		return misuse("--ablation without texts", "--input FILE")
	}
	search, cache, err := g.search(map[string]json.RawMessage{})
	if err != nil {
		return err
	}
	texts, err := textsOf(g.input)
	if err != nil {
		return err
	}
	ao := generations.AblationOptions{
		Search: search, Inputs: texts, Batch: ablationBatch, Threads: o.Threads, CacheBytes: cache, Rounds: o.Rounds,
		Deadline: deadline,
	}
	if given("batch-size") {
		ao.Batch = g.batch
	}
	if given("prompt-length") {
		ao.MaxInput = g.promptLength
	}
	p := c.progress("opening the model")
	ao.Step, ao.Progress = p.say, p.set
	r, err := generations.Ablate(cmd.Context(), generations.Job[generations.AblationOptions]{Folder: folder, Options: ao,
		Runtime: c.runtime, Folders: c.folders, Output: &printed{to: c.talk},
		Refused: func(why string) { c.say("graft: %s", why) }})
	p.end()
	if err != nil {
		return err
	}
	if err := c.print(r, func(w *page) { ablated(w, r) }); err != nil {
		return err
	}
	if !r.Equal {
		return &diagnostic.Error{Kind: errDiffers, Path: folder, Found: errDiffers.Error() + " between the rows"}
	}
	return nil
}

// textsOf reads a file of texts.
func textsOf(path string) ([][]byte, error) {
	read, _, done, err := inputs(path, limit.DefaultLine)
	if err != nil {
		return nil, err
	}
	var list [][]byte
	for {
		line, err := read()
		if errors.Is(err, io.EOF) {
			return list, done()
		}
		if err != nil {
			return nil, errors.Join(err, done())
		}
		list = append(list, []byte(line))
	}
}

// ablated prints an ablation for people.
func ablated(w *page, r *generations.Ablation) {
	w.printf("%d inputs of %d tokens in all, %d new ones\n\n", r.Inputs, r.InputTokens, r.NewTokens)
	rows := [][]string{{"", "batch", "inputs/s", "tokens/s", "over the row before", "over the first", "cache MB", "equal"}}
	for i := range r.Rows {
		row := &r.Rows[i]
		name, gain, all := row.Technique, gained(row.Gain), gained(row.Speedup)
		if i == 0 {
			gain, all = "", ""
		} else {
			name = "+ " + name
		}
		rows = append(rows, []string{name, fmt.Sprint(row.BatchSize), fmt.Sprintf("%.1f", row.InputsPerSecond),
			fmt.Sprintf("%.1f", row.TokensPerSecond),
			gain, all, megabytes(row.CacheBytes), fmt.Sprintf("%d of %d", row.Equal, r.Inputs)})
	}
	w.table(rows)
	w.println()
	for _, s := range r.Skipped {
		w.printf("no row for %s: %s\n", s.Technique, s.Reason)
	}
	measuredOn(w, r.Environment)
}

// gained prints a gain, with a ~ where it is within the noise.
func gained(s statistics.Speedup) string {
	if s.Significant {
		return fmt.Sprintf("%.2fx", s.Median)
	}
	return fmt.Sprintf("~%.2fx", s.Median)
}
