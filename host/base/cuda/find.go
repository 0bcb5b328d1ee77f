package cuda

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// EnvPath is the environment variable that names the driver's library, for systems that keep it elsewhere.
const EnvPath = "GRAFT_CUDA_DRIVER"

// libraryName is what the driver's library is called on Linux; the plain libcuda.so belongs to the toolkit.
const libraryName = "libcuda.so.1"

// places lists what dlopen is asked for, in order: the path alone when one is given, or the environment's
// alone; else whatever the dynamic linker knows, and folders that some systems do not tell it of.
func places(path string) []string {
	if path == "" {
		path = os.Getenv(EnvPath)
	}
	if path != "" {
		return []string{path}
	}
	list := []string{libraryName}
	triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	for _, dir := range []string{
		"/usr/lib/" + triplet, "/usr/lib64", "/usr/lib",
		"/usr/lib/" + triplet + "/nvidia", // Jetson
		"/usr/lib/wsl/lib",                // Windows' driver, as Linux sees it
		"/usr/local/nvidia/lib64",         // containers on managed Kubernetes
		"/run/opengl-driver/lib",          // NixOS
		"/usr/local/cuda/compat",          // a newer library for an older module
	} {
		list = append(list, filepath.Join(dir, libraryName))
	}
	return list
}

// moduleFile is where the kernel's module of the driver says that it is loaded, and in which release.
var moduleFile = "/proc/driver/nvidia/version"

// moduleRelease is the release of the kernel's module, such as "580.65.06", and empty without one. The
// file's first line is "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 ...".
func moduleRelease() string {
	data, err := os.ReadFile(moduleFile)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	for _, word := range strings.Fields(line) {
		if word[0] >= '0' && word[0] <= '9' && strings.Contains(word, ".") {
			return word
		}
	}
	return "of an unknown release"
}

// Expected reports whether there should be a driver here: the kernel has its module, or GRAFT_CUDA_DRIVER
// names its library. Elsewhere ErrNoDriver is no fault.
func Expected() bool { return os.Getenv(EnvPath) != "" || moduleRelease() != "" }

// notFound is the error of a machine without the library.
func notFound(tried []string, why error) error {
	e := &diagnostic.Error{Kind: ErrNoDriver, Path: tried[0], Cause: why}
	switch release := moduleRelease(); {
	case len(tried) == 1:
		e.Found = "found no such library: " + reason(why, tried[0])
		e.Fix = "name the driver's " + libraryName + " with " + EnvPath + ", or name none"
	case release != "":
		e.Found = "found the kernel's module " + release + " but not this library of it, nor in " +
			strings.Join(folders(tried), ", ")
		e.Fix = "in a container, start that with its GPUs (docker run --gpus all); else install the libraries of NVIDIA's " +
			"driver, or set " + EnvPath
	default:
		e.Found = "found no NVIDIA driver"
		e.Needed = "release " + requiredRelease + " or newer to use a GPU"
		e.Fix = "install it, and in a container start that with its GPUs (docker run --gpus all)"
	}
	return e
}

func folders(paths []string) []string {
	var list []string
	for _, p := range paths {
		if dir := filepath.Dir(p); dir != "." {
			list = append(list, dir)
		}
	}
	return list
}

// reason is the linker's text without the path that the error begins with.
func reason(err error, path string) string {
	return strings.TrimPrefix(err.Error(), path+": ")
}
