//go:build !linux

package languages

import (
	"os"
	"runtime"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// Exec fails: there is no libgraft.so for this system.
func Exec(string, []string, []string) error {
	return &diagnostic.Error{Found: "found " + runtime.GOOS, Needed: "Linux, whose dynamic linker preloads " + LibraryName}
}

func privileged(string, *os.File) bool { return false }
