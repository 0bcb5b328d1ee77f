package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/opgraft/graft/host/plan/machine"
)

func main() {
	deaths := flag.Int("deaths", 0, "how many processes to kill")
	load := flag.Duration("load", 0, "how long sessions and generations run")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the random choices")
	out := flag.String("out", "", "file that the result is written to as well")
	command := flag.String("graft", "bin/graft", "the command")
	root := flag.String("root", ".", "the checkout with models and build/plugins")
	flag.Parse()
	wrong, err := run(*root, *command, *out, *deaths, *load, *seed)
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(2)
	}
	if wrong > 0 {
		os.Exit(1)
	}
}

// run does what the flags say and returns how many things were wrong.
func run(root, command, out string, deaths int, load time.Duration, seed uint64) (wrong int, err error) {
	var text strings.Builder
	w := io.MultiWriter(os.Stdout, &text)
	fmt.Fprintf(w, "%s, %d cores, %s, seed %d\n", machine.This(nil, 0).CPU, runtime.NumCPU(),
		time.Now().UTC().Format(time.DateOnly), seed)
	if root, err = filepath.Abs(root); err != nil {
		return 0, err
	}
	if command, err = filepath.Abs(command); err != nil {
		return 0, err
	}
	if deaths > 0 {
		n, err := runDeaths(w, root, command, deaths, seed)
		if err != nil {
			return wrong, err
		}
		wrong += n
	}
	if load > 0 {
		n, err := runLoad(w, root, load, seed)
		if err != nil {
			return wrong, err
		}
		wrong += n
	}
	if out != "" {
		err = os.WriteFile(out, []byte(text.String()), 0o644)
	}
	return wrong, err
}
