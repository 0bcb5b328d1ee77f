package model

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// What is wrong with a model, for errors.Is. What the operating system reports stays behind an
// error too: fs.ErrNotExist, fs.ErrPermission, context.Canceled.
var (
	ErrNotModel     = errors.New("not an ONNX model")            // another kind of file, a folder, an empty file
	ErrDamaged      = errors.New("damaged model")                // cut off, changed, or at odds with itself
	ErrExternalData = errors.New("external data not accessible") // a file that is missing, not allowed or unreadable
	ErrLimit        = errors.New("model exceeds a limit")        // of Limits
	ErrTooLarge     = errors.New("model too large")              // for one protobuf message, or for this machine
	ErrInUse        = errors.New("file in use")                  // changed while it was read, or to be overwritten
	ErrMisused      = errors.New("model used wrongly")           // closed, or given tensors of another one
)

// Fixes that several faults share.
const (
	fixDamaged = "the file is damaged or incomplete: fetch or export it again"
	fixLimit   = "raise the limit in model.Limits if the model is trusted"
)

// failure makes an error out of what the operating system said about a file.
func failure(path, doing string, err error) *diagnostic.Error {
	e := &diagnostic.Error{Path: path, Cause: err}
	var pe *fs.PathError
	var le *os.LinkError
	cause := err
	switch {
	case errors.As(err, &pe):
		cause = pe.Err
	case errors.As(err, &le):
		cause = le.Err
	}
	found := cause.Error()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Fix = "check the path"
	case errors.Is(err, fs.ErrPermission):
		e.Fix = "check the permissions of the file and its folder"
	case errors.Is(err, syscall.EROFS):
		e.Fix = "choose a folder that can be written"
	case errors.Is(err, syscall.ENOSPC):
		e.Fix = "free some space or choose another folder"
	case errors.Is(err, syscall.ELOOP) || strings.HasSuffix(found, "too many links"):
		found, e.Fix = "links that lead in a circle", "point them at the file"
	}
	e.Found = "cannot " + doing + ": found " + found
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
