package main

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// A result has a summary of its times, and the times beside it.
func TestWriteSummarisesTimes(t *testing.T) {
	folder := t.TempDir()
	detail := map[string]any{"a": map[string]any{"times_ms": []float64{4, 1, 3}, "shape": []int{1, 2, 3}}, "seconds": 2.5}
	must.Succeed(t, write(folder, result{Figure: "speed", Outcome: &outcome{Got: "1x", Detail: detail}}))
	data := must.Value(os.ReadFile(filepath.Join(folder, "speed.json")))(t)
	var r struct {
		Outcome struct {
			Detail struct {
				A struct {
					Times times `json:"times_ms"`
					Shape []int
				}
				Seconds float64
			}
		}
	}
	must.Succeed(t, json.Unmarshal(data, &r))
	if d := r.Outcome.Detail; d.A.Times != (times{3, 3, 1, 4}) || len(d.A.Shape) != 3 || d.Seconds != 2.5 {
		t.Errorf("%+v of %s", d, data)
	}
	f := must.Value(os.Open(filepath.Join(folder, "speed.raw.json.gz")))(t)
	defer f.Close()
	z := must.Value(gzip.NewReader(f))(t)
	var raw struct {
		A struct {
			Times []float64 `json:"times_ms"`
		}
	}
	if err := json.NewDecoder(z).Decode(&raw); err != nil || len(raw.A.Times) != 3 || raw.A.Times[0] != 4 {
		t.Errorf("raw times %v, error %v", raw.A.Times, err)
	}
	must.Succeed(t, write(folder, result{Figure: "untimed", Outcome: &outcome{Detail: map[string]int{"equal": 3}}}))
	if _, err := os.Stat(filepath.Join(folder, "untimed.raw.json.gz")); !os.IsNotExist(err) {
		t.Errorf("a file of raw times without times: %v", err)
	}
}
