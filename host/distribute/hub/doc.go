// Package hub brings model folders from a Hugging Face endpoint, over plain HTTP, into the cache that Hugging Face's
// own library has, and as stored there: blobs by their hash, references, and snapshots of relative links. Both may
// work on one cache at once.
//
// Nothing that a server says is trusted: paths stay in their folder, sizes and lists are bounded, every file has the
// hash that the repository's list says before it has a name, and a token goes to the endpoint alone.
package hub

import (
	"errors"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// Bounds of what is read.
const (
	mostPage  = 32 << 20 // bytes of an answer in JSON
	mostPages = 1000
	mostFiles = 100_000 // of a repository
	mostPath  = 1024    // bytes of a file's path
	mostName  = 240     // and of each part of it: names with an end of our own still fit
	mostDepth = 64      // folders around a file
	mostFile  = 1 << 42 // bytes of a file
	mostHops  = 8       // redirects of a request
)

// Kinds of errors.
var (
	// ErrMisused: a repository, a revision or a setting that cannot be one.
	ErrMisused = errors.New("bad reference to a repository")
	// ErrRemote: a server that cannot be reached, refuses, or does not answer as it should.
	ErrRemote = errors.New("endpoint failed")
	// ErrContent: what a server gave is not what it said, or must not be written.
	ErrContent = errors.New("endpoint gave something else")
	// ErrChoice: the repository has not what was asked for.
	ErrChoice = errors.New("not in the repository")
	// ErrLocal: the cache or the folder cannot take it.
	ErrLocal = errors.New("cannot be stored")
)

func misused(path, found, needed, fix string) error {
	return &diagnostic.Error{Kind: ErrMisused, Path: path, Found: found, Needed: needed, Fix: fix}
}

func remote(path, found, needed, fix string, err error) error {
	return &diagnostic.Error{Kind: ErrRemote, Path: path, Found: found, Needed: needed, Fix: fix, Cause: err}
}

func content(path, found, needed string) error {
	return &diagnostic.Error{Kind: ErrContent, Path: path, Found: found, Needed: needed,
		Fix: "do not use it; ask who runs the server"}
}

func local(path string, err error, fix string) error {
	return &diagnostic.Error{Kind: ErrLocal, Path: path, Found: "cannot write: " + diagnostic.Cause(err), Fix: fix,
		Cause: err}
}

// clipped is what a server says, without what could disturb a terminal or forge a line, and not without end.
func clipped(text string) string { return diagnostic.Printable(diagnostic.Clip(text)) }

// quoted is the same between quotes, where it is no plain word.
func quoted(text string) string { return diagnostic.Quote(clipped(text)) }
