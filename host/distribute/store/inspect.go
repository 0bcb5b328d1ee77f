package store

import (
	"context"
	"os"
	"path/filepath"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/distribute/archive"
	"github.com/opgraft/graft/host/plugin/library"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/matching"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// Inspection is what can be said of a plugin without running any of it.
type Inspection struct {
	Path      string             `json:"path"`
	Manifest  *manifest.Manifest `json:"manifest,omitempty"` // nil for a bare library
	Libraries []Inspected        `json:"libraries"`
	Tests     []matching.Tested  `json:"tests,omitempty"` // graphs that patterns must and must not match
}

// Inspected is a library of a plugin.
type Inspected struct {
	File    string            `json:"file"`
	Variant *manifest.Variant `json:"variant,omitempty"`
	Library *library.File     `json:"library,omitempty"` // nil when it is missing or unreadable
	SHA256  string            `json:"sha256,omitempty"`
	// Absent: the file is not there, and another variant for the same platform is. A build without CUDA
	// leaves out what only machines with it use.
	Absent bool `json:"absent,omitempty"`
	// Problem says why a host on the library's platform would refuse it.
	Problem string `json:"problem,omitempty"`
}

// Inspect reads a plugin's folder, an archive of one, or a bare library, and never loads anything.
func Inspect(ctx context.Context, path string) (*Inspection, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrNotFound, Path: path, Found: err.Error(), Cause: err}
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrNotFound, Path: path, Found: "cannot read: " + diagnostic.Cause(err),
			Needed: "a plugin's folder, an archive of it or a library", Cause: err}
	}
	switch {
	case info.IsDir():
		return inspectFolder(ctx, path)
	case archive.Is(path):
		return inspectArchive(ctx, path)
	}
	library, err := library.Read(path)
	if err != nil {
		return nil, err
	}
	entry := Inspected{File: filepath.Base(path), Library: library}
	entry.finish(manifest.ThisPlatform, nil)
	return &Inspection{Path: path, Libraries: []Inspected{entry}}, nil
}

func inspectFolder(ctx context.Context, folder string) (*Inspection, error) {
	m, err := manifest.Read(folder)
	if err != nil {
		return nil, err
	}
	in := &Inspection{Path: folder, Manifest: m, Libraries: []Inspected{}}
	for i := range m.Variants {
		v := &m.Variants[i]
		path := filepath.Join(folder, v.File)
		entry := Inspected{File: v.File, Variant: v}
		if manifest.Absent(folder, v) && len(m.Present(folder, manifest.Platform{OS: v.OS, Arch: v.Arch})) > 0 {
			entry.Absent = true
		} else if manifest.Absent(folder, v) {
			entry.Problem = path + ": no such file; build it, or leave it out on machines that it is not for"
		} else if library, err := library.Read(path); err != nil {
			entry.Problem = err.Error()
		} else {
			entry.Library = library
			entry.finish(manifest.Platform{OS: v.OS, Arch: v.Arch}, m)
		}
		in.Libraries = append(in.Libraries, entry)
	}
	in.Tests, err = matching.Test(ctx, folder, m)
	return in, err
}

// finish adds hash and problem to a library that could be read.
func (e *Inspected) finish(platform manifest.Platform, m *manifest.Manifest) {
	e.SHA256 = e.Library.SHA256
	err := e.Library.Check(library.HostABI, platform)
	if err == nil && m != nil {
		err = e.Library.Agree(m, e.Variant)
	}
	if err != nil {
		e.Problem = err.Error()
	}
}

func inspectArchive(ctx context.Context, path string) (*Inspection, error) {
	folder, err := storage.Temporary("")
	if err != nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrStore, Path: os.TempDir(),
			Found: "cannot write: " + diagnostic.Cause(err), Fix: "set TMPDIR to a writable folder", Cause: err}
	}
	defer folder.Remove()
	temp := filepath.Join(folder.Path, "plugin")
	if err := os.Mkdir(temp, 0o700); err != nil {
		return nil, refusal.Store(temp, "cannot write", err)
	}
	if err := archive.Unpack(ctx, path, temp); err != nil {
		return nil, relabel(err, temp, path)
	}
	inner, err := pluginFolder(temp, path)
	if err != nil {
		return nil, err
	}
	in, err := inspectFolder(ctx, inner)
	if err != nil {
		return nil, relabel(err, temp, path)
	}
	in.Path = path
	for i := range in.Tests {
		if t := &in.Tests[i]; t.Err != nil {
			t.Err = relabel(t.Err, temp, path)
			t.Problem = t.Err.Error()
		}
	}
	for i := range in.Libraries {
		e := &in.Libraries[i]
		e.Problem = relabelText(e.Problem, temp, path)
		if e.Library != nil {
			e.Library.Path = relabelText(e.Library.Path, temp, path)
		}
	}
	return in, nil
}
