package history

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/measure/statistics"
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

// record is one of a result.
func record(s *comparison.Swept) *Record {
	return &Record{SchemaVersion: recordVersion, Kind: kind, Time: "2026-11-25T10:00:00Z", Graft: "1.0.0",
		Model:   Model{"/models/model.onnx", strings.Repeat("a", 64)},
		Plugins: []Plugin{{"flash-decode", "0.1.0", strings.Repeat("b", 64)}}, Measured: Measured{Result: s}}
}

// TestSave: a result is stored under the hash of what it holds, which sha256sum finds, and comes back whole, whatever
// part of its ID or name one says.
func TestSave(t *testing.T) {
	s := &Store{filepath.Join(t.TempDir(), "deep", "results")}
	if list, skipped, err := s.List(); len(list)+len(skipped) > 0 || err != nil {
		t.Errorf("without a folder: %v, %v, %v", list, skipped, err)
	}
	old, now := record(result(side{"none", 10}, side{"auto", 5})), record(result(side{"none", 10}, side{"auto", 4}))
	old.Name, now.Name, now.Time = "main", "main", "2026-11-26T10:00:00Z"
	for _, r := range []*Record{old, now, old} { // twice is once
		if err := s.Save(r); err != nil {
			t.Fatal(err)
		}
	}
	list, skipped, err := s.List()
	if err != nil || len(list) != 2 || len(skipped) != 0 || list[0].ID() != now.ID() || list[1].ID() != old.ID() {
		t.Fatalf("%v, %v, %v", list, skipped, err)
	}
	for ref, want := range map[string]*Record{old.ID(): old, old.ID()[:12]: old, now.ID()[:12]: now, "main": now} {
		got, err := s.Find(ref)
		if err != nil || got.ID() != want.ID() {
			t.Fatalf("%s: %v, %v", ref, got, err)
		}
		x, _ := json.Marshal(got)
		y, _ := json.Marshal(want)
		if string(x) != string(y) {
			t.Errorf("%s came back as %s, was %s", ref, x, y)
		}
	}
	path := filepath.Join(s.Folder, old.ID()+".json")
	data, err := os.ReadFile(path)
	if err != nil || id(data) != old.ID() {
		t.Errorf("the file's hash is %s, %v", id(data), err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := s.Remove(list[1]); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Stored(old.ID()); err == nil || !strings.Contains(err.Error(), "no result") ||
		!strings.Contains(err.Error(), "graft ab list") {
		t.Errorf("after it was removed: %v", err)
	}
}

// TestCanonical: the order of keys, blanks and escapes change no ID; numbers stay as they are written.
func TestCanonical(t *testing.T) {
	for _, text := range []string{`{"b":1.50,"a":[1e3,"<é"],"c":12345678901234567890}`,
		"{ \"c\": 12345678901234567890,\n\"a\": [1e3, \"\\u003c\\u00e9\"], \"b\": 1.50 }"} {
		got, err := canonical([]byte(text))
		if want := `{"a":[1e3,"<é"],"b":1.50,"c":12345678901234567890}`; err != nil || string(got) != want {
			t.Errorf("%s became %s, %v, want %s", text, got, err, want)
		}
	}
}

// TestSkipped: what is no result is named and left out, and the others are read.
func TestSkipped(t *testing.T) {
	s := &Store{t.TempDir()}
	good := record(result(side{"none", 10}, side{"auto", 5}))
	if err := s.Save(good); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(s.Folder, good.ID()+".json"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(s.Folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bad := map[string]string{
		"abcd1.json": "no JSON object",
		"abcd2.json": "a file of another kind",
		"abcd3.json": "a result of a newer graft (schema_version 99, this one reads 1)",
		"abcd4.json": "a result that was changed or renamed",
		"abcd5.json": "schema_version 0",
		"abcd6.json": "found a symbolic link",
		"abcd7.json": "found a folder",
		"abcd8.json": "no JSON object",
		"notes.txt":  "no JSON object",
		"abcd9.json": "a result without sides or cells",
		"abcda.json": "others can write to it",
		"abcdb.json": "a result without inputs or sides",
		"abcdc.json": "1 and 0 times of \"none\"",
		"abcdd.json": "a result of a model and one of generations",
	}
	write("abcd1.json", string(whole[:len(whole)/2]))
	write("abcd2.json", `{"schema_version": 3, "cells": []}`)
	write("abcd3.json", strings.Replace(string(whole), `"schema_version":1,"time"`, `"schema_version":99,"time"`, 1))
	write("abcd4.json", strings.Replace(string(whole), `"cores":2`, `"cores":4`, 1))
	write("abcd5.json", `{"kind": "graft ab result"}`)
	write("abcd8.json", "")
	write("notes.txt", "mine")
	write("abcd9.json", `{"kind": "graft ab result", "schema_version": 1, "result": {"schema_version": 3, "cells": []}}`)
	write("abcda.json", string(whole))
	write("abcdb.json",
		`{"kind": "graft ab result", "schema_version": 1, "generations": {"schema_version": 3, "batch": 1}}`)
	write("abcdc.json",
		`{"kind": "graft ab result", "schema_version": 1, "generations": {"schema_version": 2, "batch": 1, "a": {"name": "none", "seconds": [1]}}}`)
	write("abcdd.json", `{"kind": "graft ab result", "schema_version": 1, "generations": {}, "result": {}}`)
	if err := errors.Join(os.Symlink("notes.txt", filepath.Join(s.Folder, "abcd6.json")),
		os.Mkdir(filepath.Join(s.Folder, "abcd7.json"), 0o700),
		os.Chmod(filepath.Join(s.Folder, "abcda.json"), 0o666)); err != nil {
		t.Fatal(err)
	}
	write(".abcdef.json.0123456789abcdef.tmp", "{") // of a run that is under way or was killed
	twins := []string{"feed" + strings.Repeat("0", 60), "feed" + strings.Repeat("1", 60)}
	for _, name := range twins {
		write(name+".json", string(whole))
		bad[name+".json"] = "a result that was changed or renamed"
	}
	list, skipped, err := s.List()
	if err != nil || len(list) != 1 || list[0].ID() != good.ID() {
		t.Fatalf("%v, %v", list, err)
	}
	if len(skipped) != len(bad) {
		t.Errorf("skipped %v", skipped)
	}
	for _, x := range skipped {
		if want := bad[filepath.Base(x.File)]; want == "" || !strings.Contains(x.Reason, want) ||
			strings.HasPrefix(x.Reason, s.Folder) {
			t.Errorf("%s: %q, want %q", x.File, x.Reason, want)
		}
	}
	for ref, want := range map[string]string{
		"feed":        "2 results begin with feed: feed00000000, feed11111111, needed one; write more digits",
		"feed0":       "a result that was changed or renamed",
		twins[1]:      "a result that was changed or renamed",
		"abcd":        `no result "abcd" among 1; 16 files were skipped`,
		good.ID()[:3]: "no result",
	} {
		if _, err := s.Stored(ref); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", ref, err, want)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&Store{filepath.Join(file, "results")}).Save(good); err == nil ||
		!strings.Contains(err.Error(), "cannot store the result: ") || !strings.Contains(err.Error(), "XDG_DATA_HOME") {
		t.Errorf("a folder that cannot be made: %v", err)
	}
}

// TestFiles: what graft ab -o json writes is read as well, of two sides and of more.
func TestFiles(t *testing.T) {
	s := &Store{t.TempDir()}
	swept := result(side{"none", 10}, side{"auto", 5})
	for name, data := range map[string]any{"result.json": swept.Result(), "swept.json": swept,
		"record.json": record(swept)} {
		text, err := json.MarshalIndent(data, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		r, err := s.Find(path)
		if err != nil || len(r.Result.Cells) != 1 || r.Result.Sides[0].Name != "auto" ||
			!slices.Equal(r.Result.Cells[0].A.TimesMS, times(10, 30)) || r.Time != "2026-11-25T10:00:00Z" {
			t.Errorf("%s: %+v, %v", name, r, err)
			continue
		}
		if want := name == "record.json"; (r.ID() != "") != want || (r.Model.SHA256 != "") != want {
			t.Errorf("%s: %+v", name, r)
		}
	}
	for name, want := range map[string]string{"nowhere.json": "no such file", "other.json": "the JSON of a comparison",
		"newer.json": "a newer graft"} {
		path := filepath.Join(t.TempDir(), name)
		if text := map[string]string{"other.json": "{}",
			"newer.json": `{"kind": "graft ab result", "schema_version": 2}`}[name]; text != "" {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Find(path); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	if _, err := s.Find(filepath.Join(s.Folder, "x")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a path that is not there: %v", err)
	}
}

// TestNames: a name is one that nobody takes for an ID or a file.
func TestNames(t *testing.T) {
	for name, ok := range map[string]bool{"": true, "before": true, "v1.2 of main": true, "bed": true, "cafe": false,
		"0123": false, strings.Repeat("a", 65): true, "a/b": false, "x.json": false,
		"\x1b[31m": false, " x": false, strings.Repeat("é", 51): false} {
		if err := Named(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}
