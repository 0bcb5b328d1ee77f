package readme

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// held is an entry of the last column of docs/security.md: a folder, and names of tests in it.
var held = regexp.MustCompile("`([a-z0-9/_.-]+)` ((?:[A-Z]\\w+)(?:, [A-Z]\\w+)*)")

// TestEveryThreatIsHeld: each threat of docs/security.md names at least one test, and each test that it names exists.
func TestEveryThreatIsHeld(t *testing.T) {
	rows := 0
	for _, line := range strings.Split(text(t, "docs/security.md"), "\n") {
		columns := strings.Split(strings.Trim(line, "| "), " | ")
		if !strings.HasPrefix(line, "| ") || columns[0] == "threat" {
			continue
		}
		rows++
		tests := held.FindAllStringSubmatch(columns[len(columns)-1], -1)
		if len(columns) != 3 || len(tests) == 0 {
			t.Errorf("docs/security.md: no test holds this: %s", line)
		}
		for _, m := range tests {
			for _, name := range strings.Split(m[2], ", ") {
				if !tested(t, m[1], name) {
					t.Errorf("docs/security.md names %s of %s, which does not exist", name, m[1])
				}
			}
		}
	}
	if rows < 30 {
		t.Errorf("docs/security.md lists %d threats", rows)
	}
}

// tested looks for a test's definition, in Go or in C++, in a folder.
func tested(t *testing.T, folder, name string) bool {
	t.Helper()
	definition := regexp.MustCompile(`func ` + name + `\(|TEST(_F|_P)?\(\w+, ` + name + `\)|class ` + name +
		`\(unittest|def ` + name + `\(`)
	entries, err := os.ReadDir(filepath.Join(root(t), folder))
	if err != nil {
		t.Error(err)
		return false
	}
	for _, e := range entries {
		if e.IsDir() || !strings.Contains(e.Name(), "test") && !strings.HasSuffix(e.Name(), ".cc") {
			continue
		}
		source := must.Value(os.ReadFile(filepath.Join(root(t), folder, e.Name())))(t)
		if definition.Match(source) {
			return true
		}
	}
	return false
}
