package plugin

import (
	"errors"
	"strings"
)

// The kinds of refusal. A caller tells them apart with errors.Is; the command line turns ErrIncompatible
// into exit code 4 and ErrVerification into exit code 3.
var (
	// ErrManifest: plugin.yaml is missing or says something that it may not say.
	ErrManifest = errors.New("bad plugin manifest")
	// ErrIncompatible: a library that this host cannot load: another architecture, ABI version or
	// symbol, or a link that a plugin may not have.
	ErrIncompatible = errors.New("incompatible plugin")
	// ErrVerification: files that are not the recorded ones, or code that failed when it was run.
	ErrVerification = errors.New("plugin verification failed")
	// ErrArchive: an archive with entries that a plugin's archive may not have.
	ErrArchive = errors.New("bad plugin archive")
	// ErrNotFound: no such plugin where the host looks.
	ErrNotFound = errors.New("plugin not found")
	// ErrStore: the folder that keeps plugins cannot be read or written.
	ErrStore = errors.New("plugin store")
	// ErrKernel: a plugin's function returned an error or a result that it may not return.
	ErrKernel = errors.New("plugin call failed")
)

// Error is a refusal: where, what was found, what is needed, and what to do about it.
type Error struct {
	Kind  error  // one of the sentinels above
	Path  string // file or folder
	Found string
	Need  string // empty where Found says it all
	Mend  string // a sentence or a command; empty where there is nothing to do
	Cause error  // the error underneath, whose text is part of Found; may be nil
}

// Error is "path: found, need ...; mend".
func (e *Error) Error() string {
	var b strings.Builder
	if e.Path != "" {
		b.WriteString(e.Path)
		b.WriteString(": ")
	}
	b.WriteString(e.Found)
	if e.Need != "" {
		b.WriteString(", need ")
		b.WriteString(e.Need)
	}
	if e.Mend != "" {
		b.WriteString("; ")
		b.WriteString(e.Mend)
	}
	return b.String()
}

// Unwrap gives the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}
