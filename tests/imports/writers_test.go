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

// writers are the functions of package os that put files or folders somewhere, and the files that may call them beside
// host/storage, which does so whole and durably, and clears what killed runs left.
var writers = map[string][]string{
	"WriteFile":  {"host/comparison/generations/footprint.go", "bench/encoder_side.go"}, // to /proc
	"Create":     nil,
	"CreateTemp": {"host/plugin/sealed/sealed.go"}, // without a name as soon as it is open
	"MkdirTemp": {
		"host/plugin/store/install.go", "host/plugin/store/versions.go", "host/ort/fetch/fetch.go", // in folders of their own, which they sweep under a lock
	},
	"Rename": {
		"host/plugin/store/place.go", "host/plugin/store/versions.go", "host/plugin/store/bundle.go", "host/ort/fetch/fetch.go", "models/cache.go", // whole folders, or a synced file
		"host/model/job.go",                         // two files that belong together
		"host/hub/cache.go", "host/hub/transfer.go", // synced files and links, in a cache that another library reads
	},
}

func TestFilesAreWrittenByOnePackage(t *testing.T) {
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			// What tests use, they may spoil.
			if name := d.Name(); name == "testdata" || name == "tests" || strings.HasSuffix(name, "test") || strings.HasPrefix(name, "build") || name == "bin" || name == ".git" {
				return filepath.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil || !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") || strings.HasPrefix(rel, "host/storage/") {
			return err
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := call.X.(*ast.Ident)
			if allowed, is := writers[call.Sel.Name]; ok && is && pkg.Name == "os" && !slices.Contains(allowed, filepath.ToSlash(rel)) {
				t.Errorf("%s calls os.%s; host/storage writes files and makes temporary folders", set.Position(call.Pos()), call.Sel.Name)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
