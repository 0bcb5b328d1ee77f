package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/sessions"
)

// loadChild is the hidden first argument of a process that loads one model.
const loadChild = "load-one"

// loading is what such a process measures of itself.
type loading struct {
	Seconds float64 `json:"seconds"`     // creating the session
	PeakMB  float64 `json:"peak_rss_mb"` // VmHWM when it is done
	AnonMB  float64 `json:"anon_mb"`     // RssAnon then: memory of its own
	FileMB  float64 `json:"file_mb"`     // RssFile then: mapped files
}

// loads compare the load of a patched model from a file with the unpatched load.
func loads() []figure {
	self := []string{os.Args[0], loadChild}
	python := []string{"build/peers/new/bin/python", "bench/load.py"}
	return []figure{
		load("load", "GPT-2-124M (650 MB)", "gpt2-124m", self, 1, 1.05),
		load("load-minilm", "MiniLM-L6's shape (90 MB)", "minilm-l6", self, 1.1, 1.1),
		load("load-minilm-python", "the same in Python (make peers)", "minilm-l6", python, 1.1, 1.1),
	}
}

// load runs a command with a side and the model's path, in processes of their own, A B B A. Medians of time and peak
// RSS may be so many times those of the unpatched side.
func load(name, what, model string, command []string, maxTime, maxPeak float64) figure {
	return figure{name, "load of " + what + " patched against unpatched, processes apart",
		fmt.Sprintf("at most %.2fx time, %.2fx peak RSS", maxTime, maxPeak),
		func(ctx context.Context, b *bench) (*outcome, error) {
			path, err := subject(model, "model.onnx")
			if err != nil {
				return nil, err
			}
			times := map[string][]loading{}
			one := func(side string, record bool) error {
				cmd := exec.CommandContext(ctx, command[0], append(slices.Clone(command[1:]), side, path)...)
				cmd.Stderr = os.Stderr
				data, err := cmd.Output()
				if err != nil {
					return fmt.Errorf("loading %s: %w", side, err)
				}
				var m loading
				if err := json.Unmarshal(data, &m); err != nil {
					return err
				}
				if record {
					times[side] = append(times[side], m)
				}
				return nil
			}
			for i := range 6 {
				for _, side := range []string{"none", "auto", "auto", "none"} {
					if err := one(side, i > 0); err != nil {
						return nil, err
					}
				}
			}
			pick := func(side string, f func(loading) float64) float64 {
				var list []float64
				for _, m := range times[side] {
					list = append(list, f(m))
				}
				slices.Sort(list)
				return list[len(list)/2]
			}
			seconds, peak := func(m loading) float64 { return m.Seconds }, func(m loading) float64 { return m.PeakMB }
			t := pick("auto", seconds) / pick("none", seconds)
			p := pick("auto", peak) / pick("none", peak)
			return &outcome{Met: t <= maxTime && p <= maxPeak, Detail: times,
				Got: fmt.Sprintf("%.2fx time (%.2f s -> %.2f s), %.2fx peak memory (%.0f MB -> %.0f MB)", t,
					pick("none", seconds), pick("auto", seconds), p, pick("none", peak), pick("auto", peak))}, nil
		}}
}

// child runs what a process of its own is for, and gives its status.
func child(ctx context.Context, run func(context.Context, []string) error, args []string) int {
	if err := run(ctx, args); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

func loadOne(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("%s needs a side and a model", loadChild)
	}
	l, err := ort.FindAndOpen("")
	if err != nil {
		return err
	}
	o := session.Options{Unpatched: true}
	if args[0] != "none" && args[0] != panelsSide {
		set, err := loaded.Load(nil, false)
		if err != nil {
			return err
		}
		sessions := &sessions.Patcher{Plugins: set.Plugins}
		if args[0] != "auto" { // the name of a plugin
			sessions.Options = plan.Options{Plugins: args[:1], Force: true}
		}
		o = session.Options{Patcher: sessions.Patch}
	}
	open := func() (interface{ Close() }, error) { return session.Open(l, args[1], o) }
	if args[0] == panelsSide {
		set, err := loaded.Load(nil, false)
		if err != nil {
			return err
		}
		open = func() (interface{ Close() }, error) { return openPanels(ctx, args[1], l, set) }
	}
	start := time.Now()
	s, err := open()
	if err != nil {
		return err
	}
	m, err := took(start)
	if err != nil {
		return err
	}
	s.Close()
	return json.NewEncoder(os.Stdout).Encode(m)
}

// took is the time since start, and the memory that this process has now.
func took(start time.Time) (m loading, err error) {
	m.Seconds = time.Since(start).Seconds()
	for field, to := range map[string]*float64{"VmHWM": &m.PeakMB, "RssAnon": &m.AnonMB, "RssFile": &m.FileMB} {
		if *to, err = statusMB(field); err != nil {
			return m, err
		}
	}
	return m, nil
}

// statusMB is a field of what the system says of this process's memory: VmHWM is
// its peak RSS.
func statusMB(field string) (float64, error) {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		if name, value, ok := strings.Cut(s.Text(), ":"); ok && name == field {
			kb, err := strconv.ParseFloat(strings.Fields(value)[0], 64)
			return kb / 1024, err
		}
	}
	return 0, fmt.Errorf("/proc/self/status has no %s", field)
}
