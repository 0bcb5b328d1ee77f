// Command build makes a full-size subject: its .onnx files and config.json.
//
//	go run ./models/build NAME DIR
//	go run ./models/build --cached NAME
//	go run ./models/build --list
//
// Exit codes: 0 made, 1 it could not be made, 2 wrong usage.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/opgraft/graft/models"
)

const usage = `usage: build NAME DIR     make the full-size subject NAME in the folder DIR
       build --cached NAME
                          make it in the user's cache, unless it is there, and print the folder
       build --list       list the subjects and the fixtures

NAME may also be a fixture, as exporter/name, or a subject's with "-conditioned"
after it: the weights of its decoder's keys are well conditioned then. --seed N
fills other weights.

Example: go run ./models/build gpt2-124m "$HOME/.cache/graft/gpt2-124m"
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(arguments []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage) }
	list := flags.Bool("list", false, "list the subjects and the fixtures")
	cached := flags.String("cached", "", "the full-size subject that the user's cache is to have")
	seed := flags.Uint64("seed", models.DefaultSeed, "fill the weights from this seed")
	switch err := flags.Parse(arguments); {
	case err == flag.ErrHelp:
		return 0
	case err != nil:
		return 2
	case *list && flags.NArg() == 0:
		fmt.Fprintln(stdout, strings.Join(names(), "\n"))
		return 0
	case *cached != "" && !*list && flags.NArg() == 0:
		dir, err := models.Cached(*cached, func(dir string) { fmt.Fprintln(stderr, "making "+dir+", once") })
		if err != nil {
			fmt.Fprintf(stderr, "build: %v\n", err)
			return 1
		}
		fmt.Fprintln(stdout, dir)
		return 0
	case *list || *cached != "" || flags.NArg() != 2:
		flags.Usage()
		return 2
	}
	name, dir := flags.Arg(0), flags.Arg(1)
	if base, better := strings.CutSuffix(name, models.Conditioned); !slices.Contains(names(), name) &&
		!(better && slices.Contains(models.Names(), base)) {
		fmt.Fprintf(stderr, "build: no subject or fixture %q: the subjects are %s; --list names the fixtures too\n",
			name, strings.Join(models.Names(), ", "))
		return 2
	}
	start := time.Now()
	paths, err := models.Build(name, dir, *seed)
	if err != nil {
		fmt.Fprintf(stderr, "build: %v\n", err)
		return 1
	}
	for _, path := range paths {
		fmt.Fprintln(stdout, path)
	}
	fmt.Fprintf(stderr, "made %s in %s\n", name, time.Since(start).Round(100*time.Millisecond))
	return 0
}

// names of all that can be made: the subjects, then the fixtures.
func names() []string {
	all := models.Names()
	for _, f := range models.Fixtures() {
		if f.Exporter != "full" {
			all = append(all, f.String())
		}
	}
	return all
}
