// Gen writes docs/json.md: the keys of what commands print with -o json, read off the types that they print.
//
//	go run ./docs/gen docs/json.md
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/opgraft/graft/host/base/storage"
)

const module = "github.com/opgraft/graft"

// helpers are functions that print for a command, where the command is not in the function itself.
var helpers = map[string]string{
	"abFolder": "ab MODEL_DIR", "encoded": "embed, rerank and predict: the summary",
	"runGenerate": "generate: the summary", "inspectFolder": "inspect MODEL_DIR", "develop": "plugin dev",
	"installLocked": "plugin install --locked", "pushed": "plugin push", "pulled": "pull",
}

// more are objects that no call of print shows: lines, and values that were printed as an interface.
var more = []struct{ title, path, name string }{
	{"ab MODEL_DIR, one side", "host/measure/comparison/generations", "Result"},
	{"generate --format jsonl: a line", "host/generate", "Result"},
	{"embed -o jsonl: a line", "host/encode/encoder", "Vector"},
	{"rerank -o jsonl: a line", "host/encode/encoder", "Ranking"},
	{"predict -o jsonl: a line", "host/encode/encoder", "Prediction"},
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: go run ./docs/gen FILE, from the repository's root; - is stdout")
	}
	page, err := write()
	if err == nil && os.Args[1] == "-" {
		_, err = os.Stdout.Write(page)
	} else if err == nil {
		err = storage.Write(os.Args[1], page, storage.Shared)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// write makes the page.
func write() ([]byte, error) {
	p, err := load()
	if err != nil {
		return nil, err
	}
	objects, err := p.printedObjects()
	if err != nil {
		return nil, err
	}
	for _, m := range more {
		t, err := p.lookUp(m.path, m.name)
		if err != nil {
			return nil, err
		}
		objects = append(objects, object{m.title, t})
	}
	return p.page(objects), nil
}

// program is the command with the types of all that it imports.
type program struct {
	files    *token.FileSet
	importer types.Importer
	parsed   []*ast.File
	info     types.Info
	comments map[string]map[int]string // of fields, by file and line
}

// object is what a command prints.
type object struct {
	title string
	t     types.Type
}

// load type-checks cmd/graft, with what it imports from the compiler's own export data.
func load() (*program, error) {
	out, err := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles",
		"./cmd/graft").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	exports, sources := map[string]string{}, []string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var listed struct {
			ImportPath, Export, Dir string
			GoFiles                 []string
		}
		if err := d.Decode(&listed); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		exports[listed.ImportPath] = listed.Export
		if listed.ImportPath == module+"/cmd/graft" {
			for _, name := range listed.GoFiles {
				sources = append(sources, filepath.Join(listed.Dir, name))
			}
		}
	}
	p := &program{files: token.NewFileSet(), comments: map[string]map[int]string{}}
	p.importer = importer.ForCompiler(p.files, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	for _, name := range sources {
		f, err := parser.ParseFile(p.files, name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		p.parsed = append(p.parsed, f)
	}
	p.info.Types = map[ast.Expr]types.TypeAndValue{}
	c := types.Config{Importer: p.importer}
	_, err = c.Check(module+"/cmd/graft", p.files, p.parsed, &p.info)
	return p, err
}

// lookUp finds a type of a package by its name.
func (p *program) lookUp(path, name string) (types.Type, error) {
	imported, err := p.importer.Import(module + "/" + path)
	if err != nil {
		return nil, err
	}
	if found := imported.Scope().Lookup(name); found != nil {
		return found.Type(), nil
	}
	return nil, fmt.Errorf("%s has no type %s: correct the list in docs/gen/main.go", path, name)
}

// printedObjects lists the first argument of each call of print, by command.
func (p *program) printedObjects() ([]object, error) {
	var list []object
	var failed error
	for _, file := range p.parsed {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) != 2 {
					return true
				}
				s, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || s.Sel.Name != "print" {
					return true
				}
				t := p.info.Types[call.Args[0]].Type
				if types.IsInterface(t) {
					return true
				}
				title, err := command(f)
				if err != nil {
					failed = err
				}
				list = append(list, object{title, t})
				return true
			})
		}
	}
	return list, failed
}

// command is what a function prints for: the first word of its Use, after its parents'.
func command(f *ast.FuncDecl) (string, error) {
	if title, ok := helpers[f.Name.Name]; ok {
		return title, nil
	}
	use := ""
	ast.Inspect(f, func(n ast.Node) bool {
		kv, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		key, ok := kv.Key.(*ast.Ident)
		text, isText := kv.Value.(*ast.BasicLit)
		if ok && isText && key.Name == "Use" && use == "" {
			use, _, _ = strings.Cut(strings.Trim(text.Value, `"`), " ")
		}
		return true
	})
	if use == "" {
		return "", fmt.Errorf("%s prints JSON and is no command: name the command in docs/gen/main.go", f.Name.Name)
	}
	for _, parent := range []struct{ prefix, words string }{
		{"pluginTrust", "plugin trust "}, {"plugin", "plugin "}, {"ab", "ab "},
	} {
		if strings.HasPrefix(f.Name.Name, parent.prefix) && f.Name.Name != parent.prefix {
			return parent.words + use, nil
		}
	}
	return use, nil
}
