package models

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/storage"
)

// DefaultSeed fills subjects and fixtures where no other seed is asked for.
const DefaultSeed uint64 = 1

// Names lists the full-size subjects that Build makes.
func Names() []string {
	var names []string
	for _, f := range manifest() {
		if name, _, ok := strings.Cut(f.Name, "/"); ok && f.Exporter == "full" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Files lists the graphs of the full-size subject name, which may end in Conditioned.
func Files(name string) ([]Fixture, error) {
	name, better := strings.CutSuffix(name, Conditioned)
	var files []Fixture
	for _, f := range manifest() {
		if f.Exporter == "full" && strings.HasPrefix(f.Name, name+"/") {
			f.conditioned = better
			files = append(files, f)
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no subject %q: there are %s", name, strings.Join(Names(), ", "))
	}
	return files, nil
}

// Build makes the full-size subject name, which may end in Conditioned, in the
// folder dir, which it creates: its .onnx files, named as their exporter names them,
// and config.json. It also makes a fixture, by exporter/name ("optimum/gpt2"). It
// returns the paths that it wrote. The same seed gives the same bytes every time.
func Build(name, dir string, seed uint64) ([]string, error) {
	files, err := Files(name)
	if exporter, fixture, ok := strings.Cut(name, "/"); ok {
		files = make([]Fixture, 1)
		files[0], err = Lookup(exporter, fixture)
	}
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var written []string
	for _, f := range files {
		path := filepath.Join(dir, filepath.Base(f.Name)+".onnx")
		if err := f.Write(path, seed); err != nil {
			return written, err
		}
		written = append(written, path)
	}
	config, err := files[0].ConfigJSON()
	if err != nil {
		return written, err
	}
	path := filepath.Join(dir, "config.json")
	if err := storage.Write(path, config, storage.Shared); err != nil {
		return written, err
	}
	return append(written, path), nil
}
