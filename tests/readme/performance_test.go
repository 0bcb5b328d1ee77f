package readme

import (
	"encoding/json"
	"github.com/opgraft/graft/internal/must"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// measuredBy finds the figure of a row: a command, or the last column of a table beside the results.
	measuredBy = regexp.MustCompile("(?m)`go run ./bench .*-only ([a-z0-9-]+)`|\\| `([a-z0-9-]+)` \\|$")
	ratio      = regexp.MustCompile(`\b\d+\.\d\dx`)
	interval   = regexp.MustCompile(`\[(\d+\.\d\d), (\d+\.\d\d)\]`)
)

// TestPerformanceFigures compares each row of docs/performance.md, and of the tables beside the results, with what the
// newest file of its figure came to.
func TestPerformanceFigures(t *testing.T) {
	rows := 0
	page := text(t, "docs/performance.md") + text(t, "bench/results/tables.md")
	for line := range strings.Lines(page) {
		m := measuredBy.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		rows++
		figure := m[1] + m[2]
		files, err := filepath.Glob(filepath.Join(root(t), "bench/results/20*", figure+".json"))
		if err != nil || len(files) == 0 {
			t.Fatalf("found no results of %s: %v", figure, err)
		}
		data := must.Value(os.ReadFile(slices.Max(files)))(t)
		var file struct {
			Outcome struct{ Got string }
		}
		must.Succeed(t, json.Unmarshal(data, &file), figure)
		claims := ratio.FindAllString(line, -1)
		for _, i := range interval.FindAllStringSubmatch(line, -1) {
			if strings.Contains(file.Outcome.Got, i[0]) {
				continue // figures of encoders write it so
			}
			claims = append(claims, "95% "+i[1]+" to "+i[2])
		}
		for _, claim := range claims {
			if !strings.Contains(file.Outcome.Got, claim) {
				t.Errorf("a page says %s of %s, which came to: %s", claim, figure, file.Outcome.Got)
			}
		}
	}
	if rows < 80 {
		t.Errorf("found %d rows with a command, there are more", rows)
	}
}

// TestReadmeFigures looks up the ratios of README.md's first screen in docs/performance.md.
func TestReadmeFigures(t *testing.T) {
	page, found := text(t, "docs/performance.md"), 0
	first, _, _ := strings.Cut(text(t, "README.md"), "\n## ")
	for _, claim := range ratio.FindAllString(first, -1) {
		found++
		if !strings.Contains(page, claim) {
			t.Errorf("README.md says %s, docs/performance.md does not", claim)
		}
	}
	if found < 3 {
		t.Errorf("README.md has %d ratios, there are three", found)
	}
}
