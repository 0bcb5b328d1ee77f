package model

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// Error says what is wrong with a model, in one line: the file, the fault, what
// was found there, what is needed, and what mends it. Only What is always set.
type Error struct {
	Path   string // file as the caller named it; "model bytes" for bytes
	What   string // the fault
	Found  string // what the file holds
	Needed string // what it would have to hold
	Mend   string // what the user can do about it
	Err    error  // cause, when another package reported it
}

// Error joins the parts: "path: what: found X, needed Y; mend".
func (e *Error) Error() string {
	var b strings.Builder
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	b.WriteString(e.What)
	var sides []string
	if e.Found != "" {
		sides = append(sides, "found "+e.Found)
	}
	if e.Needed != "" {
		sides = append(sides, "needed "+e.Needed)
	}
	if len(sides) > 0 {
		b.WriteString(": " + strings.Join(sides, ", "))
	}
	if e.Mend != "" {
		b.WriteString("; " + e.Mend)
	}
	return b.String()
}

// Unwrap gives the cause, so that errors.Is finds fs.ErrNotExist or
// context.Canceled behind an Error.
func (e *Error) Unwrap() error { return e.Err }

// Mends that several faults share.
const (
	mendDamaged = "the file is damaged or incomplete: fetch or export it again"
	mendLimit   = "raise the limit in model.Limits if the model is trusted"
)

// failure makes an Error out of what the operating system said about a file.
func failure(path, doing string, err error) *Error {
	e := &Error{Path: path, What: "cannot " + doing, Err: err}
	var pe *fs.PathError
	var le *os.LinkError
	cause := err
	switch {
	case errors.As(err, &pe):
		cause = pe.Err
	case errors.As(err, &le):
		cause = le.Err
	}
	e.Found = cause.Error()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Mend = "check the path"
	case errors.Is(err, fs.ErrPermission):
		e.Mend = "check the permissions of the file and its folder"
	case errors.Is(err, syscall.EROFS):
		e.Mend = "choose a folder that can be written"
	case errors.Is(err, syscall.ENOSPC):
		e.Mend = "free some space or choose another folder"
	case errors.Is(err, syscall.ELOOP) || strings.HasSuffix(e.Found, "too many links"):
		e.Found, e.Mend = "links that lead in a circle", "point them at the file"
	}
	return e
}

// quote shows a name out of a file: printable, and short however long it is.
func quote(s string) string {
	const longest = 80
	if len(s) > longest {
		return fmt.Sprintf("%q...", s[:longest])
	}
	return fmt.Sprintf("%q", s)
}
