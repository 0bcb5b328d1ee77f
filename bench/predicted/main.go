// Command predicted counts how often the speed-up that graft expects of a whole model is near the one that was
// measured, over the results of encoders in a folder:
//
//	go run ./bench/predicted bench/results/DATE
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// near is how far from what was measured an estimate may be, as a part of it.
const near = 0.15

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: predicted bench/results/DATE")
		os.Exit(2)
	}
	if err := count(os.Stdout, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "predicted:", err)
		os.Exit(1)
	}
}

// result is what is read of one.
type result struct {
	Outcome struct {
		Detail struct {
			Cells []cell `json:"cells"`
		} `json:"detail"`
	} `json:"outcome"`
}

type cell struct {
	Expected float64 `json:"expected"` // 0 where there is no estimate
	Speedup  struct {
		Median float64 `json:"median"`
	} `json:"speedup"`
}

// right reports an estimate that is near.
func (c cell) right() bool { return math.Abs(c.Expected/c.Speedup.Median-1) <= near }

// count writes a line for each result with estimates, and their sum.
func count(w io.Writer, folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "encoder-*.json"))
	if err != nil {
		return err
	}
	var right, all int
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var r result
		if err := json.Unmarshal(b, &r); err != nil {
			var other *json.UnmarshalTypeError
			if errors.As(err, &other) {
				continue // it has no cells
			}
			return fmt.Errorf("%s: %w", file, err)
		}
		hits, n := 0, 0
		for _, c := range r.Outcome.Detail.Cells {
			if c.Expected == 0 || c.Speedup.Median == 0 {
				continue
			}
			if n++; c.right() {
				hits++
			}
		}
		if n > 0 {
			fmt.Fprintf(w, "%3d of %3d  %s\n", hits, n, strings.TrimSuffix(filepath.Base(file), ".json"))
			right, all = right+hits, all+n
		}
	}
	if all == 0 {
		return fmt.Errorf("%s: found no result with an estimate, needed are some: go run ./bench -encoders -only "+
			"encoder-full- -out %s", folder, folder)
	}
	fmt.Fprintf(w, "%3d of %3d within %.0f %% (%.0f %%)\n", right, all, 100*near, 100*float64(right)/float64(all))
	return nil
}
