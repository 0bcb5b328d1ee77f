package model

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// Files are those that a model was read from, as they were then: its own, and those of its external data. Of a
// model from bytes they are the latter.
type Files struct {
	path     string // as Open was given it, made absolute; "" for bytes
	resolver *resolver
	found    map[string]seenFile // by location; "" is the model's own
}

type seenFile struct {
	path string
	was  Identity
}

// Files are those of the model. They may be asked when it is closed.
func (m *Model) Files() (*Files, error) {
	f := &Files{resolver: m.files, found: map[string]seenFile{}}
	if m.path != "" {
		abs, err := filepath.Abs(m.path)
		if err != nil {
			return nil, failure(m.path, "find the file", err)
		}
		f.path, f.found[""] = abs, seenFile{m.src.path, identityOf(m.src.info)}
	}
	for location, s := range m.files.found {
		f.found[location] = seenFile{s.path, identityOf(s.info)}
	}
	return f, nil
}

// Paths are where the files lie, links resolved, in the order of their locations: the model's own file first.
func (f *Files) Paths() (list []string) {
	for _, location := range sortedKeys(f.found) {
		list = append(list, f.found[location].path)
	}
	return list
}

// Unchanged is an error, of kind ErrInUse for a change, where whoever opens the model again does not find the same
// files.
func (f *Files) Unchanged() error {
	again := &resolver{lookIn: f.resolver.lookIn, roots: f.resolver.roots, limit: f.resolver.limit,
		found: map[string]*source{}, sources: map[string]*source{}}
	for _, location := range sortedKeys(f.found) {
		var now *source
		var err error
		if location != "" {
			now, err = again.resolve(location)
		} else {
			var resolved string
			if resolved, err = filepath.EvalSymlinks(f.path); err != nil {
				return failure(f.path, "open the file", err)
			}
			now, err = fileSource(resolved, f.path)
		}
		if err != nil {
			return located(err, f.path)
		}
		if was := f.found[location]; now.path != was.path || identityOf(now.info) != was.was {
			return &diagnostic.Error{Kind: ErrInUse, Path: now.shown,
				Found: "the file is not what it was when the model was opened",
				Fix:   "open the model again"}
		}
	}
	return nil
}

// SHA256 is the hash of the model's file in hexadecimal, as sha256sum prints it. With external data it is that of
// lines of "HASH  LOCATION\n", one for the file itself, whose location is empty, and for each file of data, in the
// order of the locations.
func (f *Files) SHA256() (string, error) {
	var lines strings.Builder
	only := ""
	for _, location := range sortedKeys(f.found) {
		file, err := os.Open(f.found[location].path)
		if err != nil {
			return "", failure(f.found[location].path, "read the file", err)
		}
		h := sha256.New()
		_, err = io.Copy(h, file)
		file.Close()
		if err != nil {
			return "", failure(f.found[location].path, "read the file", err)
		}
		only = hex.EncodeToString(h.Sum(nil))
		fmt.Fprintf(&lines, "%s  %s\n", only, location)
	}
	if len(f.found) == 1 {
		return only, nil
	}
	sum := sha256.Sum256([]byte(lines.String()))
	return hex.EncodeToString(sum[:]), nil
}
