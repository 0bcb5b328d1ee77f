package author

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// Folders of a build, in that of the sources.
const (
	buildFolder   = "build"
	sdkFolder     = "sdk"
	objectsFolder = "objects"
)

// Options say how a plugin is built.
type Options struct {
	// Output gets what compilers print; nil for silence.
	Output io.Writer
	// Step is told of what is about to happen; may be nil.
	Step func(what string)
}

// Built is a plugin whose libraries were compiled.
type Built struct {
	Name   string   `json:"name"`
	Folder string   `json:"folder"` // of plugin.yaml and the libraries
	Files  []string `json:"files"`
	// Left are variants for this machine that were not compiled, with why.
	Left []string `json:"left"`
}

// Plugins is the folder that Build puts plugins into, for a folder of sources: one to search.
func Plugins(sources string) string { return filepath.Join(sources, buildFolder) }

// Build compiles the libraries of a plugin's folder into build/NAME of it: the C++ or C sources in it, or its Rust
// crate, for the CPU, and the .cu files in its folder cuda where there is nvcc. The folder of the plugin holds what
// was there before until all is compiled.
func Build(ctx context.Context, folder string, o Options) (*Built, error) {
	m, err := manifest.Read(folder)
	if err != nil {
		return nil, err
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return nil, &diagnostic.Error{Kind: ErrCompile, Found: err.Error(), Cause: err}
	}
	b := &build{Options: o, ctx: ctx, manifest: m, folder: folder, sdk: filepath.Join(folder, buildFolder, sdkFolder),
		objects: filepath.Join(folder, buildFolder, objectsFolder)}
	b.step("writing the headers and the kit")
	if _, err := SDK(b.sdk); err != nil {
		return nil, err
	}
	made := map[string]string{} // library in the plugin's folder: file that was linked
	result := &Built{Name: m.Name, Folder: filepath.Join(Plugins(folder), m.Name), Left: []string{}}
	for _, v := range m.ForPlatform(manifest.ThisPlatform) {
		linked, left, err := b.variant(v.Device)
		if err != nil {
			return nil, err
		}
		if left != "" {
			result.Left = append(result.Left, fmt.Sprintf("%s, for %s: %s", v.File, v.Device, left))
			continue
		}
		made[v.File] = linked
	}
	if len(made) == 0 {
		if len(result.Left) > 0 {
			return nil, &diagnostic.Error{Kind: ErrCompiler, Path: folder,
				Found: "found nothing that can be compiled: " + strings.Join(result.Left, "; ")}
		}
		_, err := m.VariantFor("cpu", manifest.ThisPlatform)
		return nil, err
	}
	result.Files, err = b.place(result.Folder, made)
	return result, err
}

// build is one that is under way.
type build struct {
	Options
	ctx                   context.Context
	manifest              *manifest.Manifest
	folder, sdk, objects  string
	hardCompile, hardLink []string // options against errors in a library that this compiler and linker know
}

func (b *build) step(format string, args ...any) {
	if b.Step != nil {
		b.Step(fmt.Sprintf(format, args...))
	}
}

// variant compiles and links the library for a device, or says why it is left out.
func (b *build) variant(device string) (linked, left string, err error) {
	switch {
	case device == "cuda":
		return b.cuda()
	case manifest.Exists(b.folder) && exists(filepath.Join(b.folder, "Cargo.toml")):
		linked, err = b.cargo()
		return linked, "", err
	}
	sources, err := b.sources(b.folder, ".cc", ".cpp", ".cxx", ".c")
	if err != nil {
		return "", "", err
	}
	if len(sources) == 0 {
		return "", "", &diagnostic.Error{Kind: ErrCompile, Path: b.folder, Found: "found no source",
			Needed: "C++ (.cc, .cpp, .cxx) or C (.c) files beside plugin.yaml, or a Cargo.toml"}
	}
	linked, err = b.native(sources)
	return linked, "", err
}

// sources are the files of a folder with one of some endings, in the order of their names.
func (b *build) sources(folder string, endings ...string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrNotFound, Path: folder, Found: "cannot read: " + diagnostic.Cause(err),
			Cause: err}
	}
	var list []string
	for _, e := range entries {
		if e.Type().IsRegular() && slices.Contains(endings, filepath.Ext(e.Name())) {
			list = append(list, filepath.Join(folder, e.Name()))
		}
	}
	return list, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// place puts the manifest and the libraries into the plugin's folder, and removes what else is there: a folder is
// verified as a whole.
func (b *build) place(folder string, made map[string]string) ([]string, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, cannotWrite(folder, err)
	}
	text, err := storage.ReadRegular(filepath.Join(b.folder, manifest.FileName), 1<<20)
	if err == nil {
		err = write(filepath.Join(folder, manifest.FileName), text)
	}
	if err != nil {
		return nil, err
	}
	files := []string{manifest.FileName}
	for name, linked := range made {
		files = append(files, name)
		from, err := os.Open(linked)
		if err != nil {
			return nil, cannotWrite(linked, err)
		}
		// In one step, under a new inode: programs that run the old one go on with it.
		err = storage.WriteFrom(filepath.Join(folder, name), storage.Shared, func(w io.Writer) error {
			_, err := io.Copy(w, from)
			return err
		})
		if err = errors.Join(err, from.Close()); err != nil {
			return nil, cannotWrite(filepath.Join(folder, name), err)
		}
	}
	entries, err := os.ReadDir(folder)
	for _, e := range entries {
		if !slices.Contains(files, e.Name()) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(folder, e.Name())))
		}
	}
	if err != nil {
		return nil, cannotWrite(folder, err)
	}
	slices.Sort(files)
	return files, nil
}

func cannotWrite(path string, err error) error {
	return &diagnostic.Error{Kind: refusal.ErrStore, Path: path, Found: "cannot write: " + diagnostic.Cause(err),
		Fix: "make the folder writable, or name another one", Cause: err}
}
