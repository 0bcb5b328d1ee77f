//go:build !unix

package model

import (
	"errors"
	"os"
)

// mapFile reports that this system has no mapping here.
func mapFile(*os.File, int) ([]byte, func() error, error) {
	return nil, nil, errors.ErrUnsupported
}
