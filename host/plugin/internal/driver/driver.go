// Package driver says whether this machine has what a plugin's CUDA library needs.
package driver

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/opgraft/graft/host/base/cuda"
	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// machine is what a CUDA library needs to know of where it is to be loaded.
type machine struct {
	version func() (cuda.Version, error) // the newest CUDA that the driver runs; does not start it
	devices func() (int, error)          // starts the driver
}

// here is this machine. Tests play others.
var here = machine{
	version: cuda.DriverVersion,
	devices: func() (int, error) {
		list, err := cuda.Devices()
		return len(list), err
	},
}

// Require refuses the library at path, before any of it is loaded, on a machine without a driver that runs
// it. built is the major version of CUDA that its note states. It starts the driver: libraries of the CUDA
// runtime expect that of whoever loads them, and host/base/cuda gives Go its signal handlers back.
func Require(path, built string) error {
	major, err := strconv.Atoi(built)
	if err != nil || major < 1 {
		return refusal.Incompatible(path, fmt.Sprintf("cuda=%q in the ELF note of a CUDA library", diagnostic.Clip(built)),
			"the major version of CUDA that it is built for",
			"build the library with the CMake function of abi/, which states it")
	}
	version, err := here.version()
	if err == nil && version.Major() < major {
		return &diagnostic.Error{Kind: refusal.ErrDevice, Path: path, Found: "found a driver for CUDA " + version.String(),
			Needed: fmt.Sprintf("one for CUDA %d or newer, as the library's ELF note says", major),
			Fix:    "install a newer NVIDIA driver, or use the plugin's CPU variant"}
	}
	if err == nil {
		_, err = here.devices()
	}
	if err == nil {
		return nil
	}
	refused := &diagnostic.Error{Kind: refusal.ErrDevice, Path: path,
		Found: "found no driver that runs it: " + err.Error(), Cause: err,
		Needed: fmt.Sprintf("a device and a driver for CUDA %d or newer, as the library's ELF note says", major),
		Fix:    "use the plugin's CPU variant"}
	if e := (*diagnostic.Error)(nil); errors.As(err, &e) {
		refused.Found = e.Found
		if e.Path != "" {
			refused.Found += " (" + e.Path + ")"
		}
		if e.Fix != "" {
			refused.Fix = e.Fix + ", or use the plugin's CPU variant"
		}
	}
	return refused
}
