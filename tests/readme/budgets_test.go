package readme

import (
	"github.com/opgraft/graft/internal/must"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Budgets of the documents, in bytes. Shorten a page in place of raising one.
const (
	allBytes    = 450_000
	manualBytes = 250_000
	cliBytes    = 25_000
)

// TestDocumentsAreShort holds all Markdown, the manual under docs, and the page of the command line to their budgets.
func TestDocumentsAreShort(t *testing.T) {
	cmd := exec.Command("git", "ls-files", "*.md")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v; the test needs a checkout", err)
	}
	var all, manual int64
	for name := range strings.FieldsSeq(string(out)) {
		info, err := os.Stat(filepath.Join(root(t), name))
		if os.IsNotExist(err) { // deleted, and not committed yet
			continue
		}
		must.Succeed(t, err)
		if all += info.Size(); strings.HasPrefix(name, "docs/") {
			manual += info.Size()
		}
	}
	for _, b := range []struct {
		what          string
		found, budget int64
	}{
		{"all Markdown", all, allBytes}, {"docs", manual, manualBytes},
		{"docs/cli.md", int64(len(text(t, "docs/cli.md"))), cliBytes},
	} {
		if b.found > b.budget {
			t.Errorf("%s: found %d bytes, needed at most %d; shorten a page", b.what, b.found, b.budget)
		}
	}
}

// TestDecisionsAreShort holds RATIONALE.md to numbered questions with answers of at most 250 words.
func TestDecisionsAreShort(t *testing.T) {
	sections := strings.Split(text(t, "RATIONALE.md"), "\n## ")[1:]
	heading := regexp.MustCompile(`^\d+\. .*\?$`)
	for _, s := range sections {
		title, body, _ := strings.Cut(s, "\n")
		if !heading.MatchString(title) {
			t.Errorf("RATIONALE.md: %q is no numbered question", title)
		}
		words := 0
		for line := range strings.Lines(body) {
			if !strings.HasPrefix(line, "|") {
				words += len(strings.Fields(line))
			}
		}
		if words > 250 {
			t.Errorf("RATIONALE.md: %q has %d words, needed at most 250", title, words)
		}
	}
	if len(sections) < 20 {
		t.Errorf("RATIONALE.md: found %d decisions, there are more", len(sections))
	}
}

// TestListsAreShort counts the lines of the unreleased version, the commands of README.md and the rows of the figures.
func TestListsAreShort(t *testing.T) {
	_, unreleased, found := strings.Cut(text(t, "CHANGELOG.md"), "\n## [Unreleased]")
	unreleased, _, _ = strings.Cut(unreleased, "\n## ")
	for _, b := range []struct {
		what               string
		found, least, most int
	}{
		{"CHANGELOG.md, lines of the unreleased version", strings.Count(unreleased, "\n"), 1, 100},
		{"README.md, rows of commands", strings.Count(text(t, "README.md"), "\n| `graft "), 5, 10},
		{"docs/performance.md, rows of figures", len(measuredBy.FindAllString(text(t, "docs/performance.md"), -1)), 5, 12},
		{"docs/performance.md, pictures", strings.Count(text(t, "docs/performance.md"), "\n!["), 1, 1},
	} {
		if b.found < b.least || b.found > b.most {
			t.Errorf("%s: found %d, needed %d to %d", b.what, b.found, b.least, b.most)
		}
	}
	if !found {
		t.Error("CHANGELOG.md has no unreleased version")
	}
}
