//go:build !(linux && (amd64 || arm64))

package cuda

import (
	"errors"
	"runtime"

	"github.com/opgraft/graft/host/base/diagnostic"
)

func load(path string) (handle uintptr, found string, err error) {
	return 0, "", &diagnostic.Error{Kind: ErrNoDriver, Found: "found " + runtime.GOOS + "/" + runtime.GOARCH,
		Needed: "linux/amd64 or linux/arm64 to use CUDA"}
}

func dlsym(uintptr, string) (uintptr, error) { return 0, errors.ErrUnsupported }
