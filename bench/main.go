// Command bench measures the figures that the README quotes, each in one
// interleaved run, and writes a summary and the raw times, beside the machine's memory
// bandwidth, under bench/results.
//
//	go run ./bench                      every figure
//	go run ./bench -only step -list     what there is
//
// It needs the plugins built (make plugins) and a runtime (make runtime). Models
// are made from seeds into the user's cache, about 10 GB, once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/models"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	for name, run := range map[string]func(context.Context, []string) error{loadChild: loadOne, openChild: openOne,
		encodeChild: serveSide} {
		if len(os.Args) > 1 && os.Args[1] == name {
			os.Exit(child(ctx, run, os.Args[2:]))
		}
	}
	if len(os.Args) > 1 && os.Args[1] == generateChild {
		if err := generateOneChild(ctx, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	only := flag.String("only", "",
		"measure only the figure of this name or, where there is none, figures whose name contains this")
	list := flag.Bool("list", false, "list the figures and end")
	out := flag.String("out", "", "folder for the raw figures (default: bench/results/DATE; with -quick a temporary one)")
	peers := flag.String("peers", "",
		"compare with other engines, whose Python environment is this folder (make bench-peers)")
	rounds := flag.Int("rounds", 25, "rounds of A B B A for a figure of speed")
	quick := flag.Bool("quick", false,
		"one round, few tokens: shows that figures of generation and of weights in fewer bits work, and measures nothing")
	var sides []string
	flag.Func("side", "generate-*-int8: a side of the comparison with float32, as graft ab names it (again for others; "+
		"the first is judged)", func(name string) error {
		sides = append(sides, name)
		return nil
	})
	e := encoderFlags()
	outputs := flag.Int("outputs", draftOutputs, "drafts: outputs of a figure")
	together := flag.Int("together", 1, "drafts: outputs that are generated at once")
	tokens := flag.Int("tokens", perplexityTokens, "smollm2-perplexity: tokens that are predicted")
	var encoders batcherFlags
	flag.StringVar(&encoders.model, "encoder", "",
		"batcher: the folder of an encoder (default: all-minilm-l6-v2 of make encoders)")
	flag.IntVar(&encoders.tokens, "batch-tokens", 0, "batcher: the most tokens of a batch (default: the batcher's)")
	flag.IntVar(&encoders.runs, "batch-runs", 0, "batcher: batches at once (default: 1)")
	flag.Parse()
	encoders.texts, encoders.threads = *e.texts, *e.threads
	all, command := append(slices.Concat(figures(), quantizedFigures()), batcher(&encoders, "batcher", sentences),
		batcher(&encoders, "batcher-queries", queries)), "go run ./bench"
	all = append(all, draftFigures(max(1, *outputs), max(1, *together))...)
	if *outputs != draftOutputs {
		command += fmt.Sprintf(" -outputs %d", *outputs)
	}
	if *together != 1 {
		command += fmt.Sprintf(" -together %d", *together)
	}
	if *tokens != perplexityTokens {
		command += fmt.Sprintf(" -tokens %d", *tokens)
	}
	switch {
	case *e.on && *peers != "":
		all, command = encoderPeerFigures(*peers), command+e.command()+" -peers "+*peers
	case *e.on:
		all, command = encoderFigures(), command+e.command()
	case *peers != "":
		all, command = peerFigures(*peers), command+" -peers "+*peers
	}
	for _, name := range sides {
		command += " -side " + name
	}
	b := &bench{rounds: *rounds, sides: sides, tokens: max(1, *tokens)}
	if *quick {
		b.rounds, b.quick, command = 1, true, command+" -quick"
	}
	switch {
	case *out != "":
	case *quick:
		*out = filepath.Join(os.TempDir(), "graft-bench-quick")
	default:
		*out = filepath.Join("bench", "results", time.Now().UTC().Format(time.DateOnly))
	}
	if *list {
		for _, f := range all {
			fmt.Printf("%-34s %s: %s\n", f.name, f.what, f.need)
		}
		return
	}
	err := e.read(ctx, &b.encoders)
	if err == nil {
		err = b.run(ctx, all, command, *only, *out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// figure is one row of the table.
type figure struct {
	name string
	what string
	need string
	run  func(ctx context.Context, b *bench) (*outcome, error)
}

// bench is what all figures share.
type bench struct {
	library *ort.Library
	set     *loaded.Set
	rounds  int
	quick   bool     // few tokens
	sides   []string // of generate-*-int8; none for quantizedSides
	tokens  int      // of smollm2-perplexity

	encoders encoderOptions
}

func (b *bench) run(ctx context.Context, all []figure, command, only, out string) (err error) {
	wanted := chosen(all, only)
	if len(wanted) == 0 {
		return fmt.Errorf("-only %s: found no figure of that name, needed one that -list prints with the same -encoders "+
			"and -peers", only)
	}
	if b.library, err = ort.FindAndOpen(""); err != nil {
		return err
	}
	if b.set, err = loaded.Load(nil, false); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	missed := 0
	var failed error
	for _, f := range wanted {
		o, err := f.run(ctx, b)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil { // the others are worth having
			failed = errors.Join(failed, fmt.Errorf("%s: %w", f.name, err))
			continue
		}
		mark := "met"
		if !o.Met {
			mark = "MISSED"
			missed++
		}
		r := result{resultVersion, f.name, f.what, f.need, command + " -only " + f.name, o, comparison.Measure(b.library)}
		fmt.Printf("%-6s %-24s %s\n       need %s; %s; memory bandwidth %.0f GB/s; %s\n", mark, f.name, o.Got, f.need,
			o.Answers, r.Environment.MemoryBandwidthGB,
			strings.Join(r.Environment.ISA, " "))
		if err := write(out, r); err != nil {
			return err
		}
	}
	if missed > 0 {
		failed = errors.Join(failed, fmt.Errorf("%d figures missed", missed))
	}
	return failed
}

// chosen are the figure of a name or, where there is none, those whose name contains it.
func chosen(all []figure, only string) (list []figure) {
	if i := slices.IndexFunc(all, func(f figure) bool { return f.name == only }); i >= 0 {
		return all[i : i+1]
	}
	for _, f := range all {
		if strings.Contains(f.name, only) {
			list = append(list, f)
		}
	}
	return list
}

// subject is the path of one file of a full-size model, made when it is missing.
func subject(name, file string) (string, error) {
	dir, err := models.Cached(name, say)
	return filepath.Join(dir, file), err
}

// say says that a model is made.
func say(dir string) { fmt.Fprintf(os.Stderr, "making %s, once\n", dir) }
