package diagnostic

import (
	"errors"
	"io/fs"
	"os"
)

// Cause drops the operation and the path, which the message has already.
func Cause(err error) string {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err.Error()
	}
	var linkError *os.LinkError
	if errors.As(err, &linkError) {
		return linkError.Err.Error()
	}
	return err.Error()
}
