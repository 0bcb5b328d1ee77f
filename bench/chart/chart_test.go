package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// TestCommittedChart compares the chart beside each folder of results with what is drawn of them.
func TestCommittedChart(t *testing.T) {
	charts, err := filepath.Glob("../results/*/chart.svg")
	if err != nil || len(charts) == 0 {
		t.Fatalf("found %d charts: %v", len(charts), err)
	}
	for _, path := range charts {
		c := must.Value(read(filepath.Dir(path)))(t)
		want := must.Value(os.ReadFile(path))(t)
		if !bytes.Equal(c.svg(), want) {
			t.Errorf("%s is not what its results give: go run ./bench/chart %s", path,
				filepath.Join("bench/results", filepath.Base(filepath.Dir(path))))
		}
	}
}

// TestChartIsXML reads what is drawn of hostile words.
func TestChartIsXML(t *testing.T) {
	c := &chart{groups: []group{{`<"&`, []row{{`a < b`, 0.7, 0.5, 40, "1 → 2 ms & more", 3}}}}, foot: "<"}
	d := xml.NewDecoder(bytes.NewReader(c.svg()))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestNoFigures names the folder and the command that measures.
func TestNoFigures(t *testing.T) {
	folder := t.TempDir()
	want := folder + ": found no figure of a speed-up (gpt2-long.json ...); make bench measures them"
	if err := write(folder); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
