package fuzz

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// TestEveryTargetHasALimit: each fuzz target of the tree asks must.CostLittle what its input may cost, so that an input
// that takes too long or too much memory is found as a panic is.
func TestEveryTargetHasALimit(t *testing.T) {
	files, targets := token.NewFileSet(), 0
	must.Succeed(t, filepath.WalkDir("../..", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && slices.Contains([]string{"build", "bin", ".git"}, e.Name()) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "Fuzz") && f.Recv == nil {
				targets++
				if !asksForALimit(f) {
					t.Errorf("%s: %s does not call must.CostLittle", path, f.Name.Name)
				}
			}
		}
		return nil
	}))
	if targets < 20 {
		t.Errorf("found %d fuzz targets, needed 20: they are not where they are searched", targets)
	}
}

// asksForALimit says whether a function calls must.CostLittle.
func asksForALimit(f *ast.FuncDecl) bool {
	found := false
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "CostLittle" {
			of, ok := s.X.(*ast.Ident)
			found = found || ok && of.Name == "must"
		}
		return true
	})
	return found
}
