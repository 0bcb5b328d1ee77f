package imports

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestMakefileLists: the race detector watches every package with goroutines, or with state that goroutines share, but those of
// commands; and tests that -short leaves out run in make test-long.
func TestMakefileLists(t *testing.T) {
	lists := map[string][]string{}
	data, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if name, list, found := strings.Cut(line, "="); found {
			lists[strings.TrimSpace(name)] = strings.Fields(list)
		}
	}
	raced := slices.Concat(lists["RACED"], lists["RACED_LONG"])
	longer := lists["LONGER"]
	need := map[string]map[string]bool{"goroutines": {}, "tests that -short leaves out": {}}
	parsed(t, func(folder string, test bool, file *ast.File) {
		command := folder == "bench" || strings.HasPrefix(folder, "bench/") || strings.HasPrefix(folder, "cmd/")
		if !test && !command && concurrent(file) {
			need["goroutines"][folder] = true
		}
		if test && short(file) {
			need["tests that -short leaves out"][folder] = true
		}
	})
	for what, list := range map[string][]string{"goroutines": raced, "tests that -short leaves out": longer} {
		for folder := range need[what] {
			if !listed(list, folder) {
				t.Errorf("%s: found %s, needed it in the Makefile's list", folder, what)
			}
		}
		for _, entry := range list {
			if _, there := need[what][strings.TrimSuffix(entry, "/...")]; !there && !strings.HasSuffix(entry, "/...") {
				t.Errorf("Makefile: found %s in a list of packages with %s, which it has none of", entry, what)
			}
		}
	}
	for _, entry := range lists["RACED_LONG"] {
		if listed(lists["RACED"], entry) {
			t.Errorf("Makefile: found %s in RACED_LONG, which make test has watched", entry)
		}
	}
}

// listed reports whether a list of packages, of which some end in "/...", has a folder.
func listed(list []string, folder string) bool {
	return slices.ContainsFunc(list, func(entry string) bool {
		above, all := strings.CutSuffix(entry, "/...")
		return folder == above || all && strings.HasPrefix(folder, above+"/")
	})
}

// concurrent reports a go statement, or what goroutines share with each other.
func concurrent(file *ast.File) (found bool) {
	for _, i := range file.Imports {
		found = found || i.Path.Value == `"sync"` || i.Path.Value == `"sync/atomic"`
	}
	ast.Inspect(file, func(n ast.Node) bool {
		_, is := n.(*ast.GoStmt)
		found = found || is
		return !found
	})
	return found
}

// short reports a call of testing.Short.
func short(file *ast.File) (found bool) {
	ast.Inspect(file, func(n ast.Node) bool {
		s, is := n.(*ast.SelectorExpr)
		if is && s.Sel.Name == "Short" {
			x, is := s.X.(*ast.Ident)
			found = found || is && x.Name == "testing"
		}
		return !found
	})
	return found
}

// parsed hands over every Go file of the module.
func parsed(t *testing.T, each func(folder string, test bool, file *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			_, err := os.Stat(filepath.Join(path, "go.mod"))
			name := entry.Name()
			if name == "build" || name == "testdata" || name == "bin" || strings.HasPrefix(name, ".") && name != ".." || err == nil && path != root {
				return filepath.SkipDir
			}
		case strings.HasSuffix(path, ".go"):
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			folder, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			each(filepath.ToSlash(folder), strings.HasSuffix(path, "_test.go"), file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
