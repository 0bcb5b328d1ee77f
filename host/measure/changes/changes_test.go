package changes

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/measure/statistics"
	"github.com/opgraft/graft/internal/must"
)

// times are n runs of about ms.
func times(ms float64, n int) (list []float64) {
	for i := range n {
		list = append(list, ms*(1+0.01*float64(i*7%11-5)/5))
	}
	return list
}

// side is one of a cell.
type side struct {
	name string
	ms   float64
}

// result is one of a cell, in which a takes aMS.
func result(a side, sides ...side) *comparison.Swept {
	s := &comparison.Swept{SchemaVersion: 3, Model: "model.onnx", Seed: 1, Warmup: 3, Rounds: 15,
		A: comparison.Opened{Name: a.name, Plugins: []string{}}, Axes: []comparison.Axis{},
		Environment: comparison.Environment{CPU: "a processor", Cores: 2, OS: "linux", Arch: "amd64", ISA: []string{"avx2"},
			ONNXRuntime: "1.30.0", MemoryBandwidthGB: 40, Date: "2026-11-25T10:00:00Z"}}
	c := comparison.Cell{Lengths: map[string]int64{},
		Inputs: []inputs.Info{{Name: "x", Type: "float32", Shape: []int64{1, 8}, From: "normal"}},
		A:      comparison.Timed{MedianMS: a.ms, TimesMS: times(a.ms, 30)}}
	for _, x := range sides {
		s.Sides = append(s.Sides,
			comparison.Opened{Name: x.name, Plugins: []string{}, Replaced: 1, Blocks: 1,
				Plan: []comparison.Choice{{Node: "Softmax_0", Kind: "attention", Plugin: x.name, Operator: "FlashDecode"}}})
		b := comparison.Against{Name: x.name, Timed: comparison.Timed{MedianMS: x.ms, TimesMS: times(x.ms, 30)},
			Parity: comparison.Parity{OK: true}}
		b.Speedup = statistics.SpeedupOf(c.A.TimesMS, b.TimesMS)
		c.Sides = append(c.Sides, b)
	}
	s.Cells = []comparison.Cell{c}
	return s
}

// measured is what was read of one.
func measured(s *comparison.Swept) Measured { return Measured{Result: s} }

// TestRead: what graft ab -o json writes is read, of two sides and of more, and other files are refused.
func TestRead(t *testing.T) {
	path := func(name string, data []byte) string {
		at := filepath.Join(t.TempDir(), name)
		must.Succeed(t, os.WriteFile(at, data, 0o644))
		return at
	}
	swept := result(side{"none", 10}, side{"auto", 5})
	for name, data := range map[string]any{"result.json": swept.Result(), "swept.json": swept} {
		text := must.Value(json.MarshalIndent(data, "", "  "))(t)
		m, err := Read(path(name, text))
		if err != nil || len(m.Result.Cells) != 1 || m.Result.Sides[0].Name != "auto" ||
			!slices.Equal(m.Result.Cells[0].A.TimesMS, times(10, 30)) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	for file, want := range map[string]string{
		filepath.Join(t.TempDir(), "nowhere.json"):                       "no such file",
		path("other.json", []byte("{}")):                                 "the JSON of a comparison",
		path("text.json", []byte("mine")):                                "the JSON of a comparison",
		path("folder.json", []byte(`{"schema_version": 3, "batch": 1}`)): "a result without inputs or sides",
		path("empty.json", []byte(`{"schema_version": 3, "cells": []}`)): "a result without sides or cells",
	} {
		must.Fail(t, must.Error(Read(file)), want, file)
	}
}
