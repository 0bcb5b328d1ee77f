package readme

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"context"
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
	data, err := os.ReadFile(filepath.Join(root(t), document))
	if err != nil {
		t.Fatal(err)
	}
	list, err := blocks(string(data))
	if err != nil {
		t.Fatalf("%s: %v", document, err)
	}
	return list
}

// notRun are the beginnings of commands that are not run, with the reason. They must still parse as
// shell, and each must occur, so that the list does not outlive its use.
var notRun = map[string]string{
	"git clone ":          "copies a repository over the network",
	"cd ":                 "a directory of the reader's",
	"pip install ":        "changes a Python environment of the reader's",
	"python models/":      "needs the exporters, a developer's tool",
	"go get ":             "changes a module of the reader's",
	"go test -fuzz ":      "runs until it is stopped",
	"go run ./abi/gen":    "rewrites generated files",
	"go run ./models/bu":  "writes gigabytes",
	"go run ./bench":      "takes minutes and gigabytes",
	"protoc ":             "rewrites generated files, with a tool that tests do without",
	".ci/run":             "is what runs this test",
	"export ":             "sets what the sandbox sets itself",
	"GRAFT_ONNXRUNTIME=/": "names a runtime of the reader's",
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
// folder, and expects the promised status.
func TestCommands(t *testing.T) {
	used := map[string]bool{}
	for _, document := range documents(t) {
		t.Run(document, func(t *testing.T) {
			var s *sandbox
			for _, b := range read(t, document) {
				if b.language != "sh" && b.language != "console" {
					continue
				}
				if s == nil {
					s = newSandbox(t)
				}
				for _, c := range b.commands() {
					if out, err := exec.Command("bash", "-n", "-c", c.text).CombinedOutput(); err != nil {
						t.Errorf("%s:%d: %s\nis no shell: %s", document, c.line, c.text, out)
						continue
					}
					if beginning := reasonNotToRun(c.text); beginning != "" {
						used[beginning] = true
						continue
					}
					s.run(t, document, c)
				}
			}
		})
	}
	for beginning := range notRun {
		if !used[beginning] && !t.Failed() {
			t.Errorf("no document has a command that begins with %q: take it out of the list", beginning)
		}
	}
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
	case first == "go" || first == "clang-format" || first == "ctest" || first == "cmake":
		folder = root(t)
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
	if len(packages) == 1 && packages[0] == "./..." {
		return
	}
	cmd := exec.Command("go", append([]string{"test", "-list", pattern}, packages...)...)
	cmd.Dir, cmd.Env = root(t), s.env
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Test") && !strings.Contains(string(out), "Example") {
		t.Errorf("%s:%d: %s\nnames no test: %v\n%s", document, c.line, c.text, err, out)
	}
}
