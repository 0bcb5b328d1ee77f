// Command run checks plugins while they are being developed:
//
//	go run ./abi/conformance/run build/plugins/fused-gelu ...
//
// It loads each folder's library into its own process, so run it on your own code only; graft plugin verify
// does the like in a child process. It prints a line a check and ends with 3 when one failed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/opgraft/graft/abi/conformance"
	"github.com/opgraft/graft/host/plugin"
)

func main() {
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: run PLUGIN_DIR...")
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	failed := 0
	for _, folder := range flag.Args() {
		p, err := plugin.Open(folder, plugin.OpenOptions{AcceptUnverified: true})
		if err == nil {
			fmt.Printf("%s %s\n", p.Manifest.Name, p.Manifest.Version)
			err = conformance.Check(context.Background(), p, func(r conformance.Result) {
				if r.Problem != "" {
					failed++
					fmt.Printf("  FAIL  %s: %s: %s\n", r.Case, r.Check, r.Problem)
					return
				}
				fmt.Printf("  ok    %s: %s\n", r.Case, r.Check)
			})
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "run:", err)
			os.Exit(1)
		}
	}
	if failed > 0 {
		os.Exit(3)
	}
}
