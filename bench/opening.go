package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/models"
)

// openChild is the hidden first argument of a process that opens one model folder.
const openChild = "open-one"

// openings is how often a folder is opened; the first opening, which reads files from
// disk and measures the machine, does not count.
const openings = 5

// opening measures how long an engine takes to open and its peak RSS, each time in a
// process of its own. maxPeak bounds the peak RSS, as a multiple of the model's files.
func opening(name, model string, maxPeak float64) figure {
	return figure{name, "opening the folder of " + model + " for generation, processes apart",
		fmt.Sprintf("peak RSS of at most %.2fx the model's files", maxPeak),
		func(ctx context.Context, _ *bench) (*outcome, error) {
			folder, err := models.Cached(model, say)
			if err != nil {
				return nil, err
			}
			size, err := onnxBytes(folder)
			if err != nil {
				return nil, err
			}
			var taken []loading
			for i := range openings + 1 {
				m, err := openApart(ctx, folder)
				if err != nil {
					return nil, err
				}
				if i > 0 {
					taken = append(taken, m)
				}
			}
			median := func(f func(loading) float64) float64 {
				list := make([]float64, len(taken))
				for i, m := range taken {
					list[i] = f(m)
				}
				slices.Sort(list)
				return list[len(list)/2]
			}
			seconds, peak := median(func(m loading) float64 { return m.Seconds }),
				median(func(m loading) float64 { return m.PeakMB })
			files := float64(size) / (1 << 20)
			return &outcome{Met: peak <= maxPeak*files, Detail: taken,
				Got: fmt.Sprintf("%.2f s, peak RSS %.0f MB, %.2fx the %.0f MB of the model's files", seconds, peak, peak/files,
					files)}, nil
		}}
}

// onnxBytes is what the graphs of a folder take with their weights.
func onnxBytes(folder string) (sum int64, err error) {
	list, err := filepath.Glob(filepath.Join(folder, "*.onnx*"))
	if err != nil {
		return 0, err
	}
	for _, path := range list {
		info, err := os.Stat(path)
		if err != nil {
			return 0, err
		}
		sum += info.Size()
	}
	return sum, nil
}

// openApart opens a folder in a process of its own.
func openApart(ctx context.Context, folder string) (m loading, err error) {
	self, err := os.Executable()
	if err != nil {
		return m, err
	}
	cmd := exec.CommandContext(ctx, self, openChild, folder)
	cmd.Stderr = os.Stderr
	data, err := cmd.Output()
	if err != nil {
		return m, fmt.Errorf("opening %s: %w", folder, err)
	}
	return m, json.Unmarshal(data, &m)
}

// openOne opens the folder that the arguments name and prints what it took.
func openOne(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s needs a model folder", openChild)
	}
	l, err := ort.FindAndOpen("")
	if err != nil {
		return err
	}
	set, err := loaded.Load(nil, false)
	if err != nil {
		return err
	}
	start := time.Now()
	g, err := decode.Open(ctx, args[0], decode.Options{Library: l, Plugins: set})
	if err != nil {
		return err
	}
	m, err := took(start)
	if err != nil {
		return err
	}
	g.Close()
	return json.NewEncoder(os.Stdout).Encode(m)
}
