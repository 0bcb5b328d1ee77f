package readme

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/internal/must"
)

// each calls a function for every block of a language in the documents, and fails when there is
// none: then the test would say nothing.
func each(t *testing.T, language string, do func(t *testing.T, s *sandbox, b block)) {
	n := 0
	for _, document := range documents(t) {
		for _, b := range read(t, document) {
			if b.language == language {
				n++
				t.Run(fmt.Sprintf("%s:%d", document, b.line), func(t *testing.T) { do(t, newSandbox(t), b) })
			}
		}
	}
	if n == 0 {
		t.Errorf("no document has a block of language %s", language)
	}
}

// imports are the packages that a snippet without an import clause may use, by name.
var imports = map[string]string{
	"graft":   "github.com/opgraft/graft",
	"embed":   "github.com/opgraft/graft/embed",
	"textgen": "github.com/opgraft/graft/textgen",
	"ort":     "github.com/yalue/onnxruntime_go",
	"context": "context", "errors": "errors", "fmt": "fmt", "log": "log", "slog": "log/slog", "os": "os",
}

// goFile makes a compilable file of a block: a whole file as it is; declarations with a package
// clause before them; statements inside a function that returns an error.
func goFile(text string) string {
	if strings.HasPrefix(text, "package ") || strings.HasPrefix(text, "// Package ") {
		return text
	}
	if strings.HasPrefix(text, "import ") {
		return "package snippet\n\n" + text
	}
	var clause strings.Builder
	for name, path := range imports {
		if regexp.MustCompile(`\b` + name + `\.`).MatchString(text) {
			fmt.Fprintf(&clause, "import %s %q\n", name, path)
		}
	}
	return "package snippet\n\n" + clause.String() + "\nfunc snippet() error {\n" + text +
		"\nreturn nil\n}\n\nvar _ = snippet\n"
}

// TestGo compiles every Go block as a package of this module.
func TestGo(t *testing.T) {
	overlay := map[string]string{}
	var packages []string
	folder := t.TempDir()
	for _, document := range documents(t) {
		for _, b := range read(t, document) {
			if b.language != "go" {
				continue
			}
			name := strings.NewReplacer("/", "_", ".", "_").Replace(document) + fmt.Sprintf("_%d", b.line)
			file := filepath.Join(folder, name+".go")
			must.Succeed(t, os.WriteFile(file, []byte(goFile(b.text())), 0o644))
			overlay[filepath.Join(root(t), "tests", "readme", "snippets", name, "snippet.go")] = file
			packages = append(packages, "./tests/readme/snippets/"+name)
		}
	}
	if len(packages) == 0 {
		t.Fatal("no document has a block of language go")
	}
	data := must.Value(json.Marshal(map[string]any{"Replace": overlay}))(t)
	list := filepath.Join(folder, "overlay.json")
	must.Succeed(t, os.WriteFile(list, data, 0o644))
	slices.Sort(packages)
	for _, p := range packages {
		cmd := exec.Command("go", "build", "-overlay", list, "-o", filepath.Join(folder, "out"), p)
		cmd.Dir = root(t)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", p, err, out)
		}
	}
}

// TestPython runs every Python block with the newest and the oldest ONNX Runtime that patched files
// are promised to load in.
func TestPython(t *testing.T) {
	for _, peer := range []string{"new", "old"} {
		python := filepath.Join(root(t), "build", "peers", peer, "bin", "python")
		if _, err := os.Stat(python); err != nil {
			t.Fatalf("there is no Python peer: %v; run make peers", err)
		}
		t.Run(peer, func(t *testing.T) {
			each(t, "python", func(t *testing.T, s *sandbox, b block) {
				s.patch(t)
				cmd := exec.Command(python, "-c", b.text())
				cmd.Dir, cmd.Env = s.folder,
					append(slices.Clone(s.env), "PYTHONPATH="+filepath.Join(root(t), "bindings", "python"),
						"PYTHONDONTWRITEBYTECODE=1")
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		})
	}
}

// TestC compiles every C block, links it with the runtime and runs it.
func TestC(t *testing.T) {
	headers, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/yalue/onnxruntime_go").Output()
	must.Succeed(t, err)
	library := must.Value(ort.Find(""))(t)
	each(t, "c", func(t *testing.T, s *sandbox, b block) {
		s.patch(t)
		must.Succeed(t, os.WriteFile(filepath.Join(s.folder, "program.c"), []byte(b.text()), 0o644))
		compile := []string{"cc", "-Wall", "-Wextra", "-Werror", "-isystem", strings.TrimSpace(string(headers)), "program.c",
			"-o", "program",
			library.Path, "-Wl,-rpath," + filepath.Dir(library.Path)}
		if strings.Contains(b.text(), "<graft_enable.h>") {
			folder := graftCommand(t)
			compile = append(compile, "-I"+filepath.Join(root(t), "bindings", "c"), filepath.Join(folder, "libgraft.so"),
				"-Wl,-rpath,"+folder)
		}
		for _, args := range [][]string{compile, {"./program"}} {
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Dir, cmd.Env = s.folder, s.env
			if args[0] == "./program" {
				cmd.Path = filepath.Join(s.folder, "program")
			}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", args[0], err, out)
			}
		}
	})
}

// patch writes patched.onnx, as the documents do before a program loads it.
func (s *sandbox) patch(t *testing.T) {
	t.Helper()
	s.run(t, "before the program", command{text: "graft patch model.onnx -o patched.onnx"})
}
