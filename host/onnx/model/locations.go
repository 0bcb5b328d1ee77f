package model

import (
	"path/filepath"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// Locations lists the files of external data that the model at path refers to, as it names them, whether they are
// there or not: for who is still to fetch them. Names that a model must not have are errors, and so is what is no
// model.
func Locations(path string, limits ...Limits) ([]string, error) {
	l := effective(limits)
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, failure(path, "open the file", err)
	}
	src, err := fileSource(resolved, path)
	if err != nil {
		return nil, located(err, path)
	}
	defer src.close()
	found := map[string]bool{}
	err = src.view(func(b []byte) error {
		if err := looksWrong(b); err != nil {
			return err
		}
		r := &reader{src: src, walker: walker{limits: &l}}
		r.tensor = func(_ site, in []byte, base int64) error {
			p, err := r.tensorParts(in, base)
			if err != nil || !p.external || found[p.location] {
				return err
			}
			if len(found) >= l.ExternalFiles {
				return &diagnostic.Error{Kind: ErrLimit, Found: "has too many external data files", Fix: fixLimit}
			}
			found[p.location] = true
			return checkLocation(p.location)
		}
		return r.message(kindModel, b, 0, 0)
	})
	if err != nil {
		return nil, located(err, path)
	}
	return sortedKeys(found), nil
}
