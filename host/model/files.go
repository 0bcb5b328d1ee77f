package model

import (
	"path/filepath"

	"github.com/opgraft/graft/host/diagnostic"
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

// Unchanged is an error, of kind ErrInUse for a change, where whoever opens the model again does not find the same files.
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
			return &diagnostic.Error{Kind: ErrInUse, Path: now.shown, Found: "the file is not what it was when the model was opened",
				Fix: "open the model again"}
		}
	}
	return nil
}
