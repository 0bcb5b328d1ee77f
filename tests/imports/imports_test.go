// Package imports holds the order of the host's packages.
package imports

import (
	"github.com/opgraft/graft/internal/must"
	"go/parser"
	"go/token"
	"os"
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

// wings are the steps of a model's way, in order. A package imports from its own wing and from those before it.
var wings = []string{
	"host/base",
	"host/onnx",
	"host/meaning",
	"host/plugin",
	"host/plan",
	"host/rewrite",
	"host/ort",
	"host/session",
	"host/generate",
	"host/encode",
	"host/measure",
	"host/distribute",
}

// wing is the place in wings of the one that holds a package, or -1.
func wing(pkg string) int {
	return slices.IndexFunc(wings, func(w string) bool { return pkg == w || strings.HasPrefix(pkg, w+"/") })
}

// imports are the host's packages with what each imports of the host, and purego, tests aside.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir(filepath.Join(root, "host"), func(file string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() && d.Name() == "testdata" {
			if err == nil {
				err = filepath.SkipDir
			}
			return err
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
	must.Succeed(t, err)
	return found
}

// TestOrder: no package imports one of a wing that stands after its own.
func TestOrder(t *testing.T) {
	for pkg, list := range imports(t) {
		own := wing(pkg)
		if own < 0 {
			t.Errorf("%s is in no wing, needed one of %q", pkg, wings)
		}
		for _, p := range list {
			if wing(p) > own {
				t.Errorf("%s imports %s, whose wing stands after %s", pkg, p, wings[own])
			}
		}
	}
}

// TestContributingNamesTheWings: the table of the tree that people read has the wings in their order.
func TestContributingNamesTheWings(t *testing.T) {
	text := must.Value(os.ReadFile(filepath.Join(root, "CONTRIBUTING.md")))(t)
	var rows []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(host/[a-z]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		rows = append(rows, m[1])
	}
	must.Equal(t, rows, wings)
}

// Plans and rewrites are made of manifests, without loading or running anything of a plugin's.
func TestPlansAreData(t *testing.T) {
	graph := imports(t)
	runs := []string{"host/plugin", "host/base/worker", "host/base/cuda", "host/ort", purego}
	for _, from := range []string{"host/plugin/manifest", "host/plan", "host/rewrite/session", "host/rewrite/engine"} {
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
