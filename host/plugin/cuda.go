package plugin

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/opgraft/graft/host/diagnostic"

	"github.com/opgraft/graft/host/cuda"
)

// ErrDevice: a variant for a device that this machine does not have, or whose driver is too old. It is
// also of kind ErrIncompatible. Other variants of the plugin may serve.
var ErrDevice = fmt.Errorf("%w: no device for it", ErrIncompatible)

// machine is what a CUDA library needs to know of where it is to be loaded.
type machine struct {
	version func() (cuda.Version, error) // the newest CUDA that the driver serves; does not start it
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

// requireDevice refuses a library for CUDA, before any of it is loaded, on a machine without a driver that
// runs it. It starts the driver: libraries of the CUDA runtime expect that of whoever loads them, and
// host/cuda gives Go its signal handlers back.
func (m machine) requireDevice(path string, note *Note) error {
	if note == nil || note.Device != "cuda" {
		return nil
	}
	major, err := strconv.Atoi(note.CUDA)
	if err != nil || major < 1 {
		return incompatible(path, fmt.Sprintf("cuda=%q in the ELF note of a CUDA library", clip(note.CUDA)), "the major version of CUDA that it is built for",
			"build the library with the CMake function of abi/, which states it")
	}
	version, err := m.version()
	if err == nil && version.Major() < major {
		return &diagnostic.Error{Kind: ErrDevice, Path: path, Found: "found a driver for CUDA " + version.String(),
			Needed: fmt.Sprintf("one for CUDA %d or newer, as the library's ELF note says", major), Fix: "install a newer NVIDIA driver, or use the plugin's CPU variant"}
	}
	if err == nil {
		_, err = m.devices()
	}
	if err == nil {
		return nil
	}
	refusal := &diagnostic.Error{Kind: ErrDevice, Path: path, Found: "found no driver that runs it: " + err.Error(), Cause: err,
		Needed: fmt.Sprintf("a device and a driver for CUDA %d or newer, as the library's ELF note says", major), Fix: "use the plugin's CPU variant"}
	if e := (*diagnostic.Error)(nil); errors.As(err, &e) {
		refusal.Found = e.Found
		if e.Path != "" {
			refusal.Found += " (" + e.Path + ")"
		}
		if e.Fix != "" {
			refusal.Fix = e.Fix + ", or use the plugin's CPU variant"
		}
	}
	return refusal
}
