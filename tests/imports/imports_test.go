// Package imports holds the order of the host's packages.
package imports

import (
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	root   = "../.."
	module = "github.com/opgraft/graft/"
	purego = "github.com/ebitengine/purego" // calls native code
)

// order gives each package of CONTRIBUTING's table of the tree the number of its row.
func order(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]int{}
	name := regexp.MustCompile("`(host/[a-z0-9/]+)`")
	for i, line := range strings.Split(string(text), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 4 {
			continue
		}
		for _, m := range name.FindAllStringSubmatch(cells[1], -1) {
			rows[m[1]] = i
		}
	}
	return rows
}

// row is that of a package, or of the one that it lies in.
func row(rows map[string]int, pkg string) (int, bool) {
	for ; pkg != "."; pkg = path.Dir(pkg) {
		if n, ok := rows[pkg]; ok {
			return n, true
		}
	}
	return 0, false
}

// imports are the host's packages with what each imports of the host, and purego, tests aside.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir(filepath.Join(root, "host"), func(file string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() && d.Name() == "testdata" {
			return cmp(err, filepath.SkipDir)
		}
		if d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(rel)
		found[pkg] = append(found[pkg], []string{}...)
		for _, s := range f.Imports {
			p, err := strconv.Unquote(s.Path.Value)
			if err != nil {
				return err
			}
			own, ok := strings.CutPrefix(p, module)
			if (ok || p == purego) && !slices.Contains(found[pkg], own) {
				found[pkg] = append(found[pkg], own)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// cmp is an error, or what stands for none.
func cmp(err, none error) error {
	if err != nil {
		return err
	}
	return none
}

// Each package imports only what stands in its row of the table or in one before it.
func TestOrder(t *testing.T) {
	rows := order(t)
	for pkg, list := range imports(t) {
		at, ok := row(rows, pkg)
		if !ok {
			t.Errorf("%s has no row in CONTRIBUTING's table of the tree", pkg)
		}
		for _, p := range list {
			if other, ok := row(rows, p); ok && other > at {
				t.Errorf("%s imports %s, which stands after it", pkg, p)
			}
		}
	}
}

// Plans and rewrites are made of manifests, without loading or running anything of a plugin's.
func TestPlansAreData(t *testing.T) {
	graph := imports(t)
	runs := []string{"host/plugin", "host/worker", "host/cuda", "host/ort", purego}
	for _, from := range []string{"host/plugin/manifest", "host/plan", "host/rewrite"} {
		var walk func(pkg string, seen map[string]bool)
		walk = func(pkg string, seen map[string]bool) {
			for _, p := range graph[pkg] {
				if seen[p] {
					continue
				}
				seen[p] = true
				if slices.Contains(runs, p) {
					t.Errorf("%s reaches %s through %s", from, p, pkg)
				}
				walk(p, seen)
			}
		}
		walk(from, map[string]bool{})
	}
}
