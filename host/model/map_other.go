//go:build !unix

package model

import (
	"errors"
	"os"
)

// mapFile reports that this system has no mapping here; the file is read.
func mapFile(*os.File, int) ([]byte, func() error, error) {
	return nil, nil, errors.ErrUnsupported
}

func forget([]byte) error { return nil }
