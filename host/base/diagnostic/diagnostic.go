// Package diagnostic holds the one form that errors have: where, what was found, what is
// needed, and what fixes it.
package diagnostic

import (
	"encoding/json"
	"errors"
	"strings"
)

// Error is a refusal or a failure that a person can act on. Only Found is always set.
type Error struct {
	Kind   error  // the sentinel by which callers tell it apart with errors.Is; nil where there is none
	Path   string // a file, a folder, or the call that failed
	Found  string // what is there, in words that end before a comma
	Needed string // what would have to be there; empty where Found says it all
	Fix    string // a sentence or a command; empty where nothing can be done
	Cause  error  // the error underneath, whose text is part of Found; nil where there is none
}

// Error is one line: "path: found, needed ...; fix".
func (e *Error) Error() string {
	var b strings.Builder
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	b.WriteString(e.Found)
	if e.Needed != "" {
		b.WriteString(", needed " + e.Needed)
	}
	if e.Fix != "" {
		b.WriteString("; " + e.Fix)
	}
	return b.String()
}

// Unwrap gives the kind and the cause, for errors.Is and errors.As.
func (e *Error) Unwrap() []error {
	var under []error
	for _, err := range []error{e.Kind, e.Cause} {
		if err != nil {
			under = append(under, err)
		}
	}
	return under
}

// JSON is err as one object: "error", its whole text, and of the four parts of the outermost
// Error in it those that are set. What another error says is all "found".
func JSON(err error) ([]byte, error) {
	object := struct {
		Error  string `json:"error"`
		Path   string `json:"path,omitempty"`
		Found  string `json:"found,omitempty"`
		Needed string `json:"needed,omitempty"`
		Fix    string `json:"fix,omitempty"`
	}{Error: err.Error(), Found: err.Error()}
	var e *Error
	if errors.As(err, &e) {
		object.Path, object.Found, object.Needed, object.Fix = e.Path, e.Found, e.Needed, e.Fix
	}
	return json.Marshal(object)
}
