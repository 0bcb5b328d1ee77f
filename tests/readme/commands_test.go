package readme

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/internal/sample"
)

// documents are those whose commands and programs are run, from the repository's root.
func documents(t *testing.T) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(root(t), "docs", "*.md"))
	if err != nil || len(list) == 0 {
		t.Fatalf("docs/*.md: found %d documents, %v", len(list), err)
	}
	list = append(list, filepath.Join(root(t), "README.md"), filepath.Join(root(t), "CONTRIBUTING.md"))
	for i, path := range list {
		if list[i], err = filepath.Rel(root(t), path); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// read cuts a document into its blocks.
func read(t *testing.T, document string) []block {
	t.Helper()
	data := must.Value(os.ReadFile(filepath.Join(root(t), document)))(t)
	list := must.Value(cutBlocks(string(data)))(t, document)
	return list
}

// notRun are the beginnings of commands that are not run, with the reason. They must still parse as
// shell, and each must occur, so that the list does not outlive its use.
var notRun = map[string]string{
	"git clone ":      "copies a repository over the network",
	"cd ":             "a folder of the reader's",
	"pip install ":    "changes a Python environment of the reader's",
	"python models/":  "needs the exporters, a developer's tool",
	"optimum-cli ":    "needs the exporters, and models over the network",
	"graft pull ":     "copies a model over the network; tests/hub and cmd/graft have a server of their own",
	"go test -fuzz ":  "runs for its whole -fuzztime",
	".ci/run ":        "runs this test",
	"export GRAFT_PL": "sets for a reader's shell what the sandbox sets for each command",
}

func reasonNotToRun(text string) (beginning string) {
	for b := range notRun {
		if strings.HasPrefix(text, b) {
			return b
		}
	}
	return ""
}

// TestCommands runs every shell command of every document, those of one document in order in one
// folder, and expects the promised status. A sample is README.md and a third of the others.
func TestCommands(t *testing.T) {
	for i, document := range documents(t) {
		if document != "README.md" && !sample.Has(i, 3) {
			continue
		}
		t.Run(document, func(t *testing.T) {
			var s *sandbox
			for _, c := range commandsOf(t, document) {
				if out, err := exec.Command("bash", "-n", "-c", c.text).CombinedOutput(); err != nil {
					t.Errorf("%s:%d: %s\nis no shell: %s", document, c.line, c.text, out)
					continue
				}
				if reasonNotToRun(c.text) != "" {
					continue
				}
				if s == nil {
					s = newSandbox(t)
				}
				s.run(t, document, c)
			}
		})
	}
}

// TestNotRunIsUsed finds what the list of commands that are not run holds for nothing.
func TestNotRunIsUsed(t *testing.T) {
	var all []command
	for _, document := range documents(t) {
		all = append(all, commandsOf(t, document)...)
	}
	for beginning, reason := range notRun {
		if !slices.ContainsFunc(all, func(c command) bool { return reasonNotToRun(c.text) == beginning }) {
			t.Errorf("no document has a command that begins with %q (%s): take it out of the list", beginning, reason)
		}
	}
}

// commandsOf lists the shell commands of a document.
func commandsOf(t *testing.T, document string) []command {
	t.Helper()
	var list []command
	for _, b := range read(t, document) {
		if b.language == "sh" || b.language == "console" {
			list = append(list, b.commands()...)
		}
	}
	return list
}

// run runs one command, or checks it where running it here would run this test again.
func (s *sandbox) run(t *testing.T, document string, c command) {
	t.Helper()
	text, folder := c.text, s.folder
	switch first, rest, _ := strings.Cut(c.text, " "); {
	case first == "make":
		// Printed, not run: the target must exist.
		text, folder = "make -n "+rest, root(t)
	case strings.HasPrefix(c.text, "go test "):
		s.list(t, document, c)
		return
	case strings.HasPrefix(c.text, "go run "):
		folder = root(t)
	case first == "go":
		t.Errorf("%s:%d: %s\nmay change the repository: it cannot be run here, and is not listed as not run", document,
			c.line, c.text)
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", text)
	cmd.Dir, cmd.Env = folder, s.env
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatalf("%s:%d: %s: %v", document, c.line, c.text, err)
	}
	if got := cmd.ProcessState.ExitCode(); got != c.exit {
		t.Errorf("%s:%d: %s\nended with %d, the document says %d:\n%s", document, c.line, c.text, got, c.exit, out)
	}
}

// list checks a go test command: its packages must have the tests that it names.
func (s *sandbox) list(t *testing.T, document string, c command) {
	t.Helper()
	text, _, _ := strings.Cut(c.text, " #")
	fields := strings.Fields(text)[2:]
	pattern, packages := ".", []string{}
	for i := 0; i < len(fields); i++ {
		switch {
		case fields[i] == "-run":
			i++
			pattern = strings.Trim(fields[i], "'")
		case !strings.HasPrefix(fields[i], "-"):
			packages = append(packages, fields[i])
		}
	}
	cmd := exec.Command("go", append([]string{"test", "-list", pattern}, packages...)...)
	cmd.Dir, cmd.Env = root(t), s.env
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Test") && !strings.Contains(string(out), "Example") {
		t.Errorf("%s:%d: %s\nnames no test: %v\n%s", document, c.line, c.text, err, out)
	}
}
