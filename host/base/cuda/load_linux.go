//go:build linux && (amd64 || arm64)

package cuda

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/base/cuda/signals"
)

// load maps the driver's library, which stays mapped: threads of its own run in it.
func load(path string) (handle uintptr, found string, err error) {
	tried := places(path)
	var first error
	for _, place := range tried {
		handle, err := dlopen(place)
		if err == nil {
			return handle, mappedPath(handle, place), nil
		}
		if first == nil {
			first = err
		}
		// A file that is there and does not load is the answer: another one further down would hide it.
		if _, stat := os.Stat(place); filepath.IsAbs(place) && !errors.Is(stat, fs.ErrNotExist) {
			return 0, place, &diagnostic.Error{Kind: ErrDriver, Path: place,
				Found:  "found a library that does not load: " + reason(err, place),
				Needed: fmt.Sprintf("the %s of NVIDIA's driver for %s", libraryName, runtime.GOARCH),
				Fix:    "install the driver again", Cause: err}
		}
	}
	return 0, tried[0], notFound(tried, first)
}

func dlopen(path string) (handle uintptr, err error) {
	// The C library holds the text of an error for the thread that met it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	signals.Preserve(func() { handle, err = purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL) })
	return handle, err
}

func dlsym(handle uintptr, name string) (uintptr, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return purego.Dlsym(handle, name)
}

// mappedPath is the file that a library was mapped from, or the name it was opened by.
func mappedPath(handle uintptr, name string) string {
	address, err := dlsym(handle, "cuInit")
	if err != nil {
		return name
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return name
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		// "7f00-7f10 r-xp offset device inode   /path"
		var low, high uintptr
		line := lines.Text()
		if _, err := fmt.Sscanf(line, "%x-%x", &low, &high); err != nil || address < low || address >= high {
			continue
		}
		if at := strings.IndexByte(line, '/'); at >= 0 {
			return line[at:]
		}
	}
	return name
}
