package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opgraft/graft/host/generate"
	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/pipeline"
	"github.com/opgraft/graft/host/measure/statistics"
)

// pipelined is the raw figures of the pipeline against one thing after the other.
type pipelined struct {
	Words           int                `json:"words"`
	SyncSeconds     []float64          `json:"sync_seconds"`
	PipelineSeconds []float64          `json:"pipeline_seconds"`
	Speedup         statistics.Speedup `json:"speedup"`
}

// pipelineFigure compares texts to texts with reading, encoding, decoding and
// writing beside the engine, and without. Everything shares the cores, so the least
// that may come of it is nothing lost.
func pipelineFigure() figure {
	return figure{"pipeline", "held-out words to pronunciations, beam 4, batch 32: everything at once against --sync",
		"not slower than 0.98x, equal texts",
		func(ctx context.Context, b *bench) (*outcome, error) {
			folder := filepath.Join("models", "g2p")
			words, err := heldOut(filepath.Join(folder, "held_out.txt"), 512)
			if err != nil {
				return nil, err
			}
			g, err := generate.Open(ctx, folder, decode.Options{Library: b.library, Plugins: b.set, Batch: 32})
			if err != nil {
				return nil, err
			}
			defer g.Close()
			options := g.Search()
			if err := options.Set("num_beams", []byte("4")); err != nil {
				return nil, err
			}
			run := func(sync bool) (texts []string, seconds float64, err error) {
				at := 0
				start := time.Now()
				_, err = g.Run(ctx, options, func() (string, error) {
					if at == len(words) {
						return "", io.EOF
					}
					at++
					return words[at-1], nil
				}, func(r generate.Result) error {
					texts = append(texts, r.Sequences[0].Text)
					return nil
				}, pipeline.Options{Sync: sync})
				return texts, time.Since(start).Seconds(), err
			}
			d := &pipelined{Words: len(words)}
			var first [2][]string
			for round := range b.rounds/3 + 1 {
				for _, sync := range []bool{true, false, false, true} {
					texts, seconds, err := run(sync)
					if err != nil {
						return nil, err
					}
					i, times := 1, &d.PipelineSeconds
					if sync {
						i, times = 0, &d.SyncSeconds
					}
					if first[i] == nil {
						first[i] = texts
					}
					if round > 0 {
						*times = append(*times, seconds)
					}
				}
			}
			d.Speedup = statistics.SpeedupOf(d.SyncSeconds, d.PipelineSeconds)
			out := &outcome{Detail: d, Answers: "texts equal"}
			equal := slices.Equal(first[0], first[1])
			if !equal {
				out.Answers = "texts DIFFER"
			}
			out.Met = equal && d.Speedup.Median >= 0.98
			out.Got = fmt.Sprintf("%.2fx (95%% %.2f to %.2f): %.2f s -> %.2f s for %d words", d.Speedup.Median,
				d.Speedup.CI95[0], d.Speedup.CI95[1],
				statistics.Median(d.SyncSeconds), statistics.Median(d.PipelineSeconds), len(words))
			return out, nil
		}}
}

// heldOut reads the words of a list of words with their pronunciations.
func heldOut(path string, limit int) (words []string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan() && len(words) < limit; {
		if word, _, _ := strings.Cut(s.Text(), "\t"); word != "" {
			words = append(words, strings.Fields(word)[0])
		}
	}
	return words, nil
}
