package author

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"

	"github.com/opgraft/graft/abi"
	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// Kinds of plugins that there are templates for, and the languages that they are written in.
var (
	Kinds     = []string{"pattern", "attention", "cache", "fold"}
	Languages = []string{"c++", "c", "rust"}
)

// Project is a plugin to begin.
type Project struct {
	Name     string
	Kind     string // of Kinds
	Language string // of Languages
	CUDA     bool   // with a variant for CUDA beside that for the CPU
}

// Example is the model that a new plugin gains something on, in its folder. For the kind cache it is a model folder.
const Example = "example.onnx"

// New writes a plugin into a folder, which must not be there, and gives the paths of its files in it.
func New(folder string, p Project) ([]string, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	files, err := p.files()
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(folder); err == nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrStore, Path: folder, Found: "found that it is there already",
			Needed: "a folder that is not", Fix: "take another name, or name a folder with --to", Cause: fs.ErrExist}
	}
	if err := lay(folder, files); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(files)), nil
}

func (p Project) check() error {
	refuse := func(found, needed string) error {
		return &diagnostic.Error{Kind: ErrProject, Path: diagnostic.Printable(diagnostic.Clip(p.Name)), Found: found,
			Needed: needed}
	}
	if !manifest.IsName(p.Name) || p.Name[0] < 'a' || p.Name[0] > 'z' {
		return refuse(fmt.Sprintf("found the name %q", diagnostic.Clip(p.Name)),
			"a letter, then letters, digits and hyphens, all small, 64 at most")
	}
	if !slices.Contains(Kinds, p.Kind) {
		return refuse(fmt.Sprintf("found the kind %q", diagnostic.Clip(p.Kind)), "one of "+strings.Join(Kinds, ", "))
	}
	if !slices.Contains(Languages, p.Language) {
		return refuse(fmt.Sprintf("found the language %q", diagnostic.Clip(p.Language)),
			"one of "+strings.Join(Languages, ", "))
	}
	if _, err := fs.Stat(abi.Templates, path.Join("templates", p.Language, p.Kind)); err != nil {
		return refuse(fmt.Sprintf("found no template of a plugin of kind %s in %s", p.Kind, p.Language),
			"one in c++: begin with that, or with another kind")
	}
	if _, err := fs.Stat(abi.Templates, path.Join("templates", p.Language, p.Kind, "cuda")); p.CUDA && err != nil {
		return refuse(fmt.Sprintf("found no CUDA variant of a template of kind %s in %s", p.Kind, p.Language),
			"--kind pattern in c++ for one with CUDA")
	}
	return nil
}

// files are those of the folder, by their names in it.
func (p Project) files() (map[string][]byte, error) {
	files := map[string][]byte{}
	named := p.names()
	for _, from := range []string{"common", p.Kind} {
		root := path.Join("templates", p.Language, from)
		err := fs.WalkDir(abi.Templates, root, func(at string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name := strings.TrimPrefix(at, root+"/")
			if d.IsDir() {
				if name == "cuda" && !p.CUDA {
					return fs.SkipDir
				}
				return nil
			}
			text, err := abi.Templates.ReadFile(at)
			if err != nil {
				return err
			}
			if name == manifest.FileName && p.CUDA {
				text = []byte(strings.Replace(string(text), cpuVariant, cpuVariant+cudaVariant, 1))
			}
			// A file that is part of this module's build in its own place has another name there.
			name = strings.TrimSuffix(named.Replace(name), ".template")
			files[name] = []byte(named.Replace(string(text)))
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return files, example(p.Kind, files)
}

// The variants of the templates' manifests.
const (
	cpuVariant  = "  - {device: cpu, os: linux, arch: amd64, file: libmy_plugin.so}\n"
	cudaVariant = "  - {device: cuda, os: linux, arch: amd64, file: libmy_plugin_cuda.so}\n"
)

// names puts the plugin's name where the templates have theirs.
func (p Project) names() *strings.Replacer {
	var camel strings.Builder
	for word := range strings.SplitSeq(p.Name, "-") {
		if word != "" {
			camel.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return strings.NewReplacer("my-plugin", p.Name, "my_plugin", stem(p.Name), "MyPlugin", camel.String(), "arch: amd64",
		"arch: "+runtime.GOARCH)
}

// stem is a plugin's name as part of a file's name.
func stem(name string) string { return strings.ReplaceAll(name, "-", "_") }
