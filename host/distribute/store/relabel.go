package store

import (
	"errors"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// relabel makes an error about a file in one folder speak of another, in its text and in its parts.
func relabel(err error, from, to string) error {
	switch e := err.(type) {
	case *diagnostic.Error:
		moved := *e
		for _, text := range []*string{&moved.Path, &moved.Found, &moved.Needed, &moved.Fix} {
			*text = relabelText(*text, from, to)
		}
		return &moved
	case interface{ Unwrap() []error }: // several, joined
		all := e.Unwrap()
		moved := make([]error, len(all))
		for i, one := range all {
			moved[i] = relabel(one, from, to)
		}
		return errors.Join(moved...)
	}
	return &relabelled{err, from, to}
}

type relabelled struct {
	err      error
	from, to string
}

func (r *relabelled) Error() string { return relabelText(r.err.Error(), r.from, r.to) }

func (r *relabelled) Unwrap() error { return r.err }

func relabelText(text, from, to string) string { return strings.ReplaceAll(text, from, to) }
