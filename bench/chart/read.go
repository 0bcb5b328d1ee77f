package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// groups are the rows of the chart, by the names of their figures. The heading of a group says what 1x is.
var groups = []struct {
	heading string
	rows    []struct{ figure, label string }
}{
	{"One decoder step in a session: unpatched ONNX Runtime = 1x", []struct{ figure, label string }{
		{"gpt2-short", "GPT-2-124M, 1 row, past 16"},
		{"gpt2-long", "GPT-2-124M, 4 rows, past 960"},
		{"gpt2-long-runtime-scale", "GPT-2-124M, 4 rows, past 960, scale computed"},
		{"bart-large", "BART-large, 16 rows, 1,024 encoder positions"},
	}},
	{"Whole generations, 4 beams, 64 tokens: the exported model in ONNX Runtime = 1x", []struct{ figure, label string }{
		{"generate-gpt2", "GPT-2-124M, batch 1, 704 tokens in"},
		{"generate-gpt2-batch4", "GPT-2-124M, batch 4, 704 tokens in"},
		{"generate-bart", "BART-large, batch 4, 1,024 tokens in"},
		{"generate-t5", "T5-base, batch 4, 1,024 tokens in"},
		{"generate-whisper", "Whisper-small, batch 4, 30 s of features"},
	}},
	{"Whole generations, 4 beams, 64 tokens: CTranslate2 = 1x", []struct{ figure, label string }{
		{"peer-ct2-gpt2", "GPT-2-124M, batch 1, 704 tokens in"},
		{"peer-ct2-gpt2-batch4", "GPT-2-124M, batch 4, 704 tokens in"},
		{"peer-ct2-bart", "BART-large, batch 4, 1,024 tokens in"},
		{"peer-ct2-t5", "T5-base, batch 4, 1,024 tokens in"},
		{"peer-ct2-whisper", "Whisper-small, batch 4, 30 s of features"},
	}},
}

// chart is what is drawn.
type chart struct {
	groups []group
	foot   string // the machine, the versions and the dates
}

type group struct {
	heading string
	rows    []row
}

// row is one comparison: how many times as fast graft is.
type row struct {
	label     string
	speedup   float64
	low, high float64 // 95 % interval of the speed-up
	detail    string  // both sides in their unit
	runs      int     // timed runs of each side
}

// figure is what the chart needs of a file of results.
type figure struct {
	Outcome struct {
		Detail struct {
			A, B    side
			Speedup struct {
				Median float64    `json:"median"`
				CI95   [2]float64 `json:"ci95"`
			} `json:"speedup"`
		} `json:"detail"`
	} `json:"outcome"`
	Environment struct {
		CPU         string `json:"cpu"`
		Cores       int    `json:"cores"`
		OnnxRuntime string `json:"onnxruntime"`
		Date        string `json:"date"`
	} `json:"environment"`
}

// times stand for the timed runs of a side.
type times struct {
	N int `json:"n"`
}

type side struct {
	MedianMS float64           `json:"median_ms"`
	TimesMS  times             `json:"times_ms"`
	Seconds  times             `json:"seconds"`
	Tokens   float64           `json:"tokens_per_second"`
	Versions map[string]string `json:"versions"`
}

// read takes the figures of a folder that the chart shows; a figure that the folder lacks is left out.
func read(folder string) (*chart, error) {
	c := &chart{}
	var machine, versions, dates []string
	for _, g := range groups {
		drawn := group{heading: g.heading}
		for _, r := range g.rows {
			data, err := os.ReadFile(filepath.Join(folder, r.figure+".json"))
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			var f figure
			if err := json.Unmarshal(data, &f); err != nil {
				return nil, fmt.Errorf("%s: %w", r.figure, err)
			}
			e, a, b := f.Environment, f.Outcome.Detail.A, f.Outcome.Detail.B
			s := f.Outcome.Detail.Speedup
			if s.Median <= 0 {
				return nil, fmt.Errorf("%s: found no speed-up", r.figure)
			}
			one := row{r.label, s.Median, s.CI95[0], s.CI95[1],
				fmt.Sprintf("%.1f → %.1f tokens/s", a.Tokens, b.Tokens), min(a.Seconds.N, b.Seconds.N)}
			if a.TimesMS.N > 0 {
				one.detail, one.runs = fmt.Sprintf("%.1f → %.1f ms", a.MedianMS, b.MedianMS), min(a.TimesMS.N, b.TimesMS.N)
			}
			drawn.rows = append(drawn.rows, one)
			add(&machine, fmt.Sprintf("%s, %d cores", e.CPU, e.Cores))
			add(&versions, "ONNX Runtime "+e.OnnxRuntime)
			if v := a.Versions["ctranslate2"]; v != "" {
				add(&versions, "CTranslate2 "+v)
			}
			day, _, _ := strings.Cut(e.Date, "T")
			add(&dates, day)
		}
		if len(drawn.rows) > 0 {
			c.groups = append(c.groups, drawn)
		}
	}
	if len(c.groups) == 0 {
		return nil, fmt.Errorf("%s: found no figure of a speed-up (gpt2-long.json ...); make bench measures them", folder)
	}
	slices.SortStableFunc(dates, cmp.Compare[string])
	c.foot = strings.Join(slices.Concat(machine, []string{"float32, weights from a seed"}, versions, dates), "; ")
	return c, nil
}

// add appends what a list does not have yet.
func add(list *[]string, s string) {
	if !slices.Contains(*list, s) {
		*list = append(*list, s)
	}
}
