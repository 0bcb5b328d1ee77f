package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/statistics"
)

// outcome is what a figure came to.
type outcome struct {
	Got     string `json:"got"`
	Met     bool   `json:"met"`
	Answers string `json:"answers,omitempty"`
	Detail  any    `json:"detail"`
}

// result is the file of one figure.
type result struct {
	SchemaVersion int                    `json:"schema_version"`
	Figure        string                 `json:"figure"`
	What          string                 `json:"what"`
	Need          string                 `json:"need"`
	Command       string                 `json:"command"`
	Outcome       *outcome               `json:"outcome"`
	Environment   comparison.Environment `json:"environment"`
}

// resultVersion is the schema_version of a result.
const resultVersion = 2

// summarized is a detail too long to read, which has a short form.
type summarized interface{ summary() any }

// times stand for a list of timed runs.
type times struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// write makes NAME.json of a result, in which every list of times is summarised, and
// NAME.raw.json.gz of the whole detail where anything was left out.
func write(folder string, r result) error {
	whole, err := json.Marshal(r.Outcome.Detail)
	if err != nil {
		return err
	}
	short := whole
	if s, ok := r.Outcome.Detail.(summarized); ok {
		if short, err = json.Marshal(s.summary()); err != nil {
			return err
		}
	}
	var tree any
	d := json.NewDecoder(bytes.NewReader(short))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		return err
	}
	o := *r.Outcome
	var left bool
	if o.Detail, left = summarise("", tree); left || !bytes.Equal(short, whole) {
		if err := writeCompressed(filepath.Join(folder, r.Figure+".raw.json.gz"), whole); err != nil {
			return err
		}
	}
	r.Outcome = &o
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return storage.Write(filepath.Join(folder, r.Figure+".json"), append(data, '\n'), storage.Shared)
}

// writeCompressed writes the same bytes for the same data.
func writeCompressed(path string, data []byte) error {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := z.Write(append(data, '\n')); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return storage.Write(path, b.Bytes(), storage.Shared)
}

// summarise puts summaries in the place of lists of times: those whose key says so. left
// says that there were some.
func summarise(key string, v any) (short any, left bool) {
	switch v := v.(type) {
	case map[string]any:
		for name, item := range v {
			var some bool
			v[name], some = summarise(name, item)
			left = left || some
		}
	case []any:
		if strings.HasSuffix(key, "_ms") || strings.HasSuffix(key, "seconds") {
			if t, ok := timesOf(v); ok {
				return t, true
			}
		}
		for i, item := range v {
			var some bool
			v[i], some = summarise("", item)
			left = left || some
		}
	}
	return v, left
}

// timesOf summarises a list of numbers.
func timesOf(list []any) (t times, ok bool) {
	var numbers []float64
	for _, item := range list {
		n, ok := item.(json.Number)
		if !ok {
			return t, false
		}
		x, err := n.Float64()
		if err != nil {
			return t, false
		}
		numbers = append(numbers, x)
	}
	if len(numbers) == 0 {
		return t, false
	}
	return times{len(numbers), statistics.Median(numbers), slices.Min(numbers), slices.Max(numbers)}, true
}
