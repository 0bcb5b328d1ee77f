//go:build !linux

package session

import (
	"errors"
	"os"
)

func memoryFile(string) (*os.File, string, error) { return nil, "", errors.ErrUnsupported }

func mapped(*os.File, func([]byte) error) error { return errors.ErrUnsupported }
