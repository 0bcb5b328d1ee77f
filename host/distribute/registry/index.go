package registry

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/manifest"
)

// Entry is a plugin in an index.
type Entry struct {
	Name        string   `yaml:"name"`
	Version     string   `yaml:"version"`
	Description string   `yaml:"description"`
	Operators   []string `yaml:"operators"`
	Platforms   []string `yaml:"platforms"` // linux-amd64, say; none: it is not said
	Source      string   `yaml:"source"`    // what is installed
}

// Bounds of an index.
const (
	mostIndex   = 16 << 20 // bytes of a file
	mostEntries = 10_000
)

// ReadIndex reads an index: a folder of YAML files, an entry each, or one file with a document for each.
func ReadIndex(ctx context.Context, source string) ([]Entry, error) {
	info, err := os.Stat(source)
	if err != nil {
		return nil, &diagnostic.Error{Kind: ErrReference, Path: source, Found: "cannot read: " + diagnostic.Cause(err),
			Needed: "an index: a folder of YAML files, or one", Cause: err}
	}
	files := []string{source}
	if info.IsDir() {
		if files, err = indexFiles(source); err != nil {
			return nil, err
		}
	}
	var list []Entry
	for _, file := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		entries, err := readEntries(file)
		if err != nil {
			return nil, err
		}
		if list = append(list, entries...); len(list) > mostEntries {
			return nil, &diagnostic.Error{Kind: ErrContent, Path: source,
				Found: fmt.Sprintf("found more than %d entries", mostEntries), Needed: "fewer"}
		}
	}
	slices.SortStableFunc(list,
		func(a, b Entry) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version)) })
	return list, nil
}

// indexFiles are those of a folder, and of folders in it.
func indexFiles(folder string) (files []string, err error) {
	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && (strings.HasSuffix(path, ".yaml") || strings.HasSuffix(path, ".yml")) {
			files = append(files, path)
		}
		if len(files) > mostEntries {
			return &diagnostic.Error{Kind: ErrContent, Path: folder, Found: fmt.Sprintf("found more than %d files", mostEntries),
				Needed: "fewer"}
		}
		return err
	})
	return files, err
}

func readEntries(file string) (list []Entry, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, mostIndex+1))
	if err != nil {
		return nil, err
	}
	bad := func(found, needed string) error {
		return &diagnostic.Error{Kind: ErrContent, Path: file, Found: "found " + found, Needed: needed}
	}
	if len(b) > mostIndex {
		return nil, bad(fmt.Sprintf("more than %d bytes", mostIndex), "fewer")
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	for {
		var e Entry
		switch err := d.Decode(&e); {
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, bad(strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "\n", " "),
				"name, version, description and source of a plugin")
		}
		switch {
		case e.Name == "" || e.Version == "" || e.Source == "":
			return nil, bad("a plugin without "+missing(e), "name, version and source")
		case strings.ContainsFunc(e.Name+e.Version+e.Description+strings.Join(append(e.Operators, e.Platforms...), ""),
			unicode.IsControl):
			return nil, bad("control characters in the entry of "+diagnostic.Quote(diagnostic.Clip(e.Name)), "text")
		case !Is(e.Source):
			return nil, bad("the source "+diagnostic.Quote(diagnostic.Clip(e.Source)),
				"oci://HOST/NAME:VERSION")
		}
		if _, err := Parse(e.Source); err != nil {
			return nil, bad("the source of "+diagnostic.Clip(e.Name)+": "+err.Error(), "a source that can be installed")
		}
		if list = append(list, e); len(list) > mostEntries {
			return nil, bad(fmt.Sprintf("more than %d entries", mostEntries), "fewer")
		}
	}
}

// missing names what an entry lacks.
func missing(e Entry) string {
	switch {
	case e.Name == "":
		return "a name"
	case e.Version == "":
		return "a version"
	}
	return "a source"
}

// Newest is the entry of a plugin's newest version for a platform. text is its name, or NAME@VERSION for that version;
// index is where the list comes from.
func Newest(list []Entry, text, platform, index string) (*Entry, error) {
	name, version, exact := strings.Cut(text, "@")
	var newest *Entry
	var names []string
	for i := range list {
		e := &list[i]
		names = append(names, e.Name)
		if e.Name != name || exact && e.Version != version ||
			len(e.Platforms) > 0 && !slices.Contains(e.Platforms, platform) {
			continue
		}
		if newest == nil || manifest.CompareVersions(e.Version, newest.Version) > 0 {
			newest = e
		}
	}
	if newest != nil {
		return newest, nil
	}
	refused := &diagnostic.Error{Kind: ErrReference, Path: index, Found: "no plugin " + text + " for " + platform}
	if like := diagnostic.Nearest(name, names); like != "" && like != name {
		refused.Fix = "did you mean " + like + "?"
	}
	return nil, refused
}
