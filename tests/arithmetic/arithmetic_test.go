// Package arithmetic holds that C++ which plans, checks and infers has no product or sum of sizes
// that could wrap: a model chooses them. See abi/kit/graft/checked.h.
package arithmetic

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// Functions that compute with what a model says, before anything is known to fit.
var plans = regexp.MustCompile(`^(Validate|Infer|Plan|Make.*Plan|LayOut|Workspace|Bind|Choose|Require|Check|Measure|` +
	`Fill(Groups|Plan)|TakePrompt|Read(Groups|Edits)|Cut[A-Z]|Max[A-Z]|May[A-Z]|Spread|` +
	`Copyable|RowsIn|RowsOf|Panels|Floats|Slots|Lists|Call|Problem|Device|` +
	`Store[A-Z]?Of|Pool|Present|Elements|Groups|Sizes|Strides|Broadcast|Written|Total|Same|Stream|Threads)`)

// Where such functions are: operators and their plans, not kernels, tests or benchmarks, nor the
// folding of weights, which computes with matrices that are there. Launches of kernels-cuda are
// planned in plain integers, after RequireCountable (abi/kit/graft/countable.h) in the operators:
// kernels-cuda/emulator/countable_test.cc plans at its limits, and TestLaunchesAreCountable holds
// that the operators ask it.
func planned(path string) bool {
	if strings.Contains(path, "/tests/") || strings.Contains(path, "/bench/") || strings.HasSuffix(path, "_test.cc") ||
		strings.HasSuffix(path, "-inl.h") || path == "plugins/row-attention/fold.cc" {
		return false
	}
	return strings.HasSuffix(path, ".cc") || strings.HasSuffix(path, ".h") || strings.HasSuffix(path, ".cu")
}

func read(t *testing.T, path string) string {
	t.Helper()
	text := must.Value(os.ReadFile(path))(t)
	return string(text)
}

func TestPlansDoNotWrap(t *testing.T) {
	root := "../.."
	sources := map[string]string{}
	must.Succeed(t, filepath.WalkDir(filepath.Join(root, "plugins"), func(path string, _ fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		if name = filepath.ToSlash(name); err == nil && planned(name) {
			sources[name] = read(t, path)
		}
		return err
	}))
	returns := returned(sources)
	seen := 0
	for name, source := range sources {
		for _, f := range functions(source) {
			if plans.MatchString(f.name) {
				seen++
			}
		}
		for _, place := range wrapping(source, plans, returns) {
			t.Errorf("%s:%s: a product or sum of plain integers; make one a graft::Size (abi/kit/graft/checked.h)", name, place)
		}
	}
	if seen < 100 {
		t.Errorf("%d functions were read; the test no longer finds them", seen)
	}
}

var planCall = regexp.MustCompile(`\b(?:MakePlan|WorkspaceBytes|PlanTopK|PlanScan|PlanIndex)\(`)

// TestLaunchesAreCountable: each source of a CUDA variant that plans a launch has RequireCountable before it, in the
// same file or in one that it includes.
func TestLaunchesAreCountable(t *testing.T) {
	sources := must.Value(filepath.Glob("../../plugins/*/cuda/*.cu"))(t)
	included := regexp.MustCompile(`#include "([\w/.-]*_cuda\.h)"`)
	seen := 0
	for _, path := range sources {
		source := read(t, path)
		if !planCall.MatchString(source) || strings.Contains(path, "/fused-gelu/") {
			continue
		}
		seen++
		for _, header := range included.FindAllStringSubmatch(source, -1) {
			found, _ := filepath.Glob(filepath.Join("../../plugins/*/cuda", filepath.Base(header[1])))
			for _, path := range found {
				source += read(t, path)
			}
		}
		if !strings.Contains(source, "RequireCountable(") {
			t.Errorf("%s: plans launches without RequireCountable", path)
		}
	}
	if seen < 3 {
		t.Errorf("%d sources plan launches; the test no longer finds them", seen)
	}
}

var checkedFunction = regexp.MustCompile(`\b(?:Size|Dim|double|float) (\w+)\(`)

// Functions of all files that return a checked number.
func returned(sources map[string]string) map[string]bool {
	names := map[string]bool{}
	for _, source := range sources {
		for _, found := range checkedFunction.FindAllStringSubmatch(source, -1) {
			names[found[1]] = true
		}
	}
	return names
}

func TestSeededProductsAreFound(t *testing.T) {
	source := read(t, "testdata/seeded.cc")
	found := map[int]bool{}
	for _, place := range wrapping(source, plans, map[string]bool{"Area": true}) {
		var line int
		fmt.Sscanf(place, "%d:", &line)
		found[line] = true
	}
	for i, line := range strings.Split(source, "\n") {
		must.Equal(t, strings.HasSuffix(line, "// wraps"), found[i+1], line)
	}
}
