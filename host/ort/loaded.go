package ort

import (
	"errors"
	"slices"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/ort/internal/procmaps"
)

// ErrNotLoaded reports that the process has no ONNX Runtime mapped yet.
var ErrNotLoaded = errors.New("onnxruntime is not loaded in this process")

// rtldNoload makes dlopen answer only for what is mapped already (glibc, musl and bionic agree).
const rtldNoload = 0x4

// Loaded finds every ONNX Runtime that the process has mapped, whoever mapped it. Bindings open
// the library privately (RTLD_LOCAL), so the dynamic linker's global scope does not show it; the
// process's memory map does. The error joins the refusals of those that are too old; it is
// of kind [ErrNotLoaded] when there is none at all.
func Loaded() ([]*Library, error) {
	maps, err := procmaps.Read()
	if err != nil {
		return nil, err
	}
	var found []*Library
	var refused []error
	add := func(path string, handle, getBase uintptr) {
		switch l, err := attach(path, handle, getBase); {
		case err != nil:
			refused = append(refused, err)
			if handle != purego.RTLD_DEFAULT {
				_ = purego.Dlclose(handle)
			}
		case !slices.Contains(found, l):
			found = append(found, l)
		}
	}
	for _, path := range procmaps.Libraries(maps) {
		handle, err := purego.Dlopen(path, purego.RTLD_LAZY|rtldNoload)
		if err != nil {
			continue // mapped as data, not by the dynamic linker
		}
		symbol, err := purego.Dlsym(handle, baseSymbol)
		if err != nil {
			_ = purego.Dlclose(handle)
			continue
		}
		// A library that depends on ONNX Runtime finds the symbol too: ask who owns the address.
		if owner, ok := maps.At(symbol); ok && owner.Path != "" {
			path = owner.Path
		}
		add(path, handle, symbol)
	}
	if symbol, err := purego.Dlsym(purego.RTLD_DEFAULT, baseSymbol); err == nil {
		owner, _ := maps.At(symbol)
		add(owner.Path, purego.RTLD_DEFAULT, symbol) // linked into the executable itself
	}
	if len(found) == 0 && len(refused) == 0 {
		return nil, &diagnostic.Error{Kind: ErrNotLoaded, Found: ErrNotLoaded.Error(),
			Fix: "call this after the runtime's own initialisation (ort.InitializeEnvironment with onnxruntime_go)"}
	}
	return found, errors.Join(refused...)
}
