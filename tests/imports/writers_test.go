package imports

import (
	"github.com/opgraft/graft/internal/must"
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
// host/base/storage, which does so whole and durably, and clears what killed runs left.
var writers = map[string][]string{
	"WriteFile":  {"host/measure/comparison/generations/footprint.go", "bench/encoder_side.go"}, // to /proc
	"Create":     nil,
	"CreateTemp": {"host/plugin/sealed/sealed.go"}, // without a name as soon as it is open
	"MkdirTemp": {
		// in folders of their own, which they sweep under a lock
		"host/distribute/store/install.go", "host/distribute/store/versions.go", "host/ort/fetch/fetch.go",
	},
	"Rename": {
		// whole folders, or a synced file
		"host/distribute/store/place.go", "host/distribute/store/versions.go", "host/distribute/store/bundle.go",
		"host/ort/fetch/fetch.go", "models/cache.go",
		"host/onnx/model/job.go", // two files that belong together
		// synced files and links, in a cache that another library reads
		"host/distribute/hub/cache.go", "host/distribute/hub/transfer.go",
	},
}

func TestFilesAreWrittenByOnePackage(t *testing.T) {
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			// What tests use, they may spoil.
			if name := d.Name(); name == "testdata" || name == "tests" || strings.HasSuffix(name, "test") ||
				strings.HasPrefix(name, "build") || name == "bin" || name == ".git" {
				return filepath.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil || !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") ||
			strings.HasPrefix(rel, "host/base/storage/") {
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
			if allowed, is := writers[call.Sel.Name]; ok && is && pkg.Name == "os" &&
				!slices.Contains(allowed, filepath.ToSlash(rel)) {
				t.Errorf("%s calls os.%s; host/base/storage writes files and makes temporary folders", set.Position(call.Pos()),
					call.Sel.Name)
			}
			return true
		})
		return nil
	})
	must.Succeed(t, err)
}
