package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/generate"
	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/pipeline"
)

const (
	g2p   = "models/g2p"
	words = 200 // held-out words that are generated
	shown = 5   // of them printed
)

// pronounce generates pronunciations of words that the model was not trained on,
// with four beams, and counts those that the dictionary has.
func (d *demo) pronounce() error {
	d.say("opening %s and generating %d pronunciations", g2p, words)
	data, err := os.ReadFile(filepath.Join(g2p, "held_out.txt"))
	if err != nil {
		return err
	}
	var known [][]string // a word and its pronunciations
	var list strings.Builder
	for line := range strings.Lines(string(data)) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		known = append(known, fields)
		fmt.Fprintln(&list, fields[0])
		if len(known) == words {
			break
		}
	}
	g, err := generate.Open(g2p, decode.Options{Library: d.library, Plugins: d.set, CacheBytes: 256 << 20, Batch: 16})
	if err != nil {
		return err
	}
	defer g.Close()
	d.print("%s, spelling to pronunciation, an encoder-decoder with 4 beams:\n\n", g2p)
	right := 0
	o := g.Search()
	o.NumBeams = 4
	summary, err := g.Run(d.ctx, o, pipeline.Lines("words", strings.NewReader(list.String()), limit.DefaultLine),
		func(r generate.Result) error {
			if r.Error != "" {
				return fmt.Errorf("%s: %s", known[r.Index][0], r.Error)
			}
			said := r.Sequences[0].Text
			mark := " "
			if slices.Contains(known[r.Index][1:], said) {
				right++
				mark = "="
			}
			if r.Index < shown {
				d.print("  %-12s %-32s %s dictionary: %s\n", known[r.Index][0], said, mark, strings.Join(known[r.Index][1:], ", "))
			}
			return nil
		}, pipeline.Options{})
	if err != nil {
		return err
	}
	d.print("\n  %d of %d held-out words as the dictionary has them, %.0f words/s\n\n", right, summary.Inputs,
		float64(summary.Inputs)/summary.Seconds)
	return nil
}
