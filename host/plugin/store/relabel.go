package store

import "strings"

// relabel makes an error about a file in one folder speak of another.
func relabel(err error, from, to string) error { return &relabelled{err, from, to} }

type relabelled struct {
	err      error
	from, to string
}

func (r *relabelled) Error() string { return relabelText(r.err.Error(), r.from, r.to) }

func (r *relabelled) Unwrap() error { return r.err }

func relabelText(text, from, to string) string { return strings.ReplaceAll(text, from, to) }
