package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// TestCount: cells with an estimate count, and those within 15 % of what was measured are right.
func TestCount(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"encoder-a.json": `{"outcome": {"detail": {"cells": [
			{"expected": 1.1, "speedup": {"median": 1.2}},
			{"expected": 1.16, "speedup": {"median": 1}},
			{"expected": 0.84, "speedup": {"median": 1}},
			{"speedup": {"median": 1}}]}}}`,
		"encoder-b.json": `{"outcome": {"detail": [1]}}`,
		"encoder-c.json": `{"outcome": {"detail": {"cells": [{"expected": 2, "speedup": {"median": 2}}]}}}`,
		"other.json":     `{"outcome": {"detail": {"cells": [{"expected": 2, "speedup": {"median": 4}}]}}}`,
	} {
		must.Succeed(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	var got strings.Builder
	must.Succeed(t, count(&got, folder))
	want := "  1 of   3  encoder-a\n  1 of   1  encoder-c\n  2 of   4 within 15 % (50 %)\n"
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", &got, want)
	}
	if err := count(&got, t.TempDir()); err == nil {
		t.Error("a folder without results is none")
	}
	must.Succeed(t, os.WriteFile(filepath.Join(folder, "encoder-d.json"), []byte(`{"outcome`), 0o600))
	if err := count(&got, folder); err == nil || !strings.Contains(err.Error(), "encoder-d.json") {
		t.Errorf("a file that is cut: %v", err)
	}
}
