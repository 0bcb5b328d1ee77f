package imports

import (
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/internal/must"
)

// alsoMicrosofts is the name of an operator of graft's own that com.microsoft has one of, too.
const alsoMicrosofts = "PackedAttention"

// TestHostNamesNoPlugin: no text of the host's names a plugin of graft's own or one of its operators. The host asks
// for capabilities (host/plugin/capability), so that a stranger's plugin is run as they are.
func TestHostNamesNoPlugin(t *testing.T) {
	folders, err := filepath.Glob(filepath.Join(root, "plugins", "*", manifest.FileName))
	if err != nil || len(folders) == 0 {
		t.Fatalf("found no plugins, %v", err)
	}
	own := map[string]bool{}
	for _, path := range folders {
		m := must.Value(manifest.Read(filepath.Dir(path)))(t)
		own[m.Name] = true
		for _, op := range m.Operators {
			own[op.Name], own[manifest.Domain+"."+op.Name] = true, true
		}
	}
	err = filepath.WalkDir(filepath.Join(root, "host"), func(file string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		files := token.NewFileSet()
		if _, err := parser.ParseFile(files, file, text, parser.PackageClauseOnly); err != nil {
			return err
		}
		var s scanner.Scanner
		f := files.AddFile(file, -1, len(text))
		s.Init(f, text, nil, 0)
		for {
			pos, kind, literal := s.Scan()
			if kind == token.EOF {
				return nil
			}
			if kind != token.STRING {
				continue
			}
			value, err := strconv.Unquote(literal)
			if err != nil {
				return err
			}
			for _, word := range strings.FieldsFunc(value, func(r rune) bool { return !named(r) }) {
				if word == alsoMicrosofts && strings.HasSuffix(file, "host/measure/profile/kinds.go") {
					continue // a list of ONNX Runtime's operators, without their domain
				}
				if own[word] || own[strings.TrimPrefix(word, ".")] {
					t.Errorf("%s names %s, needed is a capability of host/plugin/capability", f.Position(pos), word)
				}
			}
		}
	})
	must.Succeed(t, err)
}

// named reports what names of plugins and operators are made of.
func named(r rune) bool {
	return r == '-' || r == '_' || r == '.' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}
