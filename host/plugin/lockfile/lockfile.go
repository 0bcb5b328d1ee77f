// Package lockfile reads and writes graft.lock: which plugins a program uses, by the hashes of all their files.
package lockfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/plugin/content"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// FileName is the name that a lock has where none is given.
const FileName = "graft.lock"

// SchemaVersion is the version of lock files that this package reads and writes.
const SchemaVersion = 1

// heading begins a lock file.
const heading = "# Plugins that are used, by the hashes of their files. Written by: graft plugin lock\n"

// File is a lock file. Read has checked everything that its fields promise.
type File struct {
	SchemaVersion int      `yaml:"schema_version" json:"schema_version"`
	Plugins       []Plugin `yaml:"plugins" json:"plugins"` // in the order of their names, each once

	path string
}

// Plugin is what a lock says of a plugin.
type Plugin struct {
	Name    string `yaml:"name" json:"name"`
	Version string `yaml:"version" json:"version"`
	ABI     string `yaml:"abi" json:"abi"` // major.minor
	// Source is where it was installed from: oci://.., or a path of the machine that wrote the lock. ""
	// where it is not installed.
	Source string `yaml:"source,omitempty" json:"source,omitempty"`
	// Key is the public key, in minisign's form, that signed the archive it came in; "" where none did.
	Key      string    `yaml:"key,omitempty" json:"key,omitempty"`
	Variants []Variant `yaml:"variants" json:"variants"`
	// of the other files, by path with slashes: SHA-256 in hexadecimal
	Files map[string]string `yaml:"files" json:"files"`
}

// Variant is a library of a plugin.
type Variant struct {
	Device string `yaml:"device" json:"device"`
	OS     string `yaml:"os" json:"os"`
	Arch   string `yaml:"arch" json:"arch"`
	File   string `yaml:"file" json:"file"`
	SHA256 string `yaml:"sha256" json:"sha256"` // in hexadecimal
}

// New is an empty lock that will be written to path.
func New(path string) *File {
	return &File{SchemaVersion: SchemaVersion, Plugins: []Plugin{}, path: path}
}

// Path is where the lock lies.
func (f *File) Path() string { return f.path }

// Read reads a lock file. Errors are of kind ErrLockFile.
func Read(path string) (*File, error) {
	data, err := storage.ReadRegular(path, maxBytes)
	if err != nil {
		fix := ""
		if errors.Is(err, fs.ErrNotExist) {
			fix = "write one with: graft plugin lock --out " + diagnostic.Quote(path)
		}
		return nil, &diagnostic.Error{Kind: refusal.ErrLockFile, Path: path, Found: "cannot read: " + diagnostic.Cause(err),
			Needed: "a lock file", Fix: fix, Cause: err}
	}
	return Parse(path, data)
}

// Parse reads the content of a lock file; path stands in errors.
func Parse(path string, data []byte) (*File, error) {
	f := &File{path: path}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	err := d.Decode(f)
	switch {
	case err == io.EOF:
		return nil, f.refuse("found an empty file", "one that begins with schema_version: 1", nil)
	case err != nil:
		return nil, f.refuse("found "+plain(err), "a lock file", err)
	}
	if err := d.Decode(new(yaml.Node)); err != io.EOF {
		return nil, f.refuse("found more than one document", "one", err)
	}
	if err := f.check(); err != nil {
		return nil, err
	}
	f.sort()
	return f, nil
}

func (f *File) refuse(found, needed string, cause error) error {
	return &diagnostic.Error{Kind: refusal.ErrLockFile, Path: f.path, Found: found, Needed: needed,
		Fix: "remove it, and write it again with: graft plugin lock --out " + diagnostic.Quote(f.path), Cause: cause}
}

func (f *File) sort() {
	slices.SortFunc(f.Plugins, func(a, b Plugin) int { return cmp.Compare(a.Name, b.Name) })
	for _, p := range f.Plugins {
		slices.SortFunc(p.Variants, func(a, b Variant) int { return cmp.Compare(a.File, b.File) })
	}
}

// Write writes the lock in one step. What is equal is written as equal bytes.
func (f *File) Write() error {
	f.sort()
	var b bytes.Buffer
	b.WriteString(heading)
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(f); err != nil {
		return err
	}
	if _, err := Parse(f.path, b.Bytes()); err != nil {
		return err // nothing is written that cannot be read
	}
	if err := storage.Write(f.path, b.Bytes(), storage.Shared); err != nil {
		return &diagnostic.Error{Kind: refusal.ErrLockFile, Path: f.path, Found: "cannot write: " + diagnostic.Cause(err),
			Fix: "make the folder writable, or name another file", Cause: err}
	}
	return nil
}

// Plugin is what the lock says of a plugin, nil where that is nothing.
func (f *File) Plugin(name string) *Plugin {
	for i := range f.Plugins {
		if f.Plugins[i].Name == name {
			return &f.Plugins[i]
		}
	}
	return nil
}

// Set puts in what a plugin is, in place of what was said of it before.
func (f *File) Set(p Plugin) {
	if old := f.Plugin(p.Name); old != nil {
		*old = p
		return
	}
	f.Plugins = append(f.Plugins, p)
}

// Of is what a lock says of a folder's plugin, but for its source and its key. Other variants than those whose
// libraries are there are left out.
func Of(m *manifest.Manifest, files content.Files) Plugin {
	p := Plugin{Name: m.Name, Version: m.Version, ABI: m.ABI.String(), Variants: []Variant{}, Files: map[string]string{}}
	libraries := map[string]bool{}
	for _, v := range m.Variants {
		if f, there := files[v.File]; there {
			libraries[v.File] = true
			p.Variants = append(p.Variants, Variant{Device: v.Device, OS: v.OS, Arch: v.Arch, File: v.File, SHA256: f.SHA256})
		}
	}
	for name, f := range files {
		if !libraries[name] {
			p.Files[name] = f.SHA256
		}
	}
	return p
}

// all are the hashes of all files by path.
func (p *Plugin) all() map[string]string {
	all := maps.Clone(p.Files)
	for _, v := range p.Variants {
		all[v.File] = v.SHA256
	}
	return all
}

// Difference is the first file of a folder that is not as the lock says, and in which way; "" where all are. A file
// that was not read counts as it should be.
func (p *Plugin) Difference(files content.Files) (name, how string) {
	all := p.all()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		now, there := files[name]
		switch {
		case !there:
			return name, "found no such file"
		case now.SHA256 != "" && now.SHA256 != all[name]:
			return name, fmt.Sprintf("found sha256 %.12s..., needed %.12s...", now.SHA256, all[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if _, named := all[name]; !named {
			return name, "found a file that the lock does not name"
		}
	}
	return "", ""
}

// Check refuses a folder whose files are not what the lock says of the plugin. The error is of kind ErrLock.
func (f *File) Check(p *Plugin, folder string, files content.Files) error {
	name, how := p.Difference(files)
	if name == "" {
		return nil
	}
	return &diagnostic.Error{Kind: refusal.ErrLock, Path: Join(folder, name), Found: how,
		Needed: fmt.Sprintf("what %s says of %s %s", f.path, p.Name, p.Version), Fix: f.Fix()}
}

// Loaded refuses a library that was loaded, with the hash of the manifest beside it, and is not what the lock says of
// a plugin.
func (f *File) Loaded(p *Plugin, folder, manifestSHA, file, sha string) error {
	files := content.Files{}
	for name := range p.all() {
		files[name] = content.File{} // not read
	}
	files[manifest.FileName], files[file] = content.File{SHA256: manifestSHA}, content.File{SHA256: sha}
	return f.Check(p, folder, files)
}

// Fix is the command that installs what the lock names.
func (f *File) Fix() string {
	return "run: graft plugin install --locked --lock " + diagnostic.Quote(f.path)
}

// Equal reports entries that say the same of a plugin's files.
func (p *Plugin) Equal(other *Plugin) bool { return maps.Equal(p.all(), other.all()) }
