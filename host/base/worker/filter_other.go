//go:build linux && !amd64 && !arm64

package worker

import (
	"errors"
	"runtime"
)

func filter(bool) error { return errors.New("none is written for " + runtime.GOARCH) }
