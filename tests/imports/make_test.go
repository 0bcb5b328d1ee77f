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

	"github.com/opgraft/graft/internal/must"
)

// TestMakefileLists: the race detector watches every package with goroutines, or with state that goroutines share,
// but those of commands; packages of which -short leaves something out run whole in make test-long or
// make test-longest, those of which a sample does in make test-longest; and none runs in two places of make test and
// make test-long.
func TestMakefileLists(t *testing.T) {
	lists := map[string][]string{}
	data := must.Value(os.ReadFile(filepath.Join(root, "Makefile")))(t)
	for line := range strings.Lines(string(data)) {
		if name, list, found := strings.Cut(line, "="); found {
			lists[strings.TrimSpace(name)] = strings.Fields(list)
		}
	}
	goroutines, shorter, sampled := map[string]bool{}, map[string]bool{}, map[string]bool{}
	folders := map[string]bool{}
	parsed(t, func(folder string, test bool, file *ast.File) {
		folders[folder] = true
		command := folder == "bench" || strings.HasPrefix(folder, "bench/") || strings.HasPrefix(folder, "cmd/")
		if !test && !command && concurrent(file) {
			goroutines[folder] = true
		}
		if test && asksForShort(file) {
			shorter[folder] = true
		}
		if test && slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool {
			return i.Path.Value == `"github.com/opgraft/graft/internal/sample"`
		}) {
			sampled[folder] = true
		}
	})
	for _, c := range []struct {
		what  string
		found map[string]bool
		lists []string
	}{
		{"goroutines", goroutines, []string{"RACED", "RACED_LONG"}},
		{"tests that -short leaves out", shorter, []string{"LONG", "LONGEST"}},
		{"tests of which a sample runs", sampled, []string{"SAMPLED", "LONGEST"}},
	} {
		list := slices.Concat(lists[c.lists[0]], lists[c.lists[1]])
		for folder := range c.found {
			if !listed(list, folder) {
				t.Errorf("%s: found %s, needed it in %s of the Makefile", folder, c.what, strings.Join(c.lists, " or "))
			}
		}
		for _, entry := range list {
			folder, below := strings.CutSuffix(entry, "/...")
			switch {
			case !folders[folder]:
				t.Errorf("Makefile: found %s in a list, needed a package", entry)
			case !c.found[folder] && !below && !slices.Contains(slices.Concat(lists["LONG"], lists["LONGEST"]), entry):
				t.Errorf("Makefile: found %s in a list of packages with %s, which it has none of", entry, c.what)
			}
		}
	}
	for folder := range folders {
		for _, two := range [][2]string{{"RACED", "LONG"}, {"RACED", "RACED_LONG"}, {"LONG", "LONGEST"}} {
			if listed(lists[two[0]], folder) && listed(lists[two[1]], folder) {
				t.Errorf("Makefile: found %s in %s and in %s, needed it in one: its tests would run twice", folder, two[0],
					two[1])
			}
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

// asksForShort reports a call of testing.Short.
func asksForShort(file *ast.File) (found bool) {
	ast.Inspect(file, func(n ast.Node) bool {
		if n, is := n.(*ast.SelectorExpr); is {
			x, is := n.X.(*ast.Ident)
			found = found || is && x.Name == "testing" && n.Sel.Name == "Short"
		}
		return !found
	})
	return found
}

// parsed hands over every Go file of the module.
func parsed(t *testing.T, each func(folder string, test bool, file *ast.File)) {
	t.Helper()
	must.Succeed(t, filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
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
	}))
}
