package main

import (
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// slotTables are the tables of functions in ONNX Runtime's header of which the host knows places, with what the names
// of their places begin with, and the type.
var slotTables = []struct{ table, prefix, kind string }{
	{"OrtApi", "", "Slot"},
	{"OrtModelEditorApi", "Editor", "EditorSlot"},
	{"OrtCompileApi", "Compiler", "CompilerSlot"},
}

var (
	apiVersion = regexp.MustCompile(`(?m)^#define ORT_API_VERSION (\d+)$`)
	typeForm   = regexp.MustCompile(`^ORT_API_T\([^,]+, ?(\w+)`)
)

// slots writes the places of those functions that the host's packages name as slot.NAME.
func slots(root, text string) ([]byte, error) {
	used, err := usedSlots(filepath.Join(root, "host", "ort"))
	if err != nil {
		return nil, err
	}
	version := apiVersion.FindStringSubmatch(text)
	if version == nil {
		return nil, fmt.Errorf("found no ORT_API_VERSION in ONNX Runtime's header")
	}
	text = plainC(text)
	var out strings.Builder
	fmt.Fprintf(&out, "// %s\n\npackage slot\n\n", generated("onnxruntime_c_api.h"))
	out.WriteString("// APIVersion is the version of ONNX Runtime's C API that the places are of.\n")
	fmt.Fprintf(&out, "const APIVersion = %s\n", version[1])
	for _, t := range slotTables {
		places, err := placesOf(text, t.table)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, "\n// Functions of %s.\nconst (\n", t.table)
		for i, function := range places {
			if name := t.prefix + function; used[name] {
				fmt.Fprintf(&out, "%s %s = %d\n", name, t.kind, i)
				delete(used, name)
			}
		}
		out.WriteString(")\n")
	}
	if len(used) > 0 {
		return nil, fmt.Errorf("found no %q in ONNX Runtime's header", slices.Sorted(maps.Keys(used)))
	}
	return format.Source([]byte(out.String()))
}

// placesOf are the functions of a table in their order.
func placesOf(text, table string) (names []string, err error) {
	body, err := between(text, "struct "+table+" {", "};")
	if err != nil {
		return nil, err
	}
	for item := range strings.SplitSeq(body, ";") {
		// In place of a table, in a build that has none of it.
		if item = strings.TrimSpace(item); item == "" || item == "const bool not_defined_in_this_build" {
			continue
		}
		name := ""
		if m := typeForm.FindStringSubmatch(item); m != nil {
			name = m[1]
		} else if m := releaseForm.FindStringSubmatch(item); m != nil {
			name = "Release" + m[1]
		} else if m := slotName.FindStringSubmatch(item); m != nil {
			name = m[1] + m[3]
		}
		if name == "" {
			return nil, fmt.Errorf("%s: found no function in %q", table, item)
		}
		names = append(names, name)
	}
	return names, nil
}

// usedSlots are the names that the Go files below a folder take from package slot.
func usedSlots(folder string) (used map[string]bool, err error) {
	used = map[string]bool{}
	return used, filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "slot" && !strings.HasSuffix(s.Sel.Name, "Slot") &&
					s.Sel.Name != "APIVersion" {
					used[s.Sel.Name] = true
				}
			}
			return true
		})
		return nil
	})
}
