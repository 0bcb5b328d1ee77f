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

// TestMakefileLists: the race detector watches every package with goroutines, or with state that goroutines share,
// but those of commands; and tests of which -short leaves something out run in make test-long or make test-longest.
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
	longer, names := slices.Concat(lists["LONGER"], lists["LONGEST"]),
		strings.Split(strings.Join(lists["LONGER_TESTS"], ""), "|")
	need := map[string]map[string]bool{"goroutines": {}, "tests that -short leaves out": {}}
	run := map[string]bool{}
	parsed(t, func(folder string, test bool, file *ast.File) {
		command := folder == "bench" || strings.HasPrefix(folder, "bench/") || strings.HasPrefix(folder, "cmd/")
		if !test && !command && concurrent(file) {
			need["goroutines"][folder] = true
		}
		if test {
			for _, name := range short(file) {
				need["tests that -short leaves out"][folder] = true
				run[name] = true
			}
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
	for name := range run {
		if !slices.Contains(names, name) {
			t.Errorf("Makefile: found no %s among the tests that -short leaves something of", name)
		}
	}
	for _, name := range names {
		if folder, _, _ := strings.Cut(name, "/"); !run[name] && folder == name {
			t.Errorf("Makefile: found %s among the tests that -short leaves something of, which it does not", name)
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

// short are the tests of a file that call testing.Short, themselves or by a function of the file.
func short(file *ast.File) (tests []string) {
	asks := map[string]bool{}
	for range 2 { // a function, then the tests that call it
		for _, d := range file.Decls {
			f, is := d.(*ast.FuncDecl)
			if !is || f.Body == nil || asks[f.Name.Name] {
				continue
			}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					x, is := n.X.(*ast.Ident)
					asks[f.Name.Name] = asks[f.Name.Name] || is && x.Name == "testing" && n.Sel.Name == "Short"
				case *ast.CallExpr:
					x, is := n.Fun.(*ast.Ident)
					asks[f.Name.Name] = asks[f.Name.Name] || is && asks[x.Name]
				}
				return true
			})
		}
	}
	for name := range asks {
		if asks[name] && strings.HasPrefix(name, "Test") {
			tests = append(tests, name)
		}
	}
	return tests
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
			if name == "build" || name == "testdata" || name == "bin" || strings.HasPrefix(name, ".") && name != ".." ||
				err == nil && path != root {
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
